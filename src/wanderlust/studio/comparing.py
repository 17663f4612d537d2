"""`wander compare`: is one run better than another, and where?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from wanderlust.core.errors import UsageError
from wanderlust.core.text import one_line
from wanderlust.evals.comparison import compare
from wanderlust.rollout.store import RunStore
from wanderlust.studio.arguments import Json, Run
from wanderlust.studio.kept import STAGE, evaluation
from wanderlust.studio.output import note, result, result_json

SHOWN = 20
"""Flipped tasks that are listed for people."""


def compare_runs(first: Run, second: Run, /, *, passing: float = 1.0, json: Json = False) -> None:
    """Compare two evaluations task by task: the difference of their rewards with its interval, and what flipped.

    Parameters
    ----------
    first:
        Folder of an evaluation.
    second:
        Folder of another one, of the same tasks.
    passing:
        The reward from which on a rollout has passed.
    """
    one, other = _rewards(first), _rewards(second)
    found = compare(one, other, passing=passing)
    if json:
        result_json({"first": str(first), "second": str(second), **{"comparison": asdict(found)}})
        return
    table = Table("", "reward", "rollouts", "tasks")
    figures = {str(first): found.first, str(second): found.second, "difference": found.difference}
    for name, estimate in figures.items():
        rollouts = "" if name == "difference" else str(estimate.count)
        table.add_row(name, str(estimate), rollouts, str(estimate.clusters))
    verdict = "The difference is clear" if found.clear else "The difference may well be chance"
    result(table, f"{verdict} (p = {found.chance:.2g}).")
    for word, tasks in (("only the second passes", found.gained), ("only the first passes", found.lost)):
        more = [f"  and {len(tasks) - SHOWN} more"] if len(tasks) > SHOWN else []
        result(None, f"{word}: {len(tasks)}", *(f"  {one_line(task)}" for task in tasks[:SHOWN]), *more)
    if found.missing:
        note(f"{found.missing} tasks were scored in one run only and are in no figure")


def _rewards(run: Path) -> dict[str, list[float]]:
    """The first seat's rewards by task."""
    out: dict[str, list[float]] = {}
    with RunStore.read(evaluation(run)[0]) as reader:
        for row in reader.rollouts({"stage": STAGE, "reward !=": None}):
            if row.reward is not None:
                out.setdefault(row.task, []).append(row.reward)
    if not out:
        raise UsageError(f"{run}: no scored rollouts of an evaluation in it")
    return out
