"""What a sandbox costs: a command in it, alone and in 64 boxes at once, and a fork of its folder against copying it.

Processor time of this process and of everything it has started, because that is what a busy machine pays; a command is
`true`, so all of it is the sandbox's. The folder that is forked has 2,000 files of 8 KiB.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from os import times
from pathlib import Path
from statistics import median

from benchmarks.bar import Bar
from wanderlust.tools.sandbox import LocalSandbox, SandboxBounds
from wanderlust.tools.sandbox.box import Box

COMMANDS, ROUNDS, FORKS, CROWD = 20, 5, 10, 64
FILES, SIZE = 2_000, 8 << 10
BOUNDS = SandboxBounds(memory=256 << 20, disk=64 << 20)


def processor() -> float:
    """Seconds of processor time of this process and of its children that have ended."""
    spent = times()
    return spent.user + spent.system + spent.children_user + spent.children_system


async def cost(action: Callable[[], Awaitable[object]], count: int) -> tuple[float, float]:
    """Processor and wall-clock milliseconds of one action, as a mean of many: the processor's clock is coarse."""
    spent, started = processor(), time.perf_counter()
    for _ in range(count):
        await action()
    return (processor() - spent) / count * 1e3, (time.perf_counter() - started) / count * 1e3


async def commands() -> list[tuple[float, float]]:
    """Rounds of commands in one sandbox, the first left out."""
    sandbox = await LocalSandbox.open(BOUNDS)
    try:
        return [await cost(lambda: sandbox.run(["true"]), COMMANDS) for _ in range(ROUNDS + 1)][1:]
    finally:
        await sandbox.close()


async def crowd() -> list[tuple[float, float]]:
    """Rounds of one command in each of many open sandboxes with a door, all at once; the first round is left out."""
    async with AsyncExitStack() as stack:
        sandboxes = [await stack.enter_async_context(Box(bounds=BOUNDS).opened()) for _ in range(CROWD)]
        for sandbox in sandboxes:
            stack.enter_context(await sandbox.listen())

        async def everywhere() -> None:
            await asyncio.gather(*(sandbox.run(["true"]) for sandbox in sandboxes))

        return [await cost(everywhere, 1) for _ in range(ROUNDS + 1)][1:]


async def forks(*, overlay: bool) -> float:
    """Processor milliseconds of forking the folder and closing the fork again."""
    sandbox = await LocalSandbox.open(BOUNDS, overlay=overlay)

    async def fork() -> None:
        await (await sandbox.fork()).close()

    try:
        await sandbox.run(f"for n in $(seq {FILES}); do head -c {SIZE} /dev/zero > f$n; done")
        await fork()
        return (await cost(fork, FORKS))[0]
    finally:
        await sandbox.close()


async def copying() -> float:
    """Processor milliseconds of copying the same folder on disk with `shutil.copytree`."""
    with tempfile.TemporaryDirectory(prefix="wanderlust-bars-") as place:
        source = Path(place) / "source"
        source.mkdir()
        for number in range(FILES):
            (source / f"f{number}").write_bytes(bytes(SIZE))

        async def copy() -> None:
            shutil.copytree(source, Path(place) / "copy")
            shutil.rmtree(Path(place) / "copy")

        return (await cost(copy, FORKS))[0]


def bars() -> Iterator[Bar]:
    """Start of a command, alone and in a crowd, and a fork."""
    rounds = asyncio.run(commands())
    wall = median(wall for _, wall in rounds)
    figure = median(spent for spent, _ in rounds)
    note = f"{wall:.0f} ms wall on this machine as it was"
    yield Bar(name="sandbox: start of a command, CPU", figure=figure, bar=30, aim=10, unit="ms", note=note)
    rounds = asyncio.run(crowd())
    wall = median(wall for _, wall in rounds)
    figure = median(spent for spent, _ in rounds) / CROWD
    note = f"a user, a network and an endpoint's door each; {wall:.0f} ms wall for all {CROWD}"
    name = f"sandbox: command in each of {CROWD} boxes at once, CPU"
    yield Bar(name=name, figure=figure, bar=20, aim=8, unit="ms", note=note)
    overlay, copy, plain = asyncio.run(forks(overlay=True)), asyncio.run(forks(overlay=False)), asyncio.run(copying())
    note = f"overlay {overlay:.1f} ms, copy in memory {copy:.1f} ms, shutil.copytree on disk {plain:.1f} ms"
    yield Bar(
        name="sandbox: fork of 2,000 files against copytree",
        figure=overlay / plain,
        bar=0.5,
        aim=0.1,
        unit="x",
        note=note,
    )
