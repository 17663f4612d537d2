"""The import layers are kept, and the contract really fails when they are not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from project_files import PACKAGES, ROOT

PACKAGE_PATHS = [str(package / "src") for package in PACKAGES]
LINTER = Path(sys.executable).with_name("lint-imports")


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINTER, "--no-cache", "--config", tree / "pyproject.toml"],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tree / "src"), *PACKAGE_PATHS])},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src")
    return tmp_path


def test_rooms_import_downwards_only():
    result = lint(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("room", "imports"),
    [
        ("store", "tools"),
        ("tools", "policies"),
        ("policies", "runner"),
        ("runner", "serving"),
        ("rubrics", "worlds"),
        ("evals", "training"),
        ("training", "environments"),
        ("studio", "cli"),
    ],
)
def test_an_import_upwards_or_sideways_fails(copy, room, imports):
    (copy / "src/wanderlust" / room / "offender.py").write_text(f"import wanderlust.{imports}\n")
    result = lint(copy)
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"wanderlust.{room}.offender -> wanderlust.{imports}" in result.stdout


def test_a_room_that_no_layer_names_fails(copy):
    room = copy / "src/wanderlust/elsewhere"
    room.mkdir()
    (room / "__init__.py").write_text("")
    result = lint(copy)
    assert result.returncode == 1
    assert "elsewhere" in result.stdout + result.stderr
