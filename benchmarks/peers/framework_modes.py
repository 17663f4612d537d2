"""Modes of agent frameworks, and of LiteLLM."""

from __future__ import annotations

import json
import os
from typing import Any

from benchmarks.peers.client_modes import (
    ASK,
    RESPONSE_TOOL,
    SYSTEM,
    answer_model,
    chat_loop,
    mode,
    root,
    weather,
)


def langgraph_agent(model: Any, *, streamed: bool = False) -> str:
    from langchain_core.tools import tool
    from langgraph.prebuilt import create_react_agent

    agent = create_react_agent(model, [tool(weather)])
    asked = {"messages": [("system", SYSTEM), ("user", ASK)]}
    if not streamed:
        return agent.invoke(asked)["messages"][-1].text
    last = ""
    for message, _ in agent.stream(asked, stream_mode="messages"):
        last = last + message.text if message.type == "AIMessageChunk" else ""
    return last


@mode("langgraph, langchain-openai chat")
def langgraph_chat(url: str, key: str) -> str:
    from langchain_openai import ChatOpenAI

    return langgraph_agent(ChatOpenAI(model="m", base_url=url, api_key=key))


@mode("langgraph, langchain-openai chat, streamed")
def langgraph_chat_stream(url: str, key: str) -> str:
    from langchain_openai import ChatOpenAI

    return langgraph_agent(ChatOpenAI(model="m", base_url=url, api_key=key, streaming=True), streamed=True)


@mode("langgraph, langchain-openai responses")
def langgraph_responses(url: str, key: str) -> str:
    from langchain_openai import ChatOpenAI

    return langgraph_agent(ChatOpenAI(model="m", base_url=url, api_key=key, use_responses_api=True))


@mode("langgraph, langchain-openai responses, streamed")
def langgraph_responses_stream(url: str, key: str) -> str:
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="m", base_url=url, api_key=key, use_responses_api=True, streaming=True)
    return langgraph_agent(model, streamed=True)


@mode("langgraph, langchain-anthropic")
def langgraph_claude(url: str, key: str) -> str:
    from langchain_anthropic import ChatAnthropic

    return langgraph_agent(ChatAnthropic(model="claude-m", base_url=root(url), api_key=key))


@mode("langgraph, langchain-anthropic, streamed")
def langgraph_claude_stream(url: str, key: str) -> str:
    from langchain_anthropic import ChatAnthropic

    return langgraph_agent(ChatAnthropic(model="claude-m", base_url=root(url), api_key=key), streamed=True)


@mode("langchain-openai structured output")
def langchain_structured(url: str, key: str) -> str:
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="m", base_url=url, api_key=key).with_structured_output(answer_model())
    return model.invoke(ASK).model_dump_json()


def haystack_agent(url: str, key: str, **more: Any) -> str:
    os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
    from haystack.components.agents import Agent
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.tools import create_tool_from_function
    from haystack.utils import Secret

    generator = OpenAIChatGenerator(api_key=Secret.from_token(key), model="m", api_base_url=url, **more)
    agent = Agent(chat_generator=generator, tools=[create_tool_from_function(weather)], system_prompt=SYSTEM)
    return agent.run(messages=[ChatMessage.from_user(ASK)])["messages"][-1].text


@mode("haystack")
def haystack(url: str, key: str) -> str:
    return haystack_agent(url, key)


@mode("haystack, streamed")
def haystack_stream(url: str, key: str) -> str:
    return haystack_agent(url, key, streaming_callback=lambda chunk: None)


def pydantic_agent(model: Any, output: Any = str) -> Any:
    import pydantic_ai

    tools = [] if output is not str else [pydantic_ai.Tool(weather, takes_ctx=False)]
    return pydantic_ai.Agent(model, instructions=SYSTEM, tools=tools, output_type=output)


@mode("pydantic-ai openai chat")
def pydantic_chat(url: str, key: str) -> str:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return pydantic_agent(OpenAIChatModel("m", provider=OpenAIProvider(base_url=url, api_key=key))).run_sync(ASK).output


@mode("pydantic-ai openai responses")
def pydantic_responses(url: str, key: str) -> str:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIResponsesModel("m", provider=OpenAIProvider(base_url=url, api_key=key))
    return pydantic_agent(model).run_sync(ASK).output


@mode("pydantic-ai native output")
def pydantic_native(url: str, key: str) -> str:
    import pydantic_ai
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=url, api_key=key))
    return pydantic_agent(model, pydantic_ai.NativeOutput(answer_model())).run_sync(ASK).output.model_dump_json()


def pydantic_claude_model(url: str, key: str) -> Any:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    return AnthropicModel("claude-m", provider=AnthropicProvider(base_url=root(url), api_key=key))


@mode("pydantic-ai anthropic")
def pydantic_claude(url: str, key: str) -> str:
    return pydantic_agent(pydantic_claude_model(url, key)).run_sync(ASK).output


@mode("pydantic-ai anthropic, streamed")
async def pydantic_claude_stream(url: str, key: str) -> str:
    output = ""
    async with pydantic_agent(pydantic_claude_model(url, key)).run_stream_events(ASK) as events:
        async for event in events:
            output = event.result.output if event.event_kind == "agent_run_result" else output
    return output


@mode("pydantic-ai google")
def pydantic_google(url: str, key: str) -> str:
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    model = GoogleModel("m", provider=GoogleProvider(api_key=key, base_url=root(url)))
    return pydantic_agent(model).run_sync(ASK).output


@mode("smolagents ToolCallingAgent")
def smolagents_calls(url: str, key: str) -> str:
    from smolagents import OpenAIServerModel, ToolCallingAgent, tool

    model = OpenAIServerModel(model_id="m", api_base=url, api_key=key)
    return str(ToolCallingAgent(tools=[tool(weather)], model=model, verbosity_level=0).run(ASK))


def litellm_loop(model: str, base: str, key: str, **options: Any) -> str:
    import litellm

    litellm.telemetry = False

    def create(**given: Any) -> Any:
        done = litellm.completion(api_base=base, api_key=key, **given | {"model": model} | options)
        return litellm.stream_chunk_builder([*done]) if options.get("stream") else done

    return chat_loop(create)


@mode("litellm openai")
def litellm_chat(url: str, key: str) -> str:
    return litellm_loop("openai/m", url, key)


@mode("litellm openai, streamed")
def litellm_stream(url: str, key: str) -> str:
    return litellm_loop("openai/m", url, key, stream=True)


@mode("litellm responses")
def litellm_responses(url: str, key: str) -> str:
    import litellm

    def create(**given: Any) -> Any:
        return litellm.responses(api_base=url, api_key=key, **given | {"model": "openai/m"})

    items: list[Any] = [{"role": "user", "content": ASK}]
    while True:
        done = create(input=items, tools=[RESPONSE_TOOL], instructions=SYSTEM)
        output = [item if isinstance(item, dict) else item.model_dump() for item in done.output]
        calls = [item for item in output if item["type"] == "function_call"]
        if not calls:
            return output[-1]["content"][0]["text"]
        items += output
        for call in calls:
            result = weather(**json.loads(call["arguments"]))
            items.append({"type": "function_call_output", "call_id": call["call_id"], "output": result})


@mode("litellm anthropic")
def litellm_claude(url: str, key: str) -> str:
    return litellm_loop("anthropic/claude-m", root(url), key)


@mode("litellm anthropic, streamed")
def litellm_claude_stream(url: str, key: str) -> str:
    return litellm_loop("anthropic/claude-m", root(url), key, stream=True)


@mode("litellm gemini")
def litellm_gemini(url: str, key: str) -> str:
    return litellm_loop("gemini/m", root(url), key)
