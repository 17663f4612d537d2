"""A release moves the fragments of changes/ into CHANGELOG.md, or writes nothing and says why in one line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from wanderlust import __version__

ROOT = Path(__file__).parent.parent
SCRIPT = "changes/build_changelog.py"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the script reads, in a copy."""
    for name in ("CHANGELOG.md", "changes", "src/wanderlust/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    return tmp_path


def build(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *words], cwd=root, capture_output=True, text=True, check=False)


def test_fragments_become_a_release_by_kinds(checkout):
    for path in (checkout / "changes").glob("*.md"):
        path.unlink()
    (checkout / "changes/b.added.md").write_text("New: [tools](../docs/tools.md)\nand worlds.\n")
    (checkout / "changes/a-thing.fixed.md").write_text("Mended.\n")
    (checkout / "changes/c.added.md").write_text("Newer.\n")
    (checkout / "CHANGELOG.md").write_text("# Changelog\n\nHead.\n\n## 0.0.1 (2025-01-01)\n\n### Added\n\n- All.\n")
    done = build(checkout, __version__, "2026-12-31")
    assert (done.returncode, done.stdout) == (0, f"CHANGELOG.md has release {__version__} with 3 fragments\n")
    release = (
        f"## {__version__} (2026-12-31)\n\n### Added\n\n- New: [tools](docs/tools.md)\n  and worlds.\n- Newer.\n\n"
    )
    earlier = "## 0.0.1 (2025-01-01)\n\n### Added\n\n- All.\n"
    written = (checkout / "CHANGELOG.md").read_text()
    assert written == f"# Changelog\n\nHead.\n\n{release}### Fixed\n\n- Mended.\n\n{earlier}"
    assert list((checkout / "changes").glob("*.md")) == []
    (checkout / "changes/late.added.md").write_text("Late.\n")
    assert build(checkout, __version__, "2027-01-01").stderr == f"CHANGELOG.md has a release {__version__} already\n"


def test_every_fragment_of_this_checkout_has_a_good_name(checkout):
    count = len(list((checkout / "changes").glob("*.md"))) - 1
    assert build(checkout, __version__, "2026-12-31").stdout.endswith(f"with {count} fragments\n")
    assert [path.name for path in (checkout / "changes").glob("*.md")] == ["README.md"]


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("0002-tictactoe.md", (__version__, "2026-12-31"), "changes/0002-tictactoe.md is no <a-few-words>.<kind>.md"),
        ("game.new.md", (__version__, "2026-12-31"), "changes/game.new.md is no"),
        ("Game.added.md", (__version__, "2026-12-31"), "changes/Game.added.md is no"),
        ("game.added.md", ("9.9.9", "2026-12-31"), "9.9.9 is not the package's version"),
        ("game.added.md", ("1.0", "2026-12-31"), "'1.0' is no version"),
        ("game.added.md", (__version__, "31.12.2026"), "'31.12.2026' is no date"),
        ("game.added.md", (__version__, "2026-13-01"), "month must be in 1..12"),
        ("game.added.md", (__version__,), "usage: "),
    ],
)
def test_what_is_refused_is_one_line_and_changes_nothing(checkout, name, words, said):
    (checkout / "changes" / name).write_text("Text.\n")
    before = {path: path.read_bytes() for path in checkout.rglob("*.md")}
    done = build(checkout, *words)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert said in line
    assert {path: path.read_bytes() for path in checkout.rglob("*.md")} == before
