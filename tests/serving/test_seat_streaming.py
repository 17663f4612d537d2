"""A seat's answers as streams, read by the real SDK and byte by byte: text as it is sampled, and nothing lost."""

from __future__ import annotations

import asyncio
import http.client
import json
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp
import pytest

from patience import PATIENCE
from serving import MODEL, TOKENIZER
from wanderlust.agent import Agent
from wanderlust.errors import UsageError
from wanderlust.policies.base import SamplingOptions
from wanderlust.policies.local.policy import LocalPolicy
from wanderlust.policies.scripted import Scripted
from wanderlust.serving import seat_stream
from wanderlust.serving.agent_api import AgentAPI
from wanderlust.serving.chat_api import ChatDialect
from wanderlust.serving.dialect import KEEP_ALIVE_COMMENT
from wanderlust.serving.http import AgentServer
from wanderlust.serving.openai_client import Client
from wanderlust.serving.responses_api import ResponsesDialect
from wanderlust.types import Completion, ToolCall, assistant

openai = pytest.importorskip("openai", reason="the SDK is not installed: pip install 'wanderlust[agents]'")
from wanderlust.serving.openai_sdk import openai_client  # noqa: E402

ASKED = [{"role": "user", "content": "say something"}]


def local():
    return LocalPolicy.of(MODEL, TOKENIZER, SamplingOptions(max_tokens=24), seed=5)


class Slow:
    """Answers, or fails, after a while; `started` and `dropped` say what became of its calls."""

    def __init__(self, seconds, fail=False):
        self.seconds, self.fail, self.started, self.dropped = seconds, fail, asyncio.Event(), asyncio.Event()

    async def complete(self, messages, tools=(), *, key=""):
        self.started.set()
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.dropped.set()
            raise
        if self.fail:
            raise RuntimeError("boom")
        return Completion(message=assistant("at last"), usage={"prompt_tokens": 3, "completion_tokens": 2})


@asynccontextmanager
async def seat(policy, **options):
    """An agent, and the real SDK's client of it over HTTP."""
    agent = Agent(policy, key="k")
    async with (
        AgentServer() as server,
        server.serving(AgentAPI({"agent": agent}, **options)) as key,
        openai.AsyncOpenAI(base_url=server.url, api_key=key, max_retries=0) as client,
    ):
        yield agent, client


async def chat(client, **options):
    """The pieces of text of a streamed chat, and its chunks."""
    stream = await client.chat.completions.create(model="m", messages=ASKED, stream=True, **options)
    chunks = [chunk async for chunk in stream]
    return [chunk.choices[0].delta.content for chunk in chunks if chunk.choices], chunks


async def respond(client):
    """The pieces of text of a streamed response, and its events."""
    stream = await client.responses.create(model="m", input=ASKED, stream=True)
    events = [event async for event in stream]
    return [event.delta for event in events if event.type == "response.output_text.delta"], events


def whole_turn():
    async def go():
        agent = Agent(local(), key="k")
        async with openai_client(agent) as client:
            await client.chat.completions.create(model="m", messages=ASKED)
        return agent.trajectory.turns[0]

    return asyncio.run(go())


@pytest.mark.parametrize("ask", [chat, respond])
@pytest.mark.parametrize("http", [True, False])
def test_text_comes_as_it_is_sampled_and_the_turn_is_that_of_a_whole_answer(ask, http):
    async def go():
        if http:
            async with seat(local()) as (agent, client):
                return await ask(client), agent
        agent = Agent(local(), key="k")
        async with openai_client(agent) as client:
            return await ask(client), agent

    (pieces, parts), agent = asyncio.run(go())
    (turn,) = agent.trajectory.turns
    assert turn == whole_turn()
    assert len([piece for piece in pieces if piece]) > 3
    assert "".join(piece or "" for piece in pieces) == turn.action.content
    if ask is chat:
        assert {chunk.id for chunk in parts} == {"k/1"}
        assert parts[0].choices[0].delta.role == "assistant"
        assert [chunk.choices[0].finish_reason for chunk in parts][-1] == turn.finish
    else:
        assert [event.sequence_number for event in parts] == list(range(len(parts)))
        assert parts[-1].response.output_text == turn.action.content
        (done,) = [event for event in parts if event.type == "response.output_text.done"]
        assert done.text == turn.action.content
        kinds = [event.type for event in parts if event.type != "response.output_text.delta"]
        assert len(kinds) == len(set(kinds)) == 8


def test_the_first_text_is_there_before_the_last_token():
    async def go():
        async with seat(local()) as (agent, client):
            stream = await client.chat.completions.create(model="m", messages=ASKED, stream=True)
            async for chunk in stream:
                if chunk.choices[0].delta.content:
                    turns = len(agent.trajectory.turns)
                    break
            async for _ in stream:
                pass
            return turns, len(agent.trajectory.turns)

    assert asyncio.run(go()) == (0, 1)


@pytest.mark.parametrize("wanted", [True, False])
def test_the_usage_is_the_last_chunk_where_it_is_asked_for(wanted):
    async def go():
        async with seat(local()) as (agent, client):
            options = {"stream_options": {"include_usage": True}} if wanted else {}
            return (await chat(client, **options))[1], agent

    chunks, agent = asyncio.run(go())
    counted = [chunk for chunk in chunks if chunk.usage is not None]
    assert counted == (chunks[-1:] if wanted else [])
    if wanted:
        assert counted[0].choices == []
        assert counted[0].usage.completion_tokens == agent.trajectory.turns[0].usage["completion_tokens"] > 0


def test_calls_and_text_that_is_not_streamed_are_whole_chunks():
    calls = [ToolCall(id=f"c{n}", name="look", arguments=json.dumps({"n": n})) for n in range(2)]

    async def go():
        async with seat(Scripted([assistant("Look:", *calls)])) as (_, client):
            return (await chat(client, tools=[{"type": "function", "function": {"name": "look"}}]))[1]

    deltas = [chunk.choices[0].delta for chunk in asyncio.run(go())]
    assert "".join(delta.content or "" for delta in deltas) == "Look:"
    found = [call for delta in deltas for call in delta.tool_calls or ()]
    assert [(c.index, c.id, c.function.arguments) for c in found] == [
        (n, c.id, c.arguments) for n, c in enumerate(calls)
    ]


def test_a_client_that_waits_two_seconds_for_bytes_gets_an_answer_of_four():
    async def go():
        async with seat(Slow(4.0)) as (agent, client):
            patient = client.with_options(timeout=openai.Timeout(2.0))
            chats = await chat(patient, stream_options={"include_usage": True})
            return chats, await respond(patient), len(agent.trajectory.turns)

    (pieces, chunks), (texts, _), turns = asyncio.run(go())
    assert "".join(piece or "" for piece in pieces) == "".join(texts) == "at last"
    assert (chunks[-1].usage.total_tokens, turns) == (5, 2)


def test_a_late_failure_is_an_error_of_the_sdk_and_ends_the_episode(monkeypatch):
    monkeypatch.setattr(seat_stream, "FIRST_EVENT_SECONDS", 0.05)

    async def go():
        async with seat(Slow(0.3, fail=True)) as (agent, client):
            for ask in (chat, respond):
                with pytest.raises(openai.APIError, match=r"PolicyFailure: RuntimeError: boom|the episode is over"):
                    await ask(client)
            return agent

    agent = asyncio.run(go())
    assert agent.trajectory.turns == []
    assert "boom" in str(agent.interruption)


def test_a_failure_at_once_has_its_own_status():
    async def go():
        async with seat(Slow(0.0, fail=True)) as (_, client):
            with pytest.raises(openai.InternalServerError, match="boom"):
                await chat(client)
            with pytest.raises(openai.PermissionDeniedError, match="the episode is over"):
                await respond(client)

    asyncio.run(go())


def test_a_program_that_hangs_up_leaves_no_turn(monkeypatch):
    monkeypatch.setattr(seat_stream, "FIRST_EVENT_SECONDS", 0.05)

    async def go():
        slow = Slow(30.0)
        async with seat(slow) as (agent, client):
            stream = await client.chat.completions.create(model="m", messages=ASKED, stream=True)
            await slow.started.wait()
            await stream.close()
            async with asyncio.timeout(PATIENCE):
                await slow.dropped.wait()
            slow.seconds = 0.0
            said = await client.chat.completions.create(model="m", messages=ASKED)
            return said.choices[0].message.content, len(agent.trajectory.turns)

    assert asyncio.run(go()) == ("at last", 1)


def test_one_connection_carries_many_answers_and_ends_streams_as_the_protocol_says():
    body = {"model": "m", "messages": ASKED}

    def ask(url, key):
        place = urlsplit(url)
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=PATIENCE)
        said, sockets = [], set()
        for stream in (True, False, True, True):
            headers = {"Authorization": f"Bearer {key}"}
            connection.request("POST", "/v1/chat/completions", json.dumps({**body, "stream": stream}), headers)
            said.append(connection.getresponse().read())
            sockets.add(connection.sock)
        connection.close()
        return said, sockets

    async def go():
        agent = Agent(Scripted(lambda messages, rng: "fine"), key="k")
        async with AgentServer() as server, server.serving(AgentAPI({"agent": agent})) as key:
            return await asyncio.to_thread(ask, server.url, key)

    said, sockets = asyncio.run(go())
    assert len(sockets) == 1
    assert None not in sockets
    assert json.loads(said[1])["choices"][0]["message"]["content"] == "fine"
    for stream in (said[0], *said[2:]):
        *events, done, end = stream.split(b"\n\n")
        assert (done, end) == (b"data: [DONE]", b"")
        assert all(event.startswith(b"data: {") for event in events)


def test_waiting_is_told_in_comments(monkeypatch):
    monkeypatch.setattr(seat_stream, "FIRST_EVENT_SECONDS", 0.05)
    monkeypatch.setattr(seat_stream, "KEEP_ALIVE_SECONDS", 0.1)

    async def go():
        agent = Agent(Slow(0.6), key="k")
        async with AgentServer() as server, server.serving(AgentAPI({"agent": agent})) as key:
            headers = {"Authorization": f"Bearer {key}"}
            body = {"model": "m", "messages": ASKED, "stream": True}
            url = f"{server.url}/chat/completions"
            async with aiohttp.ClientSession(headers=headers) as session, session.post(url, json=body) as response:
                assert agent.trajectory.turns == []  # the headers are there before the turn is over
                return await response.read()

    parts = asyncio.run(go()).split(b"\n\n")
    assert parts.count(KEEP_ALIVE_COMMENT.strip()) >= 2
    assert parts[-2] == b"data: [DONE]"


def test_one_call_at_a_time_is_refused_by_name_unless_it_is_ignored():
    options = {"model": "m", "messages": ASKED, "tools": [{"type": "function", "function": {"name": "look"}}]}

    async def go():
        async with seat(Scripted(lambda messages, rng: "fine")) as (_, client):
            for create in (client.chat.completions.create, client.responses.create):
                asked = options if create == client.chat.completions.create else {"model": "m", "input": "x"}
                await create(**asked, parallel_tool_calls=True)
                with pytest.raises(openai.BadRequestError, match="cannot honour `parallel_tool_calls`"):
                    await create(**asked, parallel_tool_calls=False)
        async with seat(Scripted(["fine"]), ignored_options={"parallel_tool_calls"}) as (_, client):
            return await client.chat.completions.create(**options, parallel_tool_calls=False)

    assert asyncio.run(go()).choices[0].message.content == "fine"


CHAT_OPTIONS = {
    "stop": ["Observation:"],
    "max_tokens": 5,
    "max_completion_tokens": 5,
    "tool_choice": "required",
    "logprobs": True,
    "top_logprobs": 2,
    "functions": [{"name": "look"}],
    "function_call": "auto",
    "logit_bias": {"1": 5},
    "modalities": ["text", "audio"],
    "audio": {"voice": "a", "format": "wav"},
    "web_search_options": {"user_location": None},
    "n": 2,
}
RESPONSE_OPTIONS = {
    "max_output_tokens": 5,
    "tool_choice": {"type": "function", "name": "look"},
    "top_logprobs": 2,
    "max_tool_calls": 1,
    "conversation": "c",
    "prompt": {"id": "p"},
}


@pytest.mark.parametrize(
    ("dialect", "name", "value"),
    [(ChatDialect, *one) for one in CHAT_OPTIONS.items()]
    + [(ResponsesDialect, *one) for one in RESPONSE_OPTIONS.items()],
)
def test_what_a_policy_without_options_cannot_honour_is_refused_by_name(dialect, name, value):
    def parse(body, ignored=()):
        return dialect(ignored).parse(body).fit(Scripted(["x"]), ignored)

    body = {"messages": ASKED, "input": "x", "temperature": 0.5, "top_p": 0.9, "seed": 3}
    assert parse(body).messages
    with pytest.raises(UsageError, match=f"`{name}`"):
        parse({**body, name: value})
    assert parse({**body, name: value}, ignored={name}).messages


def test_what_the_policy_said_of_tokens_reaches_the_program_and_the_rest_reads_as_nothing():
    class Counts:
        async def complete(self, messages, tools=(), *, key=""):
            usage = {"prompt_tokens": 9, "completion_tokens": 4, "cached_tokens": 5, "reasoning_tokens": 3}
            return Completion(message=assistant("x"), usage=usage if len(messages) == 1 else {})

    async def details(client, messages):
        answer = await client.chat.completions.create(model="m", messages=messages)
        usage = answer.usage
        assert getattr(answer.choices[0].message, "reasoning_content", None) is None
        return usage.prompt_tokens_details, usage.completion_tokens_details

    async def response_details(client):
        usage = (await client.responses.create(model="m", input="x")).usage
        return usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens

    async def go():
        agent = Agent(Counts(), key="k")
        look_alike = Client(agent)
        async with openai_client(agent) as sdk:
            for client in (look_alike, sdk):
                assert await response_details(client) == (5, 3)
            return [await details(client, ASKED * n) for client in (look_alike, sdk) for n in (1, 2)]

    for (read, written), nothing in zip(*[iter(asyncio.run(go()))] * 2, strict=True):
        assert (read.cached_tokens, written.reasoning_tokens) == (5, 3)
        assert nothing == (None, None)
