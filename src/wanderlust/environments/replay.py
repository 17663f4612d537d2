"""A recorded rollout played again, and held against its record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from wanderlust.core.contracts import Environment, Limits
from wanderlust.core.errors import EnvironmentFailure
from wanderlust.core.text import one_line
from wanderlust.core.types import Rollout, Status, Trajectory
from wanderlust.policies.recorded import Recorded
from wanderlust.rollout.engine import rollout

ASIDE = {"timeout", "PolicyFailure"}
"""Stops that a replay cannot have again: there is neither the clock nor the policy. What was said until then is held
against the record, and the score is not."""


async def replay(env: Environment, recorded: Rollout, *, limits: Limits | None = None) -> Rollout:
    """The rollout, played again with what its policies said, without a model.

    Raises EnvironmentFailure in one line with the first difference: a message, the state, the stop, a score. Give the
    `limits` that it was played under, where they were not the environment's own.
    """
    played = await rollout(env, recorded.task, Recorded(recorded), seed=recorded.seed, limits=limits)
    played.sibling = recorded.sibling
    for difference in differences(recorded, played):
        raise EnvironmentFailure(f"the replay of task {recorded.task.id!r} differs: {difference}")
    return played


def differences(recorded: Rollout, played: Rollout) -> Iterator[str]:
    """Every way in which two rollouts differ, one line each; seconds and the words of an error aside."""
    cut = recorded.stop in ASIDE
    if not cut and (recorded.status, recorded.stop) != (played.status, played.stop):
        told = f": {played.error}" if played.status is Status.ERROR else ""
        yield one_line(f"it ended with {recorded.stop!r} and ends with {played.stop!r}{told}", 500)
    for before, after in zip(recorded.trajectories, played.trajectories, strict=False):
        yield from _trajectory(before, after, scored=not cut)
    if len(recorded.trajectories) != len(played.trajectories):
        yield f"it had {len(recorded.trajectories)} seats and has {len(played.trajectories)}"
    if not cut and _plain(recorded.state) != _plain(played.state):
        yield one_line(f"the state was {recorded.state} and is {played.state}", 500)


def _trajectory(before: Trajectory, after: Trajectory, *, scored: bool) -> Iterator[str]:
    turns = zip(before.turns, after.turns, strict=False)
    for number, (was, now) in enumerate(turns, 1):
        if was != now:
            yield one_line(f"turn {number} of {before.seat!r} was {was} and is {now}", 500)
    if len(before.turns) != len(after.turns):
        yield f"{before.seat!r} had {len(before.turns)} turns and has {len(after.turns)}"
    if scored and before.score != after.score:
        yield one_line(f"the score of {before.seat!r} was {before.score} and is {after.score}", 500)


def _plain(value: Any) -> Any:
    """The value as the run store gives it back."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value))
