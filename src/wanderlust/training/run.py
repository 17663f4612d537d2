"""A run's folder: its contents, and how it is created and resumed."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from wanderlust.errors import StoreError, UsageError
from wanderlust.store.run_folder import CONFIG_FILE, STATE_FILE, STORE_FILE
from wanderlust.store.store import RunStore
from wanderlust.training.checkpoint import load_state, save_state


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
