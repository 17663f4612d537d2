"""What a client of a seat may do wrong: broken and huge bodies, HTTP/1.0, hanging up, any JSON at all."""

from __future__ import annotations

import asyncio
import json
import socket
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dialects import PATHS, URL, Options, bodies, run, told
from patience import PATIENCE
from wanderlust.environment import Agent
from wanderlust.policies.scripted import Scripted
from wanderlust.serving import http as serving
from wanderlust.serving.agent_api import AgentAPI


@pytest.mark.parametrize("dialect", PATHS)
def test_broken_and_huge_bodies_are_refused_in_one_line(dialect, monkeypatch):
    monkeypatch.setattr(serving, "MAX_REQUEST_BYTES", 2**16)

    async def program(ask):
        bad = [b"", b"{", b"[]", b"\xff\xfe", b'{"messages": 3, "input": 3, "contents": 3}', b"[" * 5000, b"1e999"]
        return [told(await ask(PATHS[dialect], body))[0] for body in bad], told(
            await ask(PATHS[dialect], b" " * (2**16 + 1))
        )

    (statuses, huge), agent = run(Options(), program)
    assert set(statuses) == {400}
    assert huge[0] == 413
    assert agent.trajectory.turns == []


def raw(url, head, body=b"", *, hang_up=False):
    """Bytes sent by hand, and all that comes back."""
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port), timeout=PATIENCE) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
        if hang_up:
            return b""
        out = b""
        while part := connection.recv(65536):
            out += part
        return out


def test_clients_of_http_1_0_and_bodies_of_100_megabytes():
    async def program(ask):
        body = json.dumps(bodies()["openai"] | {"stream": True}).encode()
        head = f"POST /v1/chat/completions HTTP/1.0\nAuthorization: Bearer {ask.key}\nContent-Length: "
        old = await asyncio.to_thread(raw, ask.url, f"{head}{len(body)}", body)
        status, huge = await ask("/v1/messages", b" " * 100 * 2**20, headers={"x-api-key": ask.key})
        return old, status, huge

    (old, status, huge), agent = run(Scripted(lambda messages, rng: "fine"), program)
    start, _, events = old.partition(b"\r\n\r\n")
    assert b" 200 " in start.splitlines()[0]
    assert b"chunked" not in start
    assert events.endswith(b"data: [DONE]\n\n")
    assert (status, json.loads(huge)["error"]["type"]) == (413, "request_too_large")
    assert len(agent.trajectory.turns) == 1


def test_a_client_that_hangs_up_in_the_middle_of_its_request_leaves_nothing():
    async def program(ask):
        head = f"POST /v1/chat/completions HTTP/1.1\nHost: x\nAuthorization: Bearer {ask.key}\nContent-Length: 900"
        await asyncio.to_thread(raw, ask.url, head, b'{"mess', hang_up=True)
        return await ask("/v1/chat/completions", bodies()["openai"])

    (status, _), agent = run(Scripted(lambda messages, rng: "fine"), program)
    assert status == 200
    assert len(agent.trajectory.turns) == 1


WORDS = ["user", "text", "model", URL]
NAMES = {
    *("role", "content", "type", "text", "tool_calls", "tool_call_id", "function", "name", "arguments", "parameters"),
    *("tool_use_id", "input", "input_schema", "source", "url", "data", "media_type", "is_error", "thinking", "id"),
    *("parts", "functionCall", "function_response", "functionResponse", "response", "args", "inlineData", "mimeType"),
    *("functionDeclarations", "functionCallingConfig", "mode", "stopSequences", "maxOutputTokens", "responseSchema"),
    *("output", "call_id", "format", "schema", "properties", "item_reference", "previous_message_id", "anyOf"),
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=4) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(NAMES)), inner, max_size=4),
    max_leaves=12,
)
TOP = {
    *("messages", "input", "contents", "tools", "system", "systemInstruction", "generationConfig", "toolConfig"),
    *("tool_choice", "stop", "stop_sequences", "max_tokens", "n", "logprobs", "top_logprobs", "text", "stream"),
    *("previous_response_id", "thread", "thinking", "response_format", "stream_options", "include", "store", "model"),
    *("metadata", "output_config", "instructions", "system_instruction", "generation_config", "safetySettings"),
}


@settings(max_examples=400)
@given(st.sampled_from(sorted(PATHS)), st.dictionaries(st.sampled_from(sorted(TOP)), JSON, max_size=5), st.booleans())
def test_any_request_is_answered_or_refused_in_one_line(dialect, more, streams):
    path = PATHS[dialect]
    if dialect == "google" and streams:
        path = "/models/m:streamGenerateContent?alt=sse"
    body = bodies()[dialect] | more | ({"stream": True} if streams else {})

    async def go():
        api = AgentAPI({"agent": Agent(Options())})
        reply = await api.answer("POST", path, json.dumps(body).encode())
        if isinstance(reply, serving.HttpResponse):
            return reply.status, reply.body
        parts = []

        async def send(part):
            parts.append(part)

        await reply.write(send)
        return 200, b"".join(parts)

    status, answer = asyncio.run(go())
    assert status in (200, 400)
    if status == 400:
        assert "\n" not in json.loads(answer)["error"]["message"]
