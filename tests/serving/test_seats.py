"""A live seat keeps its record right whatever happens to a turn; a cut seat cannot be talked away."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wanderlust.agent import Agent
from wanderlust.environment import Environment, Limits
from wanderlust.errors import PolicyFailure, StopEpisode, WanderlustError
from wanderlust.openai_types import parse_chat_completion
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.serving.agent_api import AgentAPI
from wanderlust.serving.openai_client import Client
from wanderlust.types import Completion, Status, Task, assistant, user

TASK = Task(id="t")


def echo(messages, rng):
    return assistant(f"echo: {messages[-1].content}")


class Stumbles:
    """Fails every first time."""

    def __init__(self):
        self.seen = []

    async def complete(self, messages, tools=(), *, key=""):
        self.seen.append(list(messages))
        if len(self.seen) % 2:
            raise RuntimeError("busy")
        return Completion(message=echo(messages, None))


def test_a_failed_turn_leaves_the_conversation_as_it_was():
    agent = Agent(Stumbles())

    async def go():
        for said in "ab":
            with pytest.raises(PolicyFailure):
                await agent.act(user(said))
            await agent.act(user(said))

    asyncio.run(go())
    assert [m.content for m in agent.messages] == ["a", "echo: a", "b", "echo: b"]
    assert agent.messages == agent.trajectory.messages == [*agent.policy.seen[-1], agent.messages[-1]]
    assert agent.interruption is None


def test_turns_asked_for_at_once_are_taken_in_order_and_the_record_is_the_conversation():
    async def slowly(messages, rng=None):
        await asyncio.sleep(0)
        return Completion(message=echo(messages, None))

    class Slow:
        complete = staticmethod(lambda messages, tools=(), *, key="": slowly(messages))

    agent = Agent(Slow())

    async def go():
        await asyncio.gather(*(agent.act(user(str(n))) for n in range(9)))

    asyncio.run(go())
    assert [m.content for m in agent.messages if m.role == "user"] == list("012345678")
    assert agent.messages == agent.trajectory.messages


class Swallows(Environment):
    """Goes on whatever happens, as many programs do."""

    def __init__(self, *, wraps=False):
        self.wraps = wraps

    async def run(self, episode):
        for said in "abc":
            try:
                await episode.agent.act(user(said))
            except WanderlustError as error:
                if self.wraps:
                    raise ExceptionGroup("sub-agents", [error]) from error
        episode.reward("done", 1.0)


@pytest.mark.parametrize("wraps", [False, True])
def test_a_swallowed_failure_is_no_score_and_a_swallowed_limit_is_a_truncation(wraps):
    def boom(messages, rng):
        raise RuntimeError("boom")

    failed = asyncio.run(rollout(Swallows(wraps=wraps), TASK, Scripted(boom)))
    assert (failed.stop_reason, failed.error, failed.trajectory.score) == ("PolicyFailure", "RuntimeError: boom", None)
    limited = asyncio.run(rollout(Swallows(wraps=wraps), TASK, Scripted(echo), limits=Limits(max_turns=2)))
    assert (limited.status, limited.stop_reason) == (Status.TRUNCATED, "max_turns")


def test_a_failure_that_the_environment_made_good_is_none():
    class Patient(Environment):
        async def run(self, episode):
            try:
                await episode.agent.act(user("a"))
            except PolicyFailure:
                await episode.agent.act(user("a"))

    played = asyncio.run(rollout(Patient(), TASK, Stumbles()))
    assert (played.status, played.error, len(played.trajectory.turns)) == (Status.DONE, None, 1)


def test_a_program_that_asks_for_ever_lets_the_clock_end_it():
    class Stubborn(Environment):
        async def run(self, episode):
            client = Client(episode.agent)
            while True:
                try:
                    await client.chat.completions.create(messages=[{"role": "user", "content": "x"}])
                except StopEpisode:
                    continue

    played = asyncio.run(rollout(Stubborn(), TASK, Scripted(echo), limits=Limits(max_turns=2, timeout=1.0)))
    assert (played.status, len(played.trajectory.turns)) == (Status.TRUNCATED, 2)


def test_the_look_alike_answers_like_the_original():
    async def go():
        client = Client(Agent(Scripted(echo), key="k"))
        async with client as same:
            done = await same.with_options(timeout=3).chat.completions.create(
                model="m", messages=[{"role": "user", "content": "a"}], temperature=0
            )
        message = done.choices[0].message
        assert (message.content, message.tool_calls, message.refusal, done.system_fingerprint) == (
            "echo: a",
            None,
            None,
            None,
        )
        assert message.model_dump(exclude_none=True) == {"role": "assistant", "content": "echo: a"}
        assert '"chat.completion"' in done.model_dump_json()
        with pytest.raises(AttributeError, match="no 'choice'"):
            done.choice  # noqa: B018
        stream = await client.chat.completions.create(model="m", messages=[message.to_dict()], stream=True)
        async with stream:
            assert (await anext(stream)).choices[0].delta.role == "assistant"
        assert [chunk async for chunk in stream] == []
        return (await client.responses.create(model="m", input="b")).output_text

    assert asyncio.run(go()) == "echo: b"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["messages", "role", "content", "tool_calls", "type", "input", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150)
@given(st.binary(max_size=200))
def test_any_bytes_as_an_answer_are_an_answer_or_a_policys_failure(body):
    try:
        assert parse_chat_completion(body).message.role == "assistant"
    except PolicyFailure:
        return


@settings(max_examples=150)
@given(
    st.sampled_from(["/chat/completions", "/responses"]),
    st.dictionaries(
        st.sampled_from(["messages", "input", "tools", "n", "stream", "text", "previous_response_id"]), JSON
    ),
)
def test_any_request_is_answered_or_refused(path, asked):
    front = AgentAPI({"agent": Agent(Scripted(echo))})
    reply = asyncio.run(front.answer("POST", path, json.dumps(asked).encode()))
    assert reply.status in (200, 400, 502)
