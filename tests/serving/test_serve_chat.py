"""Chats with a served model: calls, streams and conversations that go on."""

from __future__ import annotations

import json

import pytest

from wanderlust.policies.endpoint import Endpoint
from wanderlust.runner.engine import rollout
from wanderlust.tools.function import FunctionTool
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.training.batch.samples import to_samples
from wanderlust.types import Task, user

pytest.importorskip("openai", reason="the SDK is not installed: pip install 'wanderlust[openai]'")
from serving import ASK, CALL, LOOK, asked, saying


def test_tool_calls_are_called_and_results_continue_the_same_ids():
    front, says = saying(f"Let me see.\n{CALL}\n{CALL}", "It is 2.", "So it is.")

    async def program(client, url, key):
        messages = [*ASK]
        first = await client.chat.completions.create(model="tiny", messages=messages, tools=[LOOK])
        said = first.choices[0].message
        messages.append(said.model_dump(exclude_none=True))
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "2"} for call in said.tool_calls]
        second = await client.chat.completions.create(model="tiny", messages=messages, tools=[LOOK])
        messages += [{"role": "assistant", "content": " It is 2. "}, {"role": "user", "content": "sure?"}]
        return first, second, await client.chat.completions.create(model="tiny", messages=messages, tools=[LOOK])

    first, second, _ = asked(front, program)
    (choice,) = first.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see."
    assert [(c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls] == [
        ("look", {"n": 1})
    ] * 2
    assert second.choices[0].message.content == "It is 2."
    (one, session), (two, same), (three, still) = says.prompts
    assert session == same == still
    sampled = says.tokenizer.encode(f"Let me see.\n{CALL}\n{CALL}", add_special_tokens=False)
    assert two[: len(one) + len(sampled)] == (*one, *sampled)
    assert three[: len(two)] == two
    assert says.released == []


def test_calls_stream_after_the_text_and_marks_are_never_shown():
    async def program(client, url, key):
        stream = await client.chat.completions.create(model="tiny", messages=ASK, tools=[LOOK], stream=True)
        return [chunk.choices[0] async for chunk in stream]

    chunks = asked(saying(f"Let me see.\n{CALL}")[0], program)
    pieces = [chunk.delta.content for chunk in chunks if chunk.delta.content]
    assert "".join(pieces).strip() == "Let me see."
    assert len(pieces) > 1
    (call,) = [call for chunk in chunks for call in chunk.delta.tool_calls or ()]
    assert (call.index, call.function.name, json.loads(call.function.arguments)) == (0, "look", {"n": 1})
    assert chunks[-1].finish_reason == "tool_calls"


def test_broken_calls_stay_text():
    broken = "Well. <tool_call>{not json</tool_call>"

    async def program(client, url, key):
        whole = await client.chat.completions.create(model="tiny", messages=ASK, tools=[LOOK])
        stream = await client.chat.completions.create(model="tiny", messages=ASK, tools=[LOOK], stream=True)
        return whole.choices[0], "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    choice, streamed = asked(saying(broken, broken)[0], program)
    assert choice.finish_reason == "stop"
    assert choice.message.tool_calls is None
    assert choice.message.content.split() == streamed.split() == broken.split()


def test_stop_texts_are_cut_off_and_never_streamed():
    async def program(client, url, key):
        whole = await client.chat.completions.create(model="tiny", messages=ASK, stop=["END", "x"])
        stream = await client.chat.completions.create(model="tiny", messages=ASK, stop="END", stream=True)
        return whole.choices[0].message.content, [c.choices[0].delta.content or "" async for c in stream]

    whole, pieces = asked(saying("so EN END more", "so EN END more")[0], program)
    assert whole == "".join(pieces) == "so EN "


def test_our_endpoint_policy_records_tokens_that_merge_over_turns():
    def look(n: int = 0) -> str:
        """Looks."""
        return f"it is {n}"

    task = Task(id="t", prompt=(user("look"),))
    env = ToolEnvironment([task], tools=[FunctionTool(look)])
    front, says = saying(f"so {CALL}", "done")

    async def program(client, url, key):
        return await rollout(env, task, Endpoint(url, "tiny", api_key=key))

    played = asked(front, program)
    assert played.error is None
    trajectory = played.trajectory
    assert [turn.tokens is not None and turn.tokens.offset > 0 for turn in trajectory.turns] == [False, True]
    (sample,) = to_samples(trajectory)
    last = says.prompts[-1][0]
    end = [*says.tokenizer.encode("done", add_special_tokens=False), says.tokenizer.eos_token_id]
    assert sample.ids == [*last, *end]
    assert sum(sample.mask) == sum(len(turn.tokens.completion) for turn in trajectory.turns)


def test_answers_of_the_same_conversation_do_not_depend_on_memory():
    remembering, says = saying("one", "two")
    forgetful, alone = saying("one", "two")
    follow = [*ASK, {"role": "assistant", "content": "one"}, {"role": "user", "content": "more"}]

    async def program(client, url, key):
        for messages in (ASK, follow):
            await client.chat.completions.create(model="tiny", messages=messages)

    asked(remembering, program)

    async def split(client, url, key):
        await client.chat.completions.create(model="tiny", messages=ASK)
        forgetful.models["tiny"].prefix_cache.clear()
        await client.chat.completions.create(model="tiny", messages=follow)

    asked(forgetful, split)
    assert [ids for ids, _ in says.prompts] == [ids for ids, _ in alone.prompts]
