"""Queries over a ledger of facts: happenings by their values, by their order, and by what other queries find."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal, TypeAlias

from wanderlust_life.lived.facts_ledger import FactsLedger, Happening, LedgerFact, Value

Order: TypeAlias = Literal["first", "last", "cheapest", "dearest"]
ORDER_ATTRIBUTES: dict[Order, tuple[str, ...]] = {
    "first": ("day", "said"),
    "last": ("day", "said"),
    "cheapest": ("amount",),
    "dearest": ("amount",),
}
"""The attribute by which an order sorts: the first of these that the kind has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What a happening must have: a value, a day in a month, any value, or the value that another query finds.

    Or a person of whom the contacts say this and that, whoever it is.
    """

    attribute: str
    value: Value | None = None
    month: int | None = None
    who: tuple[Condition, ...] = ()
    of: Find | None = None
    of_attribute: str = ""

    def shape(self) -> str:
        """The condition without its values."""
        if self.of is not None:
            return f"{self.attribute}=({self.of.shape()}).{self.of_attribute}"
        if self.who:
            return f"{self.attribute}=({','.join(one.attribute for one in self.who)})"
        return self.attribute + ("=month" if self.month else "=value" if self.value is not None else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Find:
    """The happenings of a kind that meet all conditions; with an order, the one at its end."""

    kind: str
    conditions: tuple[Condition, ...] = ()
    order: Order | None = None

    def shape(self) -> str:
        """The query without its values: equal for questions that differ in names and dates alone."""
        return f"{self.order or ''} {self.kind}[{','.join(one.shape() for one in self.conditions)}]".strip()

    @property
    def joins(self) -> int:
        """How many times a value leads from one happening to another."""
        return sum(1 + one.of.joins for one in self.conditions if one.of is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerView:
    """A ledger as somebody knows it who cannot see some records."""

    ledger: FactsLedger
    lost: frozenset[str] = frozenset()
    known: dict[tuple[Find, str], Value | None] = field(default_factory=dict, compare=False)
    """Answers that were found before."""
    people: dict[tuple[Condition, ...], frozenset[Value]] = field(default_factory=dict, compare=False)
    """The people of whom this and that is true, as far as it was asked before."""

    def facts(self, one: Happening, attribute: str) -> list[LedgerFact]:
        """The facts of an attribute that a record still states."""
        if attribute == "self":
            return [LedgerFact(about=one.id, attribute="self", value=one.id, records=())]
        found = self.ledger.facts_of.get((one.id, attribute), [])
        return [fact for fact in found if not self.lost.issuperset(fact.records)] if self.lost else found

    def values(self, one: Happening, attribute: str) -> list[Value]:
        """The values of an attribute."""
        return [fact.value for fact in self.facts(one, attribute)]

    def find(self, query: Find) -> list[Happening]:
        """The happenings that a query finds. A query whose inner query finds no single value finds nothing."""
        found = self.ledger.of_kind(query.kind)
        for condition in query.conditions:
            allowed = self._allowed(condition)
            if allowed is not None and condition.attribute != "self":
                holders = {name for v in allowed for name in self.ledger.holders.get((condition.attribute, v), ())}
                found = [one for one in found if one.id in holders]
                if not self.lost:
                    continue
            found = [
                one
                for one in found
                if any(self._meets(v, condition, allowed) for v in self.values(one, condition.attribute))
            ]
        if query.order is None or not found:
            return found
        ranked = [(self.rank(one, query.order), one) for one in found]
        ranks = [rank for rank, _ in ranked if rank is not None]
        if not ranks:
            return []
        end = min(ranks) if query.order in ("first", "cheapest") else max(ranks)
        return [one for rank, one in ranked if rank == end]

    def rank(self, one: Happening, order: Order) -> float | None:
        """A happening's place in an order."""
        for attribute in ORDER_ATTRIBUTES[order]:
            for value in self.values(one, attribute):
                return float(value)
        return None

    def _allowed(self, condition: Condition) -> frozenset[Value] | None:
        """The values that a condition names by a query or by what is said of people; None where it does not."""
        if condition.of is not None:
            value = self.answer(condition.of, condition.of_attribute)
            return frozenset() if value is None else frozenset({value})
        if not condition.who:
            return None if condition.value is None else frozenset({condition.value})
        if condition.who not in self.people:
            self.people[condition.who] = frozenset(
                one.id
                for one in self.ledger.of_kind("person")
                if all(trait.value in self.values(one, trait.attribute) for trait in condition.who)
            )
        return self.people[condition.who]

    @staticmethod
    def _meets(value: Value, condition: Condition, allowed: frozenset[Value] | None) -> bool:
        if allowed is not None:
            return value in allowed
        return condition.month is None or month_of(float(value)) == condition.month

    def answer(self, query: Find, attribute: str) -> Value | None:
        """The only value of an attribute of the only happening; None where there is none, or more than one."""
        if (query, attribute) not in self.known:
            self.known[query, attribute] = self._answer(query, attribute)
        return self.known[query, attribute]

    def _answer(self, query: Find, attribute: str) -> Value | None:
        found = self.find(query)
        values = set(self.values(found[0], attribute)) if len(found) == 1 else set()
        return values.pop() if len(values) == 1 else None

    def support(self, query: Find, attribute: str) -> Iterator[LedgerFact]:
        """Yield the facts from which the answer follows."""
        one = self.find(query)[0]
        yield from (fact for fact in self.facts(one, attribute) if fact.records)
        for condition in query.conditions:
            allowed = self._allowed(condition)
            for fact in self.facts(one, condition.attribute):
                if fact.records and self._meets(fact.value, condition, allowed):
                    yield fact
                    yield from self._of_whom(fact.value, condition)
            if condition.of is not None:
                yield from self.support(condition.of, condition.of_attribute)
        if query.order is not None:
            for name in ORDER_ATTRIBUTES[query.order]:
                yield from self.facts(one, name)

    def _of_whom(self, person: Value, condition: Condition) -> Iterator[LedgerFact]:
        """Yield what the contacts say of a person, as far as the condition asks for it."""
        for asked in condition.who:
            yield from self.facts(self.ledger.happenings[str(person)], asked.attribute)

    def needed_records(self, query: Find, attribute: str) -> list[str]:
        """The records without any one of which the answer does not follow."""
        right = self.answer(query, attribute)
        records = dict.fromkeys(name for fact in self.support(query, attribute) for name in fact.records)
        views = ((name, LedgerView(ledger=self.ledger, lost=frozenset({name}))) for name in records)
        return [name for name, view in views if view.answer(query, attribute) != right]

    def rivals(self, query: Find) -> int:
        """How many happenings of the kind meet all conditions but one, and so look like the right one."""
        right = {one.id for one in self.find(query)}
        looser: Iterable[Find] = (
            Find(kind=query.kind, conditions=tuple(c for c in query.conditions if c is not left), order=None)
            for left in query.conditions
        )
        return len({one.id for loose in looser for one in self.find(loose)} - right)


@lru_cache(maxsize=10_000)
def month_of(at: float) -> int:
    """The month of a moment, from 1."""
    return datetime.fromtimestamp(at, tz=UTC).month
