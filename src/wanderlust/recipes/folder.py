"""What lies in a run's folder, readable without the packages that made it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wanderlust.core.errors import StoreError
from wanderlust.rollout.store import RunStore

CONFIG, STORE, STATE, REPORT, CHECKPOINTS = "run.json", "rollouts.db", "state.pt", "report.json", "checkpoints"
SAID = "command"
"""The fact of a store that holds the words its run was begun by, without the program's name and its folder."""
EVALUATION = "Evaluation"
"""The recipe that the folder of an evaluation names."""
PLAY = "Play"
"""The recipe that the folder of games names which a person played."""
FRESH = "fresh"
"""How a model from nothing is named where a run wants a checkpoint."""
SMOLLM2 = "smollm2"
"""How the pretrained model is named that comes out of a package."""


def is_fresh(policy: str) -> bool:
    """Whether that names a fresh model, with settings or without: `fresh,width=96`."""
    return policy.partition(",")[0] == FRESH


def warmup_of(policy: str) -> tuple[str, str]:
    """Name of a checkpoint, and all of it where it has settings of a warm-up: `runs/x,episodes=100`; else nothing."""
    name, comma, _ = policy.partition(",")
    return (policy, "") if not comma or Path(policy).exists() else (name, policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """One run on disk."""

    path: Path
    recipe: str
    """Name of the config's class."""
    config: Mapping[str, Any]

    @property
    def finished(self) -> bool:
        """Whether its report was written, which every recipe does last."""
        return (self.path / REPORT).is_file()

    @property
    def touched(self) -> float:
        """When something in it was last written, in seconds of the file system's clock."""
        return max(file.stat().st_mtime for file in (self.path, *self.path.iterdir()))

    def reached(self) -> str:
        """The stage it is in and the steps done there, `nothing yet` before the first one."""
        store = self.path / STORE
        if not store.is_file():
            return "nothing yet"
        with RunStore.read(store) as reader:
            for stage in ("reinforce", "imitate"):
                if seen := reader.metrics(stage, "loss"):
                    of = self.steps(stage)
                    return f"{stage} {seen[-1][0] + 1}" + (f" of {of}" if of else "")
            last = reader.rollouts(order="-id", limit=1)
        return last[0].stage if last else "nothing yet"

    def steps(self, stage: str) -> int:
        """Steps that a stage is to have; 0 where the settings do not say."""
        part = self.config.get(stage, self.config)
        counted = part.get("optimizer", {}) if stage == "imitate" else part
        return int(counted.get("steps", 0))

    def as_dict(self) -> dict[str, Any]:
        """JSON data."""
        return {
            "path": str(self.path),
            "recipe": self.recipe,
            "reached": self.reached(),
            "finished": self.finished,
            "seed": self.config.get("seed"),
        }


def open_folder(path: Path) -> RunFolder | None:
    """The run at `path`, None when there is none. Raises StoreError when its settings cannot be read."""
    file = path / CONFIG
    if not file.is_file():
        return None
    try:
        body = json.loads(file.read_text())
        return RunFolder(path=path, recipe=str(body["recipe"]), config=dict(body["config"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"cannot read {file}: {type(error).__name__}: {error}") from error


def runs_in(root: Path) -> Iterator[RunFolder]:
    """The readable runs directly in `root`, by name."""
    for file in sorted(root.glob(f"*/{CONFIG}")):
        try:
            found = open_folder(file.parent)
        except StoreError:  # whoever lists runs wants the others
            continue
        if found is not None:
            yield found


def checkpoints_of(path: Path) -> list[Path]:
    """The checkpoint folders of a run, the one to use first: `rl`, else the newest."""
    found = [file.parent for file in (path / CHECKPOINTS).glob("*/config.json") if file.parent.suffix != ".partial"]
    return sorted(found, key=lambda p: (p.name != "rl", -p.stat().st_mtime))
