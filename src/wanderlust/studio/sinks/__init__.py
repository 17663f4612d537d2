"""Other places where a run's figures are wanted, besides its own store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from wanderlust.core.errors import UsageError
from wanderlust.core.extras import load
from wanderlust.recipes.watch import Telling, Watch

SINKS = {
    "mlflow": "wanderlust.studio.sinks.mlflow:MLflow",
    "tensorboard": "wanderlust.studio.sinks.tensorboard:TensorBoard",
    "trackio": "wanderlust.studio.sinks.trackio:Trackio",
    "wandb": "wanderlust.studio.sinks.wandb:WandB",
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
