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

from wanderlust.cli.options import Answers, Json, Policies, Positive, Run, fresh
from wanderlust.cli.output import note, result, result_json
from wanderlust.cli.progress import Progress, stoppable
from wanderlust.errors import UsageError, WanderlustError, near, one_line
from wanderlust.evals.accumulator import Tally
from wanderlust.evals.evaluate import kept, rescored
from wanderlust.evals.judge_calibration import Calibration, Gap, Verdicts, best_of, calibrate
from wanderlust.evals.statistics import compare
from wanderlust.policies.resolve import find_judge, find_policy, opened
from wanderlust.rubrics.judge import TEMPLATE, GroupJudge, Judge
from wanderlust.rubrics.label_free import asked
from wanderlust.rubrics.model_request import VerdictCache
from wanderlust.rubrics.rubric import Judged, settled
from wanderlust.rubrics.rubric import Rubric as Weighted
from wanderlust.runner.engine import rollouts
from wanderlust.store.reader import RunReader
from wanderlust.store.run_folder import STAGE_KEPT, evaluation
from wanderlust.store.store import RunStore
from wanderlust.tasks.registry import find_environment, named
from wanderlust.tasks.selection import choose
from wanderlust.types import Group, Rubric, Status, Task, Trajectory, Turn, assistant, user

BLIND = """How good is this answer? HIGH is entirely right, LOW is wrong or no answer.

<question>
{prompt}
</question>
<answer>
{completion}
</answer>"""
"""What the judge is asked: it sees no reference, as it would have none when it has to choose."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Choosing:
    """Of `wander judge gap` alone."""

    judge: str | None = None
    """Who judges: a URL, a script, a run or checkpoint folder."""
    samples: Annotated[Positive, Parameter(alias="--n")] = 8
    """Rollouts per task, of which the judge chooses one."""
    tasks: Annotated[Positive | None, Parameter(alias="-n")] = None
    """How many tasks of the `eval` split, spread evenly over it. Default: all."""
    side_by_side: bool = False
    """One verdict over all rollouts of a task instead of one for each."""


class Asks(NamedTuple):
    """How the judge is asked."""

    template: str | None
    votes: int
    cache: VerdictCache | None


@dataclass(slots=True)
class Chosen:
    """What the judge and the truth say of each group, and what has no verdict."""

    groups: list[list[tuple[float, float]]] = field(default_factory=list)
    unjudged: int = 0
    unscored: int = 0
    why: Counter[str] = field(default_factory=Counter)

    def add(self, verdicts: list[Judged | WanderlustError], truths: list[float]) -> None:
        """A group's; a failed verdict is never a 0."""
        pairs = []
        for verdict, truth in zip(verdicts, truths, strict=True):
            if isinstance(verdict, WanderlustError):
                self.unjudged += 1
                self.why[one_line(str(verdict))] += 1
            else:
                pairs.append((verdict.value, truth))
        self.groups.append(pairs)


def judge_gap(env: str, policy: str, answers: Answers, /, *, choosing: Choosing, asks: Asks, json: bool) -> int:
    """Play, judge, choose, compare; the exit code is 1 when a rollout or a verdict failed."""
    if choosing.judge is None:
        raise UsageError("wander judge gap ENV needs --policy PLAYER and --judge JUDGE")
    if choosing.samples < 2:
        raise UsageError("there is nothing to choose from a single rollout: take --samples 2 or more")
    found = find_environment(env)
    player = find_policy(policy, found.env, answers.voice(greedy=False))
    judging = find_judge(choosing.judge, answers.voice(greedy=False))
    judge: Judge | GroupJudge = Judge(
        judging.policy, asks.template or BLIND, votes=asks.votes, cache=asks.cache, model=judging.label
    )
    if choosing.side_by_side:
        judge = GroupJudge(policy=judging.policy, votes=asks.votes, cache=asks.cache, model=judging.label)
    tasks = choose(found.env.tasks("eval"), choosing.tasks)
    chosen = Chosen()

    async def whole() -> None:
        playing = rollouts(found.env, tasks, player.policy, group_size=choosing.samples, seed=answers.seed)
        async with opened([player.policy, judging.policy]), playing as stream:
            number = 0
            async for group in stream:
                await _judged(judge, group, chosen)
                number += 1
                progress.show("judge", number, of=len(tasks), figures={})

    with stoppable(lambda: "stopped; verdicts in a cache are kept") as progress:
        asyncio.run(whole())
    _tell(f"{judging.label} on {player.label} in {found.name}", best_of(chosen.groups), chosen, json=json)
    return 1 if chosen.unjudged or chosen.unscored else 0


async def _judged(judge: Judge | GroupJudge, group: Group, chosen: Chosen) -> None:
    """Ask for verdicts on the siblings that are scored."""
    known = [(t, t.score.reward) for r in group.rollouts for t in r.trajectories[:1] if t.score is not None]
    chosen.unscored += len(group.rollouts) - len(known)
    siblings, truths = [t for t, _ in known], [truth for _, truth in known]
    if siblings:
        chosen.add(await _verdicts(judge, group.task, siblings), truths)


async def _verdicts(
    judge: Judge | GroupJudge, task: Task, siblings: list[Trajectory]
) -> list[Judged | WanderlustError]:
    prompt = asked(task, siblings)
    if isinstance(judge, Judge):
        said = [t.turns[-1].action.content if t.turns else "" for t in siblings]
        return await settled(judge(prompt=prompt, completion=text) for text in said)
    if len({_actions(t) for t in siblings}) < 2:
        return [Judged(value=0.5) for _ in siblings]  # nothing to compare: all are equally good to choose
    (together,) = await settled([judge(prompt=prompt, trajectories=siblings)])
    return [together] * len(siblings) if isinstance(together, WanderlustError) else [*together]


def _actions(trajectory: Trajectory) -> str:
    return repr([turn.action for turn in trajectory.turns])


def _tell(title: str, gap: Gap, chosen: Chosen, *, json: bool) -> None:
    if json:
        failed = {"unjudged": chosen.unjudged, "unscored": chosen.unscored}
        result_json({"judge": title, "share": gap.share, **failed, **asdict(gap)})
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
        told = "There is nothing to gain by choosing." if gap.share is None else f"It gains {gap.share:.0%} of that."
        result(table, told)
    if chosen.unscored:
        note(f"{chosen.unscored} rollouts have no reward and are in no figure")
    if chosen.unjudged:
        note(f"{chosen.unjudged} rollouts have no verdict and are in no figure: {chosen.why.most_common(1)[0][0]}")


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
                return await _judged_judging(one, known, asks.votes, progress=progress), await _swaps(pair, known)

        judged, swaps = asyncio.run(whole())
    return _tell_errors(found.label, judged, swaps, json=json)


def _tell_errors(label: str, judged: Sequence[Verdicts | WanderlustError], swaps: Sequence[bool], *, json: bool) -> int:
    """Print it; the exit code."""
    errors = [one for one in judged if isinstance(one, WanderlustError)]
    measured = calibrate([one for one in judged if not isinstance(one, WanderlustError)], swaps=swaps)
    if json:
        result_json({"judge": label, "failed": len(errors), **asdict(measured)})
    else:
        _tell_judging(label, measured)
    if errors:
        note(f"{len(errors)} items have no verdict and are in no figure: {one_line(str(errors[0]))}")
    return 1 if errors else 0


async def _judged_judging(
    one: Judge, known: Sequence[Item], votes: int, *, progress: Progress
) -> list[Verdicts | WanderlustError]:
    """The verdicts on all items, some at once."""
    judged: list[Verdicts | WanderlustError] = []
    for start in range(0, len(known), AT_ONCE):
        judged += await settled(_verdicts_judging(one, item, votes) for item in known[start : start + AT_ONCE])
        progress.show("judge", len(judged), of=len(known), figures={})
    return judged


async def _verdicts_judging(one: Judge, item: Item, votes: int) -> Verdicts:
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


def _tell_judging(label: str, found: Calibration) -> None:
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


def rescore(run: Run, /, *, rubric: str, out: Path | None = None, json: Json = False) -> int:
    """Judge an evaluation's rollouts again with another rubric, without playing anything.

    The run itself is not changed. The exit code is 1 when a judgement failed.

    Parameters
    ----------
    rubric:
        A rubric, or a reward function, at package.module:Name or file.py:Name.
    out:
        New folder for the rollouts with their new scores, an evaluation like any other.
    """
    store, settings = evaluation(run)
    judge = find_rubric(rubric)
    fresh(out)
    before: dict[str, list[float]] = {}
    after: dict[str, list[float]] = {}
    tally = Tally()

    async def whole(reader: RunReader) -> None:
        with kept(out, {**settings, "rubric": rubric}) as folder:
            async for group in rescored(_noted(reader, before), judge):
                tally.add([group])
                _note(group, after)
                if folder is not None:
                    folder.store.add([group], stage=STAGE_KEPT, step=0, env=str(settings.get("env", "")))
            if folder is not None:
                folder.end(tally.report(0.0))

    with stoppable(lambda: "stopped; the run is as it was"), RunStore.read(store) as reader:
        asyncio.run(whole(reader))
    report = tally.report(0.0)
    failed = report.played - report.scored
    found = compare(before, after) if before and after else None
    if json:
        body = {"run": str(run), "rubric": rubric, "out": None if out is None else str(out), "failed": failed}
        result_json({**body, "report": report.as_dict(), "comparison": None if found is None else asdict(found)})
        return 1 if failed else 0
    table = Table("", "reward", "rollouts")
    if found is not None:
        for name, estimate in (("before", found.first), ("now", found.second), ("difference", found.difference)):
            table.add_row(name, str(estimate), "" if name == "difference" else str(estimate.count))
    result(table, *([f"{out} holds them with their new scores"] if out is not None else []))
    for name, errors in report.errors.items():
        note(f"{errors.count} rollouts have no score: {name}: {errors.first}")
    return 1 if failed else 0


def find_rubric(target: str) -> Rubric:
    """A rubric, one that is made by calling it without arguments, or a reward function as a rubric of its own."""
    found = named(target)
    if hasattr(found, "score"):
        made: Rubric = found() if isinstance(found, type) else found
        return made
    if callable(found):
        return Weighted(found)
    raise UsageError(f"{target} is neither a rubric nor a reward function")


def _noted(reader: RunReader, rewards: dict[str, list[float]]) -> Iterator[Group]:
    """The run's groups; their rewards are noted before anything changes them."""
    for group in reader.each_group(STAGE_KEPT, 0):
        _note(group, rewards)
        yield group


def _note(group: Group, rewards: dict[str, list[float]]) -> None:
    for rollout in group.rollouts:
        score = rollout.trajectories[0].score if rollout.trajectories else None
        if score is not None and rollout.status is not Status.ERROR:
            rewards.setdefault(rollout.task.id, []).append(score.reward)
