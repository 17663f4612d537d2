"""Training whose rollouts are played by Ray actors on several nodes: the same run, whoever is lost on the way."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
import test_ray
import torch

from servers import KEY, own_server
from tiers import proof_except
from toys import TOKENIZER, Twice, fresh
from wanderlust.environment import Episode
from wanderlust.errors import ContextFull, PolicyFailure, UsageError
from wanderlust.policies.base import API_KEY_VARIABLE, SampledTokens, SamplingOptions
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.runner.progress import NullLogger
from wanderlust.serving.remote_sampler import RemoteSampler, serve_samplers
from wanderlust.store.store import RunStore
from wanderlust.training.checkpoint import Run
from wanderlust.training.config import TrainConfig
from wanderlust.training.group_source import RayCluster
from wanderlust.training.optimizer import weights_of
from wanderlust.training.train import run_training, train
from wanderlust.types import Group

pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning"),
    pytest.mark.filterwarnings("ignore::wanderlust.errors.WorkerRestartWarning"),
]
STEPS = 8
cluster = test_ray.cluster


class Where(Twice):
    """Says in which process of which node it was played."""

    async def run(self, episode: Episode) -> None:
        node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
        episode.state.update(node=node, pid=os.getpid())
        await super().run(episode)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start") / "fresh"
    save_pretrained(folder, fresh(0), TOKENIZER)
    return folder


@pytest.fixture(scope="module")
def url(start: Path) -> Iterator[str]:
    os.environ[API_KEY_VARIABLE] = KEY
    with own_server(start) as address:
        yield address
    os.environ.pop(API_KEY_VARIABLE)


def settings(start: Path, **changes: Any) -> TrainConfig:
    config = TrainConfig(
        env=Where(),
        policy=str(start),
        steps=STEPS,
        tasks_per_step=8,
        lr=2e-2,
        max_tokens=1,
        eval_every=STEPS,
        algorithm="grpo",
        implementation="transformers",
        result_samples=0,
        concurrency=64,
    )
    return replace(config, **changes)


class Killer(NullLogger):
    """Kills the process that played first in the groups of step 2, once."""

    def __init__(self, folder: Path):
        self.folder, self.killed = folder, 0

    def log_step(self, stage: str, step: int, *, of: int, metrics: Any) -> None:
        if stage == "rl" and step == 3:
            self.killed = groups_of(self.folder, 2)[0].rollouts[0].state["pid"]
            os.kill(self.killed, signal.SIGKILL)


def groups_of(folder: Path, step: int) -> list[Group]:
    with RunStore.read(folder / "rollouts.db") as store:
        return store.groups("rl", step)


def figures(folder: Path, name: str) -> list[float]:
    with RunStore.read(folder / "rollouts.db") as store:
        return [value for _, value in store.metrics("rl", name)]


def learn(folder: Path, config: TrainConfig, workers: int = 0, logger: NullLogger | None = None) -> torch.Tensor:
    run = Run.begin(folder, config)
    cluster = RayCluster(workers=workers) if workers else None
    run_training(config, run, logger=logger or NullLogger(), ray=cluster)
    run.store.close()
    return weights_of(load_pretrained(folder / "checkpoints/rl")[0])


@pytest.mark.proof("ray")
def test_synchronous_rollouts_on_ray_give_the_same_bits_even_if_an_actor_is_killed(
    cluster: Any, start: Path, tmp_path: Path
) -> None:
    config, killer = settings(start, shards=3), Killer(tmp_path / "ray")
    here = learn(tmp_path / "here", config)
    there = learn(tmp_path / "ray", config, workers=3, logger=killer)
    assert torch.equal(here, there)
    assert figures(tmp_path / "here", "reward") == figures(tmp_path / "ray", "reward")
    played = [r.state for g in groups_of(tmp_path / "ray", 0) for r in g.rollouts]
    assert len({state["node"] for state in played}) == 2
    assert len({state["pid"] for state in played}) == 3
    assert killer.killed in {state["pid"] for state in played}
    late = [r.state["pid"] for g in groups_of(tmp_path / "ray", STEPS - 1) for r in g.rollouts]
    assert killer.killed not in late


@pytest.mark.proof("ray")
def test_rollouts_on_ray_ask_the_runs_own_sampler_with_the_same_keys(
    cluster: Any, start: Path, url: str, tmp_path: Path
) -> None:
    config = settings(start, engine="vllm", engine_url=url, lora=8, steps=3)
    learn(tmp_path / "here", config)
    learn(tmp_path / "ray", config, workers=2)
    assert figures(tmp_path / "ray", "reward") == figures(tmp_path / "here", "reward")
    for folder in ("here", "ray"):
        assert max(figures(tmp_path / folder, "sampler_logprob_diff_max")) < 1e-4
    played = {r.state["pid"] for g in groups_of(tmp_path / "ray", 2) for r in g.rollouts}
    assert os.getpid() not in played
    assert len(played) == 2


@pytest.mark.parametrize("engine", proof_except(["vllm"], ["local", "vllm"], group="ray"))
def test_stale_rollouts_on_ray_are_bounded_and_each_is_learnt_from_once(
    engine: str, cluster: Any, start: Path, url: str, tmp_path: Path
) -> None:
    served = {"engine": "vllm", "engine_url": url, "lora": 8} if engine == "vllm" else {}
    config = settings(start, max_staleness=2, algorithm="grpo-tis", steps=16, eval_every=16, **served)
    killer = Killer(tmp_path / "run")
    learn(tmp_path / "run", config, workers=3, logger=killer)
    assert killer.killed
    played = Counter[tuple[str, int, int]]()
    for step in range(16):
        groups = groups_of(tmp_path / "run", step)
        turns = [turn for g in groups for r in g.rollouts for t in r.trajectories for turn in t.turns]
        assert {turn.tokens.version for turn in turns} <= set(range(max(2, step), step + 3))
        played.update((r.task.id, r.seed, r.sample_index) for g in groups for r in g.rollouts)
    assert set(played.values()) == {1}
    rewards = figures(tmp_path / "run", "reward")
    assert sum(rewards[-4:]) / 4 > sum(rewards[:4]) / 4 + 0.1
    assert max(figures(tmp_path / "run", "staleness_max")) in (1, 2)
    assert figures(tmp_path / "run", "trainer_waited_s")[0] > 0
    assert min(figures(tmp_path / "run", "sampler_waited_s")) >= 0
    assert sum(figures(tmp_path / "run", "rollouts_failed")) == 0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"engine": "fsdp"}, "the engine fsdp plays in its own processes"),
        ({"algorithm": "sft", "max_staleness": 1}, "the algorithm sft plays with a teacher in this process"),
    ],
)
def test_what_ray_cannot_play_is_refused_before_anything_starts(
    changes: dict[str, Any], why: str, start: Path, tmp_path: Path
) -> None:
    config = settings(start, teacher=str(start) if "algorithm" in changes else "", **changes)
    with pytest.raises(UsageError, match=why):
        train(config.env, start, config=config, out=tmp_path / "run", ray_workers=2, progress=False)
    assert not (tmp_path / "run").exists()


class Slow:
    """A sampler that answers when it is let; it counts what was begun, cancelled and released."""

    def __init__(self) -> None:
        self.go, self.begun, self.cancelled, self.released = asyncio.Event(), 0, 0, list[str]()

    async def sample(self, prompt: Any, sampling: SamplingOptions, *, key: int, session: str = "") -> SampledTokens:
        if key == 1:
            raise ContextFull("too long")
        if key == 2:
            raise PolicyFailure("away", transient=True)
        self.begun += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return SampledTokens(ids=(*prompt, key), logprobs=(-0.5,) * (len(prompt) + 1), finish="stop", version=7)

    def release(self, session: str) -> None:
        self.released.append(session)


async def until(true: Any) -> None:
    for _ in range(500):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come about within 5 s")


def test_a_connection_to_a_sampler_carries_answers_failures_and_cancellations() -> None:
    async def story() -> None:
        slow, options = Slow(), SamplingOptions(max_tokens=3)
        async with serve_samplers({"training": slow}) as address:
            remote = RemoteSampler(address, "training")
            with pytest.raises(ContextFull, match="too long"):
                await remote.sample([1], options, key=1)
            with pytest.raises(PolicyFailure, match="away") as passing:
                await remote.sample([1], options, key=2)
            assert passing.value.transient
            asked = [asyncio.create_task(remote.sample([9], options, key=key, session=f"s{key}")) for key in (5, 6, 8)]
            await until(lambda: slow.begun == 3)
            asked[0].cancel()
            await until(lambda: slow.cancelled == 1)
            slow.go.set()
            drawn = await asyncio.gather(*asked[1:])
            assert [one.ids for one in drawn] == [(9, 6), (9, 8)]
            assert drawn[0].version == 7
            remote.release("s6")
            await until(lambda: len(slow.released) == 1)
            assert slow.released[0].endswith("/s6")
            with pytest.raises(PolicyFailure, match="no sampler of the run answers"):
                await RemoteSampler((address[0], "another key"), "training").sample([1], options, key=9)
        await until(lambda: len(slow.released) == 3)
        with pytest.raises(PolicyFailure, match="sampler") as lost:
            await remote.sample([1], options, key=9)
        assert lost.value.transient

    asyncio.run(story())
