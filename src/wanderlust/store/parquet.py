"""Rollouts as a Parquet table: the fields of RolloutRow as columns, the record as JSON text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow.parquet import ParquetWriter

PARQUET_BATCH_ROWS = 1000
_COLUMN_TYPES = {
    **dict.fromkeys(
        ("id", "step", "group", "sample_index", "seed", "turns", "tokens_in", "tokens_out"), pyarrow.int64()
    ),
    **dict.fromkeys(("stage", "env", "task", "status", "stop_reason", "record"), pyarrow.string()),
    **dict.fromkeys(("reward", "advantage", "seconds"), pyarrow.float64()),
}


def write_parquet(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write the rows (fields of `RolloutRow`, and `record`: JSON data); returns their number."""
    schema, waiting, count = pyarrow.schema(list(_COLUMN_TYPES.items())), [], 0
    with ParquetWriter(path, schema) as writer:
        for row in rows:
            waiting.append({**row, "record": json.dumps(row["record"], default=str)})
            count += 1
            if len(waiting) == PARQUET_BATCH_ROWS:
                writer.write_table(pyarrow.Table.from_pylist(waiting, schema))
                waiting.clear()
        writer.write_table(pyarrow.Table.from_pylist(waiting, schema))
    return count
