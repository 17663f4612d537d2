"""Plays tasks and reports what came out."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from wanderlust.core.contracts import Environment, Limits, Rubric
from wanderlust.core.types import Group, Task
from wanderlust.evals.report import Report
from wanderlust.evals.tally import Tally
from wanderlust.rollout.engine import Crew, Job, Play, Policies, jobs, playing

Observer = Callable[[Sequence[Group]], None]
"""Sees what has finished since it was called last, each rollout once: groups that may hold some of the siblings only.

A progress bar, or `RunStore.sink(stage=..., step=...)`, which keeps all of it in one commit.
"""


async def evaluate(
    env: Environment,
    policy: Policies,
    *,
    tasks: Iterable[Task],
    rubric: Rubric | None = None,
    samples: int = 1,
    observers: Sequence[Observer] = (),
    concurrency: int | Crew = 64,
    seed: int = 0,
    limits: Limits | None = None,
) -> Report:
    """Play every task `samples` times; `tasks` must end. Without `rubric` and `limits` the environment's are used.

    A rollout that fails is in no estimate and never counts as reward 0; the report says how many failed and why.
    What an observer raises ends the evaluation.
    """
    tally, started = Tally(), time.monotonic()
    play = Play(env=env, policy=policy, rubric=rubric, limits=limits, retries=1)
    todo = jobs(tasks, seed=seed, group_size=samples)
    await perform(play, todo, observers=[*observers, tally.add], concurrency=concurrency)
    return tally.report(time.monotonic() - started)


async def perform(
    play: Play, todo: Iterable[Job], *, observers: Sequence[Observer], concurrency: int | Crew = 64
) -> None:
    """Play `todo`; the observers see whatever has finished, one after the other in their order."""
    async with playing(play, todo, concurrency=concurrency) as stream:
        with _seldom_collected():
            while finished := await stream.ready():
                for observer in observers:
                    observer(finished)


SELDOM = 100
"""Collections of the middle generation per full one, ten times Python's own: with 10,000 rollouts in flight, full ones
took more than half of the processor's time."""


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Meanwhile the garbage collector walks over every live object less often: what is in flight is no garbage.

    Of evaluations that overlap, the first sets it back, which costs the others time and nothing else.
    """
    young, middle, old = gc.get_threshold()
    changed = 0 < old < SELDOM
    if changed:
        gc.set_threshold(young, middle, SELDOM)
    try:
        yield
    finally:
        if changed:
            gc.set_threshold(young, middle, old)


def report(groups: Iterable[Group], seconds: float = 0.0) -> Report:
    """The report of groups that were played before, as `RunStore.groups` returns them."""
    tally = Tally()
    tally.add(groups)
    return tally.report(seconds)
