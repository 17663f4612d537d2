"""Loggers of other programs, beside a run's own store: MLflow, TensorBoard, Trackio, Weights & Biases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from wanderlust._lazy import needs_extra
from wanderlust.errors import UsageError
from wanderlust.runner.progress import Logger, ProgressLogger

LOGGERS = ("mlflow", "tensorboard", "trackio", "wandb")
"""Names, which are those of the extras as well."""


class ClosableLogger(Logger, Protocol):
    """Where figures go; the name of a figure is `stage/name`, its step counts finished steps of the stage.

    A resumed run shows the few steps after its last saved state again.
    """

    def close(self) -> None:
        """Write what is left."""
        ...


class MultiLogger:
    """Several watches as one."""

    def __init__(self, loggers: Sequence[Logger]):
        self.loggers = loggers

    def log_step(self, stage: str, step: int, *, of: int, metrics: Mapping[str, float]) -> None:
        """To all, in order."""
        for watch in self.loggers:
            watch.log_step(stage, step, of=of, metrics=metrics)

    def log_line(self, line: str) -> None:
        """To those that can."""
        for watch in self.loggers:
            if isinstance(watch, ProgressLogger):
                watch.log_line(line)


def check_logger_names(names: Sequence[str]) -> None:
    """Raises UsageError for a name that is none of `LOGGERS`, or whose extra is not installed."""
    for name in names:
        _import_logger(name)


def _import_logger(name: str) -> Callable[[Path, Mapping[str, Any]], ClosableLogger]:
    """What makes the logger of that name from the run's folder and its settings. UsageError as above."""
    if name not in LOGGERS:
        raise UsageError(f"no logger {name!r}; there are {', '.join(LOGGERS)}")
    with needs_extra(name):
        match name:
            case "mlflow":
                from wanderlust.training.loggers.mlflow import MLflowLogger

                return MLflowLogger
            case "tensorboard":
                from wanderlust.training.loggers.tensorboard import TensorBoardLogger

                return TensorBoardLogger
            case "trackio":
                from wanderlust.training.loggers.trackio import TrackioLogger

                return TrackioLogger
            case _:
                from wanderlust.training.loggers.wandb import WandBLogger

                return WandBLogger


@contextmanager
def open_loggers(names: Sequence[str], folder: Path, config: Mapping[str, Any], *, logger: Logger) -> Iterator[Logger]:
    """`logger` and the sinks of these names as one; the sinks are closed in the end."""
    with ExitStack() as end:
        sinks: list[Logger] = [logger]
        for name in dict.fromkeys(names):
            sink = _import_logger(name)(folder, config)
            end.callback(sink.close)
            sinks.append(sink)
        yield MultiLogger(sinks)
