"""`wander lab`: a reward that can be gamed, gamed and mended on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from wanderlust.core.errors import UsageError
from wanderlust.core.extras import load
from wanderlust.recipes.folder import REPORT
from wanderlust.studio.arguments import Json, Positive
from wanderlust.studio.output import command, near, result, result_json
from wanderlust.studio.resolve import RUNS
from wanderlust.studio.session import cores, resumable

PICTURE = "picture.png"


def lab(
    name: str,
    /,
    *,
    seed: int = 0,
    out: Path | None = None,
    workers: Positive | None = None,
    json: Json = False,
) -> None:
    """Rebuild a published reward hack: a small model learns on a flawed reward until it games it, then on a mended one.

    The same command goes on where it was stopped.

    Parameters
    ----------
    name:
        connections: the checker accepts every word in every group. titles: a learnt judge likes one title for all.
    seed:
        Of everything random.
    out:
        Folder of the three runs. Default: runs/lab-NAME-seedN.
    workers:
        Processes, one core each; the figures do not depend on it. Default: 2, or 1 on one core.
    """
    known = load("wanderlust.recipes.laboratory:HACKS", extra="train")
    if name not in known:
        raise UsageError(f"there is no lab {name!r}; {near(name, [*known], kind='labs')}")
    folder = out or RUNS / f"lab-{name}-seed{seed}"
    again = command("lab", name, "--seed", str(seed), "--out", folder)
    with resumable(folder, again) as progress:
        run = load("wanderlust.recipes.laboratory:laboratory", extra="train")
        body: dict[str, Any] = run(name, folder, seed=seed, watch=progress, workers=workers or min(2, cores()))
        load("wanderlust.recipes.laboratory_report:draw", extra="train")(body, folder / PICTURE)
    if json:
        result_json({"run": str(folder), **body})
        return
    head, rows = (load(f"wanderlust.recipes.laboratory_report:{part}", extra="train") for part in ("HEAD", "rows"))
    table = Table(*head, title="Greedy answers on tasks never trained on; steps are of training")
    for row in rows(body):
        table.add_row(*row)
    result(table)
    for reward, lines in body["probe"].items():
        result(None, f"wander probe on the {reward} reward: " + ("; ".join(lines) or "nothing found"))
    result(None, f"Picture, figures: {folder / PICTURE}, {folder / REPORT}", "Read what it wrote:")
    result(None, *(f"  {command('show', folder / phase)}" for phase in body["phases"]))
