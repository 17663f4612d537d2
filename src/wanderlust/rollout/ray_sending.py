"""What travels between this process and the workers of a crew: what is to be played there, and what was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ray import cloudpickle

from wanderlust.core.errors import EnvironmentFailure, Failure, UsageError, boundary
from wanderlust.core.text import one_line
from wanderlust.core.types import Rollout, Status, Task
from wanderlust.rollout.engine import Job, Play, unscore

NOTHING = Task(id="")
"""Instead of the task, which whoever asked for the rollout has."""


class Remade:
    """Stands for `make(*arguments, **settings)`, which is made in every worker, once, when it is to play.

    For policies, environments and rubrics that cannot be sent: they hold a connection, a model, a lock. Played in this
    process it is made here, when something of it is asked for first.
    """

    def __init__(self, make: Callable[..., Any], *arguments: Any, **settings: Any):
        self._made: list[Any] = []
        self._make, self._arguments, self._settings = make, arguments, settings

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (self._make, self._arguments, self._settings)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not self._made:
            self._made.append(_remade(self._make, self._arguments, self._settings))
        return getattr(self._made[0], name)


def _remade(make: Callable[..., Any], arguments: tuple[Any, ...], settings: dict[str, Any]) -> Any:
    return make(*arguments, **settings)


def send_play(play: Play) -> bytes:
    """What the workers need. Raises UsageError of one line when something of it cannot be sent."""
    try:
        with boundary(EnvironmentFailure):
            return bytes(cloudpickle.dumps(replace(play, active=set())))
    except EnvironmentFailure as failure:
        raise UsageError(
            f"the environment, the policy or the rubric cannot be sent to workers ({one_line(str(failure))}): "
            "hand over Remade(make, ...), which is made there"
        ) from failure


def receive_play(sent: bytes) -> Play:
    """Made again, in a worker. Raises EnvironmentFailure with the reason when this machine cannot."""
    with boundary(EnvironmentFailure):
        play: Play = cloudpickle.loads(sent)
    return play


def send_rollout(played: Rollout) -> bytes:
    """The record without its task. What cannot be sent is left out, and the rollout has failed."""
    bare = replace(played, task=NOTHING)
    try:
        with boundary(EnvironmentFailure):
            return bytes(cloudpickle.dumps(bare))
    except EnvironmentFailure as failure:
        bare.state = {}
        unscore(bare, EnvironmentFailure(f"what the episode left cannot be sent: {one_line(str(failure))}"))
        return bytes(cloudpickle.dumps(bare))


def receive_rollout(sent: bytes, job: Job) -> Rollout:
    """The record that a worker made of the job."""
    played: Rollout = cloudpickle.loads(sent)
    played.task = job.task
    return played


def unplayed(job: Job, failure: Failure) -> Rollout:
    """The record of an episode that never came to its end anywhere."""
    return Rollout(
        task=job.task,
        seed=job.seed,
        sibling=job.sibling,
        status=Status.ERROR,
        stop=type(failure).__name__,
        error=str(failure),
        transient=failure.transient,
    )
