"""trackio: a local dashboard's database, `trackio show` opens it. Needs the extra `trackio`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trackio

PROJECT = "wanderlust"


class Trackio:
    """A run of the project PROJECT with the folder's name; TRACKIO_DIR and the other settings of trackio's count."""

    def __init__(self, folder: Path, config: Mapping[str, Any]):
        self._run = trackio.init(
            project=PROJECT, name=folder.resolve().name, config=dict(config), resume="allow", embed=False
        )

    def show(self, stage: str, step: int, *, of: int, figures: Mapping[str, float]) -> None:
        """Metrics of one step."""
        self._run.log({f"{stage}/{name}": value for name, value in figures.items()}, step=step)

    def close(self) -> None:
        """Write what is left."""
        self._run.finish()
