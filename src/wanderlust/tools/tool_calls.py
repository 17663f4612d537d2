"""The tool call: whatever the model wrote is answered, whatever the tool does is bounded, and both are counted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from traceback import format_exception_only
from typing import Any

import msgspec

from wanderlust.environment import Doing
from wanderlust.errors import WanderlustError, one_line
from wanderlust.tools.function import ToolError, WrongArguments, as_text
from wanderlust.types import Message, Tool, ToolCall
from wanderlust.types import tool as tool_message

ERROR = "error: "
"""How the answer to a call that went wrong begins."""
LONGEST_ERROR = 500
"""Characters of an error that the model is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """Bounds of the calls of one message."""

    timeout: float | None = 30.0
    """Wall-clock seconds of a call of a tool that has no `timeout` of its own."""
    result: int = 20_000
    """Characters of a result; the rest is cut, and the model is told."""
    calls: int = 32
    """Calls that are made; further ones are answered with a refusal."""


class Outcome(StrEnum):
    """What became of a call. Everything but `done` is an error that the model is told of."""

    DONE = "done"
    UNKNOWN_TOOL = "unknown_tool"
    INVALID_JSON = "invalid_json"
    WRONG_ARGUMENTS = "wrong_arguments"
    MALFORMED = "malformed"
    """The text protocol found no call where one was announced."""
    TOOL_ERROR = "tool_error"
    """The tool raised."""
    TIMEOUT = "timeout"
    TOO_MANY = "too_many"


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A call and its answer."""

    call: ToolCall
    outcome: Outcome
    text: str
    """At most as long as the limits allow, and always text that can be encoded."""
    cut: bool = False
    """True when the result was longer."""

    @property
    def message(self) -> Message:
        """The answer as the model reads it."""
        return tool_message(self.text, self.call)


async def call_tools(
    calls: Sequence[ToolCall], tools: Iterable[Tool], limits: CallLimits | None = None
) -> list[Called]:
    """Make the calls of one message at once; one answer each, in their order.

    The model's mistakes, the tool's own errors and its time-outs are text for the model. What raises is neither's
    fault: a Failure (ToolFailure: the machinery behind a tool; SandboxFailure …), a Stop, or another of our errors;
    then the calls that are still running are cancelled. Tools that are `ordered` run one after another.
    """
    made = _Round({tool.name: tool for tool in tools}, limits or CallLimits())
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(made.answer(call, number)) for number, call in enumerate(calls)]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    return [
        _error(call, Outcome.TOOL_ERROR, "the tool cancelled itself") if task.cancelled() else task.result()
        for call, task in zip(calls, running, strict=True)
    ]


def count(called: Iterable[Called], into: MutableMapping[str, int]) -> None:
    """Add the outcomes up by name, and results that were cut under `cut`: plain data for an episode's state."""
    found = Counter(one.outcome.value for one in called) + Counter(cut=sum(one.cut for one in called))
    for name, number in found.items():
        into[name] = into.get(name, 0) + number


@dataclass(slots=True)
class _Round:
    """The calls of one message."""

    tools: Mapping[str, Tool]
    limits: CallLimits
    turns: asyncio.Lock = field(default_factory=asyncio.Lock)
    """First come, first served; tasks start in the order of the calls."""

    async def answer(self, call: ToolCall, number: int) -> Called:
        """Find out what is meant, and do it."""
        if refused := self.refused(call, number):
            return refused
        tool = self.tools[call.name]
        try:
            given = msgspec.json.decode(call.arguments or "{}")
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            return _error(call, Outcome.INVALID_JSON, f"the arguments of {call.name} are not valid JSON: {error}")
        if not isinstance(given, dict):
            why = f"the arguments of {call.name} must be a JSON object, not {type(given).__name__}"
            return _error(call, Outcome.WRONG_ARGUMENTS, why)
        if not getattr(tool, "ordered", False):
            return await self.make(call, tool, given)
        async with self.turns:
            return await self.make(call, tool, given)

    def refused(self, call: ToolCall, number: int) -> Called | None:
        """The answer to a call that cannot be made, whatever its arguments."""
        if number >= self.limits.calls:
            return _error(call, Outcome.TOO_MANY, "too many calls in one message: this one was not made")
        if not call.name:
            return _error(call, Outcome.MALFORMED, f"this is not a tool call: {call.arguments}")
        if call.name not in self.tools:
            known = ", ".join(self.tools) or "none"
            return _error(call, Outcome.UNKNOWN_TOOL, f"there is no tool {call.name[:100]!r}; there are: {known}")
        return None

    async def make(self, call: ToolCall, tool: Tool, arguments: dict[str, Any]) -> Called:
        """The tool call: the one place besides `boundary` where everything is caught."""
        seconds = getattr(tool, "timeout", None) or self.limits.timeout
        try:
            with Doing(f"tool {call.name}"):
                async with asyncio.timeout(seconds) as clock:
                    text = as_text(await tool(**arguments))
        except WrongArguments as error:
            return _error(call, Outcome.WRONG_ARGUMENTS, str(error))
        except ToolError as error:
            return _error(call, Outcome.TOOL_ERROR, str(error))
        except WanderlustError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 (a tool that parses a command line exits on a wrong one)
            if clock.expired():
                return _error(call, Outcome.TIMEOUT, f"{call.name} was stopped after {seconds:g} seconds")
            return _error(call, Outcome.TOOL_ERROR, format_exception_only(error)[-1])
        return Called(call=call, outcome=Outcome.DONE, **_bounded(text, self.limits.result))


def _error(call: ToolCall, outcome: Outcome, why: str) -> Called:
    return Called(call=call, outcome=outcome, text=ERROR + one_line(why, LONGEST_ERROR))


def _bounded(text: str, limit: int) -> dict[str, Any]:
    cut = len(text) > limit
    kept = text[:limit].encode(errors="backslashreplace").decode()  # a lone surrogate can be neither sent nor stored
    return {"text": f"{kept}\n[cut: the first {limit} of {len(text)} characters]" if cut else kept, "cut": cut}
