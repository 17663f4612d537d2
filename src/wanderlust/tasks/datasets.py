"""Tasks from data: rows of a JSONL, CSV or Parquet file, or of any iterable of mappings."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from wanderlust._lazy import needs_extra
from wanderlust.errors import UsageError, one_line
from wanderlust.types import Message, Task, user
from wanderlust.types import system as system_message

Row: TypeAlias = Mapping[str, Any]
MAX_COLUMNS_LISTED = 12
"""Column names that an error line lists."""


def load_tasks(
    source: str | Path | Iterable[Row],
    *,
    prompt: str = "prompt",
    answer: str | None = None,
    id: str | None = None,
    info: Sequence[str] = (),
    system: str | None = None,
) -> list[Task]:
    """Load one task per row of a data file.

    Args:
        source: Path of a `.jsonl`, `.csv` or `.parquet` file (Parquet needs the extra `parquet`), or rows as mappings.
        prompt: Column of the question. Text becomes one user message; a list of `{"role": ..., "content": ...}` becomes
            that conversation.
        answer: Column of the ground truth, which the rubric gets and the policy never sees.
        id: Column of the task's id. Default: the row's number, counted from 0.
        info: Columns that are copied to `Task.info`.
        system: Text of a system message that is put before every prompt.

    Returns:
        The tasks, in the order of the rows.

    Raises:
        UsageError: when a file or a column is missing, a row is malformed, or two rows have one id. The message names
            the file and the line.

    Example:
        >>> load_tasks([{"q": "2 + 2?", "a": "4"}], prompt="q", answer="a")[0].answer
        '4'
    """
    tasks: list[Task] = []
    lines: dict[str, str] = {}
    for where, row in numbered_rows(source):
        missing = [name for name in (prompt, answer, id, *info) if name is not None and name not in row]
        if missing:
            columns = ", ".join(list(row)[:MAX_COLUMNS_LISTED]) or "none"
            raise UsageError(f"{where}: there is no column {missing[0]!r}; there are: {columns}")
        task = Task(
            id=str(len(tasks) if id is None else row[id]),
            prompt=_conversation(row[prompt], system, where),
            answer=None if answer is None else row[answer],
            info={name: row[name] for name in info},
        )
        if task.id in lines:
            raise UsageError(f"{where}: the id {task.id!r} was used before, in {lines[task.id]}")
        lines[task.id] = where
        tasks.append(task)
    return tasks


def numbered_rows(source: str | Path | Iterable[Row]) -> Iterator[tuple[str, Row]]:
    """Yield every row of a file or of `source` itself, and what names it in an error. Raises UsageError."""
    if not isinstance(source, str | Path):
        for number, row in enumerate(source):
            if not isinstance(row, Mapping):
                raise UsageError(f"row {number}: a {type(row).__name__} is no mapping of column names to values")
            yield f"row {number}", row
        return
    path = Path(source)
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    readers = {".jsonl": _jsonl_rows, ".csv": _csv_rows, ".parquet": _parquet_rows}
    if path.suffix not in readers:
        raise UsageError(f"{path}: tasks are read from {', '.join(readers)} files, not from {path.suffix or 'this'}")
    try:
        for number, row in readers[path.suffix](path):
            yield f"{path}, line {number}", row
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: this is no UTF-8 text ({error.reason} at byte {error.start})") from error


def _jsonl_rows(path: Path) -> Iterator[tuple[int, Row]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise UsageError(f"{path}, line {number}: this is no JSON ({error})") from error
            if not isinstance(row, dict):
                raise UsageError(f"{path}, line {number}: a row is a JSON object, not a {type(row).__name__}")
            yield number, row


def _csv_rows(path: Path) -> Iterator[tuple[int, Row]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        for row in reader:
            if None in row or None in row.values():
                raise UsageError(f"{path}, line {reader.line_num}: this row has not as many cells as the header")
            yield reader.line_num, row


def _parquet_rows(path: Path) -> Iterator[tuple[int, Row]]:
    with needs_extra("parquet"):
        from pyarrow import ArrowInvalid
        from pyarrow.parquet import ParquetFile
    try:
        with ParquetFile(path) as file:
            yield from enumerate(chain.from_iterable(batch.to_pylist() for batch in file.iter_batches()), 1)
    except (ArrowInvalid, OSError) as error:
        raise UsageError(f"{path}: this is no Parquet file ({one_line(str(error))})") from error


def _conversation(value: Any, system: str | None, where: str) -> tuple[Message, ...]:
    opening = () if system is None else (system_message(system),)
    if isinstance(value, str):
        return (*opening, user(value))
    if not isinstance(value, list) or not value:
        raise UsageError(f"{where}: a prompt is text or a list of messages, not a {type(value).__name__}")
    messages = []
    for message in value:
        if not isinstance(message, Mapping) or not isinstance(message.get("content"), str):
            raise UsageError(f"{where}: a message of a prompt is an object with 'role' and 'content'")
        if message.get("role") not in ("system", "user", "assistant"):
            raise UsageError(f"{where}: a message's role is system, user or assistant, not {message.get('role')!r}")
        messages.append(Message(message["role"], message["content"]))
    return (*opening, *messages)
