"""What is shown while an evaluation runs: how far it is, its score so far, and what it waits for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from wanderlust.core.types import Group
from wanderlust.evals.tally import Tally
from wanderlust.evals.watchdog import freed, waiting
from wanderlust.rollout.engine import Play
from wanderlust.studio.progress import Progress

STALL_SECONDS = 10.0
"""How long nothing may finish before a line says what is waited for; then twice as long, and so on."""
REFRESH_SECONDS = 1.0


@dataclass(slots=True, kw_only=True)
class Watching:
    """An observer that follows an evaluation; `watched` around it keeps the figures moving."""

    progress: Progress
    tally: Tally
    play: Play
    total: int
    clock: Callable[[], float] = time.monotonic
    stall: float = STALL_SECONDS
    finished: int = 0
    before: int = field(init=False)
    began: float = field(init=False)
    moved: float = field(init=False)
    patience: float = field(init=False)

    def __post_init__(self) -> None:
        self.before, self.patience = self.tally.totals["played"], self.stall
        self.began = self.moved = self.clock()

    def __call__(self, groups: Sequence[Group]) -> None:
        """Something has finished; it is kept and counted already."""
        self.moved, self.patience = self.clock(), self.stall
        self.finished += sum(len(group.rollouts) for group in groups)
        if self.before + self.finished >= self.total:
            self.show()

    def show(self) -> None:
        """Hand the newest figures over."""
        totals, passed = self.tally.totals, self.clock() - self.began
        figures = {"rollouts_per_s": self.finished / passed if passed else 0.0}
        running = self.tally.running()
        if running is not None:
            figures["reward"] = running.value
            if running.low is not None and running.high is not None:
                figures |= {"low": running.low, "high": running.high}
        figures["failed"] = totals["played"] - totals["scored"]
        self.progress.show("evaluate", totals["played"], of=self.total, figures=figures)

    def look(self) -> None:
        """Say what is waited for when nothing has finished for a while."""
        now = self.clock()
        if self.play.active and now - self.moved >= self.patience:
            self.patience *= 2
            self.progress.tell(waiting(self.play.active, now))

    async def tick(self) -> None:
        """For ever: figures and waiting, about once a second, and more rarely where counting takes long."""
        while True:
            began = time.perf_counter()
            self.show()
            self.look()
            await asyncio.sleep(max(REFRESH_SECONDS, 20 * (time.perf_counter() - began)))


@asynccontextmanager
async def watched(watching: Watching) -> AsyncIterator[None]:
    """Shows how it goes for the time of the block, and frees the event loop from whoever holds it."""
    ticking = asyncio.create_task(watching.tick())
    try:
        with freed(watching.progress.tell):
            yield
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)
