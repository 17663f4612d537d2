"""Build hook: no wheel or source package without the studio's page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGE = "src/wanderlust/studio/page/index.html"


class StudioPageHook(BuildHookInterface):
    """Ends a build with one line where the page is missing; editable installs, after which `make` builds it, go on."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """`version` is the kind of build: `editable`, or `standard`."""
        if version != "editable" and not (Path(self.root) / PAGE).is_file():
            self.app.abort(f"{PAGE} is missing: build the studio's page with `make page` (Node 20.19 or later) first")
