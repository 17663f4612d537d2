"""Loggers of other programs, beside a run's own store: MLflow, TensorBoard, Trackio, Weights & Biases.

Each is imported when a run first writes to it, and needs the extra of its name.
"""

from __future__ import annotations

import netrc
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from wanderlust._lazy import needs_extra
from wanderlust.errors import UsageError, one_line
from wanderlust.runner.progress import Logger, ProgressLogger, open_progress

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
    """Several loggers as one."""

    def __init__(self, loggers: Sequence[Logger]):
        self.loggers = loggers

    def log_step(self, stage: str, step: int, *, of: int, metrics: Mapping[str, float]) -> None:
        """To all, in order."""
        for logger in self.loggers:
            logger.log_step(stage, step, of=of, metrics=metrics)

    def log_line(self, line: str) -> None:
        """To those that can."""
        for logger in self.loggers:
            if isinstance(logger, ProgressLogger):
                logger.log_line(line)


EXPERIMENT, DATABASE_FILE = "wanderlust", "mlflow.db"
RUN_TAG = "wanderlust.run"
"""Names the run's folder, by which a resumed run finds itself again."""


class LoggerWarning(UserWarning):
    """Figures did not get where they should; the run's own store has them."""


class MLflowLogger:
    """A run of the experiment EXPERIMENT; where MLFLOW_TRACKING_URI says, else in a database in the run's folder."""

    def __init__(self, folder: Path, config: Mapping[str, Any]):
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param
        from mlflow.exceptions import MlflowException

        self._metric, self._failure = Metric, MlflowException
        place = folder.resolve()
        uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{place / DATABASE_FILE}"
        self._client = MlflowClient(tracking_uri=uri)
        existing_experiment = self._client.get_experiment_by_name(EXPERIMENT)
        experiment = (
            existing_experiment.experiment_id
            if existing_experiment is not None
            else self._client.create_experiment(EXPERIMENT)
        )
        mine = self._client.search_runs([experiment], filter_string=f"tags.`{RUN_TAG}` = '{place}'", max_results=1)
        if mine:
            self._run = mine[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
        else:
            run = self._client.create_run(experiment, tags={RUN_TAG: str(place)}, run_name=place.name)
            self._run = run.info.run_id
            params = [Param(name, one_line(str(value), 500)) for name, value in config.items()]
            self._client.log_batch(self._run, params=params)

    def log_step(self, stage: str, step: int, *, of: int, metrics: Mapping[str, float]) -> None:
        """Metrics of one step; what cannot be sent is warned of."""
        now = int(time.time() * 1000)
        entries = [self._metric(f"{stage}/{name}", value, now, step) for name, value in metrics.items()]
        try:
            self._client.log_batch(self._run, metrics=entries)
        except self._failure as error:
            warnings.warn(f"MLflow did not take {stage} {step}: {one_line(str(error))}", LoggerWarning, stacklevel=2)

    def close(self) -> None:
        """Say that the run is over."""
        try:
            self._client.set_terminated(self._run)
        except self._failure as error:
            warnings.warn(f"MLflow: {one_line(str(error))}", LoggerWarning, stacklevel=2)


TENSORBOARD_FOLDER = "tensorboard"


class TensorBoardLogger:
    """One writer per stage, below FOLDER; whatever an earlier attempt wrote from the first step shown on is purged."""

    def __init__(self, folder: Path, config: Mapping[str, Any]):
        from torch.utils.tensorboard import SummaryWriter

        self.folder, self._new_writer = folder / TENSORBOARD_FOLDER, SummaryWriter
        self._config = "\n".join(f"    {name}: {value}" for name, value in config.items())
        self._writers: dict[str, Any] = {}

    def log_step(self, stage: str, step: int, *, of: int, metrics: Mapping[str, float]) -> None:
        """Scalars."""
        writer = self._writers.get(stage)
        if writer is None:
            writer = self._writers[stage] = self._new_writer(str(self.folder / stage), purge_step=step)
            writer.add_text("settings", self._config)
        for name, value in metrics.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    def close(self) -> None:
        """Close the files."""
        for writer in self._writers.values():
            writer.close()


TRACKIO_PROJECT = "wanderlust"


class TrackioLogger:
    """A run of the project PROJECT with the folder's name; TRACKIO_DIR and the other settings of trackio's count."""

    def __init__(self, folder: Path, config: Mapping[str, Any]):
        import trackio

        self._run = trackio.init(
            project=TRACKIO_PROJECT, name=folder.resolve().name, config=dict(config), resume="allow", embed=False
        )

    def log_step(self, stage: str, step: int, *, of: int, metrics: Mapping[str, float]) -> None:
        """Metrics of one step."""
        self._run.log({f"{stage}/{name}": value for name, value in metrics.items()}, step=step)

    def close(self) -> None:
        """Write what is left."""
        self._run.finish()


WANDB_PROJECT = "wanderlust"


class WandBLogger:
    """A run of the project PROJECT, or WANDB_PROJECT, that a resumed run goes on with.

    Without an account (WANDB_API_KEY or a login) or with WANDB_MODE=offline it is written to the run's folder, from
    where `wandb sync` uploads it; nobody is asked anything.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any]):
        import wandb

        place = folder.resolve()
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", WANDB_PROJECT),
            name=place.name,
            id=blake2b(str(place).encode(), digest_size=8).hexdigest(),
            resume="allow",
            dir=place,
            config=dict(config),
            mode="online" if _account() else "offline",
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._stages: set[str] = set()

    def log_step(self, stage: str, step: int, *, of: int, metrics: Mapping[str, float]) -> None:
        """Metrics of one step, over an axis of the stage's own."""
        if stage not in self._stages:
            self._stages.add(stage)
            self._run.define_metric(f"{stage}/*", step_metric=f"{stage}/step")
        self._run.log({f"{stage}/step": step, **{f"{stage}/{name}": value for name, value in metrics.items()}})

    def close(self) -> None:
        """Write what is left."""
        self._run.finish()


def _account() -> bool:
    """Whether somebody is logged in and wants to be on line."""
    mode = os.environ.get("WANDB_MODE")
    if mode is not None:
        return mode == "online"
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


MAKERS: Mapping[str, Callable[[Path, Mapping[str, Any]], ClosableLogger]] = {
    "mlflow": MLflowLogger,
    "tensorboard": TensorBoardLogger,
    "trackio": TrackioLogger,
    "wandb": WandBLogger,
}
"""What makes the logger of a name, from the run's folder and its settings."""


def check_logger_names(names: Sequence[str]) -> None:
    """Raises UsageError for a name that is none of `LOGGERS`, or whose extra is not installed."""
    for name in names:
        if name not in LOGGERS:
            raise UsageError(f"no logger {name!r}; there are {', '.join(LOGGERS)}")
        with needs_extra(name):
            import_module("torch.utils.tensorboard" if name == "tensorboard" else name)


@contextmanager
def open_loggers(
    names: Sequence[str], folder: Path, config: Mapping[str, Any], *, progress: Logger | bool
) -> Iterator[MultiLogger]:
    """Progress as `open_progress` has it and the sinks of these names as one; all are closed in the end."""
    check_logger_names(names)
    with ExitStack() as end:
        sinks: list[Logger] = [end.enter_context(open_progress(progress))]
        for name in dict.fromkeys(names):
            sink = MAKERS[name](folder, config)
            end.callback(sink.close)
            sinks.append(sink)
        yield MultiLogger(sinks)
