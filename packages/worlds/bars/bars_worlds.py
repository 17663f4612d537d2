"""What a simulated world costs: events, calls, branches, and a thousand of them at once.

Processor time of this process, the best of several rounds, because neither side ever waits and other work on the
machine only adds. Events and calls use an app that does next to nothing, so what is measured is the world. The world
of 1.7 MB (as JSON) has the shape of a Gaia2 universe: twelve apps, a few thousand records, two thirds of it text. One
universe is shared by all worlds that begin in it.
"""

from __future__ import annotations

import gc
import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from random import Random

from benchmarks.bar import Bar

from wanderlust_worlds.apps.mail import Email, Mail
from wanderlust_worlds.apps.user_interface import System, UserInterface
from wanderlust_worlds.engine.app import App, action
from wanderlust_worlds.engine.cow_dict import CowDict, FrozenRecord
from wanderlust_worlds.engine.events import Plan, PlannedCall
from wanderlust_worlds.engine.replay import snapshot
from wanderlust_worlds.engine.world import World

ROUNDS, CALLS, BRANCHES, WORLDS = 7, 20_000, 2_000, 1_000
WRITES = 6
"""Writes in each of the thousand worlds."""
SHELVES, ROWS, MAILS, WORDS = 8, 350, 350, 48


class Tally(App):
    """An app that counts."""

    count: int = 0

    @action("agent", "env", writes=True)
    def add(self, content: str) -> None:
        """Count one more.

        Args:
            content: Anything.
        """
        self.count += 1


class Item(FrozenRecord):
    """A row like a contact, a product or an appointment."""

    id: str
    title: str
    text: str
    tags: tuple[str, ...]
    amount: float


class Shelf(App):
    """An app that keeps rows."""

    items: CowDict[Item] = CowDict()
    chosen: CowDict[str] = CowDict()

    @action("agent", writes=True)
    def retitle(self, item_id: str, title: str) -> str:
        """Give a row another title.

        Args:
            item_id: Which one.
            title: What to call it.
        """
        old = self.items[item_id]
        self.items[item_id] = Item(id=old.id, title=title, text=old.text, tags=old.tags, amount=old.amount)
        return item_id


def spent(work: Callable[[], object], *, rounds: int = ROUNDS) -> float:
    """Processor seconds of the best round."""
    taken = []
    for _ in range(rounds):
        gc.collect()
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return min(taken)


def universe() -> list[App]:
    """Twelve apps of 1.7 MB together, the same in every process."""
    rng = Random("universe")
    words = [f"{rng.getrandbits(24):x}" for _ in range(2_000)]

    def text(count: int) -> str:
        return " ".join(rng.choices(words, k=count))

    def name() -> str:
        return f"{rng.getrandbits(128):032x}"

    apps: list[App] = [UserInterface("AgentUserInterface"), System("SystemApp"), Tally()]
    mails = [Email(email_id=name(), sender="a@example.org", subject=text(5), content=text(130)) for _ in range(MAILS)]
    apps.append(Mail("Emails", user_email="me@example.org", inbox=CowDict({mail.email_id: mail for mail in mails})))
    for number in range(SHELVES):
        rows = [
            Item(id=name(), title=text(3), text=text(WORDS - 2), tags=(text(1),), amount=rng.random())
            for _ in range(ROWS)
        ]
        apps.append(Shelf(f"Shelf{number}", items=CowDict({row.id: row for row in rows})))
    return apps


def events(count: int, kind: str) -> Plan:
    """All at one time, one a second, or each after the other."""
    acts = [
        PlannedCall(
            id=f"e{n}",
            app="Tally",
            action="add",
            args={"content": "m"},
            delay=float(n) if kind == "timed" else 1.0,
            after=(f"e{n - 1}",) if kind == "chain" and n else (),
        )
        for n in range(count)
    ]
    return Plan.of(acts, [Tally()])


def rate(count: int, kind: str) -> float:
    """Events per processor second."""
    plan, batch = events(count, kind), max(1, 10_000 // count)

    def play() -> None:
        for _ in range(batch):
            world = World([Tally()], plan)
            world.advance(count + 2.0)
            assert len(world.done) == count

    return batch * count / spent(play)


def event_bars() -> Iterator[Bar]:
    """The slowest of three kinds, for two sizes."""
    for count in (1_000, 10_000):
        rates = {kind: rate(count, kind) for kind in ("at once", "timed", "chain")}
        note = ", ".join(f"{kind} {figure:,.0f}" for kind, figure in rates.items())
        yield Bar(
            name=f"worlds: simulated events per CPU second, n = {count:,}",
            figure=min(rates.values()),
            bar=100_000,
            aim=400_000,
            unit="/s",
            better="higher",
            note=note,
        )


def call_bar() -> Bar:
    """A call as an agent makes it: found, checked, made, logged, and followed up."""
    args = {"content": "m"}

    def play() -> None:
        world = World([Tally()])
        for _ in range(CALLS):
            world.call("Tally", "add", args)

    figure = spent(play) / CALLS * 1e6
    mail = {"recipients": ["a@example.org"], "subject": "Lunch", "content": "Noon?"}

    def send() -> None:
        world = World([Mail(user_email="me@example.org")])
        for _ in range(CALLS):
            world.call("Mail", "send_email", mail)

    note = f"arguments checked; a mail that is sent, {spent(send) / CALLS * 1e6:.1f} µs"
    return Bar(name="worlds: logged tool call, CPU", figure=figure, bar=8, aim=3, unit="µs", note=note)


def touch(world: World, ids: list[str], count: int) -> None:
    """Writes to one app."""
    for name in ids[:count]:
        world.call("Shelf0", "retitle", {"item_id": name, "title": "new"})


def branch_bars(apps: list[App]) -> Iterator[Bar]:
    """A branch of a world that has lived a little, alone and with a write on both sides."""
    world = World(apps, events(60, "timed"))
    size = len(json.dumps(snapshot(world)["apps"])) / 1e6
    ids = list(apps[-SHELVES].items)  # type: ignore[attr-defined]
    touch(world, ids, 20)
    kept: list[World] = []

    def branch() -> None:
        kept[:] = [world.branch() for _ in range(BRANCHES)]

    def used() -> None:
        for _ in range(BRANCHES // 10):
            touch(world.branch(), ids, 1)
            touch(world, ids, 1)

    figure, after = spent(branch) / BRANCHES * 1e6, spent(used) / (BRANCHES // 10) * 1e6
    note = f"of {size:.2f} MB; with a write on both sides {after:.0f} µs"
    yield Bar(name="worlds: branch, CPU", figure=figure, bar=50, aim=10, unit="µs", note=note)
    kept.clear()
    bare, written = grown(world.branch), grown(lambda: written_branch(world, ids))
    note = f"as Python allocates it, of {BRANCHES:,}; after a write in it {written / 1024:.1f} KiB"
    yield Bar(name="worlds: branch, memory", figure=bare / 1024, bar=20, aim=6, unit="KiB", note=note)


def written_branch(world: World, ids: list[str]) -> World:
    """A branch in which something was changed."""
    twin = world.branch()
    touch(twin, ids, 1)
    return twin


def grown(make: Callable[[], World]) -> float:
    """Bytes that each of many worlds adds."""
    make()
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    kept = [make() for _ in range(BRANCHES)]
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / len(kept)


def memory() -> int:
    """Bytes of this process that are in memory now."""
    with open("/proc/self/statm", encoding="ascii") as counts:
        return int(counts.read().split()[1]) * 4096


def worlds_bar() -> Bar:
    """A thousand worlds from one universe, each of which has been written to; the universe itself is counted."""
    gc.collect()
    before = memory()
    apps = universe()
    shared = memory() - before
    ids, plan = list(apps[-SHELVES].items), events(60, "timed")  # type: ignore[attr-defined]
    kept = [World(apps, plan, seed=seed) for seed in range(WORLDS)]
    for world in kept:
        touch(world, ids, WRITES)
        world.call("Emails", "send_email", {"recipients": ["a@example.org"], "content": "hello"})
        world.advance(0)
    gc.collect()
    figure = (memory() - before) / 1e6
    note = f"resident, the universe's {shared / 1e6:.1f} MB included; {WRITES + 1} writes in two apps of each"
    return Bar(name="worlds: 1,000 live worlds of 1.7 MB", figure=figure, bar=300, aim=60, unit="MB", note=note)


def bars() -> Iterator[Bar]:
    """Memory first, while the process is small."""
    yield worlds_bar()
    yield from event_bars()
    yield call_bar()
    yield from branch_bars(universe())
