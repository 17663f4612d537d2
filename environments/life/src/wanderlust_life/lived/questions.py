"""Questions found in a life: joins over the ledger describe a happening or a person until nothing else is meant.

Each has one answer, which the ledger proves; without any one of the records that are listed as needed it does not
follow. Nothing is planted. No rare word of a request stands in a record that the answer needs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from random import Random

from wanderlust_life.lived.facts_ledger import ATTRIBUTE_TYPES, Happening, LedgerFact, Value
from wanderlust_life.lived.lived_universe import LivedUniverse
from wanderlust_life.lived.queries import Condition, Find, LedgerView, Order, month_of
from wanderlust_life.lived.question_words import PRICED, WORDS
from wanderlust_life.lived.records import LifeRecord, records_of
from wanderlust_life.lived.request_texts import RequestText, chain_of, request_text
from wanderlust_life.universes.generate import UNIVERSE_CACHE_ENTRIES
from wanderlust_life.universes.people import Person

RARE_RECORDS = 5
"""A word is rare that stands in at most so many records of a life."""
FEWEST_NEEDED = 2
"""Records that a question needs at least."""
TRIED_HAPPENINGS, TRIED_LINKS, TRIED_DESCRIPTIONS = 40, 8, 60
LINK_TYPES = ("person", "place", "day", "topic")
"""Types of values that lead from one happening to another."""
NUMEROUS_TIES = ("friend", "colleague", "neighbour")
"""Ties that many people have."""
FEWEST_ALIKE = 3
"""People at least whom a description of somebody fits: a rarer one would be as good as a name to search for."""
FLAGS = ("canceller", "mover", "reason", "verdict")
ORDERS: tuple[Order, ...] = ("first", "last", "cheapest", "dearest")
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeQuestion:
    """A question that has exactly one answer."""

    query: Find
    attribute: str
    text: RequestText
    """The sentences that lead to the happening, or to the person."""
    answer: Value
    happening: Happening
    needed: tuple[str, ...]
    """The records without any one of which the answer does not follow."""
    answer_facts: tuple[LedgerFact, ...]
    """The facts that state the answer itself."""
    named: frozenset[str]
    """Ids of the firms that the request names."""
    rivals: int
    """Happenings that meet all conditions of a description but one."""

    @property
    def messages(self) -> Sequence[str]:
        """The whole question, in one message or two."""
        return self.text.messages(WORDS[self.query.kind, self.attribute].asks.format(self.text.what))

    @property
    def apps(self) -> frozenset[str]:
        """The apps of the records that are needed."""
        return frozenset(name.partition("/")[0] for name in self.needed)


def small_words(text: str) -> set[str]:
    """The words of a text, in lower case."""
    return {word.lower() for word in _WORD.findall(text)}


def traits_of(person: Person) -> Iterator[tuple[Condition, ...]]:
    """Yield what a request may say of a person: the tie, the town, the job, or two of these. Nothing of firms."""
    if not person.last:
        return
    tie = Condition(attribute="tie", value=person.tie)
    yield (tie,)
    if person.tie in NUMEROUS_TIES:
        town, job = (
            Condition(attribute=name, value=value) for name, value in (("town", person.city), ("job", person.job))
        )
        yield from ((town,), (job,), (tie, town), (tie, job))


@lru_cache(maxsize=UNIVERSE_CACHE_ENTRIES)
def records_and_words(universe: LivedUniverse) -> tuple[Mapping[str, LifeRecord], Mapping[str, int]]:
    """The records of a universe, and in how many of them each word stands."""
    records = records_of(universe)
    return records, Counter(word for one in records.values() for word in small_words(one.text))


class QuestionFinder:
    """Finds questions in a universe, by draws of its own: equal draws, equal questions."""

    def __init__(self, universe: LivedUniverse, rng: Random):
        self.universe, self.rng, self.view = universe, rng, LedgerView(ledger=universe.ledger)
        self.names = {one.id: one.name for one in universe.people.values()}
        self._alike = Counter(who for one in universe.people.values() for who in traits_of(one))

    def question(
        self, kind: str, attribute: str, *, joins: int, only: Iterable[Happening] | None = None
    ) -> LifeQuestion | None:
        """A question for an attribute of a kind of happening (of those in `only`) with so many joins.

        Where there is none with so many, one with fewer, but at least one; None where there is none.
        """
        asked = [one for one in only or self.universe.ledger.of_kind(kind) if len(self._distinct(one, attribute)) == 1]
        for count in range(joins, 0, -1):
            for one in self.rng.sample(asked, min(len(asked), TRIED_HAPPENINGS)):
                query = self.describe(one, count, avoid=frozenset({attribute}))
                found = self.checked(query, attribute) if query is not None else None
                if found is not None:
                    return found
        return None

    def _distinct(self, one: Happening, attribute: str) -> set[Value]:
        return set(self.view.values(one, attribute))

    # Descriptions

    def describe(
        self, one: Happening, joins: int, *, avoid: frozenset[str], kinds: tuple[str, ...] = ()
    ) -> Find | None:
        """A query that finds this happening alone, by so many joins; `kinds` are those of the queries around it."""
        links: Sequence[tuple[Condition, ...]] = [()]
        if joins:
            links = [(link,) for link in self._links(one, joins, avoid=avoid, kinds=kinds)]
        for link in links:
            if one.kind == "person":
                return Find(kind="person", conditions=link)
            taken = {condition.attribute for condition in link}
            for extra, order in self._additions(one, avoid=avoid | taken):
                if not link and not extra:
                    continue
                query = Find(kind=one.kind, conditions=(*link, *extra), order=order)
                if [found.id for found in self.view.find(query)] == [one.id]:
                    return query
        return None

    def _links(
        self, one: Happening, joins: int, *, avoid: frozenset[str], kinds: tuple[str, ...]
    ) -> Iterator[Condition]:
        """Yield conditions by which another happening leads to this one."""
        facts: list[LedgerFact] = self.view.facts(one, "self") if one.kind == "person" else one.facts
        tried = 0
        for fact in self.rng.sample(facts, len(facts)):
            kind = ATTRIBUTE_TYPES[fact.attribute]
            said = one.kind == "person" or bool(WORDS.get((one.kind, fact.attribute), WORDS["person", "town"]).when)
            if kind not in LINK_TYPES or fact.attribute in avoid or not said:
                continue
            others = (
                [
                    other
                    for other in self.universe.ledger.by_value[kind, fact.value]
                    if other.about != one.id
                    and (around := self.universe.ledger.happenings[other.about].kind) not in (*kinds, one.kind)
                    and (around, other.attribute) in WORDS
                    and WORDS[around, other.attribute].of
                ]
                if (kind, fact.value) in self.universe.ledger.by_value
                else []
            )
            for other in self.rng.sample(others, min(len(others), 3)):
                if (tried := tried + 1) > TRIED_LINKS:
                    return
                from_one = self.universe.ledger.happenings[other.about]
                inner = self.describe(from_one, joins - 1, avoid=frozenset({other.attribute}), kinds=(*kinds, one.kind))
                if inner is not None and self.view.answer(inner, other.attribute) == fact.value:
                    yield Condition(attribute=fact.attribute, of=inner, of_attribute=other.attribute)

    def _additions(
        self, one: Happening, *, avoid: frozenset[str]
    ) -> Iterator[tuple[tuple[Condition, ...], Order | None]]:
        """Yield plain conditions and orders that fit a happening, few before many."""
        plain = [condition for condition in self._plain(one) if condition.attribute not in avoid]
        orders: list[Order | None] = [order for order in ORDERS if self._may_order(one, order, avoid)]
        self.rng.shuffle(plain)
        self.rng.shuffle(orders)
        tried = 0
        for size in range(3):
            for chosen in combinations(plain, size):
                if len({condition.attribute for condition in chosen}) < size:
                    continue
                if sum(bool(condition.who) for condition in chosen) > 1:
                    continue
                for order in (None, *orders):
                    if (tried := tried + 1) > TRIED_DESCRIPTIONS:
                        return
                    yield chosen, order

    def _may_order(self, one: Happening, order: Order, avoid: frozenset[str]) -> bool:
        if order in ("cheapest", "dearest") and (one.kind not in PRICED or ("amount" in avoid and one.kind != "ride")):
            return False
        return self.view.rank(one, order) is not None

    def _plain(self, one: Happening) -> Iterator[Condition]:
        """Yield conditions that a happening meets by itself. People are described, firms are named."""
        for fact in one.facts:
            if fact.attribute in ("day", "said"):
                yield Condition(attribute=fact.attribute, month=month_of(float(fact.value)))
                continue
            words = WORDS.get((one.kind, fact.attribute))
            if words is None:
                continue
            if words.any:
                yield Condition(attribute=fact.attribute)
            if words.when and ATTRIBUTE_TYPES[fact.attribute] == "person":
                person = self.universe.people[str(fact.value)]
                if not person.last:
                    yield Condition(attribute=fact.attribute, value=fact.value)
                else:
                    yield from (
                        Condition(attribute=fact.attribute, who=who)
                        for who in traits_of(person)
                        if self._alike[who] >= FEWEST_ALIKE or person.tie not in NUMEROUS_TIES
                    )

    # Proofs

    def checked(self, query: Find, attribute: str) -> LifeQuestion | None:
        """The question of a query, where its answer needs several records and shares no rare word with them."""
        answer = self.view.answer(query, attribute)
        needed = self.view.needed_records(query, attribute)
        if answer is None or len(needed) < FEWEST_NEEDED:
            return None
        text = request_text(query, self.names, self.rng)
        story = text.story
        records, counts = records_and_words(self.universe)
        support = {name for fact in self.view.support(query, attribute) for name in fact.records}
        most = min(RARE_RECORDS, max(2, len(records) // 300))
        rare = {word for word in small_words(story) if counts[word] <= most}
        told = self.names.get(str(answer), answer)
        if any(rare & small_words(records[name].text) for name in support) or str(told).lower() in story.lower():
            return None
        chain = list(chain_of(query))
        return LifeQuestion(
            query=query,
            attribute=attribute,
            text=text,
            answer=answer,
            happening=self.view.find(query)[0],
            needed=tuple(needed),
            answer_facts=tuple(self.view.facts(self.view.find(query)[0], attribute)),
            named=frozenset(str(c.value) for one in chain for c in one.conditions if c.value is not None),
            rivals=sum(self.view.rivals(one) for one in chain),
        )
