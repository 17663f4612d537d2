"""Run the tests marked `proof` that have not passed on this commit yet: `python tests/proof.py [--fresh]`.

What passes is noted at once in `.proof/`, in a file for this commit and its uncommitted changes. The same call after
an interruption goes on with the rest; `--fresh` forgets what passed.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from tiers import PROOF_GROUPS

ROOT = Path(__file__).parent.parent
OUTSIDE = ["--", ".", ":!benchmarks/results", ":!docs/benchmarks.md"]
"""What the bars of `make proof` write is no change of what is proved."""
WORKERS = ["-n", "2", "--dist", "loadscope", "--no-loadscope-reorder"]


class Collector:
    """Notes the group of every test that is marked `proof`."""

    def __init__(self) -> None:
        self.groups: dict[str, str] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            mark = item.get_closest_marker("proof")
            if mark is not None:
                self.groups[item.nodeid] = mark.args[0]


class Stamp:
    """Writes down every test that passes, in all its phases."""

    def __init__(self, path: Path, wanted: Collection[str]) -> None:
        self.path, self.wanted = path, wanted
        self.passed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid if report.nodeid in self.wanted else report.nodeid.rpartition("@")[0]  # less xdist's group
        if report.when == "call" and report.passed:
            self.passed.add(name)
        elif report.when == "teardown" and report.passed and name in self.passed:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"{name}\n")


def git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout


def stamp_path() -> Path:
    """The file of this commit; what is not committed makes it another one."""
    name = git("rev-parse", "--short=12", "HEAD").decode().strip()
    changes = hashlib.sha256(git("diff", "HEAD", *OUTSIDE))
    for path in git("ls-files", "--others", "--exclude-standard", "-z", *OUTSIDE).decode().split("\0"):
        if path:
            changes.update(path.encode() + (ROOT / path).read_bytes())
    clean = hashlib.sha256().hexdigest()
    digest = changes.hexdigest()
    return ROOT / ".proof" / (name if digest == clean else f"{name}-{digest[:12]}")


def collect() -> dict[str, str]:
    """Every test marked `proof`, and its group."""
    found = Collector()
    status = pytest.main(["--collect-only", "-m", "proof", "-p", "no:terminal"], plugins=[found])
    if status != pytest.ExitCode.OK:
        raise SystemExit(f"tests could not be collected ({status!r}): python -m pytest --collect-only says why")
    return found.groups


def announce(groups: dict[str, str], passed: Collection[str]) -> None:
    """Say what is going to be proved, and what has been."""
    counts, done = Counter(groups.values()), Counter(groups[name] for name in groups if name in passed)
    print(f"{len(groups)} tests in {len(counts)} groups; {done.total()} passed on this commit already:")
    for group, purpose in PROOF_GROUPS.items():
        print(f"  {group:8} {counts[group]:4} tests, {counts[group] - done[group]:4} to run: {purpose}", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run the rest; pytest's exit status."""
    path = stamp_path()
    path.parent.mkdir(exist_ok=True)
    if "--fresh" in arguments:
        path.unlink(missing_ok=True)
    passed = set(path.read_text(encoding="utf-8").splitlines()) if path.exists() else set()
    groups = collect()
    announce(groups, passed)
    wanted = [name for name in groups if name not in passed]
    if not wanted:
        return 0
    todo = path.with_name("todo")
    todo.write_text("".join(f"{name}\n" for name in wanted), encoding="utf-8")
    return int(pytest.main(["-m", "proof", *WORKERS, f"@{todo}"], plugins=[Stamp(path, set(wanted))]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
