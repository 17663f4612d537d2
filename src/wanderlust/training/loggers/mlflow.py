"""MLflow. Needs the extra `mlflow`."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException

EXPERIMENT, DATABASE_FILE = "wanderlust", "mlflow.db"
RUN_TAG = "wanderlust.run"
"""Names the run's folder, by which a resumed run finds itself again."""


class LoggerWarning(UserWarning):
    """Figures did not get where they should; the run's own store has them."""


class MLflowLogger:
    """A run of the experiment EXPERIMENT; where MLFLOW_TRACKING_URI says, else in a database in the run's folder."""

    def __init__(self, folder: Path, config: Mapping[str, Any]):
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
            params = [Param(name, str(value)[:500]) for name, value in config.items()]
            self._client.log_batch(self._run, params=params)

    def log_step(self, stage: str, step: int, *, of: int, metrics: Mapping[str, float]) -> None:
        """Metrics of one step; what cannot be sent is warned of."""
        now = int(time.time() * 1000)
        entries = [Metric(f"{stage}/{name}", value, now, step) for name, value in metrics.items()]
        try:
            self._client.log_batch(self._run, metrics=entries)
        except MlflowException as error:
            first = str(error).splitlines()[0][:200]
            warnings.warn(f"MLflow did not take {stage} {step}: {first}", LoggerWarning, stacklevel=2)

    def close(self) -> None:
        """Say that the run is over."""
        try:
            self._client.set_terminated(self._run)
        except MlflowException as error:
            warnings.warn(f"MLflow: {str(error).splitlines()[0][:200]}", LoggerWarning, stacklevel=2)
