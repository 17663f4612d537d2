"""A test run that changes the checkout says so, names what ran meanwhile, and fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import changed_files
from patience import PATIENCE

CONFTEST = """
from pathlib import Path

from checkout import CheckoutGuard


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(CheckoutGuard(Path(__file__).parent.parent))
"""


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True, timeout=PATIENCE)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one kept file and one ignored name."""
    folder = tmp_path / "checkout"
    (folder / "tests").mkdir(parents=True)
    (folder / "tests/conftest.py").write_text(CONFTEST)
    (folder / "tests/kept").write_text("as it was")
    (folder / ".gitignore").write_text("__pycache__\nignored\n")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "x")
    return folder


def run(folder: Path, **tests: str) -> tuple[int, str]:
    """Exit status and output of a test run on two workers, whose tests are these lines, by their names."""
    body = "".join(f"def test_{name}():\n    {line}\n\n\n" for name, line in tests.items())
    (folder / "tests/test_it.py").write_text(body)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "y")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "2", "tests"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stdout


def test_a_changed_checkout_fails_the_run_and_names_the_test(checkout: Path) -> None:
    writes, removes = "open('tests/{}', 'w').close()".format, "import os; os.remove('tests/gone')"
    (checkout / "tests/gone").write_text("as it was")
    code, output = run(checkout, a="pass", b=writes("new"), c=writes("kept"), d=removes)
    assert code == 1
    assert "4 passed" in output
    told = {line.partition(": ")[0]: line for line in output.splitlines() if line.startswith("tests/") and ": " in line}
    assert "tests/test_it.py::test_b" in told["tests/new"]
    assert "tests/test_it.py::test_c" in told["tests/kept"]
    assert told["tests/gone"].endswith(": deleted")


def test_other_files_do_not_fail_it(checkout: Path) -> None:
    code, output = run(checkout, a="pass", b="open('ignored', 'w').close()", c="open('log', 'w').close()")
    assert code == 0
    assert output.count("written during") == 1
    assert "log: written during" in output


def test_what_was_changed_before_may_stay_changed(checkout: Path) -> None:
    (checkout / "tests/draft").write_text("mine")
    before = changed_files(checkout)
    assert list(before) == ["tests/draft"]
    (checkout / "tests/draft").write_text("theirs")
    assert changed_files(checkout) != before
    assert changed_files(checkout.parent) == {}
