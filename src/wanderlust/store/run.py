"""Reading a run from Python: its rollouts, metrics and report, as objects and as data frames."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any, Literal, Self, overload

from wanderlust._lazy import needs_extra
from wanderlust.errors import StoreError, UsageError
from wanderlust.store.filters import SqlCondition
from wanderlust.store.queries import RowOrder, count_rows, parse_row_filter, query_page
from wanderlust.store.reader import RolloutRow, RunReader
from wanderlust.store.run_folder import REPORT_FILE, STORE_FILE, open_folder
from wanderlust.types import Group, Rollout

PAGE_ROWS = 1000
"""Rows that are read at a time."""
SHOWN_ROWS = 10
"""Rows of an HTML table in a notebook."""
Table = Literal["rollouts", "turns", "metrics"]
TABLES: tuple[Table, ...] = ("rollouts", "turns", "metrics")


def load_run(path: str | Path) -> Run:
    """Open the run in a folder for reading. It may still be written by another process.

    Args:
        path: Folder of an evaluation or of a training run, or its `rollouts.db`.

    Returns:
        The run: `.rollouts`, `.groups(stage, step)`, `.metrics(stage)`, `.report`, `.to_pandas(table)`.

    Raises:
        StoreError: when there is no run, or it was written by a version with another format.

    Example:
        >>> run = load_run("runs/higher-lower")
        >>> worst = run.rollouts("reward < 0.5", order="reward")[0]
        >>> worst.trajectory.messages[-1].content
    """
    return Run(Path(path))


class Run:
    """One run on disk, opened for reading; a context manager that closes its file."""

    def __init__(self, path: Path):
        self.path = path.parent if path.is_file() else path
        self.folder = open_folder(self.path)
        store = path if path.is_file() else path / STORE_FILE
        if not store.is_file():
            missing = "there is no run here" if self.folder is None else "this run has no rollouts yet"
            raise StoreError(f"{path}: {missing}")
        self._reader = RunReader(store)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._reader.close()

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings that the run was started with; empty for a store without a folder."""
        return self.folder.config if self.folder is not None else {}

    @property
    def report(self) -> dict[str, Any] | None:
        """The final report as JSON data; None while the run is unfinished."""
        file = self.path / REPORT_FILE
        return dict(json.loads(file.read_text())) if file.is_file() else None

    @property
    def rollouts(self) -> Rollouts:
        """All stored rollouts, in the order they were stored: iterate, index, or call with a filter."""
        return Rollouts(self._reader)

    def groups(self, stage: str = "eval", step: int = 0) -> list[Group]:
        """The groups of one step of a stage (`eval`, `rl`, ...), rollouts of one task together."""
        return self._reader.groups(stage, step)

    def metrics(self, stage: str = "rl") -> dict[str, list[tuple[int, float]]]:
        """Every metric of a stage, as `(step, value)` by step."""
        return {name: self._reader.metrics(stage, name) for name in self._reader.metric_names(stage)}

    def to_pandas(self, table: Table = "rollouts") -> Any:
        """A table as a `pandas.DataFrame` (needs pandas).

        `rollouts` has one row per rollout (task, sample_index, status, stop_reason, reward, parts, tokens, seconds),
        `turns` one per turn (seat, text, tool calls, tokens), `metrics` one per stage, step and metric.
        """
        with needs_extra("pandas"):
            import pandas
        return pandas.DataFrame(self._table(table))

    def to_polars(self, table: Table = "rollouts") -> Any:
        """A table as a `polars.DataFrame` (needs polars); the tables are those of `to_pandas`."""
        with needs_extra("polars"):
            import polars
        return polars.DataFrame(self._table(table), infer_schema_length=None)

    def _table(self, table: Table) -> list[dict[str, Any]]:
        if table not in TABLES:
            raise UsageError(f"there is no table {table!r}; there are: {', '.join(TABLES)}")
        if table == "metrics":
            return [
                {"stage": stage, "step": step, "metric": name, "value": value}
                for stage in self._reader.stages()
                for name, points in self.metrics(stage).items()
                for step, value in points
            ]
        rows: list[dict[str, Any]] = []
        for row in self.rollouts.rows():
            rollout = self._reader.get(row.id)
            rows += [{**asdict(row), **_parts(rollout)}] if table == "rollouts" else _turns(row, rollout)
        return rows

    def __repr__(self) -> str:
        kind = "store" if self.folder is None else self.folder.recipe
        return f"Run({str(self.path)!r}, {kind}, {len(self.rollouts)} rollouts)"

    def _repr_html_(self) -> str:
        rows = list(self.rollouts.rows(limit=SHOWN_ROWS))
        names = ("id", "stage", "task", "sample_index", "status", "stop_reason", "reward", "turns")
        head = "".join(f"<th>{name}</th>" for name in names)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(str(getattr(row, name)))}</td>" for name in names) + "</tr>" for row in rows
        )
        return f"<p>{escape(repr(self))}</p><table><tr>{head}</tr>{body}</table>"


class Rollouts(Sequence[Rollout]):
    """Stored rollouts, read when they are asked for; called with a filter it returns those that fit."""

    def __init__(self, reader: RunReader, where: SqlCondition | None = None, order: RowOrder | None = None):
        self._reader, self._order = reader, order or RowOrder()
        self._where = where or parse_row_filter("")

    def __call__(self, where: str = "", *, order: str = "id") -> Rollouts:
        """The rollouts that fit a filter, e.g. `'parts.format < 1 and seconds > 20'`, in an order, e.g. `'-reward'`.

        Fields are those of RolloutRow, and parts and metrics of the first scored seat that learns:
        `metrics."any name" == 1`.

        Raises UsageError for an unknown field or operator.
        """
        return Rollouts(self._reader, parse_row_filter(where, scores=self._reader.score_names()), RowOrder.of(order))

    def rows(self, limit: int | None = None) -> Iterator[RolloutRow]:
        """The index rows (task, status, reward, tokens, ...) without reading the conversations."""
        count = len(self) if limit is None else min(limit, len(self))
        for offset in range(0, count, PAGE_ROWS):
            size = min(PAGE_ROWS, count - offset)
            yield from query_page(self._reader, self._where, self._order, offset=offset, limit=size)

    def __len__(self) -> int:
        return count_rows(self._reader, self._where)

    def __iter__(self) -> Iterator[Rollout]:
        for row in self.rows():
            yield self._reader.get(row.id)

    @overload
    def __getitem__(self, index: int) -> Rollout: ...
    @overload
    def __getitem__(self, index: slice) -> list[Rollout]: ...
    def __getitem__(self, index: int | slice) -> Rollout | list[Rollout]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        for row in query_page(self._reader, self._where, self._order, offset=place, limit=1) if place >= 0 else ():
            return self._reader.get(row.id)
        raise IndexError(f"rollout {index} of {len(self)}")

    def __repr__(self) -> str:
        return f"<{len(self)} rollouts of {self._reader.path.parent}>"


def _parts(rollout: Rollout) -> dict[str, Any]:
    """Reward parts and metrics of the seats; with several seats their names stand before them."""
    several = len(rollout.trajectories) > 1
    out: dict[str, Any] = {"error": rollout.error}
    for trajectory in rollout.trajectories:
        prefix = f"{trajectory.seat}/" if several else ""
        if trajectory.score is not None:
            if several:
                out[f"{prefix}reward"] = trajectory.score.reward
            out |= {f"{prefix}part/{name}": value for name, value in trajectory.score.parts.items()}
            out |= {f"{prefix}metric/{name}": value for name, value in trajectory.score.metrics.items()}
    return out


def _turns(row: RolloutRow, rollout: Rollout) -> Iterator[dict[str, Any]]:
    for trajectory in rollout.trajectories:
        for number, turn in enumerate(trajectory.turns):
            yield {
                "rollout": row.id,
                "task": row.task,
                "sample_index": row.sample_index,
                "seat": trajectory.seat,
                "turn": number,
                "observation": "\n".join(message.content for message in turn.observation),
                "action": turn.action.content,
                "tool_calls": [call.name for call in turn.action.tool_calls],
                "finish": turn.finish,
                "completion_tokens": len(turn.tokens.completion) if turn.tokens else None,
            }
