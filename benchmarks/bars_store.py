"""The run store: how fast rollouts are written, and how fast the worst of an environment are found among a million.

Rollouts of five messages, as an evaluation hands them over: all that finished since the last commit, BATCH at a time.
Writing is counted by the clock, less the time in which this process waited for a processor that had other work, where
the system tells (Linux): waiting for the disk is in it. Processor time and the clock alone stand in the note. Finding
is wall time.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median

from benchmarks.bar import Bar
from wanderlust.store.store import RunStore
from wanderlust.types import Group, Rollout, Score, Task, Trajectory, Turn, assistant, system, user

WRITTEN, KEPT, BATCH, ENVIRONMENTS, ASKED = 100_000, 1_000_000, 256, 10, 50
WORDS = ["north", "lantern", "harbour", "quiet", "seven", "ledger", "copper", "because", "window", "return"]

SCHEDULER = Path("/proc/self/schedstat")


def played(number: int, rng: Random) -> Group:
    """A rollout of two answers, with a few hundred words in it, no two alike."""
    text = " ".join(rng.choices(WORDS, k=60))
    task = Task(id=f"task-{number}", prompt=(system("You are a test."), user(text)), answer=number)
    turns = [
        Turn(observation=task.prompt, action=assistant(" ".join(rng.choices(WORDS, k=40)))),
        Turn(
            observation=(user(f"Again, {number}: {rng.random()}"),),
            action=assistant(f"The answer is {number}."),
            usage={"prompt_tokens": 140, "completion_tokens": 9},
        ),
    ]
    score = Score(reward=rng.random(), parts={"right": 1.0})
    rollout = Rollout(task=task, seed=0, trajectories=[Trajectory(turns=turns, score=score)], seconds=0.5)
    return Group(task=task, rollouts=[rollout], index=number)


def batches(start: int, end: int, rng: Random) -> Iterator[list[Group]]:
    """Groups from `start` to `end`, BATCH at a time."""
    for first in range(start, end, BATCH):
        yield [played(number, rng) for number in range(first, min(first + BATCH, end))]


@dataclass(slots=True)
class Spent:
    """Seconds that writing took."""

    processor: float = 0.0
    clock: float = 0.0
    queued: float = 0.0
    """Of the clock's, ready to run while every processor had other work; 0 where the system does not tell."""

    @classmethod
    def so_far(cls) -> Spent:
        """Of this process."""
        return cls(processor=time.process_time(), clock=time.perf_counter(), queued=_queued())

    def add(self, since: Spent) -> None:
        """What has been spent since then."""
        now = Spent.so_far()
        self.processor += now.processor - since.processor
        self.clock += now.clock - since.clock
        self.queued += now.queued - since.queued

    @property
    def undisturbed(self) -> float:
        """The clock's seconds without those in the queue."""
        return self.clock - self.queued


def _queued() -> float:
    return int(SCHEDULER.read_text().split()[1]) / 1e9 if SCHEDULER.exists() else 0.0


def write(store: RunStore, start: int, end: int) -> Spent:
    """What writing took, making the rollouts not counted; the environments take turns."""
    spent = Spent()
    rng = Random(start)
    sinks = [store.sink(stage="eval", step=0, env=f"env-{n}") for n in range(ENVIRONMENTS)]
    for number, batch in enumerate(batches(start, end, rng)):
        began = Spent.so_far()
        sinks[number % ENVIRONMENTS](batch)
        spent.add(began)
    return spent


def multiply(path: Path, copies: int, *, of: int = WRITTEN) -> None:
    """The `of` rows that are there, `copies` times over, under new places and with other rewards."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("pragma cache_size = -200000")
        names = [row[1] for row in db.execute("pragma table_info(rollouts)")]
        new = {"id": f"id + ? * {of}", "grp": f"grp + ? * {of}", "reward": "abs(random() % 1000000) / 1e6"}
        columns = ", ".join(new.get(name, name) for name in names)
        for copy in range(1, copies):
            db.execute(f"insert into rollouts select {columns} from rollouts where id <= {of}", (copy, copy))
            values = ", ".join(row[1] for row in db.execute("pragma table_info(scores)") if row[1] != "rollout")
            if values:
                db.execute(
                    f"insert into scores (rollout, {values}) select rollout + ? * {of}, {values} from scores"
                    f" where rollout <= {of}",
                    (copy,),
                )
    db.close()


def lowest(path: Path) -> tuple[float, float]:
    """Median seconds to find the 20 lowest rewards of an environment: their rows, and with their conversations."""
    rows, whole = [], []
    for number in range(ASKED):
        with RunStore.read(path) as reader:
            began = time.perf_counter()
            where = {"env": f"env-{number % ENVIRONMENTS}", "reward !=": None}
            found = reader.rollouts(where, order="reward", limit=20)
            rows.append(time.perf_counter() - began)
            rewards = [reader.get(row.id).task.id for row in found]
            whole.append(time.perf_counter() - began)
        if len(rewards) != 20 or [row.reward for row in found] != sorted(row.reward or 0 for row in found):
            raise ValueError("the store did not find the 20 lowest rewards")
    return median(rows), median(whole)


def bars() -> Iterator[Bar]:
    """Rollouts written per second, and the 20 lowest rewards of one of ten environments."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.db"
        with RunStore.create(path) as store:
            spent = write(store, 0, WRITTEN)
        note = f"{WRITTEN / spent.clock:,.0f}/s with {spent.queued:.1f} s in the queue for a processor"
        note += f", {WRITTEN / spent.processor:,.0f}/s of processor time; {BATCH} a commit"
        note += f", {path.stat().st_size / WRITTEN:.0f} bytes each"
        what = f"store: {WRITTEN:,} rollouts written"
        yield Bar(
            name=what, figure=WRITTEN / spent.undisturbed, bar=5000, aim=5000, unit="/s", better="higher", note=note
        )
        multiply(path, KEPT // WRITTEN)
        rows, whole = lowest(path)
        note = f"{1000 * whole:.2f} ms with the conversations; median of {ASKED}, file just opened"
        what = f"store: 20 lowest rewards of an environment, {KEPT:,}"
        yield Bar(name=what, figure=1000 * rows, bar=2.0, aim=1.0, unit="ms", note=note)
