"""`wander world budget`: success against tokens, simulated time and money, as numbers and as a chart of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from wanderlust.core.errors import StoreError, UsageError
from wanderlust.core.text import one_line
from wanderlust.core.types import Rollout
from wanderlust.evals.budget import MEASURES, Point, curve, grid, outcomes
from wanderlust.rollout.store import RunStore
from wanderlust.studio.kept import STAGE, evaluation
from wanderlust.studio.output import note, result, result_json
from wanderlust.studio.world_wishes import Wish

WIDTH = 40
"""Characters of a full bar."""
ALL = "all"


def draw_budget(wish: Wish) -> int:
    """A curve for each measure that the rollouts know of, and for each value of the key that was asked for."""
    parts = _parts(wish.first, wish.figures.by)
    curves: list[tuple[str, str, list[Point], int]] = []
    for measure in MEASURES:
        for value, played in sorted(parts.items()):
            given = wish.figures
            found, unknown = outcomes(played, measure, passing=given.passing, prices=given.prices())
            if found:
                curves.append((measure, value, curve(found, grid(found)), unknown))
    if not curves:
        raise UsageError(f"{wish.first}: no scored rollout in it says what it spent")
    if wish.json:
        result_json(
            {"run": wish.first, "by": wish.figures.by, "curves": [_record(*one[:3], unknown=one[3]) for one in curves]}
        )
        return 0
    for measure, value, points, unknown in curves:
        result(_chart(measure, value, points))
        if unknown:
            note(f"{unknown} rollouts do not say what they spent ({measure}) and are in no figure")
    return 0


def _parts(run: str, by: str | None) -> dict[str, list[Rollout]]:
    """The rollouts of an evaluation, by a key of their tasks' info, without what they said."""
    parts: dict[str, list[Rollout]] = {}
    try:
        with RunStore.read(evaluation(Path(run))[0]) as reader:
            for group in reader.each_group(STAGE, 0):
                for played in group.rollouts:
                    value = ALL if by is None else str(played.task.info.get(by, "none"))
                    parts.setdefault(value, []).append(played)
    except StoreError as error:
        raise UsageError(str(error)) from error
    if not parts:
        raise UsageError(f"{run}: no rollouts of an evaluation in it")
    return parts


def _record(measure: str, value: str, points: Sequence[Point], *, unknown: int) -> dict[str, Any]:
    return {"measure": measure, "value": value, "unknown": unknown, "points": [asdict(point) for point in points]}


def _chart(measure: str, value: str, points: Sequence[Point]) -> Table:
    count = points[0].success.count
    told = measure.replace("_", " ") + ("" if value == ALL else f", {one_line(value)}")
    table = Table(title=f"success within a budget of {told} ({count} rollouts)", title_justify="left")
    for name in ("at most", "success", "95% interval"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for point in points:
        low, high = point.success.low or 0.0, point.success.high or 0.0
        solid, light = round(WIDTH * point.success.value), round(WIDTH * high)
        bar = "█" * solid + "░" * max(light - solid, 0)
        interval = f"{low:.3f} to {high:.3f}"
        table.add_row(_amount(point.budget, measure), f"{point.success.value:.3f}", interval, Text(bar))
    return table


def _amount(budget: float, measure: str) -> str:
    return f"${budget:,.4f}" if measure == "dollars" else f"{budget:,.0f}"
