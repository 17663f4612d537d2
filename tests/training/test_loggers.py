"""Figures that go elsewhere: each sink writes real files or databases that its own reader finds again."""

import tomllib
from pathlib import Path

import pytest

from project_files import ROOT
from wanderlust.errors import UsageError
from wanderlust.runner.progress import NullLogger
from wanderlust.training.loggers import LOGGERS, check_logger_names, open_loggers

CONFIG = {"env": "kuhn", "lr": 1e-3}
LACKS = "{0} is not installed: pip install 'wanderlust[{0}]'"


def send(name: str, folder: Path, steps: range) -> None:
    with open_loggers([name], folder, CONFIG, progress=NullLogger()) as watch:
        for step in steps:
            watch.log_step("rl", step, of=9, metrics={"reward": step / 10, "kl": 0.0})


def twice(name: str, tmp_path: Path) -> Path:
    """A run that was stopped after step 4, and resumed at 3."""
    folder = tmp_path / "run-7"
    folder.mkdir()
    send(name, folder, range(1, 5))
    send(name, folder, range(3, 7))
    return folder


def test_tensorboard_has_every_step_once(tmp_path):
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = reading.EventAccumulator(str(twice("tensorboard", tmp_path) / "tensorboard" / "rl")).Reload()
    assert [(e.step, round(e.value, 3)) for e in events.Scalars("reward")] == [(n, n / 10) for n in range(1, 7)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MLflow's own, of the database it uses
def test_mlflow_goes_on_with_its_run(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason=LACKS.format("mlflow"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    client = mlflow.MlflowClient(f"sqlite:///{twice('mlflow', tmp_path) / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("wanderlust").experiment_id])
    assert run.data.params["env"] == "kuhn"
    assert run.info.status == "FINISHED"
    assert {m.step for m in client.get_metric_history(run.info.run_id, "rl/reward")} == set(range(1, 7))


def test_wandb_without_an_account_writes_to_the_folder(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason=LACKS.format("wandb"))
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    folder = twice("wandb", tmp_path)
    assert len(list(folder.glob("wandb/offline-run-*/run-*.wandb"))) == 2


def test_trackio_goes_on_with_its_run(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))  # read when it is imported
    storage = pytest.importorskip("trackio.sqlite_storage", reason=LACKS.format("trackio")).SQLiteStorage
    twice("trackio", tmp_path)
    steps = {row["step"] for row in storage.get_logs("wanderlust", "run-7")}
    assert steps == set(range(1, 7))


def test_unknown_loggers_are_named():
    with pytest.raises(UsageError, match=r"no logger 'prometheus'; there are mlflow, tensorboard"):
        check_logger_names(["prometheus"])


def test_every_logger_is_an_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(LOGGERS) <= set(project["optional-dependencies"])
