"""What an evaluation found, as values, as a table and as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from wanderlust.core.text import one_line
from wanderlust.evals.statistics import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Rollouts that failed alike."""

    count: int
    first: str
    """The message of the first one, in the order of tasks and samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Numbers of one evaluation. Rollouts that failed are in no estimate; `errors` says how many and why.

    With several seats, the names in `rewards` are the seats', and those in `parts` and `metrics` begin with one.
    """

    tasks: int
    played: int
    scored: int
    rewards: Mapping[str, Estimate]
    """By seat."""
    parts: Mapping[str, Estimate]
    """Raw value per reward function; where a scored rollout lacks one, it counts as 0."""
    metrics: Mapping[str, Estimate]
    """Over the rollouts that have the metric."""
    errors: Mapping[str, Errors]
    """By class of failure: the wall that was crossed."""
    stops: Mapping[str, int]
    """Why rollouts ended."""
    turns: int
    tokens_in: int
    tokens_out: int
    seconds: float
    """Wall-clock time of the whole evaluation."""

    @property
    def reward(self) -> Estimate | None:
        """The only seat's reward, None when nothing was scored; ValueError with several seats."""
        if not self.rewards:
            return None
        (only,) = self.rewards.values()
        return only

    @property
    def failed(self) -> int:
        """Rollouts without a score."""
        return self.played - self.scored

    @property
    def coverage(self) -> float:
        """Share of the rollouts that could be scored; 0 when none was played."""
        return self.scored / self.played if self.played else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain JSON data."""
        return asdict(self) | {"failed": self.failed, "coverage": self.coverage}

    def table(self, title: str = "") -> Table:
        """For the terminal: estimates with intervals, then what failed."""
        table = Table(title=title or None, title_justify="left")
        table.add_column("")
        table.add_column("value", justify="right")
        table.add_column("95% interval")
        table.add_column("rollouts", justify="right")
        for seat, estimate in self.rewards.items():
            _add(table, "reward" if len(self.rewards) == 1 else f"{seat}: reward", estimate)
        for name, estimate in {**self.parts, **self.metrics}.items():
            _add(table, name, estimate)
        table.add_section()
        table.add_row("scored", f"{self.coverage:.1%}", "", f"{self.scored} of {self.played}")
        for name, errors in self.errors.items():
            table.add_row(Text(one_line(name)), "failed", Text(one_line(errors.first)), str(errors.count))
        for name, count in self.stops.items():
            if name not in self.errors:
                table.add_row(Text(f"ended: {one_line(name)}"), "", "", str(count))
        return table


def _add(table: Table, name: str, estimate: Estimate) -> None:
    known = estimate.low is not None and estimate.high is not None
    interval = f"{estimate.low:.3f} to {estimate.high:.3f}" if known else "unknown"
    table.add_row(Text(one_line(name)), f"{estimate.value:.3f}", interval, str(estimate.count))
