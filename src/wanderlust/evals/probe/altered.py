"""Probes that spoil the oracle's answer, which a sound reward notices: hedged, repeated, left to a template."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from wanderlust.core.contracts import Policy, Tool
from wanderlust.core.messages import Message, assistant
from wanderlust.core.types import Completion
from wanderlust.evals.probe.battery import NothingToDo, Probe

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
