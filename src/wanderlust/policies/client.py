"""Code written for `AsyncOpenAI` acts through a recorded seat, unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from wanderlust.core.contracts import Agent
from wanderlust.core.errors import UsageError
from wanderlust.core.messages import Message
from wanderlust.core.types import Turn
from wanderlust.policies.wire import call_to_wire, message_from_wire, tool_from_wire


class Data:
    """What the look-alike's answers share with the original's."""

    __slots__ = ()

    def model_dump(self, *, exclude_none: bool = False, **_: Any) -> dict[str, Any]:
        """As plain JSON data."""
        whole = asdict(self)  # type: ignore[call-overload]
        return {name: value for name, value in whole.items() if not (exclude_none and value is None)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall(Data):
    """What a tool call calls."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallChoice(Data):
    """One tool call."""

    id: str
    function: FunctionCall
    type: str = "function"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage(Data):
    """What the model said; may be put into the next request as it is."""

    content: str | None
    tool_calls: list[ToolCallChoice] | None = None
    role: str = "assistant"
    refusal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Data):
    """The one answer."""

    message: ChatMessage
    finish_reason: str
    index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage(Data):
    """Tokens, as far as the policy says."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCompletion(Data):
    """An answer with the fields that programs read."""

    id: str
    model: str
    choices: list[Choice]
    usage: Usage
    created: int = 0
    object: str = "chat.completion"


class Completions:
    """The one call that every agent makes."""

    def __init__(self, agent: Agent):
        self._agent = agent

    async def create(
        self,
        *,
        messages: Sequence[Any],
        model: str = "",
        tools: Sequence[Mapping[str, Any]] | None = None,
        stream: bool = False,
        n: int | None = 1,
        **_: Any,
    ) -> ChatCompletion:
        """One recorded turn of the seat; how to sample is the policy's business, so such options do nothing.

        Raises Stop at the seat's limits, UsageError for streams, several choices and what is no text.
        """
        if stream or (n or 1) > 1:
            raise UsageError("a recorded seat gives one answer at a time: leave out `stream` and `n`")
        context = [message_from_wire(_plain(message)) for message in messages]
        known = self._agent.messages
        context[: len(known)] = [_remember(now, before) for now, before in zip(context, known, strict=False)]
        await self._agent.act_on(context, [tool_from_wire(tool) for tool in tools or ()])
        turns = self._agent.trajectory.turns
        return _answer(turns[-1], id=f"{self._agent.key}/{len(turns)}", model=model)


class Chat:
    """The look-alike of `client.chat`."""

    def __init__(self, agent: Agent):
        self.completions = Completions(agent)


class Client:
    """Quacks like `AsyncOpenAI`; every call is a recorded, bounded turn of `agent`.

    A program may keep its own conversation: what it appends is a turn's observation, and when it rewrites the
    past (compaction) the turn says so.
    """

    def __init__(self, agent: Agent):
        self.chat = Chat(agent)


def _plain(message: Any) -> Mapping[str, Any]:
    return message if isinstance(message, Mapping) else message.model_dump()


def _remember(now: Message, before: Message) -> Message:
    """`before` when the program repeats it: reasoning never travels, so it cannot come back."""
    return before if replace(now, reasoning=before.reasoning) == before else now


def _answer(turn: Turn, *, id: str, model: str) -> ChatCompletion:
    said = turn.action
    calls = [
        ToolCallChoice(id=call.id, function=FunctionCall(**call_to_wire(call)["function"])) for call in said.tool_calls
    ]
    message = ChatMessage(content=said.content or (None if calls else ""), tool_calls=calls or None)
    finish = "tool_calls" if calls else turn.finish
    read, written = turn.usage.get("prompt_tokens", 0), turn.usage.get("completion_tokens", 0)
    usage = Usage(prompt_tokens=read, completion_tokens=written, total_tokens=read + written)
    return ChatCompletion(id=id, model=model, choices=[Choice(message=message, finish_reason=finish)], usage=usage)
