"""`wander runs` and `wander list`: what there is."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table
from rich.text import Text

from wanderlust.core.errors import UsageError, WanderlustError
from wanderlust.core.extras import load
from wanderlust.core.text import one_line
from wanderlust.environments.named import ready_made
from wanderlust.recipes.folder import runs_in
from wanderlust.studio.output import result, result_json
from wanderlust.studio.resolve import RUNS


def runs(folder: Path = RUNS, /, *, json: bool = False) -> None:
    """List the runs in a folder: recipe, stage and step reached, finished or not.

    Parameters
    ----------
    folder:
        Where the runs lie.
    json:
        Print one JSON object.
    """
    if folder != RUNS and not folder.is_dir():
        raise UsageError(f"no folder {str(folder)!r}")
    found = [run.as_dict() for run in runs_in(folder)]
    if json:
        result_json({"runs": found})
        return
    if not found:
        result(None, f"No runs in {folder}. Begin one with: wander demo")
        return
    table = Table("run", "recipe", "seed", "reached", "finished")
    for run in found:
        cells = (run["path"], run["recipe"], run["seed"], run["reached"], "yes" if run["finished"] else "no")
        table.add_row(*(Text(one_line(str(cell))) for cell in cells))
    result(table)


def environments(*, json: bool = False) -> None:
    """List the environments that are installed.

    Parameters
    ----------
    json:
        Print one JSON object.
    """
    found = [{"name": name, "target": target, "about": _about(target)} for name, target in ready_made().items()]
    if json:
        result_json({"environments": found})
        return
    table = Table("environment", "what it is", "where")
    for row in found:
        table.add_row(*(Text(one_line(row[key])) for key in ("name", "about", "target")))
    result(table, "Any other: package.module:Name or file.py:Name. Settings follow: reasoning-gym,dataset=countdown")


def _about(target: str) -> str:
    """The first line of an environment's own words; a broken one is listed with what is wrong."""
    try:
        found = load(target)
    except WanderlustError as error:
        return f"cannot be loaded: {error}"
    return ((found.__doc__ or "").strip().splitlines() or [""])[0]
