"""Asynchronous training learns from every task in its turn, however long it takes: counts, in simulated time."""

from __future__ import annotations

import asyncio
import selectors
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest

from patience import PATIENCE
from wanderlust.environment import Environment, Episode
from wanderlust.policies.scripted import Scripted
from wanderlust.tasks.curriculum import TaskStream
from wanderlust.training.algorithms.presets import algorithm
from wanderlust.training.async_source import AsyncSource
from wanderlust.training.config import TrainConfig
from wanderlust.training.group_source import LocalPlayer
from wanderlust.types import Task, user

COUNT, SIBLINGS, STEPS = 4, 4, 64
FAST, UPDATE, SLOW = 3.0, 4.0, 20.0
"""Seconds of an episode, of an update, and of an episode of a slow task."""

T = TypeVar("T")


class Jumping(selectors.DefaultSelector):
    """Waits for nothing: where only a timer is left, its moment is now. Work in threads takes no time."""

    now, threads = 0.0, 0

    def select(self, timeout: float | None = None) -> Any:
        if not timeout:
            ready = super().select(PATIENCE if timeout is None else 0)
            assert ready or timeout == 0, "nothing will ever happen"
            return ready
        if self.threads:
            return super().select(PATIENCE)
        self.now += timeout
        return super().select(0)


class SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.jumping = Jumping()
        super().__init__(self.jumping)

    def time(self) -> float:
        return self.jumping.now

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        self.jumping.threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(lambda _: setattr(self.jumping, "threads", self.jumping.threads - 1))
        return future


def simulated(work: Callable[[], Awaitable[T]]) -> tuple[T, float]:
    """What the work returns, and the seconds that it took."""

    async def timed() -> tuple[T, float]:
        return await work(), asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(timed())


class Weights:
    """A trainer as far as a source of groups sees it."""

    version = 0


class Waiting(Environment):
    """Every n-th task is slow; siblings named in `hung` never come to an end, once."""

    def __init__(self, weights: Weights, *, every: int, hung: tuple[str, ...] = ()):
        self.weights, self.every, self.hung = weights, every, Counter(hung)

    def tasks(self, split: str = "train") -> Iterator[Task]:
        for n in range(STEPS * COUNT):
            yield Task(id=f"{n}", info={"slow": n % self.every == self.every - 1})

    async def run(self, episode: Episode) -> None:
        sibling = f"{episode.task.id}/{episode.agent.key.split('/')[-2]}"
        episode.state["began"] = self.weights.version
        await episode.agent.act(user("?"))
        if self.hung[sibling]:
            self.hung[sibling] -= 1
            await asyncio.Event().wait()
        await asyncio.sleep(SLOW if episode.task.info["slow"] else FAST)
        episode.reward("drawn", float(episode.rng("reward", episode.agent.key).random() < 0.5))


Learnt = list[tuple[list[tuple[str, int, list[int]]], dict[str, float]]]
"""Of each step: its groups, as task, seed and the versions that began their rollouts, and its figures."""


async def learn(
    env: Waiting, *, max_staleness: int, method: str = "cispo", steps: int = STEPS, jumps: tuple[int, ...] = ()
) -> Learnt:
    """As the training loop does; after the steps of `jumps` several versions are published at once."""
    algo = algorithm(method)
    config = TrainConfig(algorithm=algo, group_size=SIBLINGS)
    player: Any = LocalPlayer(env, config, lambda seed: Scripted(lambda *_: "x"), algorithm=algo)  # type: ignore[arg-type,return-value]
    curriculum = TaskStream(lambda: env.tasks("train"))
    source = AsyncSource(
        player, curriculum, version=lambda: env.weights.version, count=COUNT, steps=steps, max_staleness=max_staleness
    )
    out: Learnt = []
    async with source:
        for step in range(steps):
            batch = await source.next_groups(step)
            groups = [(g.task.id, g.rollouts[0].seed, [r.state["began"] for r in g.rollouts]) for g in batch.groups]
            assert all(env.weights.version - began <= max_staleness for *_, own in groups for began in own)
            out.append((groups, batch.metrics))
            await asyncio.sleep(UPDATE)
            env.weights.version += 1 + 2 * max_staleness * (step in jumps)
    return out


def total(learnt: Learnt, figure: str) -> float:
    return sum(figures[figure] for _, figures in learnt)


@pytest.mark.parametrize("every", [16, 32])
@pytest.mark.parametrize("max_staleness", [1, 2, 4])
def test_slow_tasks_are_learnt_from_in_their_share(every: int, max_staleness: int) -> None:
    learnt, seconds = simulated(lambda: learn(Waiting(Weights(), every=every), max_staleness=max_staleness))
    slow = [[int(task) % every == every - 1 for task, *_ in groups] for groups, _ in learnt]
    for first in range(STEPS - 7):
        window = [one for step in slow[first : first + 8] for one in step]
        assert abs(sum(window) / len(window) - 1 / every) <= 0.2 / every
    assert total(learnt, "groups_dropped") == total(learnt, "rollouts_cut") == 0
    assert [task for groups, _ in learnt for task, *_ in groups] == [str(n) for n in range(STEPS * COUNT)]
    assert {len(own) for groups, _ in learnt for *_, own in groups} == {SIBLINGS}
    one_by_one = STEPS * (FAST + UPDATE) + STEPS * COUNT // every * (SLOW - FAST)
    assert seconds < one_by_one * (0.75 if max_staleness > 1 else 0.9)


def test_a_task_that_takes_no_longer_than_the_staleness_allows_holds_nothing_up() -> None:
    _, seconds = simulated(lambda: learn(Waiting(Weights(), every=16), max_staleness=6))
    assert seconds == pytest.approx(STEPS * UPDATE + FAST, abs=SLOW)


def test_groups_without_a_signal_are_replaced_and_slow_ones_are_not_left_out() -> None:
    learnt, _ = simulated(lambda: learn(Waiting(Weights(), every=16), max_staleness=2, method="dapo"))
    tasks = [int(task) for groups, _ in learnt for task, *_ in groups]
    assert len(tasks) > STEPS * COUNT
    assert tasks == [n % (STEPS * COUNT) for n in range(len(tasks))]
    assert total(learnt, "groups_dropped") == 0


def test_a_group_goes_on_without_stragglers_that_were_waited_for() -> None:
    env = Waiting(Weights(), every=16, hung=("9/1",))
    learnt, seconds = simulated(lambda: learn(env, max_staleness=2))
    sizes = {task: len(own) for groups, _ in learnt for task, _, own in groups}
    assert [task for task, size in sizes.items() if size < SIBLINGS] == ["9"]
    assert (sizes["9"], total(learnt, "rollouts_cut"), total(learnt, "groups_dropped")) == (SIBLINGS - 1, 1, 0)
    assert seconds > 60


def test_a_group_that_is_too_old_is_counted_and_played_again_with_its_seed() -> None:
    learnt, _ = simulated(lambda: learn(Waiting(Weights(), every=16), max_staleness=2, steps=12, jumps=(4,)))
    dropped = [figures["groups_dropped"] for _, figures in learnt]
    assert dropped == [0] * 5 + [2 * COUNT] + [0] * 6
    straight, _ = simulated(lambda: learn(Waiting(Weights(), every=16), max_staleness=2, steps=12))
    assert [[one[:2] for one in groups] for groups, _ in learnt] == [[o[:2] for o in gs] for gs, _ in straight]
