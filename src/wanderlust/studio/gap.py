"""`wander judge gap`: what is choosing among rollouts by a judge worth?"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Annotated, NamedTuple

from cyclopts import Parameter
from rich.table import Table

from wanderlust.core.errors import UsageError, WanderlustError
from wanderlust.core.text import one_line
from wanderlust.core.types import Group, Task, Trajectory
from wanderlust.evals.calibration import Gap, best_of
from wanderlust.evals.split import choose
from wanderlust.rollout.engine import rollouts
from wanderlust.rubrics.group_judge import GroupJudge
from wanderlust.rubrics.judge import Judge
from wanderlust.rubrics.part import Judged
from wanderlust.rubrics.taught import asked
from wanderlust.rubrics.verdicts import VerdictCache
from wanderlust.rubrics.waiting import settled
from wanderlust.studio.arguments import Positive, opened
from wanderlust.studio.options import Answers
from wanderlust.studio.output import note, result, result_json
from wanderlust.studio.resolve import find_environment, find_judge, find_policy
from wanderlust.studio.session import stoppable

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
