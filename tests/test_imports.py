"""What installs by default is light: it works with the heavy packages missing, and starts at once."""

from __future__ import annotations

import subprocess
import sys

IMPORT = """
import sys, time

for name in ("torch", "transformers", "tokenizers", "safetensors", "numpy", "matplotlib", "mcp"):
    sys.modules[name] = None  # from here on, importing it raises ModuleNotFoundError

started = time.process_time()
import {module}

seconds = time.process_time() - started
assert seconds < {limit}, f"{module} takes {{seconds:.2f}} processor seconds to import"
"""


def run(code: str) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


def test_package_imports_at_once_without_heavy_packages():
    run(IMPORT.format(module="wanderlust", limit=0.2))


def test_command_line_imports_without_heavy_packages():
    run(IMPORT.format(module="wanderlust.cli.main", limit=1.0))


def test_help_works_without_heavy_packages():
    run(IMPORT.format(module="wanderlust.cli.main", limit=1.0) + "sys.argv = ['wander', '--help']\n" + HELP)


HELP = """
try:
    wanderlust.cli.main.main()
except SystemExit as end:
    assert not end.code, end.code
"""
