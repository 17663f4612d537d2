"""Calls of a form that is not known are said: before the first rollout by the template, and where an answer has one."""

from __future__ import annotations

import asyncio
import warnings

import pytest

import templates
from wanderlust.policies.chat_template import PrefixWarning, Renderer, ToolsWarning
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.tools.function import FunctionTool
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Task, user


def look(n: int = 0) -> str:
    """Looks."""
    return str(n)


LOOK = FunctionTool(look)


def renderer_of(template: str) -> Renderer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrefixWarning)
        return Renderer(templates.tokenizer_with(template))


UNKNOWN_CALLS = {
    "glm-4.5": "<tool_call>look\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
    "kimi-k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>{"
    '"n": 1}<|tool_call_end|><|tool_calls_section_end|>',
    "deepseek-v3.1": "<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>look"
    '<\uff5ctool\u2581sep\uff5c>{"n": 1}<\uff5ctool\u2581call\u2581end\uff5c>',
    "harmony": '<|channel|>commentary to=functions.look <|constrain|>json<|message|>{"n": 1}<|call|>',
    "gemma-3": "```tool_code\nlook(n=1)\n```",
    "functiongemma": "<start_function_call>call:look{n:1}<end_function_call>",
}


@pytest.mark.parametrize("form", UNKNOWN_CALLS)
def test_calls_of_a_form_that_is_not_known_are_said_before_and_after(form):
    written = UNKNOWN_CALLS[form].replace("look", "' ~ c.function.name ~ '")
    renderer = renderer_of(
        templates.HERMES.replace(templates._CALLS, "{% for c in m.tool_calls %}{{ '" + written + "' }}{% endfor %}")
    )
    assert not renderer._shows_calls
    with pytest.warns(ToolsWarning, match="asked for calls as <tool_call>"):
        renderer.start([user("x")], [LOOK])
    env = ToolEnvironment([Task(id="t", prompt=(user("look"),))], tools=[LOOK])
    with pytest.warns(ToolsWarning, match="looks like a tool call that was not read.*set --tool-calls text"):
        asyncio.run(rollout(env, env.tasks()[0], Scripted([f"Well.\n{UNKNOWN_CALLS[form]}"])))


def test_answers_without_calls_are_only_answers():
    env = ToolEnvironment([Task(id="t", prompt=(user("look"),))], tools=[LOOK])
    for said in ("It is 1.", "<think>a <tool_call> would do</think>1", "the function call(x)"):
        assert asyncio.run(rollout(env, env.tasks()[0], Scripted([said]))).error is None
