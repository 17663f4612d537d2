"""Tool calls in plain text, for models that were never taught to make them natively.

The tools stand in the system message; a call is `<tool_call>{"name": "...", "arguments": {...}}</tool_call>`, as many
as one likes in a message; the results come back in a user message, as `<tool_response>...</tool_response>`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice

import msgspec

from wanderlust.types import Completion, Message, Policy, SupportsRelease, Tool, ToolCall, assistant, system, user

TOOL_CALL_OPEN, TOOL_CALL_CLOSE = "<tool_call>", "</tool_call>"
MAX_TEXT_CALLS = 64
"""Calls that are read in one message; what follows them is not."""

TEXT_TOOL_INSTRUCTIONS = """\
You can call these tools (one JSON object a line; "parameters" is the JSON schema of the arguments):
{tools}

To call a tool, write exactly:
<tool_call>{{"name": "the tool's name", "arguments": {{"the parameter": "its value"}}}}</tool_call>
Several calls may stand in one message. Write nothing after the last one: the results come in the next message. \
When you need no tool any more, answer without a call."""


class TextProtocol:
    """A policy whose model needs no native tool calls: environments see the same messages as from one that has them.

    What the model said stays in `content`, word for word, so exact tokens stay exact; the calls in it stand in
    `tool_calls` as well. Text up to the last `</think>` is not searched for calls. A block that is no call becomes
    a call without a name, which `call_tools` answers and counts as `malformed`.
    """

    def __init__(self, policy: Policy):
        self.policy = policy

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """Ask the policy, in text."""
        done = await self.policy.complete(render_tools_as_text(messages, tools), key=key)
        calls = tuple(parse_text_calls(done.message.content, prefix=f"call_{len(messages)}")) if tools else ()
        if not calls:
            return done
        finish = "tool_calls" if done.finish == "stop" else done.finish
        return replace(done, message=replace(done.message, tool_calls=calls), finish=finish)

    def release(self, key: str) -> None:
        """The conversation is over."""
        if isinstance(self.policy, SupportsRelease):
            self.policy.release(key)


class _Call(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


_calls, _strings = msgspec.json.Decoder(_Call), msgspec.json.Decoder(str)


def parse_text_calls(text: str, *, prefix: str = "call") -> Iterator[ToolCall]:
    """The calls in a message, in order, their ids made of `prefix`; blocks that are none come without a name."""
    for number, block in enumerate(islice(_blocks(text), MAX_TEXT_CALLS)):
        name, arguments = _read(block)
        yield ToolCall(id=f"{prefix}_{number}", name=name, arguments=arguments)


def _blocks(text: str) -> Iterator[str]:
    """What stands between the marks; the last block may lack its end."""
    at = text.rfind("</think>") + 1
    while (start := text.find(TOOL_CALL_OPEN, at)) >= 0:
        start += len(TOOL_CALL_OPEN)
        end = text.find(TOOL_CALL_CLOSE, start)
        yield text[start:] if end < 0 else text[start:end]
        at = len(text) if end < 0 else end + len(TOOL_CALL_CLOSE)


def _read(block: str) -> tuple[str, str]:
    try:
        call = _calls.decode(block)
        raw = bytes(call.arguments)
        # Some models write the arguments as a string of JSON, as the native protocol does.
        return call.name, _strings.decode(raw) if raw.startswith(b'"') else raw.decode()
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return "", block.strip()


def render_tools_as_text(messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[Message]:
    """The conversation as a model without native calls reads it: the tools first, calls and results as text."""
    plain = [message for is_result, run in groupby(messages, _is_result) for message in _merge_results(run, is_result)]
    if not tools:
        return plain
    instructions = TEXT_TOOL_INSTRUCTIONS.format(tools="\n".join(map(_render_tool, tools)))
    if plain and plain[0].role == "system":
        return [system(f"{plain[0].content}\n\n{instructions}"), *plain[1:]]
    return [system(instructions), *plain]


def _is_result(message: Message) -> bool:
    return message.role == "tool"


def _merge_results(run: Iterable[Message], is_result: bool) -> list[Message]:
    """Results that come together are one message: some chat templates want the roles to alternate."""
    if is_result:
        return [user("\n".join(f"<tool_response>\n{one.content}\n</tool_response>" for one in run))]
    return [_render_message(message) if message.tool_calls else message for message in run]


def _render_message(message: Message) -> Message:
    if TOOL_CALL_OPEN in message.content:  # the model's own words, calls included
        return replace(message, tool_calls=())
    written = (f"{TOOL_CALL_OPEN}{_render_call(call)}{TOOL_CALL_CLOSE}" for call in message.tool_calls)
    return replace(assistant("\n".join(filter(None, [message.content, *written]))), reasoning=message.reasoning)


def _render_call(call: ToolCall) -> str:
    name = msgspec.json.encode(call.name.encode(errors="backslashreplace").decode()).decode()
    return f'{{"name": {name}, "arguments": {call.arguments or "{}"}}}'


def _render_tool(tool: Tool) -> str:
    declaration = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return msgspec.json.encode(declaration).decode()
