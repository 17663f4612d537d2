"""Questions over a generated inbox, each with its answer and the mails that it follows from.

A question names a person and a topic by another word than the mails do, or a topic and a month by the mails' own word.
Every question is verified over the ledger of what mails state: its sources alone give the answer, and without any one
of them the answer is another or none. Quotes and forwarded copies count as the mail that they copy.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeAlias

from wanderlust_inbox.corpus import Corpus, InboxPlan, StatedValue
from wanderlust_inbox.language import (
    ATTRIBUTES,
    MONTHS,
    Attribute,
    Part,
    bare_answer,
    phrases,
    topics,
    wording,
)

KIND_SHARES: Mapping[str, float] = {
    "lookup": 0.2,
    "moved": 0.23,
    "month": 0.12,
    "topic": 0.08,
    "hop": 0.14,
    "sum": 0.08,
    "unanswerable": 0.15,
}
"""Share of each kind among the questions of training.

lookup: one mail states it. moved: a later mail replaces it. month: the person had the topic in several months. topic:
topic and month are named, and nobody. hop: one person names another, who states it. sum: two instalments.
unanswerable: no mail states it.
"""
HELD_OUT_KINDS = ("hop-moved", "sum-moved")
"""Kinds that training never has: the two hops, or the sum, with a value that is replaced later."""

Key: TypeAlias = tuple[str, int]
"""A person's last name and a topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is asked, apart from its wording."""

    kind: str
    attribute: Attribute
    topic: int
    person: str = ""
    month: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxQuestion:
    """A question with its answer; `answer` is empty where no mail has it."""

    id: str
    text: str
    kind: str
    answer: str
    sources: tuple[str, ...]


class Ledger:
    """What mails state, by person and topic, in the order of time."""

    def __init__(self, statements: Sequence[StatedValue]):
        self.by_key: dict[Key, list[StatedValue]] = defaultdict(list)
        self.by_month: dict[tuple[int, int], list[StatedValue]] = defaultdict(list)
        for one in sorted(statements, key=lambda one: (one.date, one.mail)):
            self.by_key[one.person, one.topic].append(one)
            self.by_month[one.topic, one.month].append(one)

    def resolve(self, query: Query, *, allowed: Callable[[str], bool] = lambda _: True) -> tuple[str, list[str]]:
        """The answer, and the mails it follows from; empty where there is none, or where it is not the only one.

        Mails for which `allowed` is false count as missing.
        """
        if query.kind == "topic":
            lines = self.by_month.get((query.topic, query.month), [])
        else:
            lines = self.by_key.get((query.person, query.topic), [])
        lines = [one for one in lines if allowed(one.mail) and query.month in (0, one.month)]
        if query.kind.startswith("sum"):
            return _total(lines)
        if query.kind.startswith("hop"):
            who, mails = _latest(lines, "who")
            last = who.rpartition(" ")[2]
            there = [one for one in self.by_key.get((last, query.topic), []) if who and allowed(one.mail)]
            value, more = _latest(there, query.attribute)
            return (value, mails + more) if value else ("", [])
        return _latest(lines, query.attribute)


def _latest(lines: Sequence[StatedValue], attribute: Attribute) -> tuple[str, list[str]]:
    """The newest value of an attribute in one occasion."""
    stated = [one for one in lines if one.attribute == attribute and not one.part]
    if not stated or len({one.occasion for one in stated}) > 1:
        return "", []
    return stated[-1].value, [stated[-1].mail]


def _total(lines: Sequence[StatedValue]) -> tuple[str, list[str]]:
    """The sum of the newest amounts of all instalments of one occasion."""
    newest = {one.part: one for one in lines if one.part}
    if not newest or len({one.occasion for one in lines if one.part}) > 1:
        return "", []
    total = sum(int(one.value.split()[0]) for one in newest.values())
    return f"{total} EUR", [one.mail for one in newest.values()]


def is_verified(ledger: Ledger, query: Query) -> bool:
    """Whether the answer follows from its sources alone, and from no set of mails without one of them."""
    answer, sources = ledger.resolve(query)
    if not answer or ledger.resolve(query, allowed=lambda mail: mail in sources)[0] != answer:
        return False
    return all(
        bare_answer(ledger.resolve(query, allowed=partial(str.__ne__, mail))[0]) != bare_answer(answer)
        for mail in sources
    )


def make_questions(corpus: Corpus, plan: InboxPlan, *, count: int, held_out_kinds: bool = False) -> list[InboxQuestion]:
    """At most `count` verified questions of a plan's corpus, by the shares of their kinds; always the same ones."""
    rng, ledger = Random(f"questions/{plan.name}/{held_out_kinds}"), Ledger(corpus.ledger)
    texts = {mail.id: set(re.findall("[a-z]+", f"{mail.subject} {mail.new_text}".lower())) for mail in corpus.mails}
    pools: dict[str, list[Query]] = defaultdict(list)
    for query in _candidates(corpus, ledger, rng):
        pools[query.kind].append(query)
    shares = dict.fromkeys(HELD_OUT_KINDS, 0.5) if held_out_kinds else KIND_SHARES
    made: list[InboxQuestion] = []
    for kind, share in shares.items():
        pool = pools[kind]
        rng.shuffle(pool)
        for query in pool[: round(count * share)]:
            answer, sources = ledger.resolve(query)
            said = set[str]().union(*(texts[mail] for mail in sources))
            if (text := _worded(query, ledger, said=said, rng=rng, wordings=plan.wordings)) is not None:
                name = f"{kind}-{len(made)}"
                made.append(InboxQuestion(id=name, text=text, kind=kind, answer=answer, sources=tuple(sources)))
    rng.shuffle(made)
    return made


def _candidates(corpus: Corpus, ledger: Ledger, rng: Random) -> Iterator[Query]:
    """Every question that can be asked, and as many without an answer."""
    for (person, topic), lines in list(ledger.by_key.items()):
        months = sorted({one.month for one in lines})
        for attribute in ATTRIBUTES:
            yield from _of_key(ledger, Query(kind="lookup", attribute=attribute, topic=topic, person=person), months)
        missing = [one for one in ATTRIBUTES if one not in {line.attribute for line in lines}]
        if len({one.occasion for one in lines}) == 1 and missing:
            yield Query(kind="unanswerable", attribute=rng.choice(missing), topic=topic, person=person)
    for (topic, month), lines in list(ledger.by_month.items()):
        if len({one.occasion for one in lines}) == 1:
            for attribute in ATTRIBUTES:
                query = Query(kind="topic", attribute=attribute, topic=topic, month=month)
                if is_verified(ledger, query):
                    yield query
    for one in corpus.people:
        silent = [topic for topic in one.topics if (one.last, topic) not in ledger.by_key]
        for topic in rng.sample(silent, min(2, len(silent))):
            yield Query(kind="unanswerable", attribute=rng.choice(ATTRIBUTES), topic=topic, person=one.last)


def _of_key(ledger: Ledger, query: Query, months: Sequence[int]) -> Iterator[Query]:
    """The verified questions about a person, a topic and an attribute."""
    person, topic, attribute = query.person, query.topic, query.attribute
    lines = ledger.by_key[person, topic]
    if len(months) > 1:
        for month in months:
            asked = Query(kind="month", attribute=attribute, topic=topic, person=person, month=month)
            if is_verified(ledger, asked):
                yield asked
        return
    moved = any(one.moved for one in lines if one.attribute == attribute)
    if attribute == "amount" and any(one.part for one in lines):
        asked = Query(kind="sum-moved" if moved else "sum", attribute=attribute, topic=topic, person=person)
    else:
        asked = Query(kind="moved" if moved else "lookup", attribute=attribute, topic=topic, person=person)
    if is_verified(ledger, asked):
        yield asked
    if attribute != "who":
        hop = Query(kind="hop", attribute=attribute, topic=topic, person=person)
        if is_verified(ledger, hop):
            replaced = _is_replaced(ledger, hop)
            yield Query(kind="hop-moved", attribute=attribute, topic=topic, person=person) if replaced else hop


def _is_replaced(ledger: Ledger, query: Query) -> bool:
    """Whether a mail that a question of two hops follows from replaces another value."""
    _, sources = ledger.resolve(query)
    return any(one.moved for lines in ledger.by_key.values() for one in lines if one.mail in sources)


def _worded(query: Query, ledger: Ledger, *, said: set[str], rng: Random, wordings: Part) -> str | None:
    """The question in words; None where all words for its topic stand in its mails, which say `said`.

    Where topic and month are all that is named, the topic's word is that of the mails.
    """
    base = query.kind.partition("-")[0]
    key = {"sum": "ask.sum", "hop": f"ask.{query.attribute}.hop"}.get(base, f"ask.{query.attribute}")
    if query.kind in ("month", "topic"):
        sentences: Sequence[str] = phrases(f"train.{key}.{query.kind}")
    else:
        sentences = wording(key, wordings)
    if query.kind == "topic":
        word = ledger.by_month[query.topic, query.month][0].word
    else:
        used = said or {one.word for one in ledger.by_key.get((query.person, query.topic), [])}
        words = [one for one in topics()[query.topic] if one not in used]
        if not words:
            return None
        word = rng.choice(words)
    month = MONTHS[query.month - 1] if query.month else ""
    return rng.choice(sentences).format(c=word, p=query.person, m=month)
