"""The studio over a million rollouts, asked as its page asks: a process of its own, over HTTP, by the clock.

The store is written by its own writer, tiny rollouts, and then multiplied. Each question is put ASKED times with other
values, so that nothing that is kept answers it; the figure is the median, the slowest stands in the note. As for the
store, seconds in which the studio waited for a processor that had other work are not counted, where the system tells.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import fmean, median
from urllib.parse import quote, urlsplit

import wanderlust.studio
from benchmarks.bar import Bar
from benchmarks.bars_store import Spent, multiply
from wanderlust.environment import Environment, Episode
from wanderlust.evals.evaluate import evaluate
from wanderlust.policies.scripted import Scripted
from wanderlust.store.store import RunStore
from wanderlust.types import Group, Rollout, Score, Task, Trajectory, Turn, assistant, user

WRITTEN, KEPT, BATCH, ENVIRONMENTS = 20_000, 1_000_000, 500, 10
ASKED, STORED, TURNS, LARGE = 7, 40, 500, 10_000_000
PAIRS, PLAYED = 10, 5000
STOPS = ("done", "max_turns", "timeout")
PAGE = Path(wanderlust.studio.__file__).parent / "page"


def tiny(number: int, rng: Random) -> Group:
    """A rollout of one short answer."""
    task = Task(id=f"task-{number}", prompt=(user(f"What is {number}?"),), answer=number)
    turn = Turn(
        observation=task.prompt, action=assistant(str(rng.randrange(10**6))), usage={"prompt_tokens": number % 97}
    )
    score = Score(reward=rng.random(), parts={"format": number % 2}, metrics={"words": number % 997 / 1000})
    seat = Trajectory(turns=[turn] * (number % 5), score=score)
    stop = rng.choice(STOPS)
    return Group(
        task=task,
        rollouts=[Rollout(task=task, seed=0, trajectories=[seat], stop_reason=stop, seconds=rng.random())],
        index=number,
    )


def fill(path: Path) -> None:
    """The run of a million."""
    rng = Random(0)
    with RunStore.create(path) as store:
        for first in range(0, WRITTEN, BATCH):
            groups = [tiny(number, rng) for number in range(first, first + BATCH)]
            store.add(groups, stage="eval", step=0, env=f"env-{first // BATCH % ENVIRONMENTS}")
    multiply(path, KEPT // WRITTEN, of=WRITTEN)


@dataclass(slots=True)
class Studio:
    """A studio in a process of its own."""

    process: subprocess.Popen[str]
    host: str
    token: str
    clock: list[float] = field(default_factory=list)
    """Seconds of each answer by the clock alone."""

    def ask(self, path: str, **query: object) -> tuple[float, bytes]:
        """Seconds until the whole answer was there, less those spent waiting for a processor, and the answer."""
        words = "&".join(f"{name}={quote(str(value))}" for name, value in query.items())
        began, queued, busy = time.perf_counter(), self.queued(), self.seconds()
        connection = http.client.HTTPConnection(self.host, timeout=120)
        connection.request("GET", f"{path}?{words}", headers={"Authorization": f"Bearer {self.token}"})
        response = connection.getresponse()
        body = response.read()
        connection.close()
        took = time.perf_counter() - began
        self.clock.append(took)
        took = max(took - (self.queued() - queued), (self.seconds() - busy) / 2, 0.001)  # two cores at most
        if response.status != 200:
            raise ValueError(f"{path}: {response.status} {body[:200]!r}")
        return took, body

    def memory(self) -> float:
        """The most it has held, in MB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM"))

    def queued(self) -> float:
        """Seconds in which it or this process was ready and other work had the processor."""
        tasks = [*Path(f"/proc/{self.process.pid}/task").glob("*/schedstat"), Path("/proc/self/schedstat")]
        return sum(int(task.read_text().split()[1]) for task in tasks) / 1e9

    def seconds(self) -> float:
        """Of the processor, so far."""
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def studio(path: Path) -> Iterator[Studio]:
    """`wander studio` over that run, freshly started."""
    command = [sys.executable, "-m", "wanderlust.cli.main", "studio", str(path), "--port", "0", "--no-open", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            said = ""
            while (line := process.stdout.readline()) and line != "}\n":
                said += line
            place = urlsplit(json.loads(said + line)["url"])
            yield Studio(process, place.netloc, place.query.partition("=")[2])
        finally:
            process.terminate()


def table(path: Path) -> Iterator[Bar]:
    """Open, filter, sort, page."""
    key, rng = path.stem, Random(1)
    with studio(path) as shown:
        where = f"/api/runs/{key}/rollouts"
        first = shown.ask(where)[0]

        def filtered() -> float:
            env, low = f"env-{rng.randrange(10)}", rng.random() / 2
            return shown.ask(where, filter=f'env == "{env}" and reward < {low} and stop_reason == "max_turns"')[0]

        def rare() -> float:
            return shown.ask(
                where, filter=f"turns == {rng.randrange(5)} and seconds < {rng.random()} and not (seed > 0)"
            )[0]

        def scored() -> float:
            return shown.ask(where, filter=f"parts.format < 1 and metrics.words < {rng.random()}", sort="-reward")[0]

        def ordered() -> float:
            return shown.ask(
                where, filter=f"reward > {rng.random() / 9}", sort=rng.choice(["-turns", "task", "-reward"])
            )[0]

        def paged() -> float:
            return shown.ask(where, offset=rng.randrange(KEPT - 200))[0]

        def far() -> float:
            return shown.ask(where, sort="-reward", offset=rng.randrange(KEPT - 200))[0]

        def million(what: str, times: list[float], note: str = "") -> Bar:
            clock = shown.clock[-len(times) :]
            slow = f"slowest {1000 * max(times):.0f} ms; by the clock alone {1000 * median(clock):.0f} ms{note}"
            name = f"studio: {what}, {KEPT:,} rollouts"
            return Bar(name=name, figure=1000 * median(times), bar=1000, aim=300, unit="ms", note=slow)

        yield million("first rows", [first], "; server just started")
        yield million("run opened", [shown.ask(f"/api/runs/{key}")[0] for _ in range(2)])
        yield million("filter by three fields", [filtered() for _ in range(ASKED)])
        yield million("filter that no index helps", [rare() for _ in range(ASKED)])
        yield million("filter by a part and a metric, sorted", [scored() for _ in range(ASKED)])
        yield million("filter and sort by a column", [ordered() for _ in range(ASKED)])
        yield million("page anywhere", [paged() for _ in range(ASKED)])
        with studio(path) as fresh:
            jump = fresh.ask(where, sort="-reward", offset=KEPT // 2)[0]
        far()
        yield million("page anywhere, sorted", [far() for _ in range(ASKED)], f"; the first jump {1000 * jump:.0f} ms")
        yield Bar(
            name=f"studio: server's memory, {KEPT:,} rollouts", figure=shown.memory(), bar=300, aim=200, unit="MB"
        )


def live(path: Path) -> Iterator[Bar]:
    """From the commit in this process to the event in this process, through the studio's."""
    rng, times = Random(2), list[float]()
    with RunStore.create(path) as store, studio(path) as shown:
        connection = http.client.HTTPConnection(shown.host, timeout=60)
        connection.request("GET", f"/api/stream?run={path.stem}", headers={"Authorization": f"Bearer {shown.token}"})
        stream = connection.getresponse()
        for number in range(STORED):
            store.add([tiny(number, rng)], stage="eval", step=0, env="e")
            began = time.perf_counter()
            while f'"last_id":{number + 1},'.encode() not in (line := stream.readline()):
                assert line
            times.append(time.perf_counter() - began)
        connection.close()
    note = f"slowest of {STORED}: {1000 * max(times):.0f} ms"
    yield Bar(
        name="studio: stored rollout to event", figure=1000 * median(times), bar=500, aim=200, unit="ms", note=note
    )


def one_large(path: Path) -> None:
    """A run of one rollout of TURNS turns and LARGE bytes."""
    rng = Random(3)
    texts = [rng.randbytes(LARGE // TURNS // 4).hex() for _ in range(2 * TURNS)]
    task = Task(id="large", prompt=(user("Go on."),))
    turns = [Turn(observation=(user(a),), action=assistant(b)) for a, b in zip(texts[::2], texts[1::2], strict=True)]
    played = Rollout(task=task, seed=0, trajectories=[Trajectory(turns=turns, score=Score(reward=1.0))])
    with RunStore.create(path) as store:
        store.add([Group(task=task, rollouts=[played])], stage="eval", step=0)


def large(path: Path) -> Iterator[Bar]:
    """It is opened."""
    one_large(path)
    with studio(path) as shown:
        answers = [shown.ask(f"/api/runs/{path.stem}/rollouts/1") for _ in range(ASKED)]
    times = [took for took, _ in answers]
    note = f"{len(answers[0][1]) / 1e6:.1f} MB over HTTP; the first {1000 * times[0]:.0f} ms"
    yield Bar(
        name=f"studio: a rollout of 10 MB, {TURNS} turns",
        figure=1000 * median(times),
        bar=2000,
        aim=700,
        unit="ms",
        note=note,
    )


class Words(Environment):
    """Three short answers."""

    async def run(self, episode: Episode) -> None:
        for _ in range(3):
            await episode.agent.act(user("Say something."))
        episode.reward("said", 1.0)

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id=f"{split}-{number}") for number in range(PLAYED)]


def played(path: Path, beside: Callable[[Path], AbstractContextManager[object]] = nullcontext) -> float:
    """Seconds of an evaluation that is stored, without those it waited for a processor that had other work."""
    env, spent = Words(), Spent()
    with RunStore.create(path) as store, beside(path):
        began = Spent.so_far()
        sink = store.sink(stage="eval", step=0, env="words")
        asyncio.run(evaluate(env, Scripted(["Something."] * 3), tasks=env.tasks(), observers=[sink]))
        spent.add(began)
    return spent.undisturbed


LISTEN = """
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1])
connection.request("GET", "/api/stream?run=" + sys.argv[3], headers={"Authorization": "Bearer " + sys.argv[2]})
stream = connection.getresponse()
while line := stream.readline():
    print(line[:5], flush=True)
"""
"""A tab: it reads what comes."""


@dataclass(slots=True)
class Tab:
    """A studio and a tab that shows the run."""

    shares: list[float] = field(default_factory=list)
    """What the studio took of a core, each time."""

    @contextmanager
    def __call__(self, path: Path) -> Iterator[None]:
        """For the time of the block."""
        with studio(path) as shown:
            command = [sys.executable, "-c", LISTEN, shown.host, shown.token, path.stem]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tab:
                assert tab.stdout is not None
                tab.stdout.readline()  # it is there
                before, began = shown.seconds(), time.perf_counter()
                yield
                self.shares.append((shown.seconds() - before) / (time.perf_counter() - began))
                tab.terminate()
                tab.stdout.read()


def watched(folder: Path) -> Iterator[Bar]:
    """The same evaluation alone and with a studio that shows it, in turns."""
    tab, ratios = Tab(), list[float]()
    played(folder / "warm.db")
    for number in range(PAIRS):
        beside = {"alone": nullcontext, "shown": tab}
        names = ["alone", "shown"] if number % 2 else ["shown", "alone"]
        took = {name: played(folder / f"{name}-{number}.db", beside[name]) for name in names}
        ratios.append(took["shown"] / took["alone"])
    each = ", ".join(f"{100 * (ratio - 1):+.1f}" for ratio in ratios)
    note = f"pairs: {each}; the studio took {100 * fmean(tab.shares):.0f}% of a core"
    figure = 100 * (median(ratios) - 1)
    yield Bar(name="studio: an evaluation beside it is slower by", figure=figure, bar=3, aim=1, unit="%", note=note)


def first_load() -> Iterator[Bar]:
    """Everything that the page could load, packed as it is sent: each of its screens, and its fonts."""
    files = [file for file in PAGE.rglob("*") if file.is_file() and file.suffix not in (".br", ".gz")]
    packed = [file.with_name(f"{file.name}.br") for file in files]
    sizes = [(pack if pack.is_file() else file).stat().st_size for file, pack in zip(files, packed, strict=True)]
    note = "all screens and fonts, more than a first load needs" if files else "the page is not built: make page"
    figure = sum(sizes) / 1000 if files else None
    yield Bar(name="studio: the whole page, transferred", figure=figure, bar=700, aim=350, unit="KB", note=note)


def bars() -> Iterator[Bar]:
    """All of them."""
    yield from first_load()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        yield from live(folder / "live.db")
        yield from large(folder / "large.db")
        (folder / "pairs").mkdir()
        yield from watched(folder / "pairs")
        fill(folder / "million.db")
        yield from table(folder / "million.db")
