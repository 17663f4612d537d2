"""Agents that nobody here wrote act through recorded seats: the OpenAI SDK and two agent frameworks."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from wanderlust.adapters.external_program import Program
from wanderlust.agent import Agent
from wanderlust.environment import Environment, Limits
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.serving.agent_api import AgentAPI
from wanderlust.serving.http import AgentServer
from wanderlust.serving.openai_client import Client
from wanderlust.types import Completion, Message, Status, Task, ToolCall, assistant

openai = pytest.importorskip("openai", reason="the SDK is not installed: pip install 'wanderlust[agents]'")
from wanderlust.serving.openai_sdk import openai_client  # noqa: E402

TASK = Task(id="t")
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
CHAT_TOOL = {"type": "function", "function": {"name": "weather", "description": "d", "parameters": SCHEMA}}
RESPONSES_TOOL = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}


def traveller(messages, rng):
    """Asks for the weather of two cities at once, then of a third, then sums up what it heard."""
    heard = [m.content for m in messages if m.role == "tool"]
    if len(heard) < 3:
        cities = ["Rome", "Oslo"] if not heard else ["Kyiv"]
        calls = [
            ToolCall(id=f"c{len(heard)}{n}", name="weather", arguments=json.dumps({"city": c}))
            for n, c in enumerate(cities)
        ]
        return assistant("Let me look." if not heard else "", *calls)
    return f"In short: {', '.join(heard)}."


def weather(city):
    return f"{city} sunny"


SUMMARY = "In short: Rome sunny, Oslo sunny, Kyiv sunny."


def is_travel(turns):
    """The three turns of the traveller, as appended conversation."""
    assert [len(t.action.tool_calls) for t in turns] == [2, 1, 0]
    assert [t.resets_context for t in turns] == [False] * 3
    assert [[m.role for m in t.observation] for t in turns[1:]] == [["tool", "tool"], ["tool"]]
    assert turns[-1].action.content == SUMMARY
    return True


async def chat_loop(client):
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "weather?"}]
    while True:
        done = await client.chat.completions.create(model="m", messages=messages, tools=[CHAT_TOOL])
        said = done.choices[0].message
        messages.append(said)
        if not said.tool_calls:
            return said.content
        messages += [
            {"role": "tool", "tool_call_id": c.id, "content": weather(**json.loads(c.function.arguments))}
            for c in said.tool_calls
        ]


async def chat_stream_loop(client):
    messages = [{"role": "user", "content": "weather?"}]
    while True:
        text, calls = "", {}
        stream = await client.chat.completions.create(
            model="m", messages=messages, tools=[CHAT_TOOL], stream=True, stream_options={"include_usage": True}
        )
        async for chunk in stream:
            if not chunk.choices:
                assert chunk.usage.total_tokens == 0
                continue
            delta = chunk.choices[0].delta
            text += delta.content or ""
            for call in delta.tool_calls or ():
                known = calls.setdefault(
                    call.index, {"id": call.id, "type": "function", "function": {"name": "", "arguments": ""}}
                )
                known["function"]["name"] += call.function.name or ""
                known["function"]["arguments"] += call.function.arguments or ""
        if not calls:
            return text
        messages.append({"role": "assistant", "content": text, "tool_calls": list(calls.values())})
        for call in calls.values():
            result = weather(**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


async def responses_loop(client):
    items = [{"role": "user", "content": "weather?"}]
    while True:
        done = await client.responses.create(model="m", instructions="s", input=items, tools=[RESPONSES_TOOL])
        calls = [item for item in done.output if item.type == "function_call"]
        items += done.output
        if not calls:
            return done.output_text
        for c in calls:
            result = weather(**json.loads(c.arguments))
            items.append({"type": "function_call_output", "call_id": c.call_id, "output": result})


async def responses_chain(client):
    """Like `responses_loop`, with the server keeping the conversation, and streamed."""
    asked = [{"role": "user", "content": "weather?"}]
    before = None
    while True:
        options = {} if before is None else {"previous_response_id": before}
        stream = await client.responses.create(
            model="m", instructions="s", input=asked, tools=[RESPONSES_TOOL], stream=True, **options
        )
        text, calls = "", []
        async for event in stream:
            if event.type == "response.output_text.delta":
                text += event.delta
            elif event.type == "response.output_item.done" and event.item.type == "function_call":
                calls.append(event.item)
            elif event.type == "response.completed":
                before = event.response.id
        if not calls:
            return text
        asked = [
            {"type": "function_call_output", "call_id": c.call_id, "output": weather(**json.loads(c.arguments))}
            for c in calls
        ]


LOOPS = [chat_loop, chat_stream_loop, responses_loop, responses_chain]


class Runs(Environment):
    """Plays one of the loops with a client over the seat."""

    def __init__(self, loop, client_of):
        self.loop, self.client_of = loop, client_of

    async def run(self, episode):
        said = await self.loop(self.client_of(episode.agent))
        episode.reward("right", float(said == SUMMARY))


def play(env, policy=None, **options):
    return asyncio.run(rollout(env, TASK, policy or Scripted(traveller), **options))


@pytest.mark.parametrize("loop", LOOPS)
def test_the_real_client_acts_through_a_seat_without_a_socket(loop):
    played = play(Runs(loop, openai_client))
    assert (played.status, played.error) == (Status.DONE, None)
    assert is_travel(played.trajectory.turns)
    assert played.trajectory.score.reward == 1


@pytest.mark.parametrize("loop", LOOPS)
def test_the_look_alike_gives_the_same_rollout(loop):
    from_client = play(Runs(loop, Client))
    assert from_client.trajectory == play(Runs(loop, openai_client)).trajectory


async def over_http(program, policy=None, limits=None):
    """What `program(url, key)` returns, and the agent it played."""
    agent = Agent(policy or Scripted(traveller), key="k", limits=limits)
    async with AgentServer() as server, server.serving(AgentAPI({"agent": agent})) as key:
        return await program(server.url, key), agent


@pytest.mark.parametrize("loop", LOOPS)
def test_the_real_client_acts_over_http(loop):
    async def program(url, key):
        async with openai.AsyncOpenAI(base_url=url, api_key=key) as client:
            assert [m.id async for m in client.models.list()] == ["agent"]
            return await loop(client)

    said, agent = asyncio.run(over_http(program))
    assert said == SUMMARY
    assert is_travel(agent.trajectory.turns)


def test_the_synchronous_client_acts_over_http():
    def plain(url, key):
        with openai.OpenAI(base_url=url, api_key=key) as client:
            asked = [{"role": "user", "content": "x"}]
            first = client.chat.completions.create(model="m", messages=asked, tools=[CHAT_TOOL])
            with client.chat.completions.stream(model="m", messages=asked, tools=[CHAT_TOOL]) as stream:
                second = stream.get_final_completion()
            third = client.responses.create(model="m", input="x", tools=[RESPONSES_TOOL])
            with client.responses.stream(model="m", input="x", tools=[RESPONSES_TOOL]) as events:
                fourth = events.get_final_response()
        chats = [c.choices[0].message for c in (first, second)]
        calls = [[c.function.arguments for c in said.tool_calls] for said in chats]
        return calls + [[item.arguments for item in r.output if item.type == "function_call"] for r in (third, fourth)]

    calls, agent = asyncio.run(over_http(lambda url, key: asyncio.to_thread(plain, url, key)))
    assert calls == [['{"city": "Rome"}', '{"city": "Oslo"}']] * 4
    assert [t.resets_context for t in agent.trajectory.turns] == [False, True, True, True]


def test_structured_output_reaches_a_policy_that_takes_it():
    pydantic = pytest.importorskip("pydantic")

    class City(pydantic.BaseModel):
        name: str

    forms = []

    class Formed:
        async def complete(self, messages, tools=(), *, key=""):
            raise AssertionError

        def unsupported_option(self, options):
            return ""

        async def complete_with_options(self, options, messages, tools=(), *, key="", on_text=None):
            forms.append(options.response_format)
            return Completion(message=assistant('{"name": "Rome"}'))

    async def loop(client):
        one = await client.chat.completions.parse(
            model="m", messages=[{"role": "user", "content": "x"}], response_format=City
        )
        two = await client.responses.parse(model="m", input="x", text_format=City)
        assert one.choices[0].message.parsed == two.output_parsed == City(name="Rome")

    assert play(Runs(loop, openai_client), Formed()).error is None
    assert [form["type"] for form in forms] == ["json_schema"] * 2
    assert forms[0]["json_schema"]["schema"] == forms[1]["json_schema"]["schema"]


def test_limits_are_the_sdks_errors_are_not_retried_and_name_the_end():
    async def loop(client):
        with pytest.raises(openai.PermissionDeniedError, match="the episode is over: max_turns"):
            await chat_loop(client)
        with pytest.raises(openai.APIStatusError):
            await chat_loop(client)

    played = play(Runs(loop, openai_client), limits=Limits(max_turns=2))
    assert (played.status, played.stop_reason, len(played.trajectory.turns)) == (Status.TRUNCATED, "max_turns", 2)


def test_a_failed_policy_is_the_sdks_error_once_and_the_rollout_says_so():
    asked = []

    def failing(messages, rng):
        asked.append(1)
        raise RuntimeError("boom")

    async def loop(client):
        with pytest.raises(openai.InternalServerError, match="PolicyFailure: RuntimeError: boom"):
            await chat_loop(client)
        return SUMMARY  # swallowed: the episode is not worth a point for it

    played = play(Runs(loop, openai_client), Scripted(failing))
    assert (played.stop_reason, played.error, played.trajectory.score) == ("PolicyFailure", "RuntimeError: boom", None)
    assert len(asked) == 1


def test_bad_requests_are_the_sdks_errors_and_end_nothing():
    async def loop(client):
        picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]
        for bad in ({"messages": picture}, {"messages": [], "n": 3}, {"messages": [{"role": "user", "content": 3}]}):
            with pytest.raises(openai.BadRequestError):
                await client.chat.completions.create(model="m", **bad)
        with pytest.raises(openai.NotFoundError):
            await client.embeddings.create(model="m", input="x")
        return await chat_loop(client)

    assert is_travel(play(Runs(loop, openai_client)).trajectory.turns)


def test_a_wrong_key_is_refused_at_once():
    async def program(url, key):
        async with openai.AsyncOpenAI(base_url=url, api_key="sk-other") as client:
            with pytest.raises(openai.AuthenticationError, match="no episode has this API key"):
                await chat_loop(client)

    _, agent = asyncio.run(over_http(program))
    assert agent.trajectory.turns == []


SYNC = """
import json, sys, openai
task = json.loads(sys.stdin.readline())
client = openai.OpenAI()
messages = [{"role": "user", "content": task["prompt"][0]["content"]}]
tools = [json.loads(sys.argv[1])]
while True:
    said = client.chat.completions.create(model="any", messages=messages, tools=tools).choices[0].message
    messages.append(said)
    if not said.tool_calls:
        break
    for c in said.tool_calls:
        text = json.loads(c.function.arguments)["city"] + " sunny"
        messages.append({"role": "tool", "tool_call_id": c.id, "content": text})
print(said.content)
"""


class Travel(Program):
    async def judge(self, episode, ended, folder):
        episode.reward("right", float(ended.stdout.strip() == SUMMARY))


def test_a_program_with_the_sdk_is_an_agent():
    env = Travel([sys.executable, "-c", SYNC, json.dumps(CHAT_TOOL)])
    task = Task(id="t", prompt=(Message("user", "weather?"),), answer="hidden")
    played = asyncio.run(rollout(env, task, Scripted(traveller)))
    assert (played.status, played.error) == (Status.DONE, None)
    assert is_travel(played.trajectory.turns)
    assert played.trajectory.score.reward == 1


# Frameworks


def test_pydantic_ai_is_an_agent():
    pydantic_ai = pytest.importorskip("pydantic_ai", reason="pip install 'wanderlust[agents]'")
    models = pytest.importorskip("pydantic_ai.models.openai")
    providers = pytest.importorskip("pydantic_ai.providers.openai")
    kinds = models.OpenAIChatModel, models.OpenAIResponsesModel

    def loop_of(kind):
        async def loop(client):
            model = kind("m", provider=providers.OpenAIProvider(openai_client=client))
            agent = pydantic_ai.Agent(model, instructions="s", tools=[pydantic_ai.Tool(weather, takes_ctx=False)])
            return (await agent.run("weather?")).output

        return loop

    for kind in kinds:
        played = play(Runs(loop_of(kind), openai_client))
        assert (played.status, played.error) == (Status.DONE, None)
        assert is_travel(played.trajectory.turns)
        assert played.trajectory.score.reward == 1

    async def over(url, key):
        async with openai.AsyncOpenAI(base_url=url, api_key=key) as client:
            return [await loop_of(kind)(client) for kind in kinds]

    said, agent = asyncio.run(over_http(over))
    assert said == [SUMMARY] * 2
    assert is_travel(agent.trajectory.turns[:3])


def test_openai_agents_is_an_agent():
    agents = pytest.importorskip("agents", reason="pip install 'wanderlust[agents]'")
    agents.set_tracing_disabled(True)

    def loop_of(kind, *, streamed):
        async def loop(client):
            tool = agents.function_tool(weather)
            agent = agents.Agent(name="a", instructions="s", tools=[tool], model=kind(model="m", openai_client=client))
            if not streamed:
                return (await agents.Runner.run(agent, "weather?")).final_output
            result = agents.Runner.run_streamed(agent, "weather?")
            async for _ in result.stream_events():
                pass
            return result.final_output

        return loop

    for kind in (agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel):
        for streamed in (False, True):
            played = play(Runs(loop_of(kind, streamed=streamed), openai_client))
            assert (played.status, played.error) == (Status.DONE, None)
            assert is_travel(played.trajectory.turns)
            assert played.trajectory.score.reward == 1

    async def over(url, key):
        async with openai.AsyncOpenAI(base_url=url, api_key=key) as client:
            return await loop_of(agents.OpenAIResponsesModel, streamed=True)(client)

    assert asyncio.run(over_http(over))[0] == SUMMARY
