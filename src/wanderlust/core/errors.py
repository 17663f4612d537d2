"""A failed rollout is data: every failure is attributed to the wall it crossed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class WanderlustError(Exception):
    """Base of everything this library raises on purpose."""

    transient: bool = False
    """True when the same call may well succeed if tried again (a lost connection, a busy server)."""


class UsageError(WanderlustError):
    """The caller asked for something that cannot be: one line says what is wrong, where, and what to do."""


class StoreError(WanderlustError):
    """A run store or checkpoint is missing, foreign, corrupt or held by another writer."""


class NotPlain(StoreError):
    """A rollout holds something that is not plain data, and so cannot be stored."""


class Stop(WanderlustError):
    """Ends an episode early and on purpose (a limit, a forfeit); not a failure."""


class Failure(WanderlustError):
    """Base of the failures that a rollout records; the class names the wall."""

    def __init__(self, message: str = "", *, transient: bool = False):
        super().__init__(message)
        self.transient = transient


class PolicyFailure(Failure):
    """The model, its endpoint or its answer's shape failed."""


class EnvironmentFailure(Failure):
    """The environment's own code raised."""


class ToolFailure(Failure):
    """The machinery behind a tool failed (a tool's own error is text for the model, not this)."""


class RubricFailure(Failure):
    """A reward function or a judge raised."""


class SandboxFailure(Failure):
    """The sandbox could not be started or died."""


class WorkerFailure(Failure):
    """The worker that played was lost, again and again, or nobody is left to play."""


@contextmanager
def boundary(failure: type[Failure]) -> Iterator[None]:
    """Guarantees that only `WanderlustError` leaves the block: anything else is attributed to `failure`.

    Cancellation and interpreter exits pass through, being no `Exception`.
    """
    try:
        yield
    except WanderlustError:
        raise
    except Exception as error:
        raise failure(f"{type(error).__name__}: {error}") from error
