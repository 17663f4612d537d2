"""What judges said before: in memory, and in one SQLite file where it should outlive the process."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from wanderlust.core.errors import StoreError

REMEMBERED = 100_000
"""Verdicts kept in memory; the oldest go first."""

_SCHEMA = """
create table if not exists verdicts (
    key blob primary key, model text not null, answer text not null, usage text not null
) without rowid
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """An answer of a judge that could be read."""

    answer: str
    usage: Mapping[str, int] = field(default_factory=dict)
    """What all calls took that led to it."""


class VerdictCache:
    """Verdicts by judge model and prompt, with a `path` also on a local disk, for any number of processes.

    Failures are never kept. Raises StoreError when the file cannot be read or written.
    """

    def __init__(self, path: str | Path | None = None):
        self.path = None if path is None else Path(path)
        self._known: dict[bytes, Verdict] = {}
        self._db: sqlite3.Connection | None = None
        self._owner = 0

    def get(self, key: bytes) -> Verdict | None:
        """The verdict that was put under `key`."""
        found = self._known.get(key)
        if found is None and self.path is not None:
            with self._open() as db:
                row = db.execute("select answer, usage from verdicts where key = ?", (key,)).fetchone()
            if row is not None:
                found = Verdict(answer=row[0], usage=msgspec.json.decode(row[1], type=dict[str, int]))
                self._remember(key, found)
        return found

    def put(self, key: bytes, verdict: Verdict, *, model: str) -> None:
        """Keep a verdict. The first one put under a key stays on disk."""
        self._remember(key, verdict)
        if self.path is not None:
            row = key, model, verdict.answer, msgspec.json.encode(verdict.usage).decode()
            with self._open() as db:
                db.execute("insert or ignore into verdicts values (?, ?, ?, ?)", row)

    def close(self) -> None:
        """Close the file; it is opened again when it is needed."""
        db, self._db = self._db, None
        if db is not None and self._owner == os.getpid():
            db.close()

    def _remember(self, key: bytes, verdict: Verdict) -> None:
        if len(self._known) >= REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[key] = verdict

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            if self._db is None or self._owner != os.getpid():  # a connection must not cross a fork
                self._db, self._owner = sqlite3.connect(f"{self.path}", timeout=10, isolation_level=None), os.getpid()
                self._db.execute("pragma journal_mode = wal")
                self._db.execute("pragma synchronous = normal")
                self._db.execute(_SCHEMA)
            yield self._db
        except (sqlite3.Error, msgspec.MsgspecError) as error:
            raise StoreError(f"{self.path}: the verdicts cannot be kept there: {error}") from error
