"""What installs by default is light: it works with the heavy packages missing, and imports little before it starts."""

from __future__ import annotations

import json
import subprocess
import sys

from patience import PATIENCE

IMPORT = """
import json, sys

for name in ("torch", "transformers", "tokenizers", "safetensors", "numpy", "matplotlib", "mcp"):
    sys.modules[name] = None  # from here on, importing it raises ModuleNotFoundError

before = {*sys.modules}
import MODULE
"""
HELP = """
sys.argv = ["wander", "--help"]
try:
    wanderlust.cli.main.main()
except SystemExit as end:
    assert not end.code, end.code
"""
TOLD = "print(json.dumps(sorted({*sys.modules} - before)))"


def imported(module: str, code: str = "") -> tuple[list[str], set[str]]:
    """Our modules, and the other packages outside the standard library, that a fresh process has imported."""
    whole = IMPORT.replace("MODULE", module) + code + TOLD
    command = [sys.executable, "-W", "error", "-c", whole]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE)
    names = json.loads(done.stdout.splitlines()[-1])
    ours = [name for name in names if name.split(".")[0] == "wanderlust"]
    return ours, {name.split(".")[0] for name in names} - {*sys.stdlib_module_names, "wanderlust"}


def test_the_package_imports_next_to_nothing():
    ours, others = imported("wanderlust")
    assert len(ours) <= 5, ours
    assert others == set()


def test_the_command_line_imports_little():
    ours, others = imported("wanderlust.cli.main")
    assert len(ours) <= 12, ours
    assert "aiohttp" not in others


def test_help_imports_little_more():
    ours, others = imported("wanderlust.cli.main", HELP)
    assert len(ours) <= 25, ours
    assert "aiohttp" not in others
