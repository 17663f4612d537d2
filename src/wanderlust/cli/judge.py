"""`wander judge gap`: what is choosing among rollouts by a judge worth?

`wander judge`: how far can a judge be trusted, and what is choosing by it worth?

`wander rescore`: what would another rubric have said?
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from cyclopts import Parameter
from rich.table import Table

from wanderlust.cli.options import AnswerOptions, JsonFlag, PolicyName, PositiveInt, RunPath, refuse_existing
from wanderlust.cli.output import print_json, print_note, print_result
from wanderlust.cli.progress import stoppable
from wanderlust.errors import RubricFailure, UsageError, WanderlustError, nearest_names, one_line
from wanderlust.evals.accumulator import ReportAccumulator
from wanderlust.evals.evaluation import rescore_groups
from wanderlust.evals.evaluation_folder import open_evaluation_folder
from wanderlust.evals.judge_calibration import Calibration, ItemVerdicts, JudgeGap, best_of, calibrate
from wanderlust.evals.statistics import compare_rewards
from wanderlust.policies.resolve import open_policies, resolve_judge_policy, resolve_policy
from wanderlust.rubrics.judge import JUDGE_TEMPLATE, GroupJudge, Judge
from wanderlust.rubrics.label_free import shown_prompt
from wanderlust.rubrics.model_request import JudgeResponseCache
from wanderlust.rubrics.rubric import RewardResult, gather_results
from wanderlust.rubrics.rubric import Rubric as Weighted
from wanderlust.runner.engine import rollouts
from wanderlust.runner.progress import Progress
from wanderlust.store.reader import RunReader
from wanderlust.store.run_folder import EVALUATION_STAGE, find_evaluation
from wanderlust.store.store import RunStore
from wanderlust.tasks.registry import resolve_environment, resolve_object
from wanderlust.tasks.selection import choose_tasks, iter_tasks
from wanderlust.types import Group, RubricLike, Status, Task, Trajectory, Turn, assistant, user

REFERENCE_FREE_TEMPLATE = """How good is this answer? HIGH is entirely right, LOW is wrong or no answer.

<question>
{prompt}
</question>
<answer>
{completion}
</answer>"""
"""Template of the judge's prompt; without a reference, as there is none when it chooses among rollouts."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeGapOptions:
    """Of `wander judge gap` alone."""

    judge: str | None = None
    """The judge: a URL, a script, a run or checkpoint folder."""
    samples: Annotated[PositiveInt, Parameter(alias="--n")] = 8
    """Rollouts per task, of which the judge chooses one."""
    num_tasks: Annotated[PositiveInt | None, Parameter(alias="-n")] = None
    """How many tasks of the `eval` split, spread evenly over it. Default: all."""
    side_by_side: bool = False
    """One verdict over all rollouts of a task instead of one for each."""


class JudgeSettings(NamedTuple):
    """Template, votes and cache of the judge."""

    template: str | None
    votes: int
    cache: JudgeResponseCache | None


@dataclass(slots=True)
class GapSample:
    """Verdicts and true rewards of each group, and counts of what has none."""

    groups: list[list[tuple[float, float]]] = field(default_factory=list)
    without_verdict: int = 0
    unscored: int = 0
    failure_reasons: Counter[str] = field(default_factory=Counter)

    def add(self, verdicts: list[RewardResult | WanderlustError], truths: list[float]) -> None:
        """A group's; a failed verdict is never a 0."""
        pairs = []
        for verdict, truth in zip(verdicts, truths, strict=True):
            if isinstance(verdict, WanderlustError):
                self.without_verdict += 1
                self.failure_reasons[one_line(str(verdict))] += 1
            else:
                pairs.append((verdict.value, truth))
        self.groups.append(pairs)


def run_judge_gap(
    env: str,
    policy: str,
    answer_options: AnswerOptions,
    /,
    *,
    gap_options: JudgeGapOptions,
    judge_settings: JudgeSettings,
    json: bool,
) -> int:
    """Play, judge, choose, compare; the exit code is 1 when a rollout or a verdict failed."""
    if gap_options.judge is None:
        raise UsageError("wander judge gap ENV needs --policy PLAYER and --judge JUDGE")
    if gap_options.samples < 2:
        raise UsageError("there is nothing to choose from a single rollout: take --samples 2 or more")
    resolved = resolve_environment(env)
    player = resolve_policy(policy, resolved.env, answer_options.policy_options(greedy=False))
    judging = resolve_judge_policy(gap_options.judge, answer_options.policy_options(greedy=False))
    judge: Judge | GroupJudge = Judge(
        judging.policy,
        judge_settings.template or REFERENCE_FREE_TEMPLATE,
        votes=judge_settings.votes,
        cache=judge_settings.cache,
        model=judging.label,
    )
    if gap_options.side_by_side:
        judge = GroupJudge(
            policy=judging.policy, votes=judge_settings.votes, cache=judge_settings.cache, model=judging.label
        )
    tasks = choose_tasks(iter_tasks(resolved.env, "eval"), gap_options.num_tasks)
    chosen = GapSample()

    async def whole() -> None:
        playing = rollouts(resolved.env, tasks, player.policy, group_size=gap_options.samples, seed=answer_options.seed)
        async with open_policies([player.policy, judging.policy]), playing as stream:
            number = 0
            async for group in stream:
                rewarded = [
                    (t, t.score.reward) for r in group.rollouts for t in r.trajectories[:1] if t.score is not None
                ]
                chosen.unscored += len(group.rollouts) - len(rewarded)
                siblings, truths = [t for t, _ in rewarded], [truth for _, truth in rewarded]
                if siblings:
                    chosen.add(await _group_verdicts(judge, group.task, siblings), truths)
                number += 1
                progress.log_step("judge", number, of=len(tasks), metrics={})

    with stoppable(lambda: "stopped; verdicts in a cache are kept") as progress:
        asyncio.run(whole())
    if not any(chosen.groups):
        reasons = chosen.failure_reasons.most_common(1)
        raise RubricFailure(f"no rollout has a verdict: {reasons[0][0] if reasons else 'none has a reward'}")
    _print_gap(f"{judging.label} on {player.label} in {resolved.name}", best_of(chosen.groups), chosen, json=json)
    return 1 if chosen.without_verdict or chosen.unscored else 0


async def _group_verdicts(
    judge: Judge | GroupJudge, task: Task, siblings: list[Trajectory]
) -> list[RewardResult | WanderlustError]:
    prompt = shown_prompt(task, siblings)
    if isinstance(judge, Judge):
        answers = [t.turns[-1].action.content if t.turns else "" for t in siblings]
        return await gather_results(judge(prompt=prompt, completion=text) for text in answers)
    if len({repr([turn.action for turn in t.turns]) for t in siblings}) < 2:
        return [RewardResult(value=0.5) for _ in siblings]  # nothing to compare: all are equally good to choose
    (together,) = await gather_results([judge(prompt=prompt, trajectories=siblings)])
    return [together] * len(siblings) if isinstance(together, WanderlustError) else [*together]


def _print_gap(title: str, gap: JudgeGap, sample: GapSample, *, json: bool) -> None:
    if json:
        failed = {"without_verdict": sample.without_verdict, "unscored": sample.unscored}
        print_json({"judge": title, "share": gap.share, **failed, **asdict(gap)})
    else:
        table = Table("truth of", "95% interval", title=f"{title}, {gap.groups} tasks", title_justify="left")
        for name, estimate in (
            ("the rollout that the judge likes best", gap.chosen),
            ("the best rollout", gap.ideal),
            ("the mean rollout", gap.mean),
            ("gained by the judge, paired by task", gap.gained),
            ("that could be gained", gap.possible),
        ):
            table.add_row(name, str(estimate))
        summary = "There is nothing to gain by choosing." if gap.share is None else f"It gains {gap.share:.0%} of that."
        print_result(table, summary)
    if sample.unscored:
        print_note(f"{sample.unscored} rollouts have no reward and are in no figure")
    if sample.without_verdict:
        ((reason, _),) = sample.failure_reasons.most_common(1)
        print_note(f"{sample.without_verdict} rollouts have no verdict and are in no figure: {reason}")


JUDGE_VERBS = ("calibrate", "gap")
DEFAULT_JUDGE_OPTIONS, DEFAULT_GAP_OPTIONS = AnswerOptions(), JudgeGapOptions()
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


def judge_command(
    verb: str,
    what: str,
    /,
    *,
    policy: PolicyName,
    answer_options: AnswerOptions = DEFAULT_JUDGE_OPTIONS,
    gap_options: JudgeGapOptions = DEFAULT_GAP_OPTIONS,
    template: Path | None = None,
    votes: PositiveInt = 2,
    cache: Path | None = None,
    json: JsonFlag = False,
) -> int:
    """How far can a judge be trusted? `wander judge calibrate ITEMS --policy JUDGE`: its errors on items whose truth
    is known. `wander judge gap ENV --policy PLAYER --judge JUDGE`: what choosing among rollouts by it is worth.

    ITEMS has a JSON object per line: prompt, completion, label (true or false) and, where the judge sees it, answer.
    Reported with intervals: true and false positives, kappa, agreement with itself, how much length pleases it, and
    how often it changes its mind when a right and a wrong answer change places.

    The gap compares the rollout that the judge likes best with the best one and the mean one, by the environment's own
    reward, which the judge is not shown.

    Parameters
    ----------
    verb:
        calibrate or gap.
    what:
        The file of items; for gap, the environment.
    template:
        A file with what the judge is asked, with {prompt}, {answer} and {completion} in it. Default: our own.
    votes:
        How often each answer is judged; two or more say whether the judge agrees with itself.
    cache:
        A file that keeps verdicts between runs.
    """
    if verb not in JUDGE_VERBS:
        raise UsageError(f"wander judge has no {verb!r}; {nearest_names(verb, [*JUDGE_VERBS], kind='verbs')}")
    template_text = None if template is None else template.read_text()
    store = None if cache is None else JudgeResponseCache(cache)
    if verb == "gap":
        return run_judge_gap(
            what,
            policy,
            answer_options,
            gap_options=gap_options,
            judge_settings=JudgeSettings(template_text, votes, store),
            json=json,
        )
    if gap_options != DEFAULT_GAP_OPTIONS:
        raise UsageError("--judge, --samples, --num-tasks and --side-by-side are for wander judge gap")
    return _calibrate(
        read_items(Path(what)),
        policy,
        answer_options,
        judge_settings=JudgeSettings(template_text, votes, store),
        json=json,
    )


def _calibrate(
    items: Sequence[LabeledAnswer],
    policy: str,
    answer_options: AnswerOptions,
    /,
    *,
    judge_settings: JudgeSettings,
    json: bool,
) -> int:
    """Judge the items and report; the exit code."""
    with stoppable(lambda: "stopped; verdicts in a cache are kept") as progress:
        resolved = resolve_judge_policy(policy, answer_options.policy_options(greedy=False))
        one = Judge(
            resolved.policy, judge_settings.template or JUDGE_TEMPLATE, cache=judge_settings.cache, model=resolved.label
        )
        pair = GroupJudge(policy=resolved.policy, votes=2, cache=judge_settings.cache, model=resolved.label)

        async def whole() -> tuple[list[ItemVerdicts | WanderlustError], list[bool]]:
            async with open_policies([resolved.policy]):
                return await _judge_items(one, items, judge_settings.votes, progress=progress), await _order_swaps(
                    pair, items
                )

        judged, swaps = asyncio.run(whole())
    errors = [one for one in judged if isinstance(one, WanderlustError)]
    if errors and len(errors) == len(judged):
        raise RubricFailure(f"none of {len(judged)} items has a verdict: {one_line(str(errors[0]))}")
    measured = calibrate([one for one in judged if not isinstance(one, WanderlustError)], swaps=swaps)
    if json:
        print_json({"judge": resolved.label, "failed": len(errors), **asdict(measured)})
    else:
        _print_calibration(resolved.label, measured)
    if errors:
        print_note(f"{len(errors)} items have no verdict and are in no figure: {one_line(str(errors[0]))}")
    return 1 if errors else 0


async def _judge_items(
    one: Judge, items: Sequence[LabeledAnswer], votes: int, *, progress: Progress
) -> list[ItemVerdicts | WanderlustError]:
    """The verdicts on all items, some at once."""
    judged: list[ItemVerdicts | WanderlustError] = []
    for start in range(0, len(items), MAX_CONCURRENT_VERDICTS):
        judged += await gather_results(
            _item_verdicts(one, item, votes) for item in items[start : start + MAX_CONCURRENT_VERDICTS]
        )
        progress.log_step("judge", len(judged), of=len(items), metrics={})
    return judged


async def _item_verdicts(one: Judge, item: LabeledAnswer, votes: int) -> ItemVerdicts:
    scores = await one.votes_on(votes, prompt=item.prompt, completion=item.completion, answer=item.answer)
    return ItemVerdicts(label=item.label, scores=tuple(scores), length=len(item.completion))


async def _order_swaps(pair: GroupJudge, items: Sequence[LabeledAnswer]) -> list[bool]:
    """For every prompt with a right and a wrong answer, whether their order changed with their places."""
    out = []
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
        if not isinstance(verdict, WanderlustError):
            out.append(verdict[0].metrics["order_flips"] > 0)
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
    return out


def _print_calibration(label: str, calibration: Calibration) -> None:
    table = Table(
        "",
        "95% interval",
        title=f"{label} on {calibration.items} items, {calibration.positives} right",
        title_justify="left",
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
    if (worth := calibration.informative) is not None and worth <= 0:
        print_result(None, "It accepts wrong answers as often as right ones: training on it makes a policy worse.")


def rescore_command(run: RunPath, /, *, rubric: str, out: Path | None = None, json: JsonFlag = False) -> int:
    """Judge an evaluation's rollouts again with another rubric, without playing anything.

    The run itself is not changed. The exit code is 1 when a judgement failed.

    Parameters
    ----------
    rubric:
        A rubric, or a reward function, at package.module:Name or file.py:Name.
    out:
        New folder for the rollouts with their new scores, an evaluation like any other.
    """
    store, settings = find_evaluation(run)
    judge = resolve_rubric(rubric)
    refuse_existing(out)
    before: dict[str, list[float]] = {}
    after: dict[str, list[float]] = {}
    tally = ReportAccumulator()

    async def whole(reader: RunReader) -> None:
        with open_evaluation_folder(out, {**settings, "rubric": rubric}) as folder:
            async for group in rescore_groups(_with_rewards_noted(reader, before), judge):
                tally.add([group])
                _note(group, after)
                if folder is not None:
                    folder.store.add([group], stage=EVALUATION_STAGE, step=0, env=str(settings.get("env", "")))
            if folder is not None:
                folder.write_report(tally.report(0.0))

    with stoppable(lambda: "stopped; the run is as it was"), RunStore.read(store) as reader:
        asyncio.run(whole(reader))
    report = tally.report(0.0)
    failed = report.played - report.scored
    comparison = compare_rewards(before, after) if before and after else None
    if json:
        body = {"run": str(run), "rubric": rubric, "out": None if out is None else str(out), "failed": failed}
        print_json(
            {**body, "report": report.as_dict(), "comparison": None if comparison is None else asdict(comparison)}
        )
        return 1 if failed else 0
    table = Table("", "reward", "rollouts")
    if comparison is not None:
        for name, estimate in (
            ("before", comparison.first),
            ("now", comparison.second),
            ("difference", comparison.difference),
        ):
            table.add_row(name, str(estimate), "" if name == "difference" else str(estimate.count))
    print_result(table, *([f"{out} holds them with their new scores"] if out is not None else []))
    for name, errors in report.errors.items():
        print_note(f"{errors.count} rollouts have no score: {name}: {errors.first}")
    return 1 if failed else 0


def resolve_rubric(target: str) -> RubricLike:
    """A rubric, one that is made by calling it without arguments, or a reward function as a rubric of its own."""
    target_object = resolve_object(target)
    if hasattr(target_object, "score"):
        made: RubricLike = target_object() if isinstance(target_object, type) else target_object
        return made
    if callable(target_object):
        return Weighted(target_object)
    raise UsageError(f"{target} is neither a rubric nor a reward function")


def _with_rewards_noted(reader: RunReader, rewards: dict[str, list[float]]) -> Iterator[Group]:
    """The run's groups; their rewards are noted before anything changes them."""
    for group in reader.iter_groups(EVALUATION_STAGE, 0):
        _note(group, rewards)
        yield group


def _note(group: Group, rewards: dict[str, list[float]]) -> None:
    for rollout in group.rollouts:
        score = rollout.trajectories[0].score if rollout.trajectories else None
        if score is not None and rollout.status is not Status.ERROR:
            rewards.setdefault(rollout.task.id, []).append(score.reward)
