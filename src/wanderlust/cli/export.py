"""`wander export`: a run's rollouts for other programs."""

from __future__ import annotations

import json as json_format
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from wanderlust import plugins
from wanderlust.cli.options import JsonFlag, RunPath
from wanderlust.cli.output import show_result
from wanderlust.errors import UsageError, nearest_names
from wanderlust.store.formats import exported_rows, render_atif, rollout_to_json, training_rows, write_parquet
from wanderlust.store.reader import RolloutRow, RunReader
from wanderlust.store.run_folder import find_evaluation
from wanderlust.store.store import RunStore

FILE_ENDINGS = {"jsonl": ".jsonl", "sft": ".jsonl", "dpo": ".jsonl", "parquet": ".parquet", "atif": ""}
"""Of the formats' own names; a folder of files has no ending."""
ENTRY_POINTS = "wanderlust.exports"
"""Formats of installed packages: functions `(rollouts, folder, *, model) -> count` that write a new folder."""


def export_command(
    run: RunPath,
    /,
    *,
    to: str,
    out: Path | None = None,
    min_reward: float | None = None,
    stage: str = "",
    json: JsonFlag = False,
) -> None:
    """Write a run's rollouts in another format: records, conversations, pairs, documents, or a benchmark's report.

    Parameters
    ----------
    to:
        jsonl: a record per line. sft: a conversation per line, of scored rollouts only. dpo: the best and the worst
        rollout of each group, per line, where their rewards differ. atif: a folder with a document per trajectory.
        parquet: a table; needs wanderlust[parquet]. Or a format that an installed package brings.
    out:
        New file or folder. Default: export-NAME in the run's folder.
    min_reward:
        Leave out rollouts with a lower reward, and those without one; of dpo, pairs whose best has a lower one.
    stage:
        Only rollouts of this stage: rl, eval, result, ... Default: all.
    """
    store, settings = find_evaluation(run)
    points = plugins.declared(ENTRY_POINTS)
    if to not in FILE_ENDINGS and to not in points:
        raise UsageError(f"there is no format {to!r}; {nearest_names(to, [*FILE_ENDINGS, *points], kind='formats')}")
    target = out or store.parent / f"export-{to}{FILE_ENDINGS.get(to, '')}"
    if target.exists():
        raise UsageError(f"{target} exists already: name another with --out")
    with RunStore.read(store) as reader:
        rows = exported_rows(reader, min_reward=min_reward, stage=stage)
        if to == "parquet":
            records = (
                {
                    **asdict(row),
                    "seat": main.seat if (main := played.main_trajectory) else None,
                    "record": rollout_to_json(played),
                }
                for row in rows
                for played in [reader.get(row.id)]
            )
            count = write_parquet(target, records)
        elif to == "atif":
            count = _documents(reader, rows, target, model=settings.get("model") or settings.get("policy"))
        elif to not in FILE_ENDINGS:
            model = str(settings.get("model") or settings.get("policy") or "")
            count = plugins.load(points[to])((reader.get(row.id) for row in rows), target, model=model)
        elif to == "jsonl":
            records = (
                rollout_to_json(reader.get(row.id), id=row.id, env=row.env, stage=row.stage, step=row.step)
                for row in rows
            )
            count = _lines(records, target)
        else:
            kind: Literal["sft", "dpo"] = "sft" if to == "sft" else "dpo"
            count = _lines(training_rows(reader, kind, min_reward=min_reward, stage=stage), target)
    show_result({"format": to, "out": str(target), "written": count}, f"{count} written to {target}", json=json)


def _lines(bodies: Iterable[dict[str, Any]], target: Path) -> int:
    count = 0
    with target.open("w") as file:
        for body in bodies:
            file.write(json_format.dumps(body, default=str) + "\n")
            count += 1
    return count


def _documents(reader: RunReader, rows: Iterator[RolloutRow], target: Path, *, model: Any) -> int:
    target.mkdir(parents=True)
    count = 0
    for row in rows:
        rollout = reader.get(row.id)
        for trajectory in rollout.trajectories:
            body = render_atif(rollout, trajectory, model=None if model is None else str(model))
            if body is not None:
                name = f"{row.id}-{quote(trajectory.seat, safe='')}.json"
                (target / name).write_text(json_format.dumps(body, indent=1, default=str) + "\n")
                count += 1
    return count
