"""Modes of the SDKs of Anthropic and Google."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from benchmarks.peers.client_modes import (
    ASK,
    CLAUDE_TOOL,
    SCHEMA,
    SYSTEM,
    answer_model,
    mode,
    root,
    weather,
)


def claude_loop(create: Callable[..., Any], **options: Any) -> str:
    messages: list[Any] = [{"role": "user", "content": ASK}]
    while True:
        given = {"model": "m", "max_tokens": 300, "system": SYSTEM, "tools": [CLAUDE_TOOL], **options}
        done = create(messages=messages, **given)
        calls = [block for block in done.content if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in done.content if block.type == "text")
        results = [{"type": "tool_result", "tool_use_id": c.id, "content": weather(**c.input)} for c in calls]
        messages += [{"role": "assistant", "content": done.content}, {"role": "user", "content": results}]


@mode("anthropic messages")
def claude(url: str, key: str) -> str:
    import anthropic

    with anthropic.Anthropic(base_url=root(url), api_key=key) as client:
        return claude_loop(client.messages.create)


@mode("anthropic messages, base URL with /v1")
def claude_v1(url: str, key: str) -> str:
    import anthropic

    with anthropic.Anthropic(base_url=url, api_key=key) as client:
        return claude_loop(client.messages.create, system=[{"type": "text", "text": SYSTEM}])


@mode("anthropic messages, async")
async def claude_async(url: str, key: str) -> str:
    import anthropic

    loop = asyncio.get_running_loop()
    async with anthropic.AsyncAnthropic(base_url=root(url), api_key=key) as client:

        def create(**options: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(client.messages.create(**options), loop).result()

        return await asyncio.to_thread(claude_loop, create)


@mode("anthropic messages, streamed events")
def claude_events(url: str, key: str) -> str:
    import anthropic

    with anthropic.Anthropic(base_url=root(url), api_key=key) as client:

        def create(**options: Any) -> Any:
            blocks, inputs, last = {}, {}, None
            for event in client.messages.create(stream=True, **options):
                last = event
                if event.type == "content_block_start":
                    blocks[event.index] = event.content_block
                elif event.type == "content_block_delta" and event.delta.type == "text_delta":
                    blocks[event.index].text += event.delta.text
                elif event.type == "content_block_delta":
                    inputs[event.index] = inputs.get(event.index, "") + event.delta.partial_json
            assert last.type == "message_stop"
            for index, given in inputs.items():
                blocks[index].input = json.loads(given)
            return anthropic.types.Message.model_construct(content=[*blocks.values()])

        return claude_loop(create)


@mode("anthropic messages, stream helper")
def claude_stream(url: str, key: str) -> str:
    import anthropic

    with anthropic.Anthropic(base_url=root(url), api_key=key) as client:

        def create(**options: Any) -> Any:
            with client.messages.stream(**options) as stream:
                return stream.get_final_message()

        return claude_loop(create)


@mode("anthropic messages, stop_sequences")
def claude_stops(url: str, key: str) -> str:
    import anthropic

    with anthropic.Anthropic(base_url=root(url), api_key=key) as client:
        asked = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": ASK}]}
        done = client.messages.create(stop_sequences=["\n\n", 'ny"'], **asked)
        assert (done.stop_reason, done.stop_sequence) == ("stop_sequence", 'ny"')
        cut = client.messages.create(**asked | {"max_tokens": 2})
        assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 2)
        return done.content[0].text + 'ny"}'


@mode("anthropic count_tokens and models")
def claude_count(url: str, key: str) -> str:
    import anthropic

    with anthropic.Anthropic(base_url=root(url), api_key=key) as client:
        assert [one.id for one in client.models.list()] == ["agent"]
        counted = client.messages.count_tokens(
            model="m", system=SYSTEM, tools=[CLAUDE_TOOL], messages=[{"role": "user", "content": ASK}]
        )
        done = client.messages.create(
            model="m",
            max_tokens=300,
            system=SYSTEM,
            tools=[CLAUDE_TOOL],
            messages=[{"role": "user", "content": ASK}],
        )
        assert counted.input_tokens == done.usage.input_tokens > 0
        return claude_loop(client.messages.create)


def claude_tool() -> Any:
    import anthropic

    return anthropic.beta_tool(weather)


@mode("anthropic tool_runner")
def claude_runner(url: str, key: str) -> str:
    import anthropic

    with anthropic.Anthropic(base_url=root(url), api_key=key) as client:
        runner = client.beta.messages.tool_runner(
            model="m", max_tokens=300, tools=[claude_tool()], messages=[{"role": "user", "content": ASK}]
        )
        return [*runner][-1].content[0].text


@mode("anthropic tool_runner, streamed")
def claude_runner_stream(url: str, key: str) -> str:
    import anthropic

    with anthropic.Anthropic(base_url=root(url), api_key=key) as client:
        runner = client.beta.messages.tool_runner(
            model="m", max_tokens=300, tools=[claude_tool()], messages=[{"role": "user", "content": ASK}], stream=True
        )
        return [stream.get_final_message() for stream in runner][-1].content[0].text


@mode("anthropic messages, parse")
def claude_parse(url: str, key: str) -> str:
    import anthropic

    with anthropic.Anthropic(base_url=root(url), api_key=key) as client:
        done = client.messages.parse(
            model="m",
            max_tokens=300,
            messages=[{"role": "user", "content": ASK}],
            output_format=answer_model(),
        )
        return done.parsed_output.model_dump_json()


# Google


def genai_client(url: str, key: str) -> Any:
    from google import genai

    return genai.Client(api_key=key, http_options=genai.types.HttpOptions(base_url=root(url)))


def genai_config(**more: Any) -> Any:
    from google.genai import types

    declared = types.FunctionDeclaration(name="weather", description="Weather.", parameters_json_schema=SCHEMA)
    return types.GenerateContentConfig(
        system_instruction=SYSTEM, tools=[types.Tool(function_declarations=[declared])], **more
    )


def genai_loop(generate: Callable[..., Any]) -> str:
    from google.genai import types

    contents: list[Any] = [types.Content(role="user", parts=[types.Part(text=ASK)])]
    while True:
        done = generate(model="m", contents=contents, config=genai_config())
        if not done.function_calls:
            return done.text
        results = [
            types.Part.from_function_response(name=c.name, response={"result": weather(**c.args)})
            for c in done.function_calls
        ]
        contents += [done.candidates[0].content, types.Content(role="user", parts=results)]


@mode("google-genai generate_content")
def genai_whole(url: str, key: str) -> str:
    client = genai_client(url, key)
    return genai_loop(client.models.generate_content)


@mode("google-genai generate_content, base URL with /v1")
def genai_v1(url: str, key: str) -> str:
    from google import genai

    client = genai.Client(api_key=key, http_options=genai.types.HttpOptions(base_url=url))
    return genai_loop(client.models.generate_content)


@mode("google-genai generate_content, async")
async def genai_async(url: str, key: str) -> str:
    client, loop = genai_client(url, key), asyncio.get_running_loop()

    def generate(**options: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(client.aio.models.generate_content(**options), loop).result()

    return await asyncio.to_thread(genai_loop, generate)


@mode("google-genai generate_content_stream")
def genai_stream(url: str, key: str) -> str:
    client = genai_client(url, key)

    def generate(**options: Any) -> Any:
        chunks = [*client.models.generate_content_stream(**options)]
        parts = [p for c in chunks for p in (c.candidates[0].content.parts or [])]
        whole = chunks[-1]
        whole.candidates[0].content.parts = parts
        return whole

    return genai_loop(generate)


@mode("google-genai automatic function calling")
def genai_automatic(url: str, key: str) -> str:
    from google.genai import types

    client = genai_client(url, key)
    config = types.GenerateContentConfig(tools=[weather], system_instruction=SYSTEM)
    return client.models.generate_content(model="m", contents=ASK, config=config).text


@mode("google-genai chats")
def genai_chats(url: str, key: str) -> str:
    from google.genai import types

    client = genai_client(url, key)
    chat = client.chats.create(model="m", config=types.GenerateContentConfig(tools=[weather]))
    return chat.send_message(ASK).text


@mode("google-genai chats, streamed")
def genai_chats_stream(url: str, key: str) -> str:
    from google.genai import types

    client = genai_client(url, key)
    chat = client.chats.create(model="m", config=types.GenerateContentConfig(tools=[weather]))
    parts = [p.text or "" for c in chat.send_message_stream(ASK) for p in (c.candidates[0].content.parts or [])]
    return "".join(parts).removeprefix("Let me look.").strip()


@mode("google-genai count_tokens, stop_sequences and candidates")
def genai_options(url: str, key: str) -> str:
    from google.genai import types

    client = genai_client(url, key)
    config = types.GenerateContentConfig(stop_sequences=['ny"'], candidate_count=2, response_logprobs=True)
    done = client.models.generate_content(model="m", contents=ASK, config=config)
    counted = client.models.count_tokens(model="m", contents=ASK)
    assert counted.total_tokens == done.usage_metadata.prompt_token_count > 0
    first, second = (candidate.content.parts[0].text for candidate in done.candidates)
    assert first == second
    assert done.candidates[0].logprobs_result.chosen_candidates
    return first + 'ny"}'


@mode("google-genai response_schema")
def genai_schema(url: str, key: str) -> str:
    from google.genai import types

    client = genai_client(url, key)
    config = types.GenerateContentConfig(response_mime_type="application/json", response_schema=answer_model())
    return client.models.generate_content(model="m", contents=ASK, config=config).parsed.model_dump_json()
