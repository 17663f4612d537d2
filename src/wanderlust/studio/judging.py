"""`wander judge`: how far can a judge be trusted, and what is choosing by it worth?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import msgspec
from rich.table import Table

from wanderlust.core.errors import UsageError, WanderlustError
from wanderlust.core.messages import assistant, user
from wanderlust.core.text import one_line
from wanderlust.core.types import Trajectory, Turn
from wanderlust.evals.calibration import Calibration, Verdicts, calibrate
from wanderlust.rubrics.group_judge import GroupJudge
from wanderlust.rubrics.judge import TEMPLATE, Judge
from wanderlust.rubrics.verdicts import VerdictCache
from wanderlust.rubrics.waiting import settled
from wanderlust.studio.arguments import Json, Policies, Positive, opened
from wanderlust.studio.gap import Asks, Choosing, judge_gap
from wanderlust.studio.options import Answers
from wanderlust.studio.output import near, note, result, result_json
from wanderlust.studio.progress import Progress
from wanderlust.studio.resolve import find_judge
from wanderlust.studio.session import stoppable

VERBS = ("calibrate", "gap")
ANSWERS, CHOOSING = Answers(), Choosing()
AT_ONCE = 16
"""Items that are judged at once."""
LONGEST_LINE = 1_000_000
"""Characters of one item."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the file: what was asked and answered, and whether that is right."""

    prompt: str
    completion: str
    label: bool
    answer: str | None = None
    """The reference, where the judge is to see one."""


def judge(
    verb: str,
    what: str,
    /,
    *,
    policy: Policies,
    answers: Answers = ANSWERS,
    choosing: Choosing = CHOOSING,
    template: Path | None = None,
    votes: Positive = 2,
    cache: Path | None = None,
    json: Json = False,
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
    if verb not in VERBS:
        raise UsageError(f"wander judge has no {verb!r}; {near(verb, [*VERBS], kind='verbs')}")
    asked = None if template is None else template.read_text()
    store = None if cache is None else VerdictCache(cache)
    if verb == "gap":
        return judge_gap(what, policy, answers, choosing=choosing, asks=Asks(asked, votes, store), json=json)
    if choosing != CHOOSING:
        raise UsageError("--judge, --samples, --tasks and --side-by-side are for wander judge gap")
    return _calibrate(read_items(Path(what)), policy, answers, asks=Asks(asked, votes, store), json=json)


def _calibrate(known: Sequence[Item], policy: str, answers: Answers, /, *, asks: Asks, json: bool) -> int:
    """Judge the items and report; the exit code."""
    with stoppable(lambda: "stopped; verdicts in a cache are kept") as progress:
        found = find_judge(policy, answers.voice(greedy=False))
        one = Judge(found.policy, asks.template or TEMPLATE, cache=asks.cache, model=found.label)
        pair = GroupJudge(policy=found.policy, votes=2, cache=asks.cache, model=found.label)

        async def whole() -> tuple[list[Verdicts | WanderlustError], list[bool]]:
            async with opened([found.policy]):
                return await _judged(one, known, asks.votes, progress=progress), await _swaps(pair, known)

        judged, swaps = asyncio.run(whole())
    return _tell_errors(found.label, judged, swaps, json=json)


def _tell_errors(label: str, judged: Sequence[Verdicts | WanderlustError], swaps: Sequence[bool], *, json: bool) -> int:
    """Print it; the exit code."""
    errors = [one for one in judged if isinstance(one, WanderlustError)]
    measured = calibrate([one for one in judged if not isinstance(one, WanderlustError)], swaps=swaps)
    if json:
        result_json({"judge": label, "failed": len(errors), **asdict(measured)})
    else:
        _tell(label, measured)
    if errors:
        note(f"{len(errors)} items have no verdict and are in no figure: {one_line(str(errors[0]))}")
    return 1 if errors else 0


async def _judged(
    one: Judge, known: Sequence[Item], votes: int, *, progress: Progress
) -> list[Verdicts | WanderlustError]:
    """The verdicts on all items, some at once."""
    judged: list[Verdicts | WanderlustError] = []
    for start in range(0, len(known), AT_ONCE):
        judged += await settled(_verdicts(one, item, votes) for item in known[start : start + AT_ONCE])
        progress.show("judge", len(judged), of=len(known), figures={})
    return judged


async def _verdicts(one: Judge, item: Item, votes: int) -> Verdicts:
    scores = await one.votes_on(votes, prompt=item.prompt, completion=item.completion, answer=item.answer)
    return Verdicts(label=item.label, scores=tuple(scores), length=len(item.completion))


async def _swaps(pair: GroupJudge, known: Sequence[Item]) -> list[bool]:
    """For every prompt with a right and a wrong answer, whether their order changed with their places."""
    out = []
    for prompt, group in groupby(sorted(known, key=lambda item: item.prompt), key=lambda item: item.prompt):
        both = list(group)
        right, wrong = (next((i for i in both if i.label is label), None) for label in (True, False))
        if right is None or wrong is None or right.completion == wrong.completion:
            continue
        said = [_said(prompt, item.completion) for item in (right, wrong)]
        (verdict,) = await settled([pair(prompt=(user(prompt),), trajectories=said)])
        if not isinstance(verdict, WanderlustError):
            out.append(verdict[0].metrics["flips"] > 0)
    return out


def _said(prompt: str, completion: str) -> Trajectory:
    return Trajectory(seat="agent", turns=[Turn(observation=(user(prompt),), action=assistant(completion))])


def read_items(file: Path) -> list[Item]:
    """The items. Raises UsageError that names the line which is none, or the file that is not there."""
    if not file.is_file():
        raise UsageError(f"{file}: there is no such file")
    out = []
    with file.open(errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                out.append(msgspec.json.decode(line[:LONGEST_LINE], type=Item))
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                raise UsageError(f"{file}, line {number} is no item: {one_line(str(error))}") from error
    if not out:
        raise UsageError(f"{file} has no items: a JSON object per line with prompt, completion and label")
    return out


def _tell(label: str, found: Calibration) -> None:
    table = Table(
        "", "95% interval", title=f"{label} on {found.items} items, {found.positives} right", title_justify="left"
    )
    for name, estimate in (
        ("accuracy", found.accuracy),
        ("true positives", found.true_positives),
        ("false positives", found.false_positives),
        ("kappa", found.kappa),
        ("agrees with itself", found.agreement),
        ("pleased by length (correlation)", found.length),
        ("changes its mind with the places", found.flips),
    ):
        table.add_row(name, "cannot be told from these items" if estimate is None else str(estimate))
    result(table)
    if (worth := found.informative) is not None and worth <= 0:
        result(None, "It accepts wrong answers as often as right ones: training on it makes a policy worse.")
