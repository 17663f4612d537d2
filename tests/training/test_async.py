"""Asynchronous mode: rollouts flow while the trainer steps, and what is promised of it holds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from test_recipe_train import Stopping

from toys import TOKENIZER, Twice, fresh
from wanderlust.environment import Environment, Episode
from wanderlust.policies.local import SamplingOptions
from wanderlust.policies.local.device import one_thread
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.runner.progress import NullLogger
from wanderlust.store.store import RunStore
from wanderlust.tasks.curriculum import TaskStream
from wanderlust.training.algorithms.base import Algorithm
from wanderlust.training.algorithms.presets import algorithm
from wanderlust.training.async_source import AsyncSource
from wanderlust.training.batch.samples import build_samples
from wanderlust.training.checkpoint import Run
from wanderlust.training.config import OptimizerConfig, TrainConfig
from wanderlust.training.group_source import LocalPlayer
from wanderlust.training.train import run_training
from wanderlust.training.trainers.in_process import InProcessTrainer
from wanderlust.types import Group

SIBLINGS = 4


class Stuck(Twice):
    """Chosen siblings of one task never come to an end, so many times."""

    stuck: ClassVar[Counter[tuple[str, int]]] = Counter()

    async def run(self, episode: Episode) -> None:
        sibling = int(episode.agent.key.split("/")[-2])
        place = (episode.task.id, sibling)
        if self.stuck[place] > 0:
            self.stuck[place] -= 1
            await asyncio.Event().wait()
        await super().run(episode)


@pytest.fixture
def trainer() -> Iterator[InProcessTrainer]:
    one_thread()
    with InProcessTrainer(fresh(0), TOKENIZER, OptimizerConfig(steps=20, lr=1e-2)) as made:
        yield made


def flow(
    trainer: InProcessTrainer,
    env: Environment,
    lag: dict[str, Any],
    *,
    method: Algorithm | None = None,
    steps: int = 6,
) -> AsyncSource:
    method = method or algorithm("cispo")
    play = TrainConfig(algorithm=method, max_tokens=1, group_size=SIBLINGS, implementation="transformers")
    policy = partial(drawing, trainer, play.sampling)
    company = LocalPlayer(env, play, policy, algorithm=method)
    curriculum = TaskStream(lambda: env.tasks("train"))
    return AsyncSource(company, curriculum, version=lambda: trainer.version, count=2, steps=steps, **lag)


def drawing(trainer: InProcessTrainer, sampling: SamplingOptions, seed: int) -> TokenPolicy:
    return TokenPolicy(trainer, trainer.renderer, sampling, seed=seed)


async def learn(
    trainer: InProcessTrainer, source: AsyncSource, steps: Sequence[int]
) -> list[tuple[list[Group], dict[str, float]]]:
    """Some steps, as the learner takes them."""
    out, loss = [], source.local_player.algorithm.loss
    async with source:
        for step in steps:
            harvest = await source.next_groups(step)
            out.append((harvest.groups, harvest.metrics))
            await trainer.forward_backward(build_samples(harvest.groups, loss), loss)
            await trainer.optim_step()
            await trainer.publish()
    return out


def episodes(groups: Sequence[Group]) -> Counter[tuple[str, int, int]]:
    return Counter((r.task.id, r.seed, r.sample_index) for group in groups for r in group.rollouts)


def lags(groups: Sequence[Group], now: int) -> list[int]:
    turns = [turn for g in groups for r in g.rollouts for turn in r.trajectory.turns]
    return [now - turn.tokens.version for turn in turns if turn.tokens is not None]


@pytest.mark.parametrize("most", [0, 1, 3])
def test_no_turn_is_older_than_allowed_and_every_group_is_learnt_from_once(
    trainer: InProcessTrainer, most: int
) -> None:
    taken = asyncio.run(learn(trainer, flow(trainer, Twice(), dict(max_staleness=most)), range(6)))
    assert all(
        max(lags(groups, now)) == figures["staleness_max"] <= most for now, (groups, figures) in enumerate(taken)
    )
    assert taken[-1][1]["staleness_max"] == most  # they do play ahead
    seen = sum((episodes(groups) for groups, _ in taken), Counter())
    assert len(seen) == 6 * 2 * SIBLINGS
    assert set(seen.values()) == {1}
    assert [[g.index for g in groups] for groups, _ in taken] == [[0, 1]] * 6


def test_a_step_that_has_waited_long_enough_does_without_stragglers(trainer: InProcessTrainer) -> None:
    Stuck.stuck = Counter({(f"twice-{word}", 1): 1 for word in "abcd"})
    taken = asyncio.run(learn(trainer, flow(trainer, Stuck(), dict(max_staleness=1, straggler_seconds=0.0)), range(2)))
    assert all(len(group.rollouts) == SIBLINGS - 1 for groups, _ in taken for group in groups)


def test_useless_groups_are_replaced_and_replacements_counted(trainer: InProcessTrainer) -> None:
    dapo = algorithm("dapo")
    taken = asyncio.run(learn(trainer, flow(trainer, Twice(), dict(max_staleness=1), method=dapo), range(6)))
    assert max(len(groups) for groups, _ in taken) <= 2 * 4
    assert sum(len(groups) for groups, _ in taken) >= 12


def test_a_saved_flow_goes_on_with_the_same_tasks_and_seeds(trainer: InProcessTrainer) -> None:
    source = flow(trainer, Twice(), dict(max_staleness=2))

    async def half() -> dict[str, Any]:
        first.extend(await learn(trainer, source, range(3)))
        return source.state()

    first: list[Any] = []
    state = asyncio.run(half())
    assert any(done for block in state["blocks"] for _, _, done in block["flights"])  # what was over is not lost
    again = flow(trainer, Twice(), dict(max_staleness=2))
    again.restore(state)
    rest = asyncio.run(learn(trainer, again, range(3, 6)))
    seen = sum((episodes(groups) for groups, _ in [*first, *rest]), Counter())
    whole = asyncio.run(learn(trainer, flow(trainer, Twice(), dict(max_staleness=2)), range(6)))
    assert seen == sum((episodes(groups) for groups, _ in whole), Counter())
    assert all(task.done() for flight in again.in_flight for task in flight.playing.values())


def test_leaving_ends_what_is_being_played(trainer: InProcessTrainer) -> None:
    async def stopped() -> set[asyncio.Task[Any]]:
        Stuck.stuck = Counter({(f"twice-{word}", 0): 9 for word in "abcd"})
        source = flow(trainer, Stuck(), dict(max_staleness=2, min_finished_share=0.5, straggler_seconds=0.0))
        async with source:
            await source.next_groups(0)
            assert any(not task.done() for flight in source.in_flight for task in flight.playing.values())
        return {task for task in asyncio.all_tasks() if task is not asyncio.current_task() and not task.done()}

    assert asyncio.run(stopped()) == set()


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start") / "fresh"
    save_pretrained(folder, fresh(0), TOKENIZER)
    return folder


def settings(start: Path, **changes: Any) -> TrainConfig:
    config = TrainConfig(
        env="toys:Twice",
        policy=str(start),
        algorithm="grpo-tis",
        steps=80,
        tasks_per_step=8,
        lr=6e-3,
        max_tokens=1,
        eval_every=80,
        max_staleness=2,
    )
    return replace(config, **changes)


# How far the sampler falls behind depends on the machine's load, and with it how far the two disagree.
@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.SamplerGapWarning")
@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
@pytest.mark.parametrize(
    "changes", [{}, pytest.param({"lora": 4}, marks=pytest.mark.proof("learning"))], ids=["weights", "adapters"]
)
def test_it_learns_a_few_versions_behind(changes: dict[str, int], start: Path, tmp_path: Path) -> None:
    config = settings(start, **changes)
    run = Run.begin(tmp_path / "run", config)
    curve = run_training(config, run, logger=NullLogger(), workers=1)["curve"]
    run.store.close()
    first, last = (point["rewards"]["agent"]["value"] for point in curve)
    assert last > first + 0.5
    with RunStore.read(tmp_path / "run/rollouts.db") as store:
        figures = {name: [v for _, v in store.metrics("rl", name)] for name in ("staleness_max", "staleness_mean")}
        gaps = [value for _, value in store.metrics("rl", "sampler_logprob_diff_max")]
    assert max(figures["staleness_max"]) == 2
    assert 0 < max(figures["staleness_mean"]) <= 2
    assert gaps[0] < 1e-4


@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
def test_a_stopped_run_loses_no_group(start: Path, tmp_path: Path) -> None:
    config = settings(start, steps=14, tasks_per_step=3, group_size=4)
    for name, stops in (("whole", ()), ("stopped", (3, 8))):
        run = Run.begin(tmp_path / name, config)
        for stop in stops:
            with pytest.raises(KeyboardInterrupt):
                run_training(config, run, logger=Stopping("rl", stop), workers=1)
            run.store.close()
            run = Run.resume(tmp_path / name)
        run_training(config, run, logger=NullLogger(), workers=1)
        run.store.close()
    found = [counted(tmp_path / name) for name in ("whole", "stopped")]
    assert found[0] == found[1]
    assert len(found[0]) == 14 * 3 * 4


def counted(folder: Path) -> Counter[tuple[str, int, int]]:
    with RunStore.read(folder / "rollouts.db") as store:
        rows = store.rollouts({"stage": "rl"})
    return Counter((row.task, row.seed, row.sample_index) for row in rows)
