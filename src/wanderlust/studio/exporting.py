"""`wander export`: a run's rollouts for other programs."""

from __future__ import annotations

import json as json_format
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from wanderlust.core.errors import UsageError
from wanderlust.core.extras import load
from wanderlust.data.atif import atif
from wanderlust.data.records import conversations, record
from wanderlust.rollout.reader import Row, RunReader
from wanderlust.rollout.store import RunStore
from wanderlust.studio.arguments import Json, Run
from wanderlust.studio.kept import evaluation
from wanderlust.studio.output import result, result_json

Format = Literal["jsonl", "sft", "atif", "parquet"]
PAGE = 1000


def export(
    run: Run, /, *, to: Format, out: Path | None = None, min_reward: float | None = None, json: Json = False
) -> None:
    """Write a run's rollouts in another format: records (jsonl, parquet), conversations (sft) or ATIF documents.

    Parameters
    ----------
    to:
        jsonl: a record per line. sft: a conversation per line, of scored rollouts only. atif: a folder with a document
        per trajectory. parquet: a table; needs wanderlust[parquet].
    out:
        New file or folder. Default: export-NAME in the run's folder.
    min_reward:
        Leave out rollouts with a lower reward, and those without one.
    """
    store, settings = evaluation(run)
    target = out or store.parent / f"export-{to}{'' if to == 'atif' else '.parquet' if to == 'parquet' else '.jsonl'}"
    if target.exists():
        raise UsageError(f"{target} exists already: name another with --out")
    writer = load("wanderlust.data.parquet:write", extra="parquet") if to == "parquet" else None
    with RunStore.read(store) as reader:
        rows = _rows(reader, min_reward)
        if writer is not None:
            count = writer(target, ({**asdict(row), "record": record(reader.get(row.id))} for row in rows))
        elif to == "atif":
            count = _documents(reader, rows, target, model=settings.get("model") or settings.get("policy"))
        else:
            count = _lines(reader, rows, target, sft=to == "sft")
    if json:
        result_json({"format": to, "out": str(target), "written": count})
    else:
        result(None, f"{count} written to {target}")


def _rows(reader: RunReader, lowest: float | None) -> Iterator[Row]:
    """The rows, a page at a time."""
    last = 0
    where = {} if lowest is None else {"reward >=": lowest}
    while page := reader.rollouts({**where, "id >": last}, limit=PAGE):
        yield from page
        last = page[-1].id


def _lines(reader: RunReader, rows: Iterator[Row], target: Path, *, sft: bool) -> int:
    count = 0
    with target.open("w") as file:
        for row in rows:
            rollout = reader.get(row.id)
            named = {"id": row.id, "env": row.env, "stage": row.stage, "step": row.step}
            for body in conversations(rollout) if sft else [record(rollout, **named)]:
                file.write(json_format.dumps(body, default=str) + "\n")
                count += 1
    return count


def _documents(reader: RunReader, rows: Iterator[Row], target: Path, *, model: Any) -> int:
    target.mkdir(parents=True)
    count = 0
    for row in rows:
        rollout = reader.get(row.id)
        for trajectory in rollout.trajectories:
            body = atif(rollout, trajectory, model=None if model is None else str(model))
            if body is not None:
                name = f"{row.id}-{quote(trajectory.seat, safe='')}.json"
                (target / name).write_text(json_format.dumps(body, indent=1, default=str) + "\n")
                count += 1
    return count
