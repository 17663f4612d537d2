"""Modes of OpenAI's SDK and of its agents framework."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from benchmarks.peers.client_modes import (
    ASK,
    CHAT_TOOL,
    RESPONSE_TOOL,
    SYSTEM,
    answer_model,
    chat_loop,
    chat_results,
    mode,
    root,
    weather,
)


@mode("openai chat")
def openai_chat(url: str, key: str) -> str:
    import openai

    with openai.OpenAI(base_url=url, api_key=key) as client:
        return chat_loop(client.chat.completions.create)


@mode("openai chat, base URL without /v1")
def openai_chat_root(url: str, key: str) -> str:
    import openai

    with openai.OpenAI(base_url=root(url), api_key=key) as client:
        return chat_loop(client.chat.completions.create)


@mode("openai chat, raw response")
def openai_chat_raw(url: str, key: str) -> str:
    import openai

    with openai.OpenAI(base_url=url, api_key=key) as client:
        return chat_loop(lambda **o: client.chat.completions.with_raw_response.create(**o).parse())


@mode("openai chat, async")
async def openai_chat_async(url: str, key: str) -> str:
    import openai

    messages: list[Any] = [{"role": "user", "content": ASK}]
    async with openai.AsyncOpenAI(base_url=url, api_key=key) as client:
        while True:
            done = await client.chat.completions.create(model="m", messages=messages, tools=[CHAT_TOOL])
            said = done.choices[0].message
            messages.append(said)
            if not said.tool_calls:
                return said.content
            messages += chat_results(said.tool_calls)


@mode("openai chat, streamed chunks")
def openai_chunks(url: str, key: str) -> str:
    import openai

    messages: list[Any] = [{"role": "user", "content": ASK}]
    with openai.OpenAI(base_url=url, api_key=key) as client:
        while True:
            text, calls = "", {}
            stream = client.chat.completions.create(
                model="m", messages=messages, tools=[CHAT_TOOL], stream=True, stream_options={"include_usage": True}
            )
            for chunk in stream:
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    for call in choice.delta.tool_calls or ():
                        one = calls.setdefault(call.index, {"id": call.id, "type": "function", "function": {}})
                        for name, value in call.function.model_dump(exclude_none=True).items():
                            one["function"][name] = one["function"].get(name, "") + value
            if not calls:
                return text
            messages.append({"role": "assistant", "content": text, "tool_calls": [*calls.values()]})
            for call in calls.values():
                result = weather(**json.loads(call["function"]["arguments"]))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


@mode("openai chat, stream helper")
def openai_stream_helper(url: str, key: str) -> str:
    import openai

    with openai.OpenAI(base_url=url, api_key=key) as client:

        def create(**options: Any) -> Any:
            with client.chat.completions.stream(**options) as stream:
                return stream.get_final_completion()

        return chat_loop(create)


@mode("openai chat, parse")
def openai_parse(url: str, key: str) -> str:
    import openai

    with openai.OpenAI(base_url=url, api_key=key) as client:
        done = client.chat.completions.parse(
            model="m", messages=[{"role": "user", "content": ASK}], response_format=answer_model()
        )
        return done.choices[0].message.parsed.model_dump_json()


@mode("openai chat, stop")
def openai_stop(url: str, key: str) -> str:
    import openai

    with openai.OpenAI(base_url=url, api_key=key) as client:
        text = chat_loop(client.chat.completions.create, stop=['ny"'])
        return text + 'ny"}'


@mode("openai chat, max_tokens")
def openai_max_tokens(url: str, key: str) -> str:
    import openai

    with openai.OpenAI(base_url=url, api_key=key) as client:
        ask = [{"role": "user", "content": ASK}]
        done = client.chat.completions.create(model="m", messages=ask, max_completion_tokens=3)
        assert (done.choices[0].finish_reason, done.usage.completion_tokens) == ("length", 3)
        return chat_loop(client.chat.completions.create, max_tokens=200)


@mode("openai chat, logprobs")
def openai_logprobs(url: str, key: str) -> str:
    import openai

    with openai.OpenAI(base_url=url, api_key=key) as client:
        ask = [{"role": "user", "content": ASK}]
        choice = client.chat.completions.create(model="m", messages=ask, logprobs=True).choices[0]
        tokens = choice.logprobs.content
        assert all(token.logprob <= 0 for token in tokens)
        text = b"".join(bytes(token.bytes) for token in tokens).decode()
        assert text.startswith(choice.message.content)
        return choice.message.content


@mode("openai chat, n=3")
def openai_several(url: str, key: str) -> str:
    import openai

    with openai.OpenAI(base_url=url, api_key=key) as client:
        ask = [{"role": "user", "content": ASK}]
        done = client.chat.completions.create(model="m", messages=ask, n=3)
        first, *others = (choice.message.content for choice in done.choices)
        assert others == [first] * 2
        return first


@mode("openai models and a refused completion")
def openai_models(url: str, key: str) -> str:
    import openai

    with openai.OpenAI(base_url=url, api_key=key, max_retries=0) as client:
        assert [one.id for one in client.models.list()] == ["agent"]
        assert client.models.retrieve("agent").id == "agent"
        refused = ""
        try:
            client.completions.create(model="m", prompt="x")
        except openai.BadRequestError as error:
            refused = error.message
        assert "/chat/completions" in refused
        return chat_loop(client.chat.completions.create)


def response_results(output: Any) -> list[dict[str, Any]]:
    calls = [item for item in output if item.type == "function_call"]
    return [
        {"type": "function_call_output", "call_id": c.call_id, "output": weather(**json.loads(c.arguments))}
        for c in calls
    ]


def responses_loop(create: Callable[..., Any], *, keeps: bool = False) -> str:
    items: list[Any] = [{"role": "user", "content": ASK}]
    before: dict[str, str] = {}
    while True:
        done = create(model="m", instructions=SYSTEM, input=items, tools=[RESPONSE_TOOL], **before)
        results = response_results(done.output)
        if not results:
            return done.output_text
        before = {"previous_response_id": done.id} if keeps else {}
        items = results if keeps else [*items, *done.output, *results]


@mode("openai responses")
def openai_responses(url: str, key: str) -> str:
    import openai

    with openai.OpenAI(base_url=url, api_key=key) as client:
        return responses_loop(client.responses.create)


@mode("openai responses, previous_response_id")
def openai_previous(url: str, key: str) -> str:
    import openai

    with openai.OpenAI(base_url=url, api_key=key) as client:
        return responses_loop(client.responses.create, keeps=True)


@mode("openai responses, streamed events")
def openai_events(url: str, key: str) -> str:
    import openai

    with openai.OpenAI(base_url=url, api_key=key) as client:

        def create(**options: Any) -> Any:
            (last,) = [e for e in client.responses.create(stream=True, **options) if e.type == "response.completed"]
            return last.response

        return responses_loop(create)


@mode("openai responses, stream helper")
def openai_response_helper(url: str, key: str) -> str:
    import openai

    with openai.OpenAI(base_url=url, api_key=key) as client:

        def create(**options: Any) -> Any:
            with client.responses.stream(**options) as stream:
                return stream.get_final_response()

        return responses_loop(create, keeps=True)


@mode("openai responses, parse")
def openai_response_parse(url: str, key: str) -> str:
    import openai

    with openai.OpenAI(base_url=url, api_key=key) as client:
        return client.responses.parse(model="m", input=ASK, text_format=answer_model()).output_parsed.model_dump_json()


@mode("openai responses, item references")
def openai_references(url: str, key: str) -> str:
    import openai

    with openai.OpenAI(base_url=url, api_key=key) as client:
        first = client.responses.create(model="m", input=ASK, tools=[RESPONSE_TOOL])
        (asked,) = client.responses.input_items.list(first.id).data
        references = [{"type": "item_reference", "id": item.id} for item in (asked, *first.output)]
        assert client.responses.retrieve(first.id).output == first.output
        last = client.responses.create(
            model="m", input=[*references, *response_results(first.output)], tools=[RESPONSE_TOOL]
        )
        client.responses.delete(first.id)
        try:
            client.responses.retrieve(first.id)
        except openai.NotFoundError:
            return last.output_text
        raise AssertionError("a deleted response is there")


def openai_agent(url: str, key: str, kind: str) -> tuple[Any, Any]:
    import agents
    import openai

    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=url, api_key=key)
    model = getattr(agents, kind)(model="m", openai_client=client)
    return agents, agents.Agent(name="a", instructions=SYSTEM, tools=[agents.function_tool(weather)], model=model)


@mode("openai-agents chat")
async def agents_chat(url: str, key: str) -> str:
    agents, agent = openai_agent(url, key, "OpenAIChatCompletionsModel")
    return (await agents.Runner.run(agent, ASK)).final_output


async def streamed_agent(agents: Any, agent: Any) -> str:
    result = agents.Runner.run_streamed(agent, ASK)
    async for _ in result.stream_events():
        pass
    return result.final_output


@mode("openai-agents chat, streamed")
async def agents_chat_stream(url: str, key: str) -> str:
    return await streamed_agent(*openai_agent(url, key, "OpenAIChatCompletionsModel"))


@mode("openai-agents responses")
async def agents_responses(url: str, key: str) -> str:
    agents, agent = openai_agent(url, key, "OpenAIResponsesModel")
    return (await agents.Runner.run(agent, ASK)).final_output


@mode("openai-agents responses, streamed")
async def agents_responses_stream(url: str, key: str) -> str:
    return await streamed_agent(*openai_agent(url, key, "OpenAIResponsesModel"))


@mode("openai-agents responses, previous_response_id")
async def agents_previous(url: str, key: str) -> str:
    agents, agent = openai_agent(url, key, "OpenAIResponsesModel")
    return (await agents.Runner.run(agent, ASK, auto_previous_response_id=True)).final_output
