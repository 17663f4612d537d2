"""Players that have not understood the task: what they earn is what shortcuts are worth."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from random import Random

from wanderlust.core.contracts import Policy
from wanderlust.core.messages import Message
from wanderlust.policies.scripted import Scripted

OFFER = re.compile(r"(\w+)\((.+)\)")


def echo(messages: Sequence[Message], _rng: Random) -> str:
    """Repeats the newest example."""
    return next((m.content for m in reversed(messages) if m.role == "assistant"), "")


def parrot(messages: Sequence[Message], _rng: Random) -> str:
    """Takes the first tool, with the types for values."""
    name, takes = _offered(messages)[0]
    return json.dumps({"name": name, "arguments": takes})


def guesser(messages: Sequence[Message], rng: Random) -> str:
    """Takes any tool, and for each argument any word of the request that has its type."""
    name, takes = rng.choice(_offered(messages))
    words = [word.strip(".,:;?'") for word in messages[-1].content.splitlines()[-1].split()[1:]]
    return json.dumps({"name": name, "arguments": {key: _guess(kind, words, rng) for key, kind in takes.items()}})


def _offered(messages: Sequence[Message]) -> list[tuple[str, dict[str, str]]]:
    """Name and arguments with their types of each tool in the last message."""
    found = OFFER.findall(messages[-1].content)
    return [(name, dict(one.split(": ") for one in takes.split(", "))) for name, takes in found]


def _guess(kind: str, words: Sequence[str], rng: Random) -> str | float | bool:
    numbers = [float(word) for word in words if re.fullmatch(r"\d+(\.\d+)?", word)]
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "string" or not numbers:
        return rng.choice(words)
    return rng.choice(numbers) if kind == "number" else int(rng.choice(numbers))


PLAYERS: Mapping[str, Callable[[], Policy]] = {
    "echo": lambda: Scripted(echo),
    "parrot": lambda: Scripted(parrot),
    "guesser": lambda: Scripted(guesser),
}
