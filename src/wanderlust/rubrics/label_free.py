"""Rewards without labels: what a group of siblings is taken to know, turned into a reward for each of them.

The second half of Compute as Teacher (arXiv 2509.14234); the first, the reference, is in `references.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import fsum
from typing import Protocol, TypeAlias

from wanderlust.environment import Environment
from wanderlust.errors import RubricFailure, WanderlustError, boundary
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.references import (
    ExtractAnswer,
    Reference,
    ReferenceEstimator,
    estimate_reference,
    extract_answer,
)
from wanderlust.rubrics.rubric import RewardResult, Rubric
from wanderlust.runner.engine import rollout
from wanderlust.types import Group, Message, Rollout, Score, Status, Task, Trajectory

TRUTH_METRIC = "truth"
"""The metric under which the environment's own reward is recorded while another one is trained on."""
RewardCheck: TypeAlias = Callable[[Task, int, str], Awaitable[float]]
"""What a text would have earned as the answer to a task that is played with a seed."""


class ReferenceToReward(Protocol):
    """Turns a reference into a reward for each sibling."""

    async def rewards(
        self, reference: Reference, completions: Sequence[str], *, extract: ExtractAnswer
    ) -> Sequence[float]:
        """One reward from 0 to 1 per sibling. RubricFailure where there is none for some."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerMatch:
    """1 for siblings whose answer is the reference's; for tasks whose answers can be compared."""

    async def rewards(
        self, reference: Reference, completions: Sequence[str], *, extract: ExtractAnswer
    ) -> Sequence[float]:
        """Whether it is, per sibling. RubricFailure when the reference holds no answer."""
        if not reference.answer:
            raise RubricFailure("the reference has no answer to compare with")
        return [float(extract(text) == reference.answer) for text in completions]


@dataclass(slots=True, kw_only=True)
class LabelFreeReward:
    """A function of a group for rubrics: `Rubric(LabelFreeReward(estimator=..., to_reward=...))` rewards without any label.

    Metrics of each sibling, by which Compute as Teacher is to be watched: `disagrees` (the reference is not what most
    say), `diversity` (different answers less one, by siblings less one: at 0 there is nothing to learn), `flat` (all
    siblings are rewarded alike). With `check`, also `truth` (what the reference would have earned) and, where the
    siblings' own truth is known, `gain` (that, less their mean); `unchecked` is 1 where it cannot be told. None of it
    has a part in the reward. A group of one, or one without a reference, is a RubricFailure and never a 0.
    """

    estimator: ReferenceEstimator
    to_reward: ReferenceToReward = field(default_factory=AnswerMatch)
    check: RewardCheck | None = None
    name: str = "label_free"

    async def __call__(
        self, *, task: Task, seed: int, completions: Sequence[str], trajectories: Sequence[Trajectory]
    ) -> list[RewardResult]:
        """A reward per sibling."""
        reference = await estimate_reference(
            self.estimator, shown_prompt(task, trajectories), completions, trajectories=trajectories
        )
        rewards = await self.to_reward.rewards(reference, completions, extract=self.estimator.extract)
        metrics = {
            "disagrees": float(not reference.agrees),
            "diversity": reference.diversity,
            "flat": float(len(set(rewards)) == 1),
        }
        if self.check is not None:
            truths = _truths(trajectories)
            metrics |= await _check_reference(
                partial(self.check, task, seed), reference, completions=completions, truths=truths
            )
        return [RewardResult(value=reward, metrics=metrics, note=reference.text) for reward in rewards]


def shown_prompt(task: Task, trajectories: Sequence[Trajectory]) -> Sequence[Message]:
    """What the siblings were shown first."""
    turns = trajectories[0].turns
    return turns[0].observation if turns else task.prompt


def _truths(trajectories: Sequence[Trajectory]) -> list[float] | None:
    """What the environment itself pays each sibling; None where that is not known of all."""
    metrics = [t.score.metrics.get(TRUTH_METRIC) for t in trajectories if t.score is not None]
    truths = [value for value in metrics if value is not None]
    return truths if len(truths) == len(trajectories) else None


async def _check_reference(
    check: Callable[[str], Awaitable[float]],
    reference: Reference,
    *,
    completions: Sequence[str],
    truths: Sequence[float] | None,
) -> dict[str, float]:
    """Whether the reference is right, and how much better than its siblings."""
    try:
        value = await reference_value(check, reference.text, completions=completions, truths=truths)
    except RubricFailure:
        return {"unchecked": 1.0}
    gain = {"gain": value - fsum(truths) / len(truths)} if truths is not None else {}
    return {TRUTH_METRIC: value, **gain, "unchecked": 0.0}


async def reference_value(
    check: Callable[[str], Awaitable[float]], text: str, *, completions: Sequence[str], truths: Sequence[float] | None
) -> float:
    """What a reference earns: as much as the first sibling that said it, where that is known, else what is checked."""
    if truths is not None and text in completions:
        return truths[completions.index(text)]
    return await check(text)


def environment_check(env: Environment) -> RewardCheck:
    """What the environment pays for a text, said as the first and only answer; no model has a part in it.

    The check raises RubricFailure where the environment asks for more than one answer, or fails.
    """

    async def check(task: Task, seed: int, text: str) -> float:
        if len(env.seats) > 1:
            raise RubricFailure("the value of a reference is only defined for one seat")
        played = await rollout(env, task, Scripted([text]), seed=seed, limits=replace(env.limits, max_turns=1))
        score = played.trajectories[0].score
        if played.status is Status.DONE and score is not None:
            return score.reward
        why = played.error or "the environment asks for more than one answer"
        raise RubricFailure(f"the value of the reference is unknown: {why}")

    return check


class LabelFreeRubric:
    """The rubric of a run that sees no label: `reward` pays, and what the environment would pay is a hidden metric.

    That is `truth`, and its parts `truth/NAME`; tasks of which it cannot be told, as nobody knows their answer, are
    trained on all the same, and `truth/unknown` is 1.
    """

    compares = True

    def __init__(self, env: Environment, reward: LabelFreeReward):
        self._own, self._rubric = env.rubric, Rubric(reward)

    async def score(self, rollout: Rollout, trajectory: Trajectory) -> Score:
        """The hidden truth; the reward comes when the siblings are compared."""
        try:
            with boundary(RubricFailure):
                score = trajectory.score if self._own is None else await self._own.score(rollout, trajectory)
        except WanderlustError:
            score = None
        if score is None:
            return Score(reward=0.0, metrics={f"{TRUTH_METRIC}/unknown": 1.0})
        parts = {f"{TRUTH_METRIC}/{name}": value for name, value in score.parts.items()}
        metrics = {TRUTH_METRIC: score.reward, **parts, f"{TRUTH_METRIC}/unknown": 0.0}
        return Score(reward=0.0, metrics={**metrics, **score.metrics}, notes=score.notes)

    async def compare(self, group: Group, seat: str) -> Sequence[Score]:
        """The rewards that siblings are label_free by."""
        return await self._rubric.compare(group, seat)


def answer_extractor(env: Environment) -> ExtractAnswer:
    """How answers are read where the environment says so (`extract`, a function of a text), or else `extract_answer`."""
    return env.extract or extract_answer
