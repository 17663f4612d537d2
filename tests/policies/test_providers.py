"""Hosted models by their providers' names, over the APIs of Anthropic and Google as well as OpenAI's."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from benchmarks.clients import PYTHON_CLIENTS
from benchmarks.peer import made

from patience import PATIENCE
from wanderlust.environment import Agent, Limits
from wanderlust.errors import PolicyFailure, UsageError
from wanderlust.openai_types import declare_tool, decode_arguments
from wanderlust.policies import endpoint as endpoint_module
from wanderlust.policies.anthropic_messages import AnthropicMessages
from wanderlust.policies.endpoint import Endpoint
from wanderlust.policies.gemini_content import GeminiContent
from wanderlust.policies.providers import PROVIDERS
from wanderlust.policies.resolve import PolicyOptions, resolve_policy
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.serving.agent_api import AgentAPI
from wanderlust.serving.http import AgentServer
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import (
    IMAGE_MARK,
    AnswerOptions,
    Completion,
    Message,
    Status,
    Task,
    ToolCall,
    assistant,
    system,
    user,
)

URL = "data:image/png;base64,iVBORw0KGgo="
KINDS = {"chat": Endpoint, "anthropic": AnthropicMessages, "google": GeminiContent}


def look(place: str) -> str:
    """Look around in a place."""
    return f"{place}: a door"


ENV = ToolEnvironment([Task(id="t", prompt=(system("Be brief."), user("Where?")))], tools=[look])


TOOLS = [declare_tool("look", "Look around.", {"type": "object", "properties": {"place": {"type": "string"}}})]


def traveller(messages, rng):
    """Looks in two places at once, then says what it heard."""
    heard = [message.content for message in messages if message.role == "tool"]
    if heard:
        return "; ".join(heard)
    return assistant(
        "Looking.",
        *(
            ToolCall(id=f"c{n}", name="look", arguments=json.dumps({"place": p}))
            for n, p in enumerate(("hall", "attic"))
        ),
    )


def plain(message):
    """A message without the spelling of its arguments, which two of the APIs carry as objects."""
    calls = [(call.id, call.name, decode_arguments(call.arguments)) for call in message.tool_calls]
    return message.role, message.content, calls, message.tool_call_id


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("versioned", [True, False])
def test_a_native_policy_plays_through_the_dialect_of_its_api(kind, versioned):
    """Our own server is the peer: what it reads of a request is what the policy was shown."""
    seat = Agent(Scripted(traveller), key="k")

    async def go():
        async with AgentServer() as server, server.serving(AgentAPI({"agent": seat})) as key:
            url = server.url if versioned else server.url.removesuffix("/v1")
            async with KINDS[kind](url, "m", api_key=key) as policy:
                return await rollout(ENV, next(iter(ENV.tasks())), policy)

    played = asyncio.run(go())
    assert (played.status, played.error) == (Status.DONE, None)
    assert played.trajectory.messages[-1].content == "hall: a door; attic: a door"
    assert [*map(plain, seat.trajectory.messages)] == [*map(plain, played.trajectory.messages)]
    assert [turn.resets_context for turn in seat.trajectory.turns] == [False, False]


class Everything:
    """Honours all options and remembers what it was asked."""

    accepts_images = True

    def __init__(self):
        self.asked = []

    def unsupported_option(self, options):
        return ""

    async def complete(self, messages, tools=(), *, key=""):
        raise AssertionError

    async def complete_with_options(self, options, messages, tools=(), *, key="", on_text=None):
        self.asked.append((options, list(messages), [tool.name for tool in tools]))
        return Completion(
            message=assistant("ok"), usage={"prompt_tokens": 9, "cached_tokens": 4, "completion_tokens": 1}
        )


SCHEMA = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object", "properties": {}}}}


@pytest.mark.parametrize("kind", KINDS)
def test_options_images_and_usage_travel_both_ways(kind):
    inner = Everything()
    options = AnswerOptions(
        stop=("x",), max_tokens=70, tool_choice="required", tool_name="look", response_format=SCHEMA
    )

    async def go():
        async with (
            AgentServer() as server,
            server.serving(AgentAPI({"agent": Agent(inner)})) as key,
            KINDS[kind](server.url, "m", api_key=key, max_tokens=50) as policy,
        ):
            message = Message("user", f"see {IMAGE_MARK}!", images=(URL,))
            return await policy.complete_with_options(options, [message], TOOLS, key="k")

    done = asyncio.run(go())
    ((asked, messages, tools),) = inner.asked
    assert messages == [Message("user", f"see {IMAGE_MARK}!", images=(URL,))]
    assert tools == ["look"]
    assert (asked.stop, asked.max_tokens, asked.tool_name) == (("x",), 50, "look")
    assert asked.response_format["json_schema"]["schema"] == SCHEMA["json_schema"]["schema"]
    assert (done.usage["prompt_tokens"], done.usage["completion_tokens"]) == (9, 1)
    assert done.usage["cached_tokens"] == 4


def answering(*replies: Any):
    """A server that gives these replies in turn, and the requests it got."""
    asked: list[tuple[web.Request, dict[str, Any]]] = []
    left = list(replies)

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append((request, await request.json()))
        reply = left.pop(0) if len(left) > 1 else left[0]
        return reply(request) if callable(reply) else web.json_response(reply)

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    return TestServer(app), asked


THOUGHT = {"type": "thinking", "thinking": "hmm", "signature": "c2lnbmF0dXJl"}
HIDDEN = {"type": "redacted_thinking", "data": "AAAA"}
CLAUDE_CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"place": "hall"}}


def claude_message(*content, reason="end_turn", **usage):
    usage = {"input_tokens": 3, "output_tokens": 2, **usage}
    return {"type": "message", "role": "assistant", "content": [*content], "stop_reason": reason, "usage": usage}


def gemini_answer(*parts, reason="STOP", **more):
    return {"candidates": [{"content": {"role": "model", "parts": [*parts]}, "finishReason": reason}], **more}


SIGNED = {"functionCall": {"name": "look", "args": {"place": "hall"}}, "thoughtSignature": "c2ln"}


def play_against(kind, *replies):
    server, asked = answering(*replies)

    async def go():
        async with server, KINDS[kind](str(server.make_url("")), "m", api_key="secret") as policy:
            return await rollout(ENV, next(iter(ENV.tasks())), policy, limits=Limits(max_turns=4))

    return asyncio.run(go()), asked


def test_signed_reasoning_goes_back_to_anthropic_as_it_came():
    first = claude_message(THOUGHT, HIDDEN, {"type": "text", "text": "Look."}, CLAUDE_CALL, reason="tool_use")
    played, asked = play_against("anthropic", first, claude_message({"type": "text", "text": "done"}))
    assert played.error is None
    (_, one), (request, two) = asked
    assert one["system"] == "Be brief."
    assert one["tools"][0]["input_schema"]["properties"]["place"]["type"] == "string"
    assert two["messages"][1] == {"role": "assistant", "content": first["content"]}
    (result,) = two["messages"][2]["content"]
    assert (result["type"], result["tool_use_id"]) == ("tool_result", "toolu_1")
    assert request.headers["x-api-key"] == "secret"
    assert "Authorization" not in request.headers
    assert request.path == "/v1/messages"
    assert played.trajectory.turns[0].action.reasoning == "hmm"


def test_thought_signatures_go_back_to_google_as_they_came():
    thought = {"text": "hmm", "thought": True}
    played, asked = play_against("google", gemini_answer(thought, SIGNED), gemini_answer({"text": "done"}))
    assert played.error is None
    (_, one), (request, two) = asked
    assert one["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert two["contents"][1] == {"role": "model", "parts": [thought, SIGNED]}
    (result,) = two["contents"][2]["parts"]
    assert result == {"functionResponse": {"name": "look", "response": {"result": "hall: a door"}}}
    assert request.headers["x-goog-api-key"] == "secret"
    assert request.path == "/v1beta/models/m:generateContent"
    assert one["generationConfig"]["seed"] >= 0


WITHHELD = {
    "chat filtered answer": (
        "chat",
        {"choices": [{"message": {"content": ""}, "finish_reason": "content_filter"}]},
        "blocked: content_filter",
    ),
    "google blocked prompt": ("google", {"promptFeedback": {"blockReason": "SAFETY"}}, "blocked: SAFETY"),
    "google blocked answer": ("google", gemini_answer(reason="RECITATION"), "blocked: RECITATION"),
}


@pytest.mark.parametrize("case", WITHHELD)
def test_what_a_provider_withholds_has_a_name_and_no_score(case):
    kind, reply, name = WITHHELD[case]
    played, asked = play_against(kind, reply)
    assert (played.status, played.stop_reason, played.refusal) == (Status.ERROR, "PolicyFailure", name)
    assert "\n" not in played.error
    assert played.trajectory.score is None
    assert len(asked) == 1  # asking again is no use


def half(request):
    """Half of an answer, and a closed connection."""
    request.transport.write(b'HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{"content": [')
    request.transport.close()
    return web.Response()


@pytest.mark.parametrize("kind", ["anthropic", "google"])
def test_limits_of_rate_and_half_answers_are_faults_of_the_house(kind, monkeypatch):
    monkeypatch.setattr(endpoint_module, "FIRST_PAUSE_SECONDS", 0.01)
    busy = {"error": {"type": "rate_limit_error", "message": "slow down"}}

    def later(request):
        return web.json_response(busy, status=429, headers={"Retry-After": "90"})

    for reply, what in ((later, "HTTP 429"), (half, "the connection broke")):
        played, _ = play_against(kind, reply)
        assert (played.status, played.stop_reason, played.transient) == (Status.ERROR, "PolicyFailure", True)
        assert what in played.error
        assert "\n" not in played.error
        assert played.trajectory.score is None


@pytest.mark.parametrize("kind", ["anthropic", "google"])
def test_nonsense_is_a_failure_in_one_line(kind, monkeypatch):
    monkeypatch.setattr(endpoint_module, "FIRST_PAUSE_SECONDS", 0.01)
    for reply in ({}, {"content": 3, "candidates": 3}, {"content": [{"type": 3}], "candidates": [{"content": []}]}):
        played, _ = play_against(kind, reply)
        assert played.stop_reason == "PolicyFailure"
        assert "\n" not in played.error


ALL_KEYS = [
    variable for provider in PROVIDERS.values() for variable in (*provider.key_variables, provider.url_variable)
]


@pytest.fixture
def bare(monkeypatch):
    for variable in (*ALL_KEYS, "WANDER_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    return monkeypatch


def policy_of(name, **options):
    return resolve_policy(name, ENV, PolicyOptions(**options)).policy


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_key_goes_to_its_own_provider_and_nowhere_else(name, bare):
    for variable in ALL_KEYS:
        if variable.endswith("_KEY"):
            bare.setenv(variable, f"key-{variable}")
    provider = PROVIDERS[name]
    reply = {
        "chat": {"choices": [{"message": {"content": "ok"}}]},
        "anthropic": claude_message({"type": "text", "text": "ok"}),
        "google": gemini_answer({"text": "ok"}),
    }[provider.api]
    server, asked = answering(reply)

    async def go():
        async with server:
            base = str(server.make_url("")).rstrip("/")
            bare.setenv(provider.url_variable, base.removeprefix("http://") if name == "ollama" else base)
            async with policy_of(f"{name}/some/model") as policy:
                return await policy.complete([user("x")], key="k")

    assert asyncio.run(go()).message.content == "ok"
    ((request, body),) = asked
    sent = "\n".join(request.headers.values()) + request.path_qs
    mine = f"key-{provider.key_variables[0]}" if provider.key_variables else "nothing"
    assert (mine in sent) == bool(provider.key_variables)
    others = [f"key-{variable}" for variable in ALL_KEYS if f"key-{variable}" != mine]
    assert not [key for key in others if key in sent]
    assert body.get("model", "some/model") == "some/model"


def test_names_of_providers_say_what_is_missing(bare):
    with pytest.raises(UsageError, match="set GEMINI_API_KEY or GOOGLE_API_KEY to your key of google"):
        policy_of("google/gemini")
    bare.setenv("MINE", "k")
    assert isinstance(policy_of("anthropic/claude", api_key="MINE"), AnthropicMessages)
    assert str(policy_of("openai/o", api_key="MINE").url) == "https://api.openai.com/v1/chat/completions"
    assert str(policy_of("anthropic/c", api_key="MINE").url) == "https://api.anthropic.com/v1/messages"
    google = "https://generativelanguage.googleapis.com/v1beta/models/g:generateContent"
    assert str(policy_of("google/g", api_key="MINE").url) == google
    assert str(policy_of("openrouter/a/b", api_key="MINE").url) == "https://openrouter.ai/api/v1/chat/completions"
    assert str(policy_of("ollama/q").url) == "http://127.0.0.1:11434/v1/chat/completions"
    assert str(policy_of("vllm:http://127.0.0.1:9/v1").url) == "http://127.0.0.1:9/v1/chat/completions"
    bare.setenv("OLLAMA_HOST", "0.0.0.0:999")
    assert policy_of("ollama/q").url.port == 999
    with pytest.raises(UsageError, match="leave --extra-body and --extra-headers out"):
        policy_of("smollm2", headers={"a": "b"})


def test_further_headers_and_fields_are_sent(bare):
    server, asked = answering(gemini_answer({"text": "ok"}))

    async def go():
        async with server:
            bare.setenv("GOOGLE_GEMINI_BASE_URL", str(server.make_url("")))
            bare.setenv("GEMINI_API_KEY", "k")
            extra = {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}, "seed": None}}
            policy = policy_of("google/m", temperature=0.5, extra_body=extra, headers={"x-more": "1"})
            async with policy:
                await policy.complete([user("x")])

    asyncio.run(go())
    ((request, body),) = asked
    assert request.headers["x-more"] == "1"
    assert body["generationConfig"] == {"temperature": 0.5, "thinkingConfig": {"thinkingBudget": 0}}


def test_the_sdks_types_take_what_is_sent():
    python = made(PYTHON_CLIENTS)
    if python is None:
        pytest.skip("clients of model APIs are not installed: make peers")
    call = ToolCall(id="c1", name="look", arguments='{"place": "hall"}')
    talk = [
        system("s"),
        Message("user", f"see {IMAGE_MARK}", images=(URL,)),
        assistant("", call),
        Message("tool", "a door", tool_call_id="c1"),
    ]
    options = AnswerOptions(stop=("x",), max_tokens=7, tool_choice="required", tool_name="look", response_format=SCHEMA)
    bodies = {
        "anthropic": AnthropicMessages("http://x", "m").request(options, talk, TOOLS, draw="d"),
        "google": GeminiContent("http://x", "m").request(options, talk, TOOLS, draw="d"),
    }
    bodies = {name: {k: v for k, v in body.items() if v is not None} for name, body in bodies.items()}
    code = (
        "import json, sys, pydantic; bodies = json.load(sys.stdin)\n"
        "from anthropic.types import message_create_params as m\n"
        "pydantic.TypeAdapter(m.MessageCreateParamsNonStreaming).validate_python(bodies['anthropic'])\n"
        "from google.genai import types as t\n"
        "g = bodies['google']; forbid = dict(extra='forbid')\n"
        "[t.Content.model_validate(c) for c in g['contents']]\n"
        "t.Content.model_validate(g['systemInstruction']); [t.Tool.model_validate(x) for x in g['tools']]\n"
        "t.ToolConfig.model_validate(g['toolConfig']); t.GenerationConfig.model_validate(g['generationConfig'])\n"
    )
    done = subprocess.run(
        [python, "-c", code], input=json.dumps(bodies), capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr[-800:]


def test_a_refused_option_is_a_failure_before_anything_is_sent():
    assert AnthropicMessages("http://x", "m").unsupported_option(AnswerOptions(logprobs=True)) == "logprobs"
    assert GeminiContent("http://x", "m").unsupported_option(AnswerOptions(parallel_tool_calls=False))
    with pytest.raises(PolicyFailure, match="not a message"):
        AnthropicMessages("http://x", "m").read(b"{}")
