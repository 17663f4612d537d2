"""Steps of a plan, the tools that fit them by what the tools say they do, and the policy that takes the steps."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from wanderlust.types import Completion, Message, Tool, ToolCall, assistant

T = TypeVar("T")
WORD = re.compile(r"[a-z]+")
NOTICE = re.compile(r"\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] (?P<app>\w+): (?P<text>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Use:
    """A call of the tool of an app whose description is most like `does`.

    Example: `Use("Emails", "send a mail", {"addresses it goes to": ["a@b.example"], "subject": "Hello"})`. Arguments go
    to the parameters whose names and descriptions are most like their keys.
    """

    app: str
    does: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Say:
    """A message to the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Notice:
    """A notification, or a message of the user, which has no app."""

    app: str
    text: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of a step."""

    result: Any = None
    notices: tuple[Notice, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the call was answered with an error."""
        return isinstance(self.result, str) and self.result.startswith("error: ")

    @property
    def user_text(self) -> str:
        """What the user wrote meanwhile; empty when nothing."""
        return "\n\n".join(one.text for one in self.notices if not one.app)


Steps: TypeAlias = Generator[Use | Say, Seen, T]
"""Yields steps, is sent what came of them, and returns something."""


class CannotDo(ValueError):
    """A plan cannot go on: nothing was found, or the tools refuse."""


class PlannerPolicy:
    """Goes through a plan from the start with all that came back so far, and takes its next step.

    It reads messages and tools alone, so equal conversations get equal answers. `plan` takes the user's request and
    returns the message that ends the turn; the user's next message is a request of its own.
    """

    def __init__(self, plan: Callable[[str], Steps[str]]):
        self._plan = plan

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The next call, or what it says to the user."""
        step = next_step(self._plan, turns_of(messages))
        if isinstance(step, Say):
            return Completion(message=assistant(step.text))
        tool = find_tool(step, tools)
        if tool is None:
            return Completion(message=assistant("I have no tool for that."))
        call = ToolCall(id=f"call-{len(messages)}", name=tool.name, arguments=json.dumps(arguments_of(step, tool)))
        return Completion(message=assistant("", call))


def turns_of(messages: Sequence[Message]) -> list[Seen]:
    """What was seen before each turn; the first has the request."""
    turns: list[tuple[Any, list[Notice]]] = [(None, [])]
    for message in messages:
        if message.role == "assistant":
            turns.append((None, []))
        elif message.role == "tool":
            turns[-1] = (_parsed(message.content), turns[-1][1])
        elif message.role == "user":
            turns[-1][1].extend(read_notices(message.content))
    return [Seen(result, tuple(notices)) for result, notices in turns]


def read_notices(text: str) -> list[Notice]:
    """The notices in a message; a part without time and app is the user's."""
    parts = re.split(r"\n\n(?=\[\d{4}-)", text)
    found = [(NOTICE.fullmatch(part), part) for part in parts]
    return [Notice("", part) if match is None else Notice(match["app"], match["text"]) for match, part in found]


def next_step(plan: Callable[[str], Steps[str]], turns: Sequence[Seen]) -> Use | Say:
    """The step after these turns."""
    steps: Steps[str] | None = None
    step: Use | Say = Say("")
    for seen in turns:
        if steps is None and not seen.user_text:
            step = Say("")
            continue
        try:
            if steps is None:
                steps = plan(seen.user_text)
                step = next(steps)
            else:
                step = steps.send(seen)
        except StopIteration as end:
            steps, step = None, Say(end.value)
    return step


def find_tool(step: Use, tools: Sequence[Tool]) -> Tool | None:
    """The tool of the app that says most of the words, and the fewest others; None where no word fits."""
    wanted = words_of(step.does)
    rated = [
        (len(wanted & about), -len(about), tool)
        for tool in tools
        if tool.name.startswith(step.app)
        for about in [words_of(tool.description)]
        if wanted & about
    ]
    return max(rated, key=lambda one: one[:2])[2] if rated else None


def arguments_of(step: Use, tool: Tool) -> dict[str, Any]:
    """The arguments by the names of the tool's parameters; what no parameter fits is left out."""
    named: dict[str, Any] = {}
    for key, value in step.args.items():
        name = find_parameter(key, tool.schema, taken=named)
        if name is not None:
            named[name] = (
                [value] if isinstance(value, str) and _takes_a_list(tool.schema["properties"][name]) else value
            )
    return named


def _takes_a_list(field: Mapping[str, Any]) -> bool:
    kinds = {one.get("type") for one in (field, *field.get("anyOf", ()))}
    return "array" in kinds and "string" not in kinds


def find_parameter(key: str, schema: Mapping[str, Any], *, taken: Mapping[str, Any]) -> str | None:
    """The parameter whose name and description have most of a key's words; None where none has any."""
    wanted = words_of(key)
    rated = [
        (len(wanted & about), -len(about), name)
        for name, field in schema.get("properties", {}).items()
        if name not in taken
        for about in [words_of(f"{name.replace('_', ' ')} {field.get('description', '')}")]
        if wanted & about
    ]
    return max(rated)[2] if rated else None


def words_of(text: str) -> set[str]:
    """The words of a text, in small letters and in the singular."""
    words = WORD.findall(text.replace("_", " ").lower())
    return {f"{word[:-3]}y" if word.endswith("ies") else word.removesuffix("s") for word in words}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
