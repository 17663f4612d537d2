"""What a test run prints in the end: skips by reason, the files that took most processor time, and the sum.

Processor time is user and system time of a test and of the processes that it has waited for. Unlike wall time it is
much the same on a busy machine. In CI a sum of more than one and a half times the budget fails the run. The figure of
every test stays in pytest's cache: `.pytest_cache/v/wanderlust/processor_seconds`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

BUDGET_MINUTES = 16
"""Processor time of `make test` on the machine that CI runs on; 12 are wanted."""
SLOWEST_FILES = 10
PROPERTY = "processor_seconds"


def processor_seconds() -> float:
    """Of this process and of all that it has waited for."""
    return sum(os.times()[:4])


class Summary:
    """Notes processor time in the process that runs a test, and sums it up in the one that prints."""

    def __init__(self) -> None:
        self.began = 0.0
        self.by_test, self.skipped = Counter[str](), Counter[str]()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self.began = processor_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report: Any = yield
        if report.when == "teardown":
            report.user_properties.append((PROPERTY, processor_seconds() - self.began))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            self.skipped[report.longrepr[2].removeprefix("Skipped: ")] += 1
        if report.when == "teardown":
            self.by_test[report.nodeid] += dict(report.user_properties).get(PROPERTY, 0)

    def over_budget(self, seconds: float) -> bool:
        """Whether a whole run in CI took more than one and a half times its budget."""
        return "CI" in os.environ and seconds > 1.5 * 60 * BUDGET_MINUTES

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.OK and self.over_budget(self.by_test.total()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        by_file = Counter[str]()
        for name, figure in self.by_test.items():
            by_file[name.partition("::")[0]] += figure
        if (cache := getattr(terminalreporter.config, "cache", None)) is not None:
            cache.set("wanderlust/processor_seconds", dict(self.by_test.most_common()))
        for title, rows in (("skipped, by reason", self.skipped), ("processor seconds, by file", by_file)):
            if rows:
                terminalreporter.section(title)
            for name, figure in rows.most_common(None if rows is self.skipped else SLOWEST_FILES):
                terminalreporter.line(f"{figure:8.0f}  {name}")
        seconds = self.by_test.total()
        terminalreporter.line(f"{seconds:8.0f}  all files: {seconds / 60:.1f} minutes")
        if self.over_budget(seconds):
            terminalreporter.line(f"more than one and a half times the budget of {BUDGET_MINUTES} minutes", red=True)
