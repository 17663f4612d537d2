"""Tool calls in plain text, for models without native ones.

The tools stand in the system message; a call is `<tool_call>{"name": "...", "arguments": {...}}</tool_call>`, as many
as one likes in a message; the results come back in a user message, as `<tool_response>...</tool_response>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice

import msgspec

from wanderlust.agent import release_conversation
from wanderlust.errors import PolicyFailure
from wanderlust.types import (
    AnswerOptions,
    Completion,
    Message,
    OnText,
    Policy,
    SupportsOptions,
    Tool,
    ToolCall,
    assistant,
    system,
    user,
)

TOOL_CALL_OPEN, TOOL_CALL_CLOSE = "<tool_call>", "</tool_call>"
MAX_TEXT_CALLS = 64
"""Calls parsed in one message; later ones are ignored."""

TEXT_TOOL_INSTRUCTIONS = """\
You can call these tools (one JSON object a line; "parameters" is the JSON schema of the arguments):
{tools}

To call a tool, write exactly:
<tool_call>{{"name": "the tool's name", "arguments": {{"the parameter": "its value"}}}}</tool_call>
Several calls may stand in one message. Write nothing after the last one: the results come in the next message. \
When you need no tool any more, answer without a call."""


class TextProtocol:
    """A policy whose model needs no native tool calls: environments see the same messages as from one that has them.

    The model's text stays in `content` unchanged, so exact tokens stay exact; the calls in it stand in `tool_calls` as
    well. Text up to the last `</think>` is not searched for calls. A block that is no call becomes a call without a
    name, which `call_tools` answers and counts as `malformed`.
    """

    def __init__(self, policy: Policy):
        self.policy = policy

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """Ask the policy, in text."""
        done = await self.policy.complete(render_tools_as_text(messages, tools), key=key)
        return _with_calls(done, tools, turn=len(messages))

    def unsupported_option(self, options: AnswerOptions) -> str:
        """As in SupportsOptions: what the policy says, and calls that are text cannot be forced."""
        forced = [name for name in options.changed if name in ("tool_choice", "parallel_tool_calls")]
        if forced or not isinstance(self.policy, SupportsOptions):
            return next(iter(forced or options.changed), "")
        return self.policy.unsupported_option(options)

    async def complete_with_options(
        self,
        options: AnswerOptions,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        key: str = "",
        on_text: OnText | None = None,
    ) -> Completion:
        """As `complete`, with options; the answer comes in one piece. PolicyFailure for one that cannot be honoured."""
        if not isinstance(self.policy, SupportsOptions):
            if options.changed:
                raise PolicyFailure(f"the policy cannot honour {options.changed[0]}")
            return await self.complete(messages, tools, key=key)
        done = await self.policy.complete_with_options(options, render_tools_as_text(messages, tools), key=key)
        return _with_calls(done, tools, turn=len(messages))

    def release(self, key: str) -> None:
        """Forget the conversation `key`."""
        release_conversation(self.policy, key)


def _with_calls(done: Completion, tools: Sequence[Tool], *, turn: int) -> Completion:
    """The completion with the calls that its text has, where there are tools to call."""
    calls = tuple(parse_text_calls(done.message.content, prefix=f"call_{turn}")) if tools else ()
    if not calls:
        return done
    finish = "tool_calls" if done.finish == "stop" else done.finish
    return replace(done, message=replace(done.message, tool_calls=calls), finish=finish)


class _Call(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


_calls, _strings = msgspec.json.Decoder(_Call), msgspec.json.Decoder(str)
_BLOCK = re.compile(f"{TOOL_CALL_OPEN}(.*?)(?:{TOOL_CALL_CLOSE}|\\Z)", re.DOTALL)
"""A call between its marks; the last one may lack its end."""


def parse_text_calls(text: str, *, prefix: str = "call") -> Iterator[ToolCall]:
    """Yield the calls in a message, their ids made of `prefix`; blocks that are no calls have no name."""
    blocks = _BLOCK.finditer(text, text.rfind("</think>") + 1)
    for number, block in enumerate(match[1] for match in islice(blocks, MAX_TEXT_CALLS)):
        try:
            call = _calls.decode(block)
            raw = bytes(call.arguments)
            # Some models write the arguments as a string of JSON, as the native protocol does.
            name, arguments = call.name, _strings.decode(raw) if raw.startswith(b'"') else raw.decode()
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            name, arguments = "", block.strip()
        yield ToolCall(id=f"{prefix}_{number}", name=name, arguments=arguments)


def render_tools_as_text(
    messages: Sequence[Message], tools: Sequence[Tool] = (), *, in_system: bool = True
) -> list[Message]:
    """Render the conversation for a model without native calls: the tools first, calls and results as text.

    The tools stand in the system message, or, for a model that takes none, before the first message.
    """
    plain: list[Message] = []
    for is_result, run in groupby(messages, lambda message: message.role == "tool"):
        if is_result:  # consecutive results are one message: some chat templates want the roles to alternate
            plain.append(user("\n".join(f"<tool_response>\n{one.content}\n</tool_response>" for one in run)))
        else:
            plain += [_render_message(message) if message.tool_calls else message for message in run]
    if not tools:
        return plain
    declarations = ({"name": t.name, "description": t.description, "parameters": t.schema} for t in tools)
    declared = "\n".join(msgspec.json.encode(declaration).decode() for declaration in declarations)
    instructions = TEXT_TOOL_INSTRUCTIONS.format(tools=declared)
    if plain and plain[0].role == "system":
        return [system(f"{plain[0].content}\n\n{instructions}"), *plain[1:]]
    if not in_system and plain and plain[0].role == "user":
        return [replace(plain[0], content=f"{instructions}\n\n{plain[0].content}"), *plain[1:]]
    return [system(instructions), *plain]


def _render_message(message: Message) -> Message:
    if TOOL_CALL_OPEN in message.content:  # the model's own text, calls included
        return replace(message, tool_calls=())
    lines = [message.content] if message.content else []
    for call in message.tool_calls:
        name = msgspec.json.encode(call.name.encode(errors="backslashreplace").decode()).decode()
        call_text = f'{{"name": {name}, "arguments": {call.arguments or "{}"}}}'
        lines.append(f"{TOOL_CALL_OPEN}{call_text}{TOOL_CALL_CLOSE}")
    return replace(assistant("\n".join(lines)), reasoning=message.reasoning)
