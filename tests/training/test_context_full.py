"""A conversation that no longer fits the model ends its episode, which is scored and trained on."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from serving import MODEL, TOKENIZER
from toys import SHAPE as MODEL_SHAPE
from toys import TOKENIZER as LETTERS
from toys import Lesson
from wanderlust.environment import Environment, Limits, MultiTurnEnvironment
from wanderlust.errors import ContextFull, PolicyFailure
from wanderlust.evals.evaluate import evaluate
from wanderlust.policies import endpoint
from wanderlust.policies.base import SamplingOptions
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.endpoint import Endpoint
from wanderlust.policies.local.policy import LocalPolicy
from wanderlust.policies.refusals import parse_refusal
from wanderlust.policies.scripted import Recorded
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.policies.vllm import VLLM
from wanderlust.runner.engine import rollout, rollouts
from wanderlust.serving.http import AgentServer
from wanderlust.serving.local_models import make_served_model
from wanderlust.serving.model_api import ModelAPI
from wanderlust.training.algorithms.presets import algorithm
from wanderlust.training.batch.samples import build_samples
from wanderlust.training.gradient import GradientComputer, combine
from wanderlust.training.tiny_model import fresh_model
from wanderlust.types import Status, Task, user

OVERFLOWS = {
    "code alone": {"error": {"code": "context_length_exceeded", "type": "invalid_request_error"}},
    "openai": {
        "error": {
            "message": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 "
            "tokens. Please reduce the length of the messages.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    },
    "vllm": {
        "object": "error",
        "message": "This model's maximum context length is 4096 tokens. However, you requested 5100 tokens (5000 in "
        "the messages, 100 in the completion). Please reduce the length of the messages or completion.",
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    },
    "vllm's decoder": {
        "error": {
            "message": "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
            "type": "BadRequestError",
            "code": 400,
        }
    },
    "anthropic": {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"},
    },
    "llama.cpp": {
        "error": {
            "code": 400,
            "message": "the request exceeds the available context size, try increasing it",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 5000,
            "n_ctx": 4096,
        }
    },
    "sglang": {
        "object": "error",
        "message": "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        "type": "BadRequestError",
        "code": 400,
    },
    "google": {
        "error": {
            "code": 400,
            "message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            "status": "INVALID_ARGUMENT",
        }
    },
}
SERVER_ERRORS = {
    "llama.cpp 500": (
        500,
        {"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}},
    ),
    "a proxy's 500": (
        500,
        {
            "error": {
                "message": "litellm.ContextWindowExceededError: This model's maximum context length is 8192 tokens.",
                "type": None,
                "code": "500",
            }
        },
    ),
    "a 503 around vLLM's text": (503, OVERFLOWS["vllm"]),
    "a code alone": (502, OVERFLOWS["code alone"]),
    "plain text": (500, "Input length (5000 tokens) exceeds the maximum allowed length (4096 tokens)."),
}
BUSY = [
    "The server is overloaded: the queue's limit is exceeded, try again.",
    "internal error",
    "upstream connect error or disconnect/reset before headers",
]
OTHERS = [
    "Unsupported value: 'temperature' does not support 0.5 with this model.",
    "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
    "The model `tiny` does not exist.",
    "Invalid 'messages[0].content': string too long. Expected a string with maximum length 1048576.",
    f"[{{'type': 'missing', 'input': '{'x' * 500} This model's maximum context length is 4096 tokens.'}}]",
]


class Riddle(MultiTurnEnvironment):
    """Pays an answer of `right`; other answers are commented on at length."""

    limits = Limits(max_turns=8)

    def __init__(self, count: int = 20) -> None:
        super().__init__([Task(id=f"t{n}", prompt=(user(f"riddle {n}"),)) for n in range(count)])

    def respond(self, messages: Any, episode: Any) -> str | None:
        episode.reward("right", float(messages[-1].content == "right"))
        return None if messages[-1].content == "right" else "no " * 50


def completion(text: str, finish: str = "stop") -> web.Response:
    message = {"role": "assistant", "content": text}
    return web.json_response({"choices": [{"message": message, "finish_reason": finish}]})


def served(handle: Any, ask: Any, **options: Any) -> Any:
    """What `ask` returns of an endpoint whose server answers with `handle(body)`."""

    async def answer(request: web.Request) -> web.Response:
        return handle(await request.json())

    async def go() -> Any:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        async with TestServer(app) as server:
            return await ask(Endpoint(str(server.make_url("/v1")), "tiny", **options))

    return asyncio.run(go())


@pytest.mark.parametrize("kind", OVERFLOWS)
def test_half_of_the_tasks_overflow_and_all_are_scored(kind: str) -> None:
    def handle(body: dict[str, Any]) -> web.Response:
        if int(body["messages"][0]["content"].split()[1]) % 2:
            return completion("right")
        if len(body["messages"]) < 4:
            return completion("wrong")
        return web.json_response(OVERFLOWS[kind], status=400)

    async def ask(policy: Endpoint) -> Any:
        return await evaluate(Riddle(), policy, progress=False)

    report = served(handle, ask)
    assert (report.played, report.scored, report.reward.value) == (20, 20, 0.5)
    assert report.stops == {"context": 10, "done": 10}
    assert not report.incomplete


@pytest.mark.parametrize("text", OTHERS)
@pytest.mark.parametrize("status", [400, 422])
def test_other_refusals_stay_failures(text: str, status: int) -> None:
    async def ask(policy: Endpoint) -> Any:
        return await rollout(Riddle(), Task(id="t"), policy)

    played = served(lambda body: web.json_response({"error": {"message": text}}, status=status), ask)
    assert (played.status, played.stop_reason) == (Status.ERROR, "PolicyFailure")
    assert played.refusal == f"HTTP {status}"


@pytest.mark.parametrize("kind", SERVER_ERRORS)
def test_an_overflow_with_a_status_of_the_server_is_one_too_and_is_asked_once(kind: str) -> None:
    status, body = SERVER_ERRORS[kind]
    asked: list[int] = []

    def handle(request: dict[str, Any]) -> web.Response:
        asked.append(len(request["messages"]))
        if len(asked) == 1:
            return completion("wrong")
        if isinstance(body, str):
            return web.Response(text=body, status=status)
        return web.json_response(body, status=status)

    async def ask(policy: Endpoint) -> Any:
        return await rollout(Riddle(), Task(id="t", prompt=(user("riddle"),)), policy)

    played = served(handle, ask)
    assert (played.status, played.stop_reason, played.transient) == (Status.TRUNCATED, "context", False)
    assert asked == [1, 3]


@pytest.mark.parametrize("text", BUSY)
def test_other_errors_of_a_server_are_still_tried_again(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "FIRST_PAUSE_SECONDS", 0.001)
    asked: list[int] = []

    def handle(request: dict[str, Any]) -> web.Response:
        asked.append(1)
        return web.json_response({"error": {"message": text}}, status=500)

    async def ask(policy: Endpoint) -> Any:
        return await rollout(Riddle(), Task(id="t"), policy)

    played = served(handle, ask)
    assert (played.status, played.stop_reason, played.transient) == (Status.ERROR, "PolicyFailure", True)
    assert len(asked) == endpoint.MAX_ATTEMPTS


def test_an_overflow_before_the_first_turn_is_scored_too() -> None:
    async def ask(policy: Endpoint) -> Any:
        return await evaluate(Riddle(4), policy, progress=False)

    report = served(lambda body: web.json_response(OVERFLOWS["openai"], status=400), ask)
    assert (report.scored, report.reward.value, report.stops) == (4, 0.0, {"context": 4})


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 4300 tokens (300 in the messages, "
        "4000 in the completion). Please reduce the length of the messages or completion.",
        "'max_tokens' or 'max_completion_tokens' is too large: 4000. This model's maximum context length is 4096 tokens"
        " and your request has 300 input tokens (4000 > 4096 - 300).",
        "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 4300"
        " tokens: 300 tokens from the input messages and 4000 tokens for the completion.",
    ],
)
def test_an_answer_that_does_not_fit_is_asked_for_shorter(text: str) -> None:
    bounds: list[int] = []

    def handle(body: dict[str, Any]) -> web.Response:
        bounds.append(body["max_tokens"])
        if body["max_tokens"] > 3796:
            return web.json_response({"error": {"message": text}}, status=400)
        return completion("right")

    async def ask(policy: Endpoint) -> Any:
        return await rollout(Riddle(), Task(id="t"), policy)

    assert served(handle, ask, max_tokens=4000).stop_reason == "done"
    assert bounds == [4000, 3796]


def test_a_refusals_text_is_read_in_any_form() -> None:
    assert parse_refusal(401, b"<html>no</html>").text == "<html>no</html>"
    assert parse_refusal(404, b'{"detail": "Not Found"}').text == "Not Found"
    assert parse_refusal(400, b'{"error": "context length is only 100 tokens"}').context_full
    assert not parse_refusal(401, json.dumps(OVERFLOWS["openai"]).encode()).context_full


def test_a_tiny_context_of_the_local_engine_truncates() -> None:
    policy = LocalPolicy.of(MODEL, TOKENIZER, SamplingOptions(max_tokens=40))
    policy.engine.max_positions = 200
    report = asyncio.run(evaluate(Riddle(3), policy, limits=Limits(max_turns=50), progress=False))
    assert (report.played, report.scored, report.reward.value) == (3, 3, 0.0)
    assert report.stops == {"context": 3}


def test_a_recording_of_it_ends_alike() -> None:
    async def go() -> Any:
        policy = LocalPolicy.of(MODEL, TOKENIZER, SamplingOptions(max_tokens=40))
        policy.engine.max_positions = 200
        first = await rollout(Riddle(), Task(id="t", prompt=(user("riddle"),)), policy, limits=Limits(max_turns=50))
        return first, await rollout(Riddle(), first.task, Recorded(first), limits=Limits(max_turns=50))

    first, again = asyncio.run(go())
    assert (again.status, again.stop_reason) == (first.status, "context")
    assert again.trajectory.turns == first.trajectory.turns


def test_the_sampler_over_http_says_it_of_a_real_server() -> None:
    async def go() -> Any:
        model = make_served_model("tiny", MODEL, TOKENIZER)
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(AgentServer())
            key = await stack.enter_async_context(server.serving(ModelAPI(model)))
            renderer = Renderer(TOKENIZER)
            vllm = await stack.enter_async_context(VLLM(server.url, "tiny", api_key=key, ends=renderer.end_ids))
            with pytest.raises(ContextFull):
                await vllm.sample([5] * model.max_positions, SamplingOptions(max_tokens=4), key=1)
            chat = await stack.enter_async_context(Endpoint(server.url, "tiny", api_key=key))
            with pytest.raises(ContextFull) as full:
                await chat.complete([user("word " * 5000)])
            policy = TokenPolicy(vllm, renderer, SamplingOptions(max_tokens=200))
            played = await rollout(Riddle(), Task(id="t", prompt=(user("hm"),)), policy, limits=Limits(max_turns=99))
            return str(full.value), played

    detail, played = asyncio.run(go())
    assert "tokens and tiny reads 1024" in detail
    assert (played.status, played.stop_reason) == (Status.TRUNCATED, "context")
    assert played.trajectory.score is not None


class Letters(Environment):
    """Asks for the letter `a` until the context is full; siblings differ in how often they say it."""

    limits = Limits(max_turns=99)

    async def run(self, episode: Any) -> None:
        while True:
            said = await episode.agent.act(user("a"))
            episode.reward("right", float(said.content == "a"))

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id=f"letters-{n}") for n in range(4)]


def test_such_rollouts_stay_in_their_group_and_are_trained_on() -> None:
    lesson = Lesson.of(algorithm("grpo"), seed=3, env=Letters())
    groups = lesson.replica.play(list(Letters().tasks()), 0)
    ended = [one for group in groups for one in group.rollouts]
    assert {(one.status, one.stop_reason) for one in ended} == {(Status.TRUNCATED, "context")}
    assert all(len(group.rewards) == 8 for group in groups)
    for group in groups:
        assert sum(t.advantage for one in group.rollouts for t in one.trajectories) == pytest.approx(0, abs=1e-6)
    samples = build_samples(groups, lesson.replica.algorithm.loss)
    sampled = sum(len(turn.tokens.completion) for one in ended for turn in one.trajectory.turns)
    assert 0 < sum(sum(sample.mask) * sample.copies for sample in samples) <= sampled
    model = fresh_model(LETTERS, MODEL_SHAPE, seed=3)
    assert not combine([GradientComputer(model, loss=lesson.replica.algorithm.loss).gradient(samples)]).empty


def test_a_failing_endpoint_is_no_full_context() -> None:
    async def ask(policy: Endpoint) -> Any:
        with pytest.raises(PolicyFailure):
            await policy.complete([user("?")])
        async with rollouts(Riddle(), Riddle(2).tasks(), policy) as groups:
            return [one.refusal async for group in groups for one in group.rollouts]

    answer = {"error": {"message": "no"}}
    assert served(lambda body: web.json_response(answer, status=403), ask) == ["HTTP 403"] * 2
