"""The state file of a trainer, for resuming a run.

Which checkpoints of a run stay, and when it may stop early.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from wanderlust.errors import StoreError, UsageError
from wanderlust.store.run_folder import CONFIG_FILE, STATE_FILE, STORE_FILE
from wanderlust.store.store import RunStore

BEST_CHECKPOINT = "best"
STEP_CHECKPOINT = "step-{:06}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalPoint:
    """A point of the learning curve, as far as it is needed here."""

    step: int
    value: float


def point_metrics(point: Mapping[str, Any]) -> dict[str, float]:
    """All figures of an evaluation by name: rewards by seat, `reward` for the first one, parts, metrics."""
    rewards = {name: estimate for name, estimate in point["rewards"].items() if estimate is not None}
    named = {**rewards, "reward": next(iter(rewards.values()), None)}
    parts = {**point["parts"], **point["metrics"]}
    return {name: float(estimate["value"]) for name, estimate in {**parts, **named}.items() if estimate is not None}


def eval_curve(curve: Sequence[Mapping[str, Any]], metric: str) -> list[EvalPoint]:
    """The figure over the examinations. UsageError, with the names that there are, when no point has it."""
    points = [(int(point["step"]), point_metrics(point)) for point in curve]
    if points and not any(metric in figures for _, figures in points):
        there = ", ".join(sorted({name for _, figures in points for name in figures}))
        raise UsageError(f"evaluations of this environment have no metric {metric!r}; they have {there}")
    return [EvalPoint(step=step, value=figures[metric]) for step, figures in points if metric in figures]


def best_point(points: Sequence[EvalPoint]) -> EvalPoint | None:
    """The highest; of equals the first."""
    return max(points, key=lambda point: (point.value, -point.step), default=None)


def no_improvement(points: Sequence[EvalPoint], patience: int) -> bool:
    """Whether the last `patience` examinations brought nothing better than what came before them."""
    if not patience or len(points) <= patience:
        return False
    before, since = points[:-patience], points[-patience:]
    return max(p.value for p in since) <= max(p.value for p in before)


def prune(
    folder: Path,
    curve: Sequence[Mapping[str, Any]],
    *,
    save: Callable[[Path], None],
    metric: str = "reward",
    keep_last: int = 1,
    patience: int = 0,
) -> bool:
    """Keep what was examined last, by `save`, as far as it is to stay below `folder`; whether the run should go on.

    What stays depends on the curve alone, so a resumed run ends with the same folders. The start of the run is not
    written again.
    """
    examined = eval_curve(curve, metric)
    if not examined:
        return True
    newest, top = int(curve[-1]["step"]), best_point(examined)
    if newest and top is not None and top.step == newest:
        save(folder / BEST_CHECKPOINT)
    if newest and keep_last:
        save(folder / STEP_CHECKPOINT.format(newest))
    steps = [int(point["step"]) for point in curve if point["step"]]
    staying = {STEP_CHECKPOINT.format(step) for step in steps[-keep_last:]} if keep_last else set()
    for old in folder.glob("step-*"):
        if old.name not in staying:
            shutil.rmtree(old)
    return not no_improvement(examined, patience)


STATE_FORMAT = "wanderlust-state-1"


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain data; the file is either the old one or the new one, whenever the power fails."""
    partial = path.with_suffix(path.suffix + ".partial")
    with partial.open("wb") as file:
        torch.save({"format": STATE_FORMAT, **state}, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def load_state(path: Path) -> dict[str, Any]:
    """Read what `save_state` wrote, without running any code in it; StoreError when it is something else."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, LookupError, pickle.UnpicklingError) as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise StoreError(f"cannot read the state {path}: {why}; it was left as it is") from error
    if not isinstance(state, dict) or state.get("format") != STATE_FORMAT:
        raise StoreError(f"{path} is not a state of this library; it was left as it is")
    return state


@dataclass(slots=True)
class Run:
    """An open run: its folder, its store (this process is the one writer) and the last saved state, if any."""

    path: Path
    store: RunStore
    state: dict[str, Any] | None = None

    @classmethod
    def begin(cls, path: Path, config: Any) -> Self:
        """A new folder. UsageError when there is something at `path` already: nothing is overwritten."""
        if path.exists():
            raise UsageError(f"{path} exists already: resume it, or choose another folder")
        body = {"recipe": recipe_of(type(config)), "config": config.as_dict()}
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.mkdir()
        (draft / CONFIG_FILE).write_text(json.dumps(body, indent=2) + "\n")
        draft.rename(path)  # so that a folder at `path` always has its config
        return cls(path, RunStore.create(path / STORE_FILE))

    @classmethod
    def resume(cls, path: Path) -> Self:
        """An existing folder, with the last state that was saved in it."""
        store_path = path / STORE_FILE
        store = RunStore.open(store_path) if store_path.exists() else RunStore.create(store_path)
        try:
            state = load_state(path / STATE_FILE) if (path / STATE_FILE).exists() else None
        except StoreError:
            store.close()
            raise
        return cls(path, store, state)

    def save(self, state: dict[str, Any]) -> None:
        """Keep a state to go on from; it replaces the last one whole."""
        save_state(self.path / STATE_FILE, state)
        self.state = state


def recipe_of(kind: type[Any]) -> str:
    """The word for the runs that a configuration is of: `train` for TrainConfig, `demo` for DemoConfig."""
    return kind.__name__.removesuffix("Config").lower()


def load_config(path: Path, kind: type[Any]) -> Any:
    """The config a run was begun with. Raises UsageError when there is no such run."""
    file = path / CONFIG_FILE
    if not file.is_file():
        raise UsageError(f"{path} is no run: it has no {CONFIG_FILE}{_other_runs(path)}")
    try:
        body = json.loads(file.read_text())
        if body["recipe"] != recipe_of(kind):
            raise UsageError(f"{path} is a run of another recipe ({body['recipe']})")
        return kind.from_dict(body["config"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"cannot read {file}: {error}") from error


def _other_runs(path: Path) -> str:
    """The end of an error line: runs in the same folder."""
    names = sorted(p.parent.name for p in path.parent.glob(f"*/{CONFIG_FILE}")) if path.parent.is_dir() else []
    return f"; there are {', '.join(names[:8])}" if names else ""
