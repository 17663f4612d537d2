"""Make the tool calls of a message: every call is answered, every tool is bounded, and outcomes are counted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from traceback import format_exception_only
from typing import Any

import msgspec

from wanderlust.agent import track
from wanderlust.errors import WanderlustError, one_line, quoted
from wanderlust.tools.function import ToolError, WrongArguments, as_text
from wanderlust.types import Message, Tool, ToolCall, tool_message

ERROR_PREFIX = "error: "
"""Prefix of the answer to a call that failed."""
MAX_TOOL_ERROR_CHARS = 500
"""Longest error that is shown to the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """Bounds of the calls of one message."""

    timeout: float | None = 30.0
    """Wall-clock seconds of a call of a tool that has no `timeout` of its own."""
    max_result_chars: int = 20_000
    """Longest result; the rest is cut, with a note for the model."""
    max_calls: int = 32
    """Calls that are made; further ones are answered with a refusal."""


class CallOutcome(StrEnum):
    """Outcome of a call; each but `done` is answered with an error."""

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
class ToolCallResult:
    """A call and its answer."""

    call: ToolCall
    outcome: CallOutcome
    text: str
    """At most as long as the limits allow, and always text that can be encoded."""
    truncated: bool = False
    """True when the result was longer."""

    @property
    def message(self) -> Message:
        """The answer as the model reads it."""
        return tool_message(self.text, self.call)


async def call_tools(
    calls: Sequence[ToolCall], tools: Iterable[Tool], limits: CallLimits | None = None
) -> list[ToolCallResult]:
    """Make the calls of one message concurrently; one answer each, in their order.

    The model's mistakes, the tool's own errors and its time-outs are text for the model. A tool with a server behind it
    has `check_alive`, which raises ToolFailure after a time-out where the server hangs. Raises WanderlustErrors alone
    (ToolFailure: the machinery behind a tool; SandboxFailure; StopEpisode); the calls that are still running are
    cancelled then. Tools that are `ordered` run one after another.
    """
    made = _CallRound({tool.name: tool for tool in tools}, limits or CallLimits())
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(made.answer(call, number)) for number, call in enumerate(calls)]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    return [
        _error(call, CallOutcome.TOOL_ERROR, "the tool cancelled itself") if task.cancelled() else task.result()
        for call, task in zip(calls, running, strict=True)
    ]


def count_outcomes(results: Iterable[ToolCallResult], totals: MutableMapping[str, int]) -> None:
    """Add up the outcomes by name, and the results that were cut under `truncated`, in an episode's state."""
    outcomes = Counter(one.outcome.value for one in results) + Counter(truncated=sum(one.truncated for one in results))
    for name, number in outcomes.items():
        totals[name] = totals.get(name, 0) + number


@dataclass(slots=True)
class _CallRound:
    """The calls of one message."""

    tools: Mapping[str, Tool]
    limits: CallLimits
    turns: asyncio.Lock = field(default_factory=asyncio.Lock)
    """First come, first served; tasks start in the order of the calls."""

    async def answer(self, call: ToolCall, number: int) -> ToolCallResult:
        """Check the call and make it."""
        if refusal := self.refusal(call, number):
            return refusal
        tool = self.tools[call.name]
        try:
            arguments = msgspec.json.decode(call.arguments or "{}")
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            return _error(call, CallOutcome.INVALID_JSON, f"the arguments of {call.name} are not valid JSON: {error}")
        if not isinstance(arguments, dict):
            why = f"the arguments of {call.name} must be a JSON object, not {type(arguments).__name__}"
            return _error(call, CallOutcome.WRONG_ARGUMENTS, why)
        if not getattr(tool, "ordered", False):
            return await self.make(call, tool, arguments)
        async with self.turns:
            return await self.make(call, tool, arguments)

    def refusal(self, call: ToolCall, number: int) -> ToolCallResult | None:
        """The answer to a call that cannot be made, with any arguments; None for all others."""
        if number >= self.limits.max_calls:
            return _error(call, CallOutcome.TOO_MANY, "too many calls in one message: this one was not made")
        if not call.name:
            return _error(call, CallOutcome.MALFORMED, f"this is not a tool call: {call.arguments}")
        if call.name not in self.tools:
            tool_names = ", ".join(self.tools) or "none"
            why = f"there is no tool {quoted(call.name, 100)}; there are: {tool_names}"
            return _error(call, CallOutcome.UNKNOWN_TOOL, why)
        return None

    async def make(self, call: ToolCall, tool: Tool, arguments: dict[str, Any]) -> ToolCallResult:
        """Call the tool. Besides `boundary`, this is the one place that catches every exception."""
        seconds = getattr(tool, "timeout", None) or self.limits.timeout
        try:
            with track(f"tool {call.name}"):
                async with asyncio.timeout(seconds) as clock:
                    text = as_text(await tool(**arguments))
        except WrongArguments as error:
            return _error(call, CallOutcome.WRONG_ARGUMENTS, str(error))
        except ToolError as error:
            return _error(call, CallOutcome.TOOL_ERROR, str(error))
        except WanderlustError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 (a tool that parses a command line exits on a wrong one)
            if clock.expired():
                if (check_alive := getattr(tool, "check_alive", None)) is not None:
                    await check_alive()
                return _error(call, CallOutcome.TIMEOUT, f"{call.name} was stopped after {seconds:g} seconds")
            return _error(call, CallOutcome.TOOL_ERROR, format_exception_only(error)[-1])
        limit = self.limits.max_result_chars
        # Lone surrogates can be neither sent nor stored.
        clipped, cut = text[:limit].encode(errors="backslashreplace").decode(), len(text) > limit
        if cut:
            clipped += f"\n[cut: the first {limit} of {len(text)} characters]"
        return ToolCallResult(call=call, outcome=CallOutcome.DONE, text=clipped, truncated=cut)


def _error(call: ToolCall, outcome: CallOutcome, why: str) -> ToolCallResult:
    return ToolCallResult(call=call, outcome=outcome, text=ERROR_PREFIX + one_line(why.strip(), MAX_TOOL_ERROR_CHARS))
