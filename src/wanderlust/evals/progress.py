"""Progress of an evaluation: rollouts finished, score so far, and what it waits for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from wanderlust.evals.accumulator import ReportAccumulator
from wanderlust.runner.engine import RolloutSettings
from wanderlust.runner.progress import Logger, ProgressLogger
from wanderlust.runner.watchdog import describe_waiting, watch_event_loop
from wanderlust.types import Group

STALL_SECONDS = 10.0
"""How long nothing may finish before a line says what is waited for; then twice as long, and so on."""
REFRESH_SECONDS = 1.0


@dataclass(slots=True, kw_only=True)
class EvaluationProgress:
    """An observer that follows an evaluation; `progress_updates` around it keeps the figures moving."""

    progress: Logger
    tally: ReportAccumulator
    settings: RolloutSettings
    total: int
    clock: Callable[[], float] = time.monotonic
    stall: float = STALL_SECONDS
    finished: int = 0
    before: int = field(init=False)
    began: float = field(init=False)
    last_change: float = field(init=False)
    next_notice: float = field(init=False)

    def __post_init__(self) -> None:
        self.before, self.next_notice = self.tally.totals["played"], self.stall
        self.began = self.last_change = self.clock()

    def __call__(self, groups: Sequence[Group]) -> None:
        """Something has finished; it is kept and counted already."""
        self.last_change, self.next_notice = self.clock(), self.stall
        self.finished += sum(len(group.rollouts) for group in groups)
        if self.before + self.finished >= self.total:
            self.update_progress()

    def update_progress(self) -> None:
        """Hand the newest figures over."""
        totals, passed = self.tally.totals, self.clock() - self.began
        metrics = {"rollouts_per_s": self.finished / passed if passed else 0.0}
        running = self.tally.running_estimate()
        if running is not None:
            metrics["reward"] = running.value
            if running.low is not None and running.high is not None:
                metrics |= {"low": running.low, "high": running.high}
        metrics["rollouts_failed"] = totals["played"] - totals["scored"]
        self.progress.log_step("evaluate", totals["played"], of=self.total, metrics=metrics)

    def note_if_stalled(self) -> None:
        """Say what is waited for when nothing has finished for a while."""
        now = self.clock()
        if self.settings.active and now - self.last_change >= self.next_notice:
            self.next_notice *= 2
            self.note(describe_waiting(self.settings.active, now))

    def note(self, line: str) -> None:
        """Print a line, where the logger can."""
        if isinstance(self.progress, ProgressLogger):
            self.progress.log_line(line)

    async def tick(self) -> None:
        """For ever: figures and waiting, about once a second, and more rarely where counting takes long."""
        while True:
            began = time.perf_counter()
            self.update_progress()
            self.note_if_stalled()
            await asyncio.sleep(max(REFRESH_SECONDS, 20 * (time.perf_counter() - began)))


@asynccontextmanager
async def progress_updates(progress: EvaluationProgress) -> AsyncIterator[None]:
    """Shows how it goes for the time of the block, and frees the event loop from whoever holds it."""
    ticking = asyncio.create_task(progress.tick())
    try:
        with watch_event_loop(progress.note):
            yield
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)
