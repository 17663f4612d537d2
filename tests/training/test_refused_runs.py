"""A server that refuses everything stops a run after the first few requests; one that is busy, or refuses some, not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from patience import PATIENCE
from serving import TOKENIZER
from wanderlust.environment import SingleTurnEnvironment
from wanderlust.errors import PolicyRefused
from wanderlust.evals.evaluate import evaluate
from wanderlust.policies import endpoint
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.endpoint import Endpoint
from wanderlust.policies.refusals import FIRST_CALLS
from wanderlust.policies.scripted import Scripted
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.policies.vllm import VLLM
from wanderlust.rubrics.judge import Judge
from wanderlust.rubrics.rubric import Rubric
from wanderlust.runner.engine import rollouts
from wanderlust.store.store import RunStore
from wanderlust.tasks.curriculum import TaskStream
from wanderlust.training.algorithms.presets import algorithm
from wanderlust.training.async_source import AsyncSource
from wanderlust.training.config import TrainConfig
from wanderlust.training.group_source import LocalPlayer
from wanderlust.types import Task, user
from worlds import WANDER

GOOD = {"choices": [{"message": {"content": "right"}, "finish_reason": "stop"}]}


def tasks(count: int = 1000) -> list[Task]:
    return [Task(id=f"t{n}", prompt=(user(f"{n}"),), answer="right") for n in range(count)]


def served(handle: Any, ask: Any, *, path: str = "/v1/chat/completions") -> tuple[Any, int]:
    """What `ask(url)` returns, and how often the server was asked."""
    asked = []

    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        asked.append(body)
        answered = handle(len(asked), body)
        return await answered if asyncio.iscoroutine(answered) else answered

    async def go() -> Any:
        app = web.Application()
        app.router.add_post(path, answer)
        async with TestServer(app) as server:
            return await ask(str(server.make_url("/v1")))

    return asyncio.run(go()), len(asked)


def refuse(status: int, text: str = "no") -> web.Response:
    return web.json_response({"error": {"message": text}}, status=status)


@pytest.mark.parametrize("concurrency", [1, 64, 1000])
@pytest.mark.parametrize(
    ("status", "advice"),
    [(401, "check the key"), (403, "check the key"), (404, "the model's name"), (400, "the options that are sent")],
)
def test_a_server_that_refuses_everything_is_asked_a_few_times(status: int, advice: str, concurrency: int) -> None:
    async def ask(url: str) -> str:
        env = SingleTurnEnvironment(tasks())
        with pytest.raises(PolicyRefused) as told:
            await evaluate(env, Endpoint(url, "m", concurrency=concurrency), concurrency=concurrency, progress=False)
        return str(told.value)

    line, asked = served(lambda n, body: refuse(status, f"no, request {n}"), ask)
    assert asked <= FIRST_CALLS
    assert advice in line
    assert f"HTTP {status}: no, request" in line
    assert "\n" not in line


def test_fewer_rollouts_than_that_are_reported_as_ever() -> None:
    async def ask(url: str) -> Any:
        return await evaluate(SingleTurnEnvironment(tasks(3)), Endpoint(url, "m"), progress=False)

    report, _ = served(lambda n, body: refuse(401), ask)
    assert (report.played, report.failed) == (3, 3)


def test_what_has_finished_is_kept_and_the_run_goes_on_later(tmp_path: Path) -> None:
    works = False

    async def ask(url: str) -> Any:
        nonlocal works
        env, policy = SingleTurnEnvironment(tasks(40)), Endpoint(url, "m")
        with pytest.raises(PolicyRefused):
            await evaluate(env, policy, out=tmp_path / "run", progress=False)
        assert len(RunStore.read(tmp_path / "run" / "rollouts.db").rollouts()) >= 4
        works = True
        return await evaluate(env, Endpoint(url, "m", api_key="k"), out=tmp_path / "run", progress=False)

    report, _ = served(lambda n, body: web.json_response(GOOD) if works else refuse(401), ask)
    assert (report.played, report.scored) == (40, 40)


def test_some_refusals_beside_slow_answers_stop_nothing() -> None:
    """Refusals come at once and answers later: whoever counts refusals alone stops a run that works."""

    async def handle(n: int, body: Any) -> web.Response:
        if int(body["messages"][0]["content"]) % 20:
            return refuse(400, "this task's tools are wrong")
        await asyncio.sleep(0.3)
        return web.json_response(GOOD)

    async def ask(url: str) -> Any:
        env = SingleTurnEnvironment(tasks(60))
        return await evaluate(env, Endpoint(url, "m"), concurrency=30, progress=False)

    report, asked = served(handle, ask)
    assert (report.played, report.scored, asked) == (60, 3, 60)


def test_a_busy_server_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "FIRST_PAUSE_SECONDS", 0.001)

    async def ask(url: str) -> Any:
        return await evaluate(SingleTurnEnvironment(tasks(12)), Endpoint(url, "m"), progress=False)

    for status in (429, 503):
        report, asked = served(lambda n, body, status=status: refuse(status), ask)
        assert (report.failed, asked) == (12, 12 * 2 * endpoint.MAX_ATTEMPTS)


def test_a_slow_first_answer_holds_nobody_up_for_long() -> None:
    together = asyncio.Barrier(40)

    async def handle(n: int, body: Any) -> web.Response:
        await together.wait()
        return web.json_response(GOOD)

    async def ask(url: str) -> Any:
        env = SingleTurnEnvironment(tasks(40))
        return await asyncio.wait_for(evaluate(env, Endpoint(url, "m"), concurrency=40, progress=False), PATIENCE)

    report, _ = served(handle, ask)
    assert report.scored == 40


def test_a_judge_that_refuses_everything_stops_the_run_too() -> None:
    async def ask(url: str) -> str:
        judge = Judge(Endpoint(url, "m"), "Is this right? {completion}")
        env = SingleTurnEnvironment(tasks(), rubric=Rubric(judge))
        with pytest.raises(PolicyRefused) as told:
            await evaluate(env, Scripted(lambda messages, rng: messages[-1].content), concurrency=64, progress=False)
        return str(told.value)

    line, asked = served(lambda n, body: refuse(401), ask)
    assert asked <= FIRST_CALLS
    assert "check the key" in line


def test_training_stops_as_well() -> None:
    """A trainer's stream of groups over the sampler of an HTTP server that does not have the model."""

    async def ask(url: str) -> str:
        async with VLLM(url, "m") as vllm:
            policy = TokenPolicy(vllm, Renderer(TOKENIZER))
            with pytest.raises(PolicyRefused) as told:
                async with rollouts(SingleTurnEnvironment(tasks()), tasks(), policy, group_size=8) as groups:
                    _ = [group async for group in groups]
        return str(told.value)

    line, asked = served(lambda n, body: refuse(404, "no model m"), ask, path="/v1/completions")
    assert asked <= FIRST_CALLS
    assert "no model m" in line


def test_asynchronous_training_stops_as_well() -> None:
    async def ask(url: str) -> str:
        env, method = SingleTurnEnvironment(tasks()), algorithm("grpo")
        config = TrainConfig(algorithm=method, group_size=8)
        async with VLLM(url, "m") as vllm:
            player = LocalPlayer(
                env, config, lambda seed: TokenPolicy(vllm, Renderer(TOKENIZER), seed=seed), algorithm=method
            )
            curriculum = TaskStream(lambda: iter(tasks()))
            async with AsyncSource(player, curriculum, version=lambda: 0, count=4, steps=4, max_staleness=1) as source:
                with pytest.raises(PolicyRefused) as told:
                    await source.next_groups(0)
        return str(told.value)

    line, asked = served(lambda n, body: refuse(404, "no model m"), ask, path="/v1/completions")
    assert asked <= FIRST_CALLS
    assert "check the URL and the model's name" in line


def test_the_command_ends_in_one_line(tmp_path: Path) -> None:
    async def ask(url: str) -> tuple[int | None, str]:
        words = (*WANDER, "eval", "tictactoe", "--policy", url, "--model", "m", "-n", "100", "--out", "run")
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*words, cwd=tmp_path, stdout=pipe, stderr=pipe)
        _, err = await asyncio.wait_for(process.communicate(), PATIENCE)
        return process.returncode, err.decode()

    (code, err), asked = served(lambda n, body: refuse(401, "Incorrect API key provided"), ask)
    assert code == 1
    assert asked <= FIRST_CALLS
    lines = [line for line in err.splitlines() if "Incorrect API key" in line]
    assert len(lines) == 1
    assert "WANDER_API_KEY" in lines[0]
    assert "Traceback" not in err
