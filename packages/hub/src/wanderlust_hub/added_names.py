"""Names of the environments that were added from hubs. Imports nothing heavy: every listing asks it."""

from __future__ import annotations

import os
from pathlib import Path


def added_folder() -> Path:
    """`$XDG_DATA_HOME/wanderlust/environments`, below `~/.local/share` where that is not set."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "wanderlust/environments"


def added_environments() -> dict[str, str]:
    """The target of each added environment, by its name."""
    folder = added_folder()
    names = sorted(one.name for one in folder.iterdir() if one.name[0] != ".") if folder.is_dir() else []
    return {name: f"wanderlust_hub.added:{name}" for name in names}
