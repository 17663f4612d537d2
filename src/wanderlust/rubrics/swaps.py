"""Answers of a step given to other tasks: whether what is paid still depends on the question.

A phrase, a length or a constant that is paid is paid there too; what answers the question earns nothing there. So this
tells an exploit from a form or a length that wins, without knowing the truth. Not covered: rewards that never depended
on the question, several turns, tools, several seats, and rewards that compare the rollouts of a task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wanderlust.environment import Environment
from wanderlust.errors import WanderlustError
from wanderlust.rubrics.label_free import environment_score
from wanderlust.rubrics.moments import Change, PairMoments, change_of
from wanderlust.rubrics.rubric import gather_results
from wanderlust.rubrics.step_statistics import Contributions, StepStatistics
from wanderlust.types import Group, Rollout, Task

WHOLE = "reward"
"""Name of the whole reward among the parts of `StepStatistics.swaps`."""
BASELINE_SWAPS = 3
"""First steps in which answers are given to other tasks, that later ones are compared with."""
MAX_SWAPS = 48
"""Answers of a step that are given to other tasks."""
MAX_OWN_SHARE = 0.25
"""Share of its rise that a reward may owe to the question where it is paid without it, and the other way round."""
MIN_ASKED_ERRORS = 2.6
"""Standard errors by which answers must earn more on their own tasks at first, where they are to earn it on others."""


async def swap_answers(
    env: Environment, groups: Sequence[Group], contributions: Contributions
) -> dict[str, PairMoments]:
    """What answers earn on their own tasks, and given to other tasks of the step, by part of the reward.

    At most MAX_SWAPS of them, and only answers of one turn without tools: no more is needed to score them. Empty where
    an episode with another answer cannot be scored.
    """
    score_of, places = environment_score(env), [*_swaps(groups)]
    played = await gather_results(score_of(task, own.seed, text) for own, text, task in places)
    pairs: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for (own, _, _), other in zip(places, played, strict=True):
        score = own.trajectories[0].score
        if isinstance(other, WanderlustError) or score is None:
            continue
        mine, its = ({WHOLE: one.reward, **contributions(one.parts)} for one in (score, other))
        for name in mine.keys() & its.keys():
            pairs.setdefault(name, {}).setdefault(own.task.id, []).append((mine[name], its[name]))
    return {name: PairMoments.of([*by_task.values()]) for name, by_task in sorted(pairs.items())}


def _swaps(groups: Sequence[Group]) -> Iterator[tuple[Rollout, str, Task]]:
    """Rollouts with the text of their answer and another task of the step, which asks something else."""
    each = max(MAX_SWAPS // max(len(groups), 1), 1)
    for place, group in enumerate(groups[:MAX_SWAPS]):
        others = [one.task for one in (*groups[place + 1 :], *groups[:place]) if one.task.prompt != group.task.prompt]
        others = others or [one.task for one in groups if one.task.id != group.task.id]
        for n, rollout in enumerate(group.rollouts[:each]):
            turns = rollout.trajectories[0].turns if rollout.trajectories else []
            if others and len(turns) == 1 and not turns[0].action.tool_calls and rollout.error is None:
                yield rollout, turns[0].action.content, others[n % len(others)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """Answers on their own tasks and as answers to other tasks, in the newest step and in the first ones."""

    own: Change
    """Rise of what they earn on their own tasks."""
    other: Change
    """The same on other tasks."""
    asked: Change
    """What the first ones earned on their own tasks more than on others."""
    newest: PairMoments

    @property
    def is_paid_elsewhere(self) -> bool:
        """Whether answers clearly earn more on other tasks than they did, and nearly all that they do on their own."""
        return self.other.is_clear() and self.other.size >= max((1 - MAX_OWN_SHARE) * self.own.size, 0.0)

    @property
    def is_lost(self) -> bool:
        """Whether answers earned more on their own tasks, and have lost much of that."""
        now = self.newest.x.mean - self.newest.y.mean
        clear = self.asked.size > MIN_ASKED_ERRORS * self.asked.error
        return clear and self.asked.size - now >= MAX_OWN_SHARE * self.asked.size


def compare_swaps(history: Sequence[StepStatistics], part: str) -> Swap | None:
    """None where that was not tried in the newest step, and in BASELINE_SWAPS steps before."""
    tried = [step.swaps[part] for step in history if part in step.swaps]
    if part not in history[-1].swaps or len(tried) <= BASELINE_SWAPS:
        return None
    early, newest = tried[:BASELINE_SWAPS], tried[-1]
    return Swap(
        own=change_of([one.x for one in early], [newest.x]),
        other=change_of([one.y for one in early], [newest.y]),
        asked=change_of([one.y for one in early], [one.x for one in early]),
        newest=newest,
    )


def answers_the_question(history: Sequence[StepStatistics]) -> bool:
    """Whether answers were given to other tasks and hardly earn more there than at first, although they do on their
    own."""
    swap = compare_swaps(history, WHOLE)
    return swap is not None and swap.other.size < MAX_OWN_SHARE * swap.own.size


def task_matters(history: Sequence[StepStatistics]) -> bool:
    """Whether answers were given to other tasks, and a part that depended on the task still does as much."""
    swaps = [swap for part in history[-1].swaps if (swap := compare_swaps(history, part)) is not None]
    return any(one.asked.size > MIN_ASKED_ERRORS * one.asked.error and not one.is_lost for one in swaps)
