"""TensorBoard: event files in the run's folder. Needs the extra `tensorboard`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

TENSORBOARD_FOLDER = "tensorboard"


class TensorBoardLogger:
    """One writer per stage, below FOLDER; whatever an earlier attempt wrote from the first step shown on is purged."""

    def __init__(self, folder: Path, config: Mapping[str, Any]):
        self.folder = folder / TENSORBOARD_FOLDER
        self._config = "\n".join(f"    {name}: {value}" for name, value in config.items())
        self._writers: dict[str, SummaryWriter] = {}

    def log_step(self, stage: str, step: int, *, of: int, metrics: Mapping[str, float]) -> None:
        """Scalars."""
        writer = self._writers.get(stage)
        if writer is None:
            writer = self._writers[stage] = SummaryWriter(str(self.folder / stage), purge_step=step)
            writer.add_text("settings", self._config)
        for name, value in metrics.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    def close(self) -> None:
        """Close the files."""
        for writer in self._writers.values():
            writer.close()
