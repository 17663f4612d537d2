"""Whoever looks on while a run goes on.

Other places where a run's figures are wanted, besides its own store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from wanderlust._lazy import load
from wanderlust.errors import UsageError


class Watch(Protocol):
    """Whoever shows progress."""

    def show(self, stage: str, step: int, *, of: int, figures: Mapping[str, float]) -> None:
        """`step` of the steps `of` a stage are done; `figures` are the newest ones, by name."""
        ...


class Silent:
    """Shows nothing."""

    def show(self, stage: str, step: int, *, of: int, figures: Mapping[str, float]) -> None:
        """Nothing."""


@runtime_checkable
class Telling(Protocol):
    """A watch that can say a line, too."""

    def tell(self, line: str) -> None:
        """Say something that stays to be read."""
        ...


SINKS = {
    "mlflow": "wanderlust.training.loggers.mlflow:MLflow",
    "tensorboard": "wanderlust.training.loggers.tensorboard:TensorBoard",
    "trackio": "wanderlust.training.loggers.trackio:Trackio",
    "wandb": "wanderlust.training.loggers.wandb:WandB",
}
"""By name; the name is that of the extra as well. Each is made from the run's folder and its settings."""


class Sink(Watch, Protocol):
    """Where figures go; the name of a figure is `stage/name`, its step counts finished steps of the stage.

    A resumed run shows the few steps after its last saved state again.
    """

    def close(self) -> None:
        """Write what is left."""
        ...


class Together:
    """Several watches as one."""

    def __init__(self, watches: Sequence[Watch]):
        self.watches = watches

    def show(self, stage: str, step: int, *, of: int, figures: Mapping[str, float]) -> None:
        """To all, in order."""
        for watch in self.watches:
            watch.show(stage, step, of=of, figures=figures)

    def tell(self, line: str) -> None:
        """To those that can."""
        for watch in self.watches:
            if isinstance(watch, Telling):
                watch.tell(line)


def known(names: Sequence[str]) -> None:
    """Raises UsageError for a name that is none of `SINKS`, or whose extra is not installed."""
    for name in names:
        if name not in SINKS:
            raise UsageError(f"figures cannot be sent to {name!r}; there are {', '.join(SINKS)}")
        load(SINKS[name], extra=name)


@contextmanager
def sent(names: Sequence[str], folder: Path, config: Mapping[str, Any], *, watch: Watch) -> Iterator[Watch]:
    """`watch` and the sinks of these names as one; the sinks are closed in the end."""
    with ExitStack() as end:
        sinks: list[Watch] = [watch]
        for name in dict.fromkeys(names):
            make: Callable[[Path, Mapping[str, Any]], Sink] = load(SINKS[name], extra=name)
            sink = make(folder, config)
            end.callback(sink.close)
            sinks.append(sink)
        yield Together(sinks)
