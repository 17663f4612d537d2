"""The run store: every rollout, metric and event of one run in one SQLite file.

The file is in WAL mode: one process writes, any number read meanwhile, and everything that `add` has committed is
there after `kill -9` (after a power cut, the last moments may be missing). WAL needs a local disk, not NFS.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Self
from weakref import WeakSet

from wanderlust.errors import NotSerializable, StoreError
from wanderlust.store.reader import ROW_COLUMNS, STORE_FORMAT, STORE_VERSION, RunReader, connect_store, store_errors
from wanderlust.store.records import Codec, count_tokens, encodable, pack, pack_tokens, train_dictionary
from wanderlust.store.scores import SCORES_SCHEMA, backfill_scores, has_scores, insert_scores, score_values
from wanderlust.store.whole_files import replacing
from wanderlust.types import Group, Rollout, Status, Task


class WriterLock:
    """Holds `path` + `.lock` until released or until the process dies, `kill -9` included.

    A second holder, in this process or another, gets a StoreError. The side file stays behind on purpose:
    removing it would let two processes lock two different files of one name.
    """

    def __init__(self, path: Path):
        try:
            self._file = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(f"{path}: cannot lock it for writing: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._file, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise StoreError(f"{path}: another writer has it open (process {holder})") from error
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, str(os.getpid()).encode(), 0)
        _held.add(self)

    def release(self) -> None:
        """Let the next writer in; a second call does nothing."""
        if self in _held:
            _held.discard(self)
            os.close(self._file)


LOCKS = Path("/proc/locks")
"""Linux's list of all locks."""


def writer_of(path: Path) -> int | None:
    """The process that writes the file at `path`, None without one; the lock itself is not touched.

    Where the system lists no locks, a process with the number of a killed writer is mistaken for it.
    """
    try:
        side = Path(f"{path}.lock")
        inode, process = side.stat().st_ino, int(side.read_text())
        os.kill(process, 0)
    except PermissionError:
        pass  # it lives, and belongs to another user
    except (OSError, ValueError, OverflowError):
        return None
    try:
        held = [line.split() for line in LOCKS.read_text().splitlines()]
    except OSError:
        return process
    return (
        process
        if any(
            (len(words) > 5 and words[1] == "FLOCK" and words[4] == str(process) and words[5].endswith(f":{inode}"))
            for words in held
        )
        else None
    )


_held: WeakSet[WriterLock] = WeakSet()


def _forget() -> None:
    for lock in list(_held):
        lock.release()


# A forked child shares the lock; without this an orphaned worker would hold it after its parent was killed.
os.register_at_fork(after_in_child=_forget)


DICTIONARY_SAMPLES = 300
"""Records that the compression dictionary is trained on; they are written without it."""

_NARROW = f"create index if not exists narrow on rollouts ({ROW_COLUMNS});"
"""All columns but the payload: filters and orders over a million rows read a fifth of the file. It begins with the id,
so that it grows at its end alone."""
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
{SCORES_SCHEMA}
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
"""The writer's page cache, for the inner pages of the indices of a few million rollouts."""
WAL_BYTES = 64 * 2**20
"""Size of the log at which it is copied into the file: index pages, which every commit changes, are then written once
for many commits."""
_OF_STEP = "json_extract(body, '$.stage') = ? and json_extract(body, '$.step') >= ?"
_INSERT = f"insert or replace into rollouts ({ROW_COLUMNS}, dictionary, payload) values ({', '.join('?' * 18)})"


class RunStore(RunReader):
    """The one open writer of a run; made by `create` or `open`, a context manager that closes the file."""

    def __init__(self, path: Path, lock: WriterLock):
        self.path, self._lock = path, lock
        self._codec = Codec()
        self.provenance = ""
        """Digest that every rollout stored from now on carries, unless it has one."""
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
        with store_errors(path):
            if not has_scores(self._db):
                backfill_scores(self._db, self.record)
        self._score_names = self.score_names()
        ((self._last,),) = self.select("select coalesce(max(id), 0) from rollouts")

    @classmethod
    def create(cls, path: str | Path) -> Self:
        """Create a store. Raises StoreError when anything is at `path` already, or another process writes it."""
        path = Path(path).resolve()
        with _acquire_lock(path) as lock:
            if os.path.lexists(path):
                raise StoreError(f"{path}: exists already and is not overwritten")
            # After a kill there is either no file at `path` or a valid one.
            with store_errors(path), replacing(path) as draft, closing(sqlite3.connect(draft)) as db, db:
                db.executescript(_SCHEMA)
                facts = {"format": STORE_FORMAT, "version": STORE_VERSION}
                db.executemany("insert into meta values (?, ?)", [(k, json.dumps(v)) for k, v in facts.items()])
            return cls(path, lock)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open an existing store. Every page of it is checked first; a damaged or foreign file is not changed."""
        path = Path(path).resolve()
        connect_store(path).close()
        with _acquire_lock(path) as lock:
            connect_store(path, check=True).close()
            return cls(path, lock)

    @staticmethod
    def read(path: str | Path) -> RunReader:
        """Open an existing store for reading only; works while another process writes it."""
        return RunReader(path)

    def close(self) -> None:
        """Close the file and release the lock; a second call does nothing."""
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
        """Store groups and metrics in one commit: all of it or, after an error, nothing.

        Rows of the same stage, step, group and sample index (or metric name) are replaced.
        """
        rows, tokens, scores = [], [], dict[int, dict[str, float]]()
        for group in groups:
            for rollout in group.rollouts:
                self._last += 1
                rollout.provenance = rollout.provenance or self.provenance
                record, dictionary = pack(rollout), self._codec.current
                if not dictionary:
                    self._samples.append(record)
                payload = self._codec.compress(record)
                rows.append(
                    (self._last, stage, step, group.index, *encodable(_index(rollout, env)), dictionary, payload)
                )
                if values := score_values(rollout):
                    scores[self._last] = values
                if (body := pack_tokens(rollout)) is not None:
                    tokens.append((self._last, body))
        figures = [(stage, step, name, value) for name, value in (metrics or {}).items()]
        with self._commit() as db:
            db.executemany(_INSERT, rows)
            db.executemany("insert into tokens values (?, ?)", tokens)
            db.executemany("insert or replace into metrics values (?, ?, ?, ?)", figures)
            names = insert_scores(db, scores.items(), self._score_names)
        self._score_names = names
        if not self._codec.current and len(self._samples) >= DICTIONARY_SAMPLES:
            dictionary_body = train_dictionary(self._samples)
            self._samples.clear()  # too little in common: try again with the next ones
            if dictionary_body is not None:
                with self._commit() as db:
                    number = db.execute("insert into dictionaries (body) values (?)", (dictionary_body,)).lastrowid or 0
                self._codec.adopt(number, dictionary_body)

    def sink(self, *, stage: str, step: int, env: str = "") -> Callable[[Sequence[Group]], None]:
        """Make a function that stores finished groups, in one commit per call.

        A rollout that is not plain data is stored as a failed one with this error; the others are stored unchanged.
        """

        def keep(groups: Sequence[Group]) -> None:
            try:
                self.add(groups, stage=stage, step=step, env=env)
            except NotSerializable:
                for rollout in (rollout for group in groups for rollout in group.rollouts):
                    try:
                        pack(rollout)
                    except NotSerializable as error:
                        rollout.task, rollout.trajectories, rollout.state = Task(id=rollout.task.id), [], {}
                        rollout.status, rollout.stop_reason = Status.ERROR, "EnvironmentFailure"
                        rollout.error = str(error)
                self.add(groups, stage=stage, step=step, env=env)

        return keep

    def add_event(self, kind: str, body: Any = None) -> int:
        """Append one event (`body`: JSON data); returns its id."""
        with self._commit() as db:
            added = db.execute("insert into events (kind, body) values (?, ?)", (kind, json.dumps(body)))
        return added.lastrowid or 0

    def set_meta(self, key: str, value: Any) -> None:
        """Store one fact about the run (`value`: JSON data), replacing an earlier one."""
        with self._commit() as db:
            db.execute("insert or replace into meta values (?, ?)", (key, json.dumps(value)))

    def truncate(self, stages: Sequence[str], step: int) -> int:
        """Delete the rows that a resumed run writes again; returns the number of rollouts.

        `stages` is the stage to resume in, then all later ones: of the first, everything from `step` on is deleted, of
        the others everything. Of events, those whose body has such a `stage` and `step` are.
        """
        places = [(stage, step if i == 0 else -1) for i, stage in enumerate(stages)]
        with self._commit() as db:
            gone = db.executemany("delete from rollouts where stage = ? and step >= ?", places).rowcount
            db.executemany("delete from metrics where stage = ? and step >= ?", places)
            db.executemany(f"delete from events where {_OF_STEP}", places)
        return gone

    @contextmanager
    def _commit(self) -> Iterator[sqlite3.Connection]:
        with store_errors(self.path), self._db:
            yield self._db


@contextmanager
def _acquire_lock(path: Path) -> Iterator[WriterLock]:
    """Acquire the lock; it is released when the block fails."""
    with ExitStack() as undo:
        lock = WriterLock(path)
        undo.callback(lock.release)
        yield lock
        undo.pop_all()


def _index(rollout: Rollout, env: str) -> tuple[Any, ...]:
    """The columns from `sample_index` to `seconds`, as in RolloutRow."""
    turns = [turn for trajectory in rollout.trajectories for turn in trajectory.turns]
    scored = rollout.main_trajectory
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
