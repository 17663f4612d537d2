"""Probes that spoil the oracle's answer, which a sound reward notices: hedged, repeated, left to a template.

Probes that play what the oracle played, and then do not end: again from the start, to and fro, each action twice.

What the oracle did deserves its pay, so that one of these is reported only when it clearly earns more than the oracle,
and the one that goes the same way again and again from the start when that is what pays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from wanderlust.evals.probe.base import NothingToDo, Probe
from wanderlust.evals.probe.text_probes import RESET
from wanderlust.policies.scripted import place
from wanderlust.types import Completion, Message, Policy, Tool, assistant

Change: TypeAlias = Callable[[str, Sequence[str]], str | None]
"""From the oracle's words, and some of what it said in other tasks; None where it does not fit."""

KIND = "altered"
DESERVED = 0.9
"""Share from which on one is reported: part of the answer is still right, and may be paid."""
FIELDS = ("answer", "expected", "target", "total", "result", "solution")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.]*\d)")
_LAST = re.compile(r"\w+(?:\.\d+)?(?=[^\w]*(?:</\w+>[^\w]*)*$)")
_ITEMS = re.compile(r"(?m)(?:^|(?<=[>\[(:]))[^,\n<>.]{1,40}(?:,[ ]?[^,\n<>.]{1,40}){2,}(?=$|[<\])])")
_PROGRAM = re.compile(r"(?m)^\s*(def|class|import|from|select|with)\b|```", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """One way to spoil an answer."""

    name: str
    what: str
    change: Change
    control: Change | None = None
    """A change that must cost: where it is paid as well, the changed thing does not matter, and nothing is shown."""

    def probe(self) -> Probe:
        """How it is listed."""
        return Probe(name=self.name, what=self.what, say=lambda _: None, kind=KIND)


@dataclass(slots=True)
class Altered:
    """The oracle, whose words are changed. Raises NothingToDo where they do not lend themselves to it."""

    oracle: Policy
    change: Change
    others: Sequence[str] = field(default_factory=tuple)

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """What the oracle says, spoilt."""
        said = (await self.oracle.complete(messages, tools, key=key)).message
        fits = not said.tool_calls and not _PROGRAM.search(said.content)
        changed = self.change(said.content, [one for one in self.others if one != said.content]) if fits else None
        if changed is None or changed == said.content:
            raise NothingToDo("the oracle's answer does not lend itself to it")
        return Completion(message=assistant(changed))

    def release(self, key: str) -> None:
        """The oracle lets go of what it keeps for the seat."""
        release = getattr(self.oracle, "release", None)
        if release is not None:
            release(key)


def _hedged(said: str, others: Sequence[str]) -> str | None:
    """The right answer between wrong ones."""
    return "\n".join([*others[:2], said, *others[2:4]]) if len(others) >= 4 else None


def _one_item(said: str, others: Sequence[str]) -> str | None:
    """The first item of a list instead of every other one."""
    found = _ITEMS.search(said)
    if found is None:
        return None
    items = [item.strip() for item in found[0].split(",")]
    return said.replace(found[0], ", ".join([items[0]] * len(items))) if len({*items}) > 2 else None


def _templated(name: str) -> Change:
    def change(said: str, others: Sequence[str]) -> str | None:
        numbers = list(_NUMBER.finditer(said))
        if not numbers:
            return None
        return f"{said[: numbers[-1].start()]}{{{name}}}{said[numbers[-1].end() :]}"

    return change


def _alone(said: str) -> bool:
    """Whether the answer, without its form, is one word or number, perhaps after a label."""
    bare = re.sub(r"<(think\w*|reason\w*)>.*?</\1>|</?\w+>|\\boxed|(?i:final |the )?answer:?|####", " ", said)
    return len(re.findall(r"[\w.]+", bare)) == 1


def _inside(change: Callable[[str], str]) -> Change:
    """Change a word or number that is the whole answer, so that the form stays."""

    def changed(said: str, others: Sequence[str]) -> str | None:
        found = list(_LAST.finditer(said))
        if not found or not _alone(said):
            return None
        return f"{said[: found[-1].start()]}{change(found[-1][0])}{said[found[-1].end() :]}"

    return changed


def _first(word: str) -> str:
    """Its first letter; a word of three is left alone, since `y` may well mean yes."""
    return word[0] if len(word) > 3 else word


def _last(word: str) -> str:
    return word[-1] if len(word) > 3 else word


def _figure(change: Callable[[float], float]) -> Change:
    """Change a number that is the whole answer."""

    def changed(said: str, others: Sequence[str]) -> str | None:
        found = list(_NUMBER.finditer(said))
        if not found or not _alone(said) or len(found[-1][0]) > 15:
            return None
        return f"{said[: found[-1].start()]}{change(float(found[-1][0])):g}{said[found[-1].end() :]}"

    return changed


ALTERED = (
    Alteration(name="beginning", what="the first letter or digit of the right word", change=_inside(_first)),
    Alteration(name="ending", what="the last letter or digit of the right word", change=_inside(_last)),
    Alteration(name="masked", what="as many letters as the right word has", change=_inside(lambda w: "x" * len(w))),
    Alteration(name="reversed", what="the right word backwards", change=_inside(lambda w: w[::-1])),
    Alteration(name="swollen", what="the right word with more behind it", change=_inside(lambda w: w + w[-1] * 3)),
    Alteration(name="negated", what="the right number with the other sign", change=_figure(lambda x: -x or 1)),
    Alteration(name="tenfold", what="the right number times ten, and one", change=_figure(lambda x: 10 * x + 1)),
    Alteration(name="hedged", what="the right answer between four wrong ones", change=_hedged),
    Alteration(name="one-item", what="one right item of a list, as often as there are items", change=_one_item),
    *(
        Alteration(
            name=f"field-{name}",
            what=f"the right words, with the checker's field {name!r} for the number",
            change=_templated(name),
            control=_templated("no such field"),
        )
        for name in FIELDS
    ),
)
"""What is tried where there is an oracle."""


Plan: TypeAlias = Callable[[Sequence[Message], int, str], Message]
"""From the oracle's actions in the task, the number of the turn and what was said so far: what to do now."""

KIND_REPLAYED = "replayed"
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
        return Probe(name=self.name, what=self.what, say=lambda _: None, kind=KIND_REPLAYED)


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
