"""trackio: a local dashboard's database, `trackio show` opens it. Needs the extra `trackio`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trackio

TRACKIO_PROJECT = "wanderlust"


class TrackioLogger:
    """A run of the project PROJECT with the folder's name; TRACKIO_DIR and the other settings of trackio's count."""

    def __init__(self, folder: Path, config: Mapping[str, Any]):
        self._run = trackio.init(
            project=TRACKIO_PROJECT, name=folder.resolve().name, config=dict(config), resume="allow", embed=False
        )

    def log_step(self, stage: str, step: int, *, of: int, metrics: Mapping[str, float]) -> None:
        """Metrics of one step."""
        self._run.log({f"{stage}/{name}": value for name, value in metrics.items()}, step=step)

    def close(self) -> None:
        """Write what is left."""
        self._run.finish()
