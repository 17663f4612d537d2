"""How hard a benchmark's tasks are, by players of different strength: who passes what, and how many solve each task."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from wanderlust.errors import one_line
from wanderlust.evals.report import Report, TaskRow
from wanderlust.evals.statistics import Estimate, share_estimate
from wanderlust.runner.terminal import Table
from wanderlust.types import Rollout, Task
from wanderlust_life.rewording import SAYING
from wanderlust_worlds.wrap.world_environment import log_of

FLOOR, CEILING = "nothing", "oracle"
"""Players that tell no task from another: the one passes none, the other all."""
BAR_CHARS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerFigures:
    """What one player passes: shares with intervals; None and left out where nothing was scored."""

    whole: Estimate | None
    by_capability: Mapping[str, Estimate]
    by_level: Mapping[str, Estimate]

    @property
    def levels_in_order(self) -> bool | None:
        """Whether no level is passed more often than an easier one; None where all levels are passed alike."""
        shares = [one.value for _, one in sorted(self.by_level.items())]
        return all(hard <= easy for easy, hard in pairwise(shares)) if len({*shares}) > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Players beside each other. `table` and `task_table` show them."""

    players: Mapping[str, PlayerFigures]
    """The environment's own, weakest first, the oracle, then further ones and the policy itself."""
    own: Sequence[str]
    """Players that have an expected order."""
    counted: Sequence[str]
    """Players by which tasks are told apart: all but the one that does nothing and the oracle."""
    solvers: Mapping[str, int]
    """By task, how many of these pass it in more than half of their scored rollouts."""
    remarks: Mapping[str, str]
    """One line on each player that cannot play this environment."""

    @property
    def players_in_order(self) -> bool:
        """Whether each of the environment's own players passes more than the one before it."""
        shares = [one.whole.value for name in self.own if (one := self.players[name]).whole is not None]
        return all(weak < strong for weak, strong in pairwise(shares))

    @property
    def solved(self) -> Mapping[str, Estimate]:
        """Shares of the tasks that none, some and all of the counted players solve."""
        most = len(self.counted)
        shares: dict[str, list[list[float]]] = {"none": [], "some": [], "all": []}
        for number in self.solvers.values():
            outcome = "none" if not number else "all" if number == most else "some"
            for name, clusters in shares.items():
                clusters.append([float(name == outcome)])
        return {name: share_estimate(clusters) for name, clusters in shares.items()}

    def table(self) -> Table:
        """A column for each player: what it passes at all, by level and by capability."""
        table = Table(title="Players", title_justify="left")
        for name in ("", *self.players):
            table.add_column(one_line(name, 20), justify="right" if name else "left")
        figures = self.players.values()
        table.add_row("all", *(str_of(one.whole) for one in figures))
        for level in sorted({level for one in figures for level in one.by_level}):
            table.add_row(f"level {level}", *(str_of(one.by_level.get(level)) for one in figures))
        in_order = {True: "yes", False: "no", None: ""}
        table.add_row("levels in order", *(in_order[one.levels_in_order] for one in figures))
        for value in sorted({value for one in figures for value in one.by_capability}):
            table.add_row(one_line(value, 24), *(str_of(one.by_capability.get(value)) for one in figures))
        return table

    def task_table(self) -> Table:
        """How many tasks so many players solve."""
        table = Table("solved by", "tasks", "share", "", title="Tasks by the players who solve them")
        table.title_justify = "left"
        counts, whole = Counter(self.solvers.values()), len(self.solvers)
        for number in range(len(self.counted) + 1):
            share = counts[number] / whole
            bar = "\N{FULL BLOCK}" * round(BAR_CHARS * share)
            table.add_row(f"{number} of {len(self.counted)}", str(counts[number]), f"{share:.2f}", bar)
        return table

    def lines(self) -> list[str]:
        """What the tables show, in sentences."""
        order = ", ".join(f"{name} {self.players[name].whole or 'unknown'}" for name in self.own)
        shares = ", ".join(f"{name} {one.value:.2f} ({one.interval})" for name, one in self.solved.items())
        return [
            f"Its own players, weakest first: {order}; in order: {'yes' if self.players_in_order else 'no'}.",
            f"Tasks that none, some or all of {', '.join(self.counted) or 'no player'} solve: {shares}.",
            *self.remarks.values(),
        ]

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "players": {
                name: {**asdict(one), "levels_in_order": one.levels_in_order} for name, one in self.players.items()
            },
            "players_in_order": self.players_in_order,
            "counted": [*self.counted],
            "solvers": dict(self.solvers),
            "solved_by": {name: asdict(one) for name, one in self.solved.items()},
            "remarks": dict(self.remarks),
        }


def calibrate(
    tasks: Sequence[Task], reports: Mapping[str, Report], *, own: Sequence[str], remarks: Mapping[str, str]
) -> Calibration:
    """The calibration of these tasks by the players' reports; `own` are the environment's players, weakest first."""
    counted = [name for name in reports if name not in (FLOOR, CEILING)]
    solvers: Counter[str] = Counter({task.id: 0 for task in tasks})
    for name in counted:
        solvers.update(row.task for row in reports[name].task_rows if row.scored and 2 * row.passed > row.scored)
    return Calibration(
        players={name: _figures(tasks, report.task_rows) for name, report in reports.items()},
        own=own,
        counted=counted,
        solvers=dict(solvers),
        remarks=remarks,
    )


def _figures(tasks: Sequence[Task], rows: Sequence[TaskRow]) -> PlayerFigures:
    info = {task.id: task.info for task in tasks}
    whole: list[list[float]] = []
    parts: dict[str, dict[str, list[list[float]]]] = {"capability": defaultdict(list), "level": defaultdict(list)}
    for row in rows:
        if row.scored:
            passed = [1.0] * row.passed + [0.0] * (row.scored - row.passed)
            whole.append(passed)
            for key, values in parts.items():
                values[str(info[row.task].get(key, ""))].append(passed)
    shares = {
        key: {value: share_estimate(clusters) for value, clusters in values.items()} for key, values in parts.items()
    }
    return PlayerFigures(
        whole=share_estimate(whole) if whole else None, by_capability=shares["capability"], by_level=shares["level"]
    )


def remark_on(name: str, rollouts: Sequence[Rollout]) -> str:
    """One line where a player failed in all rollouts, or used no tool in any; empty for others."""
    errors = [one.error for one in rollouts if one.error]
    if len(errors) == len(rollouts):
        return f"{name} failed in all {len(rollouts)} rollouts: {one_line(errors[0] if errors else 'none was played')}"
    acts = (line for one in rollouts if "log" in one.state for line in log_of(one) if line.by == "agent")
    if any(line.action != SAYING for line in acts):
        return ""
    return (
        f"{name} called no tool in {len(rollouts)} rollouts: a model that was trained on brief-life writes other words "
        "than the tools of life take, and can be played in brief-life"
    )


def str_of(share: Estimate | None) -> str:
    """A share as tables show it."""
    return "unknown" if share is None else f"{share.value:.2f}"
