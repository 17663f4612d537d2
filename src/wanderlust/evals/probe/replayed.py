"""Probes that play what the oracle played, and then do not end: again from the start, to and fro, each action twice.

What the oracle did deserves its pay, so that one of these is reported only when it clearly earns more than the oracle,
and the one that goes the same way again and again from the start when that is what pays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from wanderlust.core.contracts import Tool
from wanderlust.core.messages import Message, assistant
from wanderlust.core.types import Completion
from wanderlust.evals.probe.battery import NothingToDo, Probe
from wanderlust.evals.probe.words import RESET
from wanderlust.policies.keyed import place

Plan: TypeAlias = Callable[[Sequence[Message], int, str], Message]
"""From the oracle's actions in the task, the number of the turn and what was said so far: what to do now."""

KIND = "replayed"
FARM, PLAIN = "farm", ("lingering", "homing", "round-and-round")
"""Goes the same way again and again from the start; those that go it once and stay, or only go on."""
SOME = 3
"""Words that are tried to get back to the start."""
MORE = 0.1
"""Share of what lies between chance and the oracle that it must earn beyond the oracle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One way not to end."""

    name: str
    what: str
    plan: Plan

    def probe(self) -> Probe:
        """How it is listed."""
        return Probe(name=self.name, what=self.what, say=lambda _: None, kind=KIND)


@dataclass(frozen=True, slots=True)
class Replayed:
    """Plays by plan. Raises NothingToDo in a task where the oracle did less than two things."""

    actions: Mapping[str, Sequence[Message]]
    """Of the oracle, by task."""
    plan: Plan

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """What the plan says."""
        actions = self.actions.get(place(key).task, ())
        if len(actions) < 2:
            raise NothingToDo("the oracle acts only once")
        said = "\n".join(message.content for message in messages if message.role != "assistant")
        turn = sum(message.role == "assistant" for message in messages)
        return Completion(message=self.plan(actions, turn, said))


def _farm(actions: Sequence[Message], turn: int, said: str) -> Message:
    """All but the last action, then every word that may lead back to the start, and again."""
    way = [*actions[:-1], *_back(said)]
    return way[turn % len(way)]


def _round_and_round(actions: Sequence[Message], turn: int, said: str) -> Message:
    """All but the last action, again and again."""
    return actions[turn % (len(actions) - 1)]


def _to_and_fro(actions: Sequence[Message], turn: int, said: str) -> Message:
    """The first two different actions in turn."""
    first = actions[0]
    other = next((action for action in actions if action != first), first)
    return (first, other)[turn % 2]


def _once(actions: Sequence[Message], turn: int, said: str) -> Message:
    """The first action for ever."""
    return actions[0]


def _twice(actions: Sequence[Message], turn: int, said: str) -> Message:
    """Every action twice."""
    return actions[min(turn // 2, len(actions) - 1)]


def _lingering(actions: Sequence[Message], turn: int, said: str) -> Message:
    """All but the last action, then nothing."""
    return actions[turn] if turn < len(actions) - 1 else assistant("wait")


def _homing(actions: Sequence[Message], turn: int, said: str) -> Message:
    """All but the last action, then the words that may lead back to the start, for ever."""
    words = _back(said)
    return actions[turn] if turn < len(actions) - 1 else words[turn % len(words)]


def _back(said: str) -> list[Message]:
    words = list(dict.fromkeys(word.lower() for word in RESET.findall(said)))[:SOME]
    return [assistant(word) for word in words or ["restart"]]


REPLAYED = (
    Replay(name=FARM, what="plays to just before the end, goes back to the start, and again", plan=_farm),
    Replay(name="round-and-round", what="all but the oracle's last action, again and again", plan=_round_and_round),
    Replay(name="to-and-fro", what="the oracle's first two actions in turn", plan=_to_and_fro),
    Replay(name="once-more", what="the oracle's first action for ever", plan=_once),
    Replay(name="twice", what="each of the oracle's actions twice", plan=_twice),
    Replay(name="lingering", what="plays to just before the end, and waits", plan=_lingering),
    Replay(name="homing", what="plays to just before the end, goes back to the start, and stays", plan=_homing),
)
"""What is tried where there is an oracle that acts more than once."""
