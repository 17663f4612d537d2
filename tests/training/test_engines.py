"""Every engine of `train`: the same run learns, keeps its tokens exact, goes on after a stop, and hands out a model."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from test_recipe_train import Stopping

from patience import PATIENCE
from project_files import ROOT
from servers import ENGINES, Places, open_places, own_server
from tiers import proof_except
from toys import TOKENIZER, fresh
from wanderlust.errors import PolicyFailure, UsageError, WanderlustError
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.runner.progress import NullLogger
from wanderlust.store.store import RunStore
from wanderlust.training.checkpoint import Run, load_config
from wanderlust.training.config import TrainConfig
from wanderlust.training.optimizer import weights_of
from wanderlust.training.setup import validate_config
from wanderlust.training.tiny_model import ModelShape, fresh_model, fresh_tokenizer
from wanderlust.training.train import resume_training, run_training, train
from wanderlust.training.trainers.replica import WorkerError
from wanderlust.training.trainers.served import check_servers

pytestmark = pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    with open_places(tmp_path_factory.mktemp("places")) as made:
        yield made


class Killing(NullLogger):
    """Kills the second process of the group after some steps."""

    def log_step(self, stage: str, step: int, *, of: int, metrics: Any) -> None:
        if stage == "rl" and step == 3:
            os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def finished(places: Places, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A run of every engine, with KL and entropy where the engine has it, played when it is first asked for.

    That of `fsdp` loses a process after some steps, and goes on.
    """

    @cache
    def play(engine: str) -> Path:
        folder = tmp_path_factory.mktemp("runs") / engine
        config = places.settings(engine, kl=0.01, entropy=0.0 if engine == "tinker" else 0.001)
        run = Run.begin(folder, config)
        if engine == "fsdp":
            with pytest.raises(
                WorkerError, match="a process that holds a part of the weights has died; the run can be"
            ):
                run_training(config, run, logger=Killing(), workers=1)
            run.store.close()
            run = Run.resume(folder)
            assert not (folder / "checkpoints/rl").exists()
        run_training(config, run, logger=NullLogger(), workers=1)
        run.store.close()
        gc.collect()
        return folder

    return play


# Tinker's own client leaves connections to the garbage collector; the service compiles for a minute.
LEFT_OPEN = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
MARKS = {"tinker": [LEFT_OPEN], "vllm+fsdp": [pytest.mark.proof("cluster")]}
EVERY_ENGINE = [pytest.param(name, marks=MARKS.get(name, [])) for name in ENGINES]
ROUNDED = 1e-5
"""Between weights of two runs over servers: which requests a server computes together depends on the clock."""
TINKER = {"engine": "tinker", "lora": 8, "ema_decay": 0.0}


def figures(folder: Path, name: str) -> list[float]:
    with RunStore.read(folder / "rollouts.db") as store:
        return [value for _, value in store.metrics("rl", name)]


@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_it_learns_with_exact_tokens(engine: str, finished: Callable[[str], Path]) -> None:
    folder = finished(engine)
    rewards = figures(folder, "reward")
    assert len(rewards) == 20
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.15
    gaps = figures(folder, "sampler_logprob_diff_max")
    assert gaps[0] < 1e-4
    if "stale" not in engine:
        assert max(gaps) < 1e-4
    model, _ = load_pretrained(folder / "checkpoints/rl")
    assert not weights_of(model).equal(weights_of(fresh(0)))


@pytest.mark.parametrize("engine", ["fsdp"])
def test_whatever_engine_the_run_is_the_same(engine: str, finished: Callable[[str], Path]) -> None:
    """Up to rounding, as long as roundings draw the same tokens; also for a run that was killed in between."""
    for name in ("reward", "entropy", "grad_norm"):
        assert figures(finished(engine), name)[:5] == pytest.approx(figures(finished("local"), name)[:5], rel=1e-3)


@pytest.mark.proof("cluster")
def test_a_run_whose_sequences_are_cut_is_the_same(places: Places, tmp_path: Path) -> None:
    for name, changes in (("local", {}), ("fsdp", {"context_parallel": 2})):
        config = places.settings(name, steps=5, eval_every=5, result_samples=0, kl=0.1, entropy=0.01, **changes)
        run_training(config, Run.begin(tmp_path / name, config), logger=NullLogger())
    for name in ("reward", "entropy", "kl", "grad_norm"):
        assert figures(tmp_path / "fsdp", name) == pytest.approx(figures(tmp_path / "local", name), rel=1e-4)


@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_every_token_has_the_version_it_was_drawn_with(engine: str, finished: Callable[[str], Path]) -> None:
    versions = {}
    with RunStore.read(finished(engine) / "rollouts.db") as store:
        for step in (0, 7, 19):
            rollouts = [rollout for group in store.groups("rl", step) for rollout in group.rollouts]
            versions[step] = {turn.tokens.version for one in rollouts for t in one.trajectories for turn in t.turns}
    (first,), behind = versions[0], 2 if "stale" in engine else 0
    for step in (7, 19):
        assert versions[step] <= set(range(first + step - behind, first + step + 1))


@pytest.mark.parametrize("engine", proof_except(["vllm"], ["vllm", "fsdp", "vllm+fsdp"], group="resumes"))
def test_a_stopped_run_goes_on_to_the_same_weights(engine: str, places: Places, tmp_path: Path) -> None:
    config = places.settings(engine, steps=6, eval_every=3, result_samples=0)
    for name, stops in (("whole", ()), ("stopped", (2, 4))):
        run = Run.begin(tmp_path / name, config)
        for stop in stops:
            with pytest.raises(KeyboardInterrupt):
                run_training(config, run, logger=Stopping("rl", stop), workers=1)
            run.store.close()
            run = Run.resume(tmp_path / name)
        run_training(config, run, logger=NullLogger(), workers=1)
        run.store.close()
    whole, stopped = (weights_of(load_pretrained(tmp_path / n / "checkpoints/rl")[0]) for n in ("whole", "stopped"))
    assert (whole - stopped).abs().max() < (ROUNDED if "vllm" in engine else 1e-6)


def test_what_an_engine_cannot_do_is_refused_before_anything_starts(places: Places, tmp_path: Path) -> None:
    url = places.url
    for changes, why in (
        ({"engine": "vllm", "server_command": "no-such-program serve"}, "no program 'no-such-program'"),
        ({"engine": "fsdp", "optimizer": "muon"}, "adamw"),
        ({"engine": "fsdp", "max_staleness": 1}, "max_staleness"),
        ({"engine": "vllm", "engine_url": url, "temperature": 0.7}, "temperature 0.7"),
        ({"engine_url": url}, "engine_url is not read by the engine local"),
        ({"engine": "vllm", "engine_url": url, "servers": 2}, "servers is not read with engine_url"),
        ({"engine": "vllm", "engine_url": url, "processes": 2}, "processes is not read"),
        ({"engine": "vllm", "engine_url": url, "cache_gib": 1.0}, "cache_gib is not read"),
        ({"engine": "tinker"}, "set lora to their rank"),
        ({"engine": "tinker", "lora": 8}, "keeps no moving average of the weights: set ema_decay to 0"),
        ({**TINKER, "optimizer": "muon"}, "updates by adamw"),
        ({**TINKER, "temperature": 0.7}, "set temperature to 1"),
        ({**TINKER, "kl": 0.1}, "a distance to a reference in the loss"),
        ({**TINKER, "algorithm": "gspo"}, "ratios of a whole sequence"),
        ({**TINKER, "sft_episodes": 4}, "a warm-up"),
        ({**TINKER, "micro_batch": 4}, "micro_batch is not read by the engine tinker"),
        ({**TINKER, "engine_url": "http://127.0.0.1:9"}, "no Tinker service answers at http://127.0.0.1:9"),
        ({"engine": "vllm", "server_api": "sglang"}, "server_api is not read without engine_url"),
        ({"offload": True}, "offload is not read by the engine local"),
        ({"context_parallel": 2}, "context_parallel is not read by the engine local"),
        ({"engine": "fsdp", "processes": 2, "context_parallel": 3}, r"processes \(2\) is no multiple of it"),
        ({"engine": "vllm", "engine_url": "http://127.0.0.1:9/v1", "server_api": "sglang"}, "no SGLang server answers"),
        ({"engine_service": "skyrl-jax"}, "engine_service is not read by the engine local"),
        ({"engine": "vllm", "engine_url": f"{url}, http://127.0.0.1:9/v1"}, "no vLLM server answers at .*:9/v1/models"),
    ):
        config = replace(places.settings("local"), **changes)
        with pytest.raises(UsageError, match=why):
            train(config.env, places.start, config=config, out=tmp_path / "run", progress=False)
        assert not (tmp_path / "run").exists()


def test_a_server_of_another_checkpoint_is_refused_before_anything_starts(places: Places, tmp_path: Path) -> None:
    other, words = tmp_path / "weights", tmp_path / "words"
    save_pretrained(other, fresh(1), TOKENIZER)
    tokenizer = fresh_tokenizer(["boxes cost"] * 9)
    save_pretrained(words, fresh_model(tokenizer, ModelShape(), seed=0), tokenizer)
    for folder, why in ((other, "other weights than .*: their log-probabilities"), (words, "another tokenizer than")):
        with own_server(folder) as address:
            config = places.settings("vllm", engine_url=address)
            with pytest.raises(UsageError, match=rf"^the server at {address} has {why}[^\n]*checkpoint$"):
                train(config.env, places.start, config=config, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_a_server_without_the_calls_that_publish_is_refused(places: Places) -> None:
    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m"}]})

    async def listed(_: web.Request) -> web.Response:
        return web.json_response({"paths": {"/v1/completions": {}}})

    async def go() -> None:
        app = web.Application()
        app.router.add_get("/v1/models", models)
        app.router.add_get("/openapi.json", listed)
        async with TestServer(app) as server:
            for lora, why in ((8, "--enable-lora"), (0, "VLLM_SERVER_DEV_MODE=1")):
                config = places.settings("vllm", engine_url=str(server.make_url("/v1")), lora=lora)
                with pytest.raises(UsageError, match=rf"^the server at [^\n]* no call [^\n]*{why}[^\n]*$"):
                    await asyncio.to_thread(validate_config, config)

    asyncio.run(go())


def test_servers_of_different_versions_are_refused(places: Places) -> None:
    def server(version: str) -> TestServer:
        async def models(_: web.Request) -> web.Response:
            return web.json_response({"data": [{"id": "m"}]})

        async def told(_: web.Request) -> web.Response:
            return web.json_response({"version": version})

        app = web.Application()
        app.router.add_get("/v1/models", models)
        app.router.add_get("/version", told)
        return TestServer(app)

    async def go() -> None:
        async with server("0.32.0") as one, server("0.32.0") as same, server("0.31.1") as other:
            urls = [str(each.make_url("/v1")) for each in (one, same, other)]
            await asyncio.to_thread(check_servers, places.settings("vllm", engine_url=",".join(urls[:2])))
            config = places.settings("vllm", engine_url=",".join(urls))
            with pytest.raises(UsageError, match=rf"^servers of different[^\n]* {urls[2]} has 0.31.1; [^\n]*$"):
                await asyncio.to_thread(check_servers, config)

    asyncio.run(go())


def test_servers_that_do_not_answer_are_one_line(places: Places, tmp_path: Path) -> None:
    config = places.settings("vllm", engine_url="http://127.0.0.1:9/v1")
    with pytest.raises(PolicyFailure, match=r"no vLLM server answers at http://127\.0\.0\.1:9/v1/models"):
        run_training(config, Run.begin(tmp_path / "run", config), logger=NullLogger())


@pytest.mark.proof("cluster")
def test_torchrun_starts_the_processes_of_a_group(places: Places, tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = ["-m", "wanderlust.cli.main", "train", "toys:Twice", "--policy", places.start, "--out", tmp_path / "run"]
    options = [
        "--engine",
        "fsdp",
        "--steps",
        "3",
        "--tasks-per-step",
        "4",
        "--max-tokens",
        "1",
        "--result-samples",
        "0",
    ]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *sys.path])}
    words = [*launcher, *command, *options, "--algorithm", "grpo"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Checkpoint:") <= 1
    assert len(figures(tmp_path / "run", "reward")) == 3


def test_a_run_whose_server_died_goes_on_with_another_to_the_same_weights(places: Places, tmp_path: Path) -> None:
    config, folder = places.settings("vllm", steps=4, eval_every=4, result_samples=0), tmp_path / "run"
    train(config.env, places.start, config=config, out=tmp_path / "whole", progress=False, workers=1)
    with ExitStack() as first:
        address = first.enter_context(own_server(places.start))

        class Closing(NullLogger):
            """Ends the server after some steps."""

            def log_step(self, stage: str, step: int, *, of: int, metrics: Any) -> None:
                if stage == "rl" and step == 2:
                    first.close()

        started = replace(config, engine_url=address)
        with pytest.raises(WanderlustError) as died:
            train(config.env, places.start, config=started, out=folder, progress=Closing(), workers=1)
        assert "\n" not in str(died.value)
        with pytest.raises(UsageError, match=f"no vLLM server answers at {address}"):
            resume_training(folder, progress=False)
    resume_training(folder, engine_url=config.engine_url, progress=False, workers=1)
    assert load_config(folder, TrainConfig).engine_url == config.engine_url
    assert TrainConfig.load(folder / "config.toml").engine_url == config.engine_url
    whole, other = (weights_of(load_pretrained(f / "checkpoints/rl")[0]) for f in (tmp_path / "whole", folder))
    assert (whole - other).abs().max() < ROUNDED
    assert figures(folder, "reward") == figures(tmp_path / "whole", "reward")
