"""The run store: every rollout, metric and event of one run in one SQLite file.

The file is in WAL mode: one process writes, any number read meanwhile, and what `add` returned from is there
after `kill -9` (after a power cut, the last moments may be missing). WAL needs a local disk, not NFS.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from wanderlust.errors import NotSerializable, StoreError
from wanderlust.store.lock import WriterLock
from wanderlust.store.reader import ROW_COLUMNS, STORE_FORMAT, STORE_VERSION, RunReader, connect_store, store_errors
from wanderlust.store.records import Codec, count_tokens, pack, pack_tokens, train_dictionary
from wanderlust.types import Group, Rollout, Status, Task

DICTIONARY_SAMPLES = 300
"""Records that the compression dictionary is trained on; they themselves are written without it."""

_NARROW = f"create index if not exists narrow on rollouts ({ROW_COLUMNS});"
"""All that can be asked for without the payloads between: what filters and sorts a million rows reads a fifth of the
file. It begins with the id, so that it grows at its end alone."""
_SCHEMA = f"""
pragma page_size = 4096;
pragma journal_mode = wal;
create table meta (key text primary key, value text not null) without rowid;
create table rollouts (
    id integer primary key, stage text not null, step integer not null, grp integer not null,
    sibling integer not null, env text not null, task text not null, seed integer not null,
    status text not null, stop text not null, reward real, advantage real, turns integer not null,
    tokens_in integer not null, tokens_out integer not null, seconds real not null,
    dictionary integer not null, payload blob not null
);
create unique index places on rollouts (stage, step, grp, sibling);
create index rewards on rollouts (stage, reward);
create index ranks on rollouts (env, reward);
{_NARROW}
create table tokens (
    id integer primary key references rollouts (id) on delete cascade, body blob not null
);
create table dictionaries (id integer primary key, body blob not null);
create table metrics (
    stage text not null, step integer not null, name text not null, value real,
    primary key (stage, name, step)
) without rowid;
create table events (id integer primary key autoincrement, kind text not null, body text not null);
"""


CACHE_BYTES = 32 * 2**20
"""Of the writer: room for the inner pages of the indices of a few million rollouts."""
WAL_BYTES = 64 * 2**20
"""How long the log beside the file may get before it is brought into the file: pages of the indices, which every commit
touches anew, are then written there once for many commits."""
_OF_STEP = "json_extract(body, '$.stage') = ? and json_extract(body, '$.step') >= ?"
_INSERT = f"insert or replace into rollouts ({ROW_COLUMNS}, dictionary, payload) values ({', '.join('?' * 18)})"


class RunStore(RunReader):
    """The one open writer of a run; made by `create` or `open`, a context manager that closes the file."""

    def __init__(self, path: Path, lock: WriterLock):
        self.path, self._lock = path, lock
        self._codec = Codec()
        self._samples: list[bytes] = []
        self._db = connect_store(path, "rw")
        with store_errors(path):
            self._db.execute("pragma synchronous = normal")
            self._db.execute("pragma foreign_keys = on")
            self._db.execute(f"pragma cache_size = {-CACHE_BYTES // 1024}")
            ((page,),) = self._db.execute("pragma page_size")
            self._db.execute(f"pragma wal_autocheckpoint = {WAL_BYTES // page}")
            self._db.execute("create index if not exists ranks on rollouts (env, reward)")  # older files lack both
            self._db.execute(_NARROW)
        self._load_dictionaries()
        ((self._last,),) = self.select("select coalesce(max(id), 0) from rollouts")

    @classmethod
    def create(cls, path: str | Path) -> Self:
        """A new store. Raises StoreError when anything is at `path` already, or another process is at it."""
        path = Path(path).resolve()
        with _acquire_lock(path) as lock:
            if os.path.lexists(path):
                raise StoreError(f"{path}: exists already and is not overwritten")
            _build(path)
            return cls(path, lock)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """An existing store. Every page of it is checked first; a damaged or foreign file is not touched."""
        path = Path(path).resolve()
        connect_store(path).close()
        with _acquire_lock(path) as lock:
            connect_store(path, check=True).close()
            return cls(path, lock)

    @staticmethod
    def read(path: str | Path) -> RunReader:
        """An existing store, for reading only; works while another process writes it."""
        return RunReader(path)

    def close(self) -> None:
        """Close the file and let the next writer in; a second call does nothing."""
        super().close()
        self._lock.release()

    def add(
        self,
        groups: Iterable[Group] = (),
        *,
        stage: str,
        step: int,
        env: str = "",
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Keep groups and metrics in one commit: all of it or, after an error, nothing.

        What is there already under the same stage, step, group and sibling (or metric name) is replaced.
        """
        rows, tokens = [], []
        for group in groups:
            for rollout in group.rollouts:
                self._last += 1
                rows.append((self._last, stage, step, group.index, *_index(rollout, env), *self._pack(rollout)))
                if (body := pack_tokens(rollout)) is not None:
                    tokens.append((self._last, body))
        values = [(stage, step, name, value) for name, value in (metrics or {}).items()]
        with self._commit() as db:
            db.executemany(_INSERT, rows)
            db.executemany("insert into tokens values (?, ?)", tokens)
            db.executemany("insert or replace into metrics values (?, ?, ?, ?)", values)
        if not self._codec.current and len(self._samples) >= DICTIONARY_SAMPLES:
            self._train()

    def sink(self, *, stage: str, step: int, env: str = "") -> Callable[[Sequence[Group]], None]:
        """A function that keeps what has finished, in one commit per call.

        A rollout that is not plain data is kept as a failed one that says so; the others are kept as they are.
        """

        def keep(groups: Sequence[Group]) -> None:
            try:
                self.add(groups, stage=stage, step=step, env=env)
            except NotSerializable:
                for rollout in (rollout for group in groups for rollout in group.rollouts):
                    _mark_not_serializable(rollout)
                self.add(groups, stage=stage, step=step, env=env)

        return keep

    def add_event(self, kind: str, body: Any = None) -> int:
        """Append one event (`body`: JSON data); returns its id."""
        with self._commit() as db:
            added = db.execute("insert into events (kind, body) values (?, ?)", (kind, json.dumps(body)))
        return added.lastrowid or 0

    def set_meta(self, key: str, value: Any) -> None:
        """Keep one fact about the run (`value`: JSON data), replacing an earlier one."""
        with self._commit() as db:
            db.execute("insert or replace into meta values (?, ?)", (key, json.dumps(value)))

    def truncate(self, stages: Sequence[str], step: int) -> int:
        """Forget what a resumed run does again; returns how many rollouts that were.

        `stages` is the stage to resume in, then all that come after it: of the first, everything from `step`
        on goes, of the others everything. Of events those go whose body says such a `stage` and `step`.
        """
        places = [(stage, step if i == 0 else -1) for i, stage in enumerate(stages)]
        with self._commit() as db:
            gone = db.executemany("delete from rollouts where stage = ? and step >= ?", places).rowcount
            db.executemany("delete from metrics where stage = ? and step >= ?", places)
            db.executemany(f"delete from events where {_OF_STEP}", places)
        return gone

    def _pack(self, rollout: Rollout) -> tuple[int, bytes]:
        record = pack(rollout)
        if not self._codec.current:
            self._samples.append(record)
        return self._codec.current, self._codec.compress(record)

    def _train(self) -> None:
        body = train_dictionary(self._samples)
        self._samples.clear()  # too little in common: try again with the next ones
        if body is not None:
            with self._commit() as db:
                number = db.execute("insert into dictionaries (body) values (?)", (body,)).lastrowid or 0
            self._codec.adopt(number, body)

    @contextmanager
    def _commit(self) -> Iterator[sqlite3.Connection]:
        with store_errors(self.path), self._db:
            yield self._db


@contextmanager
def _acquire_lock(path: Path) -> Iterator[WriterLock]:
    """The lock; kept when the block succeeds, released when it fails."""
    with ExitStack() as undo:
        lock = WriterLock(path)
        undo.callback(lock.release)
        yield lock
        undo.pop_all()


def _build(path: Path) -> None:
    """Lay the empty store down whole: after a kill there is either no file at `path` or a valid one."""
    draft = path.with_name(f"{path.name}.new")
    with store_errors(path):
        draft.unlink(missing_ok=True)
        db = sqlite3.connect(draft)
        db.executescript(_SCHEMA)
        with db:
            facts = {"format": STORE_FORMAT, "version": STORE_VERSION}
            db.executemany("insert into meta values (?, ?)", [(k, json.dumps(v)) for k, v in facts.items()])
        db.close()
        draft.rename(path)


def _mark_not_serializable(rollout: Rollout) -> None:
    """Make a failed rollout of one that cannot be stored."""
    try:
        pack(rollout)
    except NotSerializable as error:
        rollout.task, rollout.trajectories, rollout.state = Task(id=rollout.task.id), [], {}
        rollout.status, rollout.stop_reason, rollout.error = Status.ERROR, "EnvironmentFailure", str(error)


def _index(rollout: Rollout, env: str) -> tuple[Any, ...]:
    """The index columns from `sample_index` to `seconds`, as in Row."""
    turns = [turn for trajectory in rollout.trajectories for turn in trajectory.turns]
    scored = next((t for t in rollout.trajectories if t.score is not None), None)
    return (
        rollout.sample_index,
        env,
        rollout.task.id,
        rollout.seed,
        str(rollout.status),
        rollout.stop_reason,
        scored.score.reward if scored and scored.score else None,
        scored.advantage if scored else None,
        len(turns),
        *count_tokens(turns),
        rollout.seconds,
    )
