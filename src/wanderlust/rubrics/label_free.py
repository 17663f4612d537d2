"""Rewards without labels: a reference made from the samples of a group, turned into a reward for each of them.

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
"""Finds the reward of a text as the answer to a task with a seed."""


class ReferenceToReward(Protocol):
    """Turns a reference into a reward for each sample."""

    async def rewards(
        self, reference: Reference, completions: Sequence[str], *, extract: ExtractAnswer
    ) -> Sequence[float]:
        """One reward from 0 to 1 per sample. RubricFailure where some have none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerMatch:
    """1 for samples whose answer is the reference's; for tasks whose answers can be compared."""

    async def rewards(
        self, reference: Reference, completions: Sequence[str], *, extract: ExtractAnswer
    ) -> Sequence[float]:
        """1 or 0 per sample. RubricFailure when the reference holds no answer."""
        if not reference.answer:
            raise RubricFailure("the reference has no answer to compare with")
        return [float(extract(text) == reference.answer) for text in completions]


@dataclass(slots=True, kw_only=True)
class LabelFreeReward:
    """A function of a group for rubrics, `Rubric(LabelFreeReward(estimator=..., to_reward=...))`, without any label.

    Metrics of each sample, by which Compute as Teacher is monitored: `disagrees` (the reference is not the most
    frequent answer), `diversity` (different answers less one, by samples less one: at 0 there is nothing to learn),
    `flat` (all samples have the same reward). With `check`, also `truth` (the environment's reward of the reference)
    and, where the truth of the samples is known, `gain` (that, less their mean); `unchecked` is 1 where it is unknown.
    No metric is part of the reward. A group of one, or one without a reference, is a RubricFailure and never a 0.
    """

    estimator: ReferenceEstimator
    to_reward: ReferenceToReward = field(default_factory=AnswerMatch)
    check: RewardCheck | None = None
    name: str = "label_free"

    async def __call__(
        self, *, task: Task, seed: int, completions: Sequence[str], trajectories: Sequence[Trajectory]
    ) -> list[RewardResult]:
        """Reward each sample of the group."""
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
            scored = [t.score.metrics.get(TRUTH_METRIC) for t in trajectories if t.score is not None]
            measured = [value for value in scored if value is not None]
            truths = measured if len(measured) == len(trajectories) else None
            check = partial(self.check, task, seed)
            try:
                value = await reference_value(check, reference.text, completions=completions, truths=truths)
            except RubricFailure:
                metrics["unchecked"] = 1.0
            else:
                gain = {"gain": value - fsum(truths) / len(truths)} if truths is not None else {}
                metrics |= {TRUTH_METRIC: value, **gain, "unchecked": 0.0}
        return [RewardResult(value=reward, metrics=metrics, note=reference.text) for reward in rewards]


def shown_prompt(task: Task, trajectories: Sequence[Trajectory]) -> Sequence[Message]:
    """The first observation of the samples."""
    turns = trajectories[0].turns
    return turns[0].observation if turns else task.prompt


async def reference_value(
    check: Callable[[str], Awaitable[float]], text: str, *, completions: Sequence[str], truths: Sequence[float] | None
) -> float:
    """Reward of a reference: that of the first sample with the same text, where known, else by `check`."""
    if truths is not None and text in completions:
        return truths[completions.index(text)]
    return await check(text)


def environment_check(env: Environment) -> RewardCheck:
    """Make a check that plays a text as the first and only answer, without a model.

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
    """The rubric of a run without labels: `reward` is trained on, the environment's own reward is a held-out metric.

    That is `truth`, and its parts `truth/NAME`; tasks without a known answer are trained on as well, and have
    `truth/unknown` 1.
    """

    compares = True

    def __init__(self, env: Environment, reward: LabelFreeReward):
        self._own, self._rubric = env.rubric, Rubric(reward)

    async def score(self, rollout: Rollout, trajectory: Trajectory) -> Score:
        """Record the truth; the reward is given when the samples are compared."""
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
        """Reward the samples of the group."""
        return await self._rubric.compare(group, seat)


def answer_extractor(env: Environment) -> ExtractAnswer:
    """The environment's `extract`, a function of a text, or else `extract_answer`."""
    return env.extract or extract_answer
