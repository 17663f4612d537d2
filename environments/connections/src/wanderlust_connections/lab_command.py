"""`wander lab`: train a model on a flawed reward until it games it, then on the corrected reward."""

from __future__ import annotations

from pathlib import Path

from wanderlust._lazy import needs_extra
from wanderlust.cli.long_commands import resumable
from wanderlust.cli.options import JsonFlag, PositiveInt
from wanderlust.cli.output import show_result
from wanderlust.errors import UsageError, nearest_names
from wanderlust.runner.terminal import Table
from wanderlust.store.run_folder import REPORT_FILE, RUNS_FOLDER, shell_command
from wanderlust.training.config import default_workers

PICTURE_FILE = "picture.png"


def lab_command(
    name: str,
    /,
    *,
    seed: int = 0,
    out: Path | None = None,
    workers: PositiveInt | None = None,
    json: JsonFlag = False,
) -> None:
    """Rebuild a published reward hack: a small model learns on a flawed reward until it games it, then on a mended one.

    The same command goes on where it was stopped.

    Parameters
    ----------
    name:
        connections: the checker accepts every word in every group. titles: a learnt judge likes one title for all.
    seed:
        Random seed.
    out:
        Folder of the three runs. Default: runs/lab-NAME-seedN.
    workers:
        Processes, one core each; the figures do not depend on it. Default: 2, or 1 on one core.
    """
    with needs_extra("train"):
        from wanderlust_connections.reward_hacking import (
            HACKS,
            TABLE_HEADER,
            draw_lab_picture,
            lab_table_rows,
            run_laboratory,
        )
    if name not in HACKS:
        raise UsageError(f"there is no lab {name!r}; {nearest_names(name, [*HACKS], kind='labs')}")
    folder = out or RUNS_FOLDER / f"lab-{name}-seed{seed}"
    again = shell_command("lab", name, "--seed", str(seed), "--out", folder)
    with resumable(folder, again) as progress:
        body = run_laboratory(name, folder, seed=seed, watch=progress, workers=workers or default_workers())
        draw_lab_picture(body, folder / PICTURE_FILE)
    table = Table(
        *TABLE_HEADER, title="Greedy answers on tasks never trained on; steps are of training", title_justify="center"
    )
    for row in lab_table_rows(body):
        table.add_row(*row)
    probes = {f"wander probe on the {reward} reward": "; ".join(found) for reward, found in body["probe"].items()}
    lines = [f"{what}: {found or 'nothing found'}" for what, found in probes.items()]
    lines += [f"Picture, figures: {folder / PICTURE_FILE}, {folder / REPORT_FILE}", "Read what it wrote:"]
    lines += [f"  {shell_command('show', folder / phase)}" for phase in body["phases"]]
    show_result({"run": str(folder), **body}, *lines, table=table, json=json)
