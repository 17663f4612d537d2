"""`wander judge`: how far can a judge be trusted, and what is choosing by it worth?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from wanderlust.cli.commands import nested
from wanderlust.cli.judge_gap import DEFAULT_JUDGE_SETTINGS, JudgeSettings, gap_command
from wanderlust.cli.long_commands import stoppable
from wanderlust.cli.options import ANSWER_DEFAULTS, JsonFlag, ModelOptions, PolicyName
from wanderlust.cli.output import print_json, print_note, print_result
from wanderlust.errors import RubricFailure, UsageError, WanderlustError, one_line
from wanderlust.evals.judge_calibration import Calibration, ItemVerdicts, calibrate
from wanderlust.policies.resolve import open_policies, resolve_judge_policy
from wanderlust.rubrics.generated import CRITERION_TEMPLATE
from wanderlust.rubrics.judge import JUDGE_TEMPLATE, GroupJudge, Judge
from wanderlust.rubrics.model_request import JudgeRefusal
from wanderlust.rubrics.rubric import gather_results
from wanderlust.runner.progress import Progress
from wanderlust.runner.terminal import Table
from wanderlust.types import Trajectory, Turn, assistant, user

DEFAULT_THRESHOLD = 0.5
"""Mean score from which on an answer counts as accepted: the middle of the scale."""
MAX_CONCURRENT_VERDICTS = 16
"""Items that are judged at once."""
MAX_LINE_CHARS = 1_000_000
"""Characters of one item."""


class LabeledAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the file: what was asked and answered, and whether that is right."""

    prompt: str
    completion: str
    label: bool
    answer: str | None = None
    """The reference, where the judge is to see one."""
    criterion: str = ""
    """The criterion that the label is about: a checklist's judge is calibrated, and each criterion has its figures."""


judge = nested("judge", "How far can a judge be trusted, and what is choosing by it worth?")
judge.command(gap_command, name="gap")
MinScore = Parameter(validator=Number(gt=0, lte=1), help="Mean score, 0 to 1, from which on an answer is accepted.")


@judge.command(name="calibrate")
def calibrate_command(
    file: Annotated[Path, Parameter(name="ITEMS", help="File with a JSON object per line.")],
    /,
    *,
    policy: PolicyName,
    answer_options: ModelOptions = ANSWER_DEFAULTS,
    judge_settings: JudgeSettings = DEFAULT_JUDGE_SETTINGS,
    threshold: Annotated[float, MinScore] = DEFAULT_THRESHOLD,
    json: JsonFlag = False,
) -> int:
    """Measure a judge's errors on items whose truth is known.

    An item has prompt, completion, label (true or false) and, where the judge sees it, answer. With a criterion in
    every line, the label says whether the completion meets it, and each criterion has its figures. Reported with
    intervals: true and false positives, kappa, agreement with itself, how much length pleases it, and how often it
    changes its mind when a right and a wrong answer change places. The exit code is 1 when items have no verdict.
    """
    items = read_items(file)
    with stoppable(lambda: "stopped; verdicts in a cache are kept") as progress:
        resolved = resolve_judge_policy(policy, answer_options.policy_options(greedy=False))
        cache = judge_settings.response_cache()
        one = (
            judge_settings.single(resolved, cache, CRITERION_TEMPLATE, scale=(0, 1))
            if items[0].criterion
            else judge_settings.single(resolved, cache, JUDGE_TEMPLATE)
        )
        pair = judge_settings.group(resolved, cache, votes=2)

        async def whole() -> tuple[list[ItemVerdicts | WanderlustError], list[bool | WanderlustError]]:
            async with open_policies([resolved.policy]):
                return await _judge_items(one, items, judge_settings.votes, progress=progress), await _order_swaps(
                    pair, items
                )

        judged, pairs = asyncio.run(whole())
    errors = [one for one in judged if isinstance(one, WanderlustError)]
    if errors and len(errors) == len(judged):
        raise RubricFailure(f"none of {len(judged)} items has a verdict{_refused(errors)}: {one_line(str(errors[0]))}")
    verdicts = [one for one in judged if not isinstance(one, WanderlustError)]
    swaps = [one for one in pairs if not isinstance(one, WanderlustError)]
    measured = calibrate(verdicts, pass_threshold=threshold, swaps=swaps)
    criteria = _by_criterion(items, judged, threshold)
    if json:
        failed = {"failed": len(errors), "refused": sum(isinstance(error, JudgeRefusal) for error in errors)}
        failed["pairs_failed"] = len(pairs) - len(swaps)
        each = {"criteria": {name: asdict(found) for name, found in criteria.items()}} if criteria else {}
        print_json({"judge": resolved.label, **failed, **asdict(measured), **each})
    else:
        _print_calibration(resolved.label, measured)
        _print_criteria(criteria)
    if errors:
        first = one_line(str(errors[0]))
        print_note(f"{len(errors)} items have no verdict{_refused(errors)} and are in no figure: {first}")
    if unread := [one for one in pairs if isinstance(one, WanderlustError)]:
        first = one_line(str(unread[0]))
        print_note(f"{len(unread)} of {len(pairs)} pairs that change places have no verdict: {first}")
    return 1 if errors else 0


def _refused(errors: Sequence[WanderlustError]) -> str:
    refused = sum(isinstance(error, JudgeRefusal) for error in errors)
    return f" ({refused} refused)" if refused else ""


async def _judge_items(
    one: Judge, items: Sequence[LabeledAnswer], votes: int, *, progress: Progress
) -> list[ItemVerdicts | WanderlustError]:
    """The verdicts on all items, some at once."""

    async def verdict(item: LabeledAnswer) -> ItemVerdicts:
        fields = {name: getattr(item, name) for name in ("prompt", "completion", "answer", "criterion")}
        scores = await one.votes_on(votes, **fields)
        return ItemVerdicts(label=item.label, scores=tuple(scores), length=len(item.completion))

    judged: list[ItemVerdicts | WanderlustError] = []
    for start in range(0, len(items), MAX_CONCURRENT_VERDICTS):
        judged += await gather_results(verdict(item) for item in items[start : start + MAX_CONCURRENT_VERDICTS])
        progress.log_step("judge", len(judged), of=len(items), metrics={})
    return judged


async def _order_swaps(pair: GroupJudge, items: Sequence[LabeledAnswer]) -> list[bool | WanderlustError]:
    """For every prompt with a right and a wrong answer, whether their order changed with their places."""
    out: list[bool | WanderlustError] = []
    if items[0].criterion:
        return out
    for prompt, group in groupby(sorted(items, key=lambda item: item.prompt), key=lambda item: item.prompt):
        both = list(group)
        right, wrong = (next((i for i in both if i.label is label), None) for label in (True, False))
        if right is None or wrong is None or right.completion == wrong.completion:
            continue
        trajectories = [
            Trajectory(seat="agent", turns=[Turn(observation=(user(prompt),), action=assistant(item.completion))])
            for item in (right, wrong)
        ]
        (verdict,) = await gather_results([pair(prompt=(user(prompt),), trajectories=trajectories)])
        out.append(verdict if isinstance(verdict, WanderlustError) else verdict[0].metrics["order_flips"] > 0)
    return out


def read_items(file: Path) -> list[LabeledAnswer]:
    """The items. Raises UsageError that names the line which is none, or the file that is not there."""
    if not file.is_file():
        raise UsageError(f"{file}: there is no such file")
    out = []
    with file.open(errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                out.append(msgspec.json.decode(line[:MAX_LINE_CHARS], type=LabeledAnswer))
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                raise UsageError(f"{file}, line {number} is no item: {one_line(str(error))}") from error
    if not out:
        raise UsageError(f"{file} has no items: a JSON object per line with prompt, completion and label")
    if len({bool(item.criterion) for item in out}) > 1:
        raise UsageError(f"{file} has items with and without a criterion: give one to each, or to none")
    return out


def _by_criterion(
    items: Sequence[LabeledAnswer], judged: Sequence[ItemVerdicts | WanderlustError], threshold: float
) -> dict[str, Calibration]:
    """The judge's errors on each criterion; empty where the items have none."""
    found: dict[str, list[ItemVerdicts]] = {}
    for item, verdict in zip(items, judged, strict=True):
        if item.criterion and isinstance(verdict, ItemVerdicts):
            found.setdefault(item.criterion, []).append(verdict)
    return {criterion: calibrate(verdicts, pass_threshold=threshold) for criterion, verdicts in found.items()}


def _print_criteria(criteria: Mapping[str, Calibration]) -> None:
    if not criteria:
        return
    table = Table("criterion", "items", "accuracy", "true positives", "false positives", "")
    for criterion, found in criteria.items():
        shares = [f"{one.value:.2f}" if one else "" for one in (found.true_positives, found.false_positives)]
        remark = "says yes to nearly everything" if found.always_yes else ""
        table.add_row(one_line(criterion, 80), str(found.items), f"{found.accuracy.value:.2f}", *shares, remark)
    print_result(table)


def _print_calibration(label: str, calibration: Calibration) -> None:
    table = Table(
        "",
        "95% interval",
        title=f"{label} on {calibration.items} items, {calibration.positives} right",
    )
    for name, estimate in (
        ("accuracy", calibration.accuracy),
        ("true positives", calibration.true_positives),
        ("false positives", calibration.false_positives),
        ("kappa", calibration.kappa),
        ("agrees with itself", calibration.agreement),
        ("pleased by length (correlation)", calibration.length),
        ("changes its mind with the places", calibration.order_flips),
    ):
        table.add_row(name, "cannot be told from these items" if estimate is None else str(estimate))
    print_result(table)
    if calibration.always_yes and calibration.false_positives is not None:
        share = calibration.false_positives.value
        print_result(None, f"It accepts {share:.0%} of the wrong answers: it says yes to nearly everything.")
    if (worth := calibration.informative) is not None and worth <= 0:
        print_result(None, "It accepts wrong answers as often as right ones: training on it makes a policy worse.")
