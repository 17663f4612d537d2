"""docs/cli.md is what the commands say of themselves."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def test_command_line_page_is_current():
    generator = runpy.run_path(str(DOCS / "generate_cli.py"))
    assert (DOCS / "cli.md").read_text(encoding="utf-8") == generator["page"](), "run: python docs/generate_cli.py"
