"""Which files of the checkout a test run left changed, and which tests ran when they were written."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMED_TESTS = 5
"""Tests that are named for a file."""
CLOCK_STEP = 0.05
"""Seconds by which a file system's clock may be behind."""


def changed_files(root: Path = ROOT) -> dict[str, str]:
    """Files that differ from the last commit, new ones included, each with its state and content; none without git."""
    command = ["git", "-C", str(root), "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True).stdout.decode(errors="replace")
    except (OSError, subprocess.CalledProcessError):
        return {}
    found = {}
    for line in filter(None, listed.split("\0")):
        path = root / line[3:]
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[line[3:]] = f"{line[:2]} {content}"
    return found


class CheckoutGuard:
    """Compares the checkout before and after all tests; a pytest plugin of the process that starts the workers."""

    def __init__(self, root: Path = ROOT):
        self.root, self.before = root, changed_files(root)
        self.ran: list[tuple[float, float, str]] = []
        """Start and end of each part of a test, and its name."""
        self.left: list[str] = []
        """What was changed, a line each."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.ran.append((report.start, report.stop, report.nodeid))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        after = changed_files(self.root)
        self.left = [self._line(name) for name in sorted(after) if after[name] != self.before.get(name)]
        self.left += [f"{name}: as it was committed" for name in sorted({*self.before} - {*after})]
        # A file beside the folders may be the log of this run.
        if any("/" in line.split(": ")[0] for line in self.left) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.left:
            terminalreporter.section("the checkout has changed while tests ran: they write into tmp_path", red=True)
            terminalreporter.write("".join(f"{line}\n" for line in self.left))

    def _line(self, name: str) -> str:
        path = self.root / name
        if not path.exists():
            return f"{name}: deleted"
        when = path.stat().st_mtime
        during = [node for start, stop, node in self.ran if start - CLOCK_STEP <= when <= stop + CLOCK_STEP]
        return f"{name}: written during {', '.join(list(dict.fromkeys(during))[:NAMED_TESTS]) or 'none of the tests'}"
