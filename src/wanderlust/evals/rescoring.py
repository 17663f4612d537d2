"""Judges again what was played before, with another rubric; nothing is played."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import cast

from wanderlust.core.contracts import Comparing, Rubric
from wanderlust.core.errors import RubricFailure, WanderlustError, boundary
from wanderlust.core.types import Group, Rollout, Status

AT_ONCE = 32
"""Rollouts of a group that are judged at once."""


async def rescored(groups: Iterable[Group], rubric: Rubric) -> AsyncIterator[Group]:
    """Every group with new scores, in order.

    Rollouts that failed for another reason than their rubric are left as they are. A judgement that fails makes the
    rollout a failed one that says why. The new rubric sees the old score's parts as what the environment paid.
    """
    for group in groups:
        gate = asyncio.Semaphore(AT_ONCE)
        todo = [r for r in group.rollouts if r.status is not Status.ERROR or r.stop == RubricFailure.__name__]
        await asyncio.gather(*(_alone(rollout, rubric, gate) for rollout in todo))
        fine = [rollout for rollout in todo if rollout.status is not Status.ERROR]
        if getattr(rubric, "compares", False) and fine:
            await _together(replace(group, rollouts=fine), cast(Comparing, rubric))
        yield group


async def _alone(rollout: Rollout, rubric: Rubric, gate: asyncio.Semaphore) -> None:
    async with gate:
        try:
            with boundary(RubricFailure):
                for trajectory in rollout.trajectories:
                    trajectory.score = await rubric.score(rollout, trajectory)
            if rollout.status is Status.ERROR:
                rollout.status, rollout.stop, rollout.error = Status.DONE, "", None
        except WanderlustError as failure:
            _failed(rollout, failure)


async def _together(group: Group, rubric: Comparing) -> None:
    try:
        with boundary(RubricFailure):
            for column in zip(*(rollout.trajectories for rollout in group.rollouts), strict=True):
                for trajectory, score in zip(column, await rubric.compare(group, column[0].seat), strict=True):
                    trajectory.score = score
    except WanderlustError as failure:
        for rollout in group.rollouts:
            _failed(rollout, failure)


def _failed(rollout: Rollout, failure: WanderlustError) -> None:
    rollout.status, rollout.stop, rollout.error = Status.ERROR, RubricFailure.__name__, str(failure)
    for trajectory in rollout.trajectories:
        trajectory.score = None
