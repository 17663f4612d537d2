"""The facts of a life: what happened, who, when, where and how much, each with the records that state it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias, TypeVar

from wanderlust_worlds.engine.cow_dict import FrozenRecord

K = TypeVar("K")
V = TypeVar("V")
Value: TypeAlias = str | float
ValueType: TypeAlias = Literal["person", "place", "day", "time", "amount", "thing", "topic", "text", "number", "count"]
_ATTRIBUTES: Mapping[ValueType, str] = {
    "person": "proposer present canceller mover payer provider organiser attendee adviser receiver borrower issuer "
    "companion host self asker keeper giver taker writer teller shop helper",
    "place": "place town street",
    "day": "day first_day due said",
    "time": "time",
    "amount": "amount",
    "thing": "thing",
    "topic": "topic",
    "text": "work reason verdict job phone service status task tie",
    "number": "number",
    "count": "nights age",
}
ATTRIBUTE_TYPES: Mapping[str, ValueType] = {name: kind for kind, names in _ATTRIBUTES.items() for name in names.split()}
"""Of every attribute of a happening."""


class LedgerFact(FrozenRecord):
    """One thing that is true of a happening."""

    about: str
    """The happening's id, or a person's."""
    attribute: str
    value: Value
    """A person's id, a place, the first second of a day, seconds since midnight, an amount in EUR, or a text."""
    records: tuple[str, ...]
    """The records that state it, each alone: `Emails/id`, `Chats/conversation/message`, `Calendar/id`, ..."""


class AnsweredQuestion(FrozenRecord):
    """A question in a dialogue or a thread, its answer, and what both name."""

    question: str
    answer: str
    about: str


@dataclass(slots=True, kw_only=True)
class Happening:
    """Something that happened, or is planned; a person is one that always is."""

    id: str
    kind: str
    facts: list[LedgerFact] = field(default_factory=list)
    records: dict[str, str] = field(default_factory=dict)
    """Records that an act can be about, by what they are: its mail, its entry in the calendar, its file."""

    def values(self, attribute: str) -> list[Value]:
        """The values of an attribute."""
        return [fact.value for fact in self.facts if fact.attribute == attribute]

    def value(self, attribute: str) -> Value | None:
        """The only value of an attribute, or None where it has none or several."""
        found = self.values(attribute)
        return found[0] if len(found) == 1 else None


@dataclass(frozen=True, kw_only=True)
class FactsLedger:
    """All that happened in a life."""

    happenings: Mapping[str, Happening]
    turns: tuple[AnsweredQuestion, ...]
    knows: frozenset[tuple[str, str]]
    """Pairs of people who know each other, the user aside."""

    @property
    def facts(self) -> Iterator[LedgerFact]:
        """Every fact."""
        for one in self.happenings.values():
            yield from one.facts

    def of_kind(self, kind: str) -> list[Happening]:
        """The happenings of a kind, in the order in which they were decided."""
        return self.by_kind.get(kind, [])

    @cached_property
    def by_kind(self) -> Mapping[str, list[Happening]]:
        """The happenings of each kind."""
        return grouped((one.kind, one) for one in self.happenings.values())

    @cached_property
    def facts_of(self) -> Mapping[tuple[str, str], list[LedgerFact]]:
        """The facts of each happening and attribute."""
        return grouped(((fact.about, fact.attribute), fact) for fact in self.facts)

    @cached_property
    def holders(self) -> Mapping[tuple[str, Value], list[str]]:
        """The ids of the happenings that have a value of an attribute."""
        return grouped(((fact.attribute, fact.value), fact.about) for fact in self.facts)

    @cached_property
    def by_value(self) -> Mapping[tuple[ValueType, Value], list[LedgerFact]]:
        """The facts with a value of a type."""
        return grouped(((ATTRIBUTE_TYPES[fact.attribute], fact.value), fact) for fact in self.facts)


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key, in their order."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
