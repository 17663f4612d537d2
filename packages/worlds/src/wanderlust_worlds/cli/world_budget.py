"""`wander world budget`: success against tokens, simulated time and money, as numbers and as a chart of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from wanderlust.cli.options import DEFAULT_PRICES, JsonFlag, PriceOptions
from wanderlust.cli.output import print_json, print_note, print_result
from wanderlust.errors import StoreError, UsageError, one_line
from wanderlust.runner.terminal import Table
from wanderlust.store.run_folder import EVALUATION_STAGE, find_evaluation
from wanderlust.store.store import RunStore
from wanderlust.types import Rollout
from wanderlust_worlds.success_curve import MEASURES, CurvePoint, budget_grid, budget_outcomes, success_curve

CHART_WIDTH = 40
"""Characters of a full bar."""
ALL_VALUES = "all"


def budget_command(
    run: str,
    /,
    *,
    group_by: str | None = None,
    pass_threshold: float = 1.0,
    prices: PriceOptions = DEFAULT_PRICES,
    json: JsonFlag = False,
) -> None:
    """Draw success against tokens, simulated time and cost.

    Parameters
    ----------
    run:
        Folder of an evaluation.
    group_by:
        A curve for each value of this key of the tasks' info.
    pass_threshold:
        The reward from which on a rollout has passed.
    """
    parts = _rollouts_by_key(run, group_by)
    curves: list[tuple[str, str, list[CurvePoint], int]] = []
    for measure in MEASURES:
        for value, played in sorted(parts.items()):
            points, unknown = budget_outcomes(played, measure, pass_threshold=pass_threshold, prices=prices.prices())
            if points:
                curves.append((measure, value, success_curve(points, budget_grid(points)), unknown))
    if not curves:
        raise UsageError(f"{run}: no scored rollout in it says what it spent")
    if json:
        rows = [
            {"measure": name, "value": value, "unknown": unknown, "points": [asdict(one) for one in curve]}
            for name, value, curve, unknown in curves
        ]
        print_json({"run": run, "by": group_by, "curves": rows})
        return
    for measure, value, curve, unknown in curves:
        print_result(_chart(measure, value, curve))
        if unknown:
            print_note(f"{unknown} rollouts do not say what they spent ({measure}) and are in no figure")


def _rollouts_by_key(run: str, group_by: str | None) -> dict[str, list[Rollout]]:
    """The rollouts of an evaluation, by a key of their tasks' info, without what they said."""
    parts: dict[str, list[Rollout]] = {}
    try:
        with RunStore.read(find_evaluation(Path(run))[0]) as reader:
            for group in reader.iter_groups(EVALUATION_STAGE, 0):
                for played in group.rollouts:
                    value = ALL_VALUES if group_by is None else str(played.task.info.get(group_by, "none"))
                    parts.setdefault(value, []).append(played)
    except StoreError as error:
        raise UsageError(str(error)) from error
    if not parts:
        raise UsageError(f"{run}: no rollouts of an evaluation in it")
    return parts


def _chart(measure: str, value: str, points: Sequence[CurvePoint]) -> Table:
    count = points[0].success.count
    title = measure.replace("_", " ") + ("" if value == ALL_VALUES else f", {one_line(value)}")
    table = Table(title=f"success within a budget of {title} ({count} rollouts)", title_justify="left")
    for name in ("at most", "success", "95% interval"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for point in points:
        low, high = point.success.low or 0.0, point.success.high or 0.0
        solid, light = round(CHART_WIDTH * point.success.value), round(CHART_WIDTH * high)
        bar = "█" * solid + "░" * max(light - solid, 0)
        interval = f"{low:.3f} to {high:.3f}"
        amount = f"${point.budget:,.4f}" if measure == "dollars" else f"{point.budget:,.0f}"
        table.add_row(amount, f"{point.success.value:.3f}", interval, bar)
    return table
