"""Worlds in few words, for small models: short verbs for a few tools, `#1` for whatever is long and must be copied.

A message is the time since the first one and what is new; an answer that begins with a verb is a call, with its
arguments in order, the last one to the end; any other answer is said to the user. World, clock, notifications, tools,
log and verdict are those of any other world.

Not covered: tools without a verb, arguments that are no text, number or list of one text, several calls in one answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from wanderlust.agent import Agent
from wanderlust.environment import Episode
from wanderlust.types import Message, Tool, ToolCall, user
from wanderlust_worlds.apps.contacts import Contacts
from wanderlust_worlds.engine.world import World
from wanderlust_worlds.wrap.world_environment import WorldEnvironment

LONG = re.compile(r"(?<!\w)(?:[\w.-]+@[\w.-]+\w|[a-zA-Z]?[0-9a-f]{12,40}|\+\d[\d ]{6,}\d)(?!\w)")
"""Addresses of mail, ids, phone numbers."""
HANDLE = re.compile(r"#(\d{1,4})(?!\d)")
STAMP = re.compile(r"^\[[\d: -]+\] ", re.MULTILINE)
SHOWN = 400
"""Characters of a result that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A short word for a tool."""

    tool: str
    takes: tuple[str, ...] = ()
    """The arguments that are written, in order."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that are always the same."""
    shows: tuple[str, ...] = ()
    """Of a result in JSON, only the values under these keys are shown, in this order; empty shows the result."""


@dataclass(slots=True)
class Handles:
    """What `#1`, `#2`, ... stand for in one conversation, by when they were met first."""

    names: Mapping[str, str]
    """Full names of people by every form that is taken for them: the full name, and a first name only one has."""
    long: str = LONG.pattern
    """Pattern of what has a handle besides."""
    values: list[str] = field(default_factory=list)

    def shorten(self, text: str) -> str:
        """The text with handles for all that is long. What looks like a handle already is not told apart."""
        ways = sorted(map(re.escape, self.names), key=len, reverse=True)
        pattern = rf"{self.long}|\b(?:{'|'.join(ways)})\b" if ways else self.long

        def handle(match: re.Match[str]) -> str:
            value = self.names.get(match[0], match[0])
            if value not in self.values:
                self.values.append(value)
            return f"#{self.values.index(value) + 1}"

        return re.sub(pattern, handle, text)

    def expand(self, text: str) -> str:
        """The text with what its handles stand for; one that stands for nothing is left."""
        values = {f"#{number}": value for number, value in enumerate(self.values, 1)}
        return HANDLE.sub(lambda match: values.get(f"#{int(match[1])}", match[0]), text)


class BriefTools(list[Tool]):
    """The agent's tools in a world, and how what they are used for is worded in this episode."""

    def __init__(self, tools: Iterable[Tool], handles: Handles, *, began: float):
        super().__init__(tools)
        self.handles, self.began = handles, began
        self.asked: Verb | None = None
        """The verb that is being answered."""


class BriefWorlds(WorldEnvironment):
    """Worlds whose agent reads and writes in few words. What it was told and what it said stand in the trajectory."""

    verbs: ClassVar[Mapping[str, Verb]] = {}
    long: ClassVar[str] = LONG.pattern
    """Pattern of what has a handle besides the names of people."""

    def tools(self, world: World, episode: Episode) -> list[Tool]:
        """Those that have a verb."""
        known = {verb.tool for verb in self.verbs.values()}
        offered = [tool for tool in super().tools(world, episode) if tool.name in known]
        return BriefTools(offered, Handles(people(world), self.long), began=world.now)

    async def think(self, world: World, new: Sequence[Message], *, agent: Agent, tools: Sequence[Tool]) -> Message:
        """The seat's next turn, in few words; the message that is returned has the call that was meant."""
        if not isinstance(tools, BriefTools):
            return await super().think(world, new, agent=agent, tools=tools)
        seconds = int(world.now - tools.began)
        lines = [f"{seconds // 60}:{seconds % 60:02d}"]
        for message in new:
            if message.role != "system":
                text = _shown(message.content, tools.asked)[:SHOWN] if message.role == "tool" else message.content
                lines.append(tools.handles.shorten(STAMP.sub("", text)))
        answer = await super().think(world, [user("\n".join(lines))], agent=agent, tools=())
        return self.meant(answer, tools)

    def meant(self, answer: Message, tools: BriefTools) -> Message:
        """An answer as the world takes it: handles stand for what they stand for, a verb is a call."""
        text = answer.content.strip()
        word, _, rest = text.partition(" ")
        verb = tools.asked = self.verbs.get(word)
        if verb is None:
            return replace(answer, content=tools.handles.expand(text), tool_calls=())
        parts = rest.split(" ", len(verb.takes) - 1) if verb.takes else []
        schema = next((tool.schema for tool in tools if tool.name == verb.tool), {})
        written: dict[str, Any] = {}
        for name, part in zip(verb.takes, parts, strict=False):
            value = tools.handles.expand(part)
            kinds = types_of(schema.get("properties", {}).get(name, {}))
            if "array" in kinds:
                written[name] = [value]
            else:
                written[name] = int(value) if "integer" in kinds and re.fullmatch(r"-?\d{1,9}", value) else value
        arguments = json.dumps({**verb.given, **written})
        call = ToolCall(id=f"call_{len(tools.handles.values)}", name=verb.tool, arguments=arguments)
        return replace(answer, content="", tool_calls=(call,))


def types_of(schema: Mapping[str, Any]) -> set[str]:
    """The types of JSON that an argument may have."""
    return {one["type"] for one in (schema, *schema.get("anyOf", ())) if isinstance(one.get("type"), str)}


def people(world: World) -> dict[str, str]:
    """Everybody in the contacts by full name, and by first name where only one has it."""
    contacts = world.find(Contacts)
    known = list(contacts.contacts.values()) if contacts is not None else []
    full = [(one.first_name, f"{one.first_name} {one.last_name}") for one in known if one.first_name and one.last_name]
    firsts = [first for first, _ in full]
    return {name: name for _, name in full} | {first: name for first, name in full if firsts.count(first) == 1}


def _shown(text: str, verb: Verb | None) -> str:
    if verb is None or not verb.shows:
        return text
    try:
        found = [*_under(json.loads(text), verb.shows)]
    except ValueError:  # an error's text
        return text
    rows: list[dict[str, Any]] = []
    for name, value in found:  # a name that comes again begins the next row
        if not rows or name in rows[-1]:
            rows.append({})
        rows[-1][name] = value
    return " ".join(str(row[name]) for row in rows for name in verb.shows if name in row)


def _under(value: Any, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from [(name, inner)] if name in names else _under(inner, names)
    elif isinstance(value, list):
        for inner in value:
            yield from _under(inner, names)
