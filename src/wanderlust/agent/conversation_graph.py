"""The conversations of one seat: which recorded turn a request continues, and under which key the policy answers it.

A program may carry on several conversations in one seat at once: sub-agents, parallel calls, contexts that it has
shortened. A request continues the recorded turn whose whole conversation is the longest beginning of the request. A
turn that is continued for the first time keeps the key of its conversation; every further one is a branch, and a
request that continues none begins a conversation. The keys of both are digests of the request, so that draws do not
depend on the order in which requests arrive.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count

from wanderlust.types import Message, Trajectory, decode_arguments

_BRANCH = "\x1f"
"""Stands between the seat's key and the name of a conversation; no key of a seat has it."""


def seat_of_key(key: str) -> str:
    """The seat's part of a conversation's key."""
    return key.partition(_BRANCH)[0]


def branch_key(seat: str, name: str) -> str:
    """The key of a further conversation of the seat."""
    return f"{seat}{_BRANCH}{name}"


def draw_name(key: str, messages: Sequence[Message]) -> str:
    """What names the draw of an answer: the key and the number of messages, or, in a seat with several conversations,
    the seat, all messages, and how many equal requests came before."""
    seat = seat_of_key(key)
    if seat == key:
        return f"{key}/{len(messages)}"
    return f"{seat}/{context_digests(messages)[-1].hex()}/{_number(key)}"


def _number(key: str) -> int:
    return int(key.partition(_BRANCH)[2].partition(".")[2] or 0)


def context_digests(messages: Iterable[Message], start: bytes = b"") -> list[bytes]:
    """Digests of `start` and of it with each further message.

    Answers that differ only in what programs change as they send them back have one digest: space at both ends, the
    form of arguments, reasoning.
    """
    digests = [start]
    for message in messages:
        calls = [(call.id, call.name, decode_arguments(call.arguments)) for call in message.tool_calls]
        content = message.content.strip() if message.role == "assistant" else message.content
        extra = None if message.role == "assistant" else message.extra
        said = json.dumps([message.role, content, message.tool_call_id, calls, extra, message.images], sort_keys=True)
        digests.append(blake2b(digests[-1] + said.encode(), digest_size=12).digest())
    return digests


@dataclass(slots=True)
class Place:
    """Where a turn belongs."""

    parent: int
    """Index of the turn that it continues; -1 begins a conversation."""
    key: str
    """Of the conversation, for the policy."""
    messages: Sequence[Message]
    """What came before, as it was recorded."""
    name: str = ""
    """Digest of the whole context; empty where nobody else can have asked the same."""
    number: int = 0
    """Equal requests that are recorded or under way."""


class ConversationGraph:
    """Finds the place of each turn of a trajectory."""

    def __init__(self, trajectory: Trajectory, key: str):
        self._trajectory, self._key = trajectory, key
        self._keys: list[str] = []
        """Per turn, the key of its conversation."""
        self._digests: list[bytes] = []
        self._ends: dict[bytes, list[int]] = {}
        """By digest, the turns after which a conversation stands so."""
        self._continued: set[int] = set()
        self._asked: dict[str, set[int]] = {}
        """By name, the numbers of the requests that are recorded or under way."""

    @property
    def keys(self) -> list[str]:
        """The keys of all conversations, the seat's own among them."""
        return [*dict.fromkeys((self._key, *self._keys))]

    def after(self, messages: Sequence[Message], observation: Sequence[Message], *, turn: int | None = None) -> Place:
        """The place after a turn, the latest one unless given, of which `messages` is the conversation."""
        turn = len(self._keys) - 1 if turn is None else turn
        if turn in self._continued:
            return self._place(turn, messages, context_digests([*messages, *observation])[-1].hex())
        return Place(turn, self._keys[turn] if self._keys else self._key, messages)

    def find(self, messages: Sequence[Message]) -> tuple[Place, tuple[Message, ...]]:
        """The place of a request, and what is new in it."""
        self._digest_turns()
        digests = context_digests(messages)
        name = digests[-1].hex()
        for length in range(len(messages), 0, -1):
            turns = self._ends.get(digests[length]) if messages[length - 1].role == "assistant" else None
            if turns:
                turn = next((turn for turn in turns if turn not in self._continued), turns[-1])
                place = self._place(turn, self._trajectory.conversation(turn), name)
                return place, tuple(messages[length:])
        return self._place(-1, (), name), tuple(messages)

    def begin(self, place: Place) -> None:
        """A turn is under way in this place."""
        self._continued.add(place.parent)
        if place.name:
            self._asked.setdefault(place.name, set()).add(place.number)

    def drop(self, place: Place) -> None:
        """The turn did not happen: its place is free again."""
        if place.parent >= 0 and self._keys[place.parent] == place.key:
            self._continued.discard(place.parent)
        if place.name:
            self._asked[place.name].discard(place.number)

    def record(self, place: Place) -> None:
        """The turn has been appended to the trajectory."""
        self._keys.append(place.key)

    def _place(self, turn: int, messages: Sequence[Message], name: str) -> Place:
        """The place after a turn of a request with this name: in the turn's own conversation, or in a branch."""
        number = next(number for number in count() if number not in self._asked.get(name, ()))
        key = branch_key(self._key, name) + (f".{number}" if number else "")
        if turn >= 0 and turn not in self._continued and number in (0, _number(self._keys[turn])):
            key = self._keys[turn]
        return Place(turn, key, messages, name, number)

    def _digest_turns(self) -> None:
        for number in range(len(self._digests), len(self._trajectory.turns)):
            turn, parent = self._trajectory.turns[number], self._trajectory.parent(number)
            start = b"" if parent is None else self._digests[parent]
            digest = context_digests((*turn.observation, turn.action), start)[-1]
            self._digests.append(digest)
            self._ends.setdefault(digest, []).append(number)
