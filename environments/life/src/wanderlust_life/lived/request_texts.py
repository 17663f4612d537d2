"""Requests as somebody would write them: what happened, one sentence after the other, then what is wanted of it.

What distinguishes a happening from others may come in a second message.
"""

from __future__ import annotations

from calendar import month_name
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from wanderlust_life.lived.facts_ledger import ATTRIBUTE_TYPES, Value, ValueType
from wanderlust_life.lived.queries import Condition, Find
from wanderlust_life.lived.question_words import KINDS, ORDER_WORDS, WORDS
from wanderlust_life.universes.people import FAMILY_GENDERS, SERVICE_JOBS

ORDERS_SHORT = "{text} (the {order} of several)."
ORDERS_LONG = ("{text}. I mean the {order} one.", "{text}. There were several {such}; I mean the {order} one.")
DETAILS = (
    "There were several {such}: I mean the {} one.",
    "The {} one, that is, not one of the others.",
    "Sorry, there were several {such}. The {} one, please.",
)
SAME: Mapping[ValueType, str] = {"day": "the same day", "place": "the same place", "topic": "the same subject"}
"""A value that the sentence before was about."""
SAME_KINDS = ("meal", "appointment", "meeting", "ride", "order", "party", "viewing", "course")
"""Kinds with one day and one place, so that the same ones are clear."""
MONTH_DETAILS = ("I mean the one {}.", "The one {}, that is, not another one.")
LONG_JOINS = 3
"""From so many joins on, a request comes in two messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestText:
    """The sentences of a request, all but what is wanted in the end."""

    context: tuple[str, ...]
    """Sentences of a message before; none where all is in one."""
    sentences: tuple[str, ...]
    what: str
    """The word for what is asked about: it, or whoever did something."""
    detail: str = ""
    """A message after: what distinguishes the happening from others."""

    @property
    def story(self) -> str:
        """All sentences."""
        return " ".join(filter(None, (*self.context, *self.sentences, self.detail)))

    def messages(self, wanted: str) -> Sequence[str]:
        """The messages of a request with its last sentence."""
        middle = " ".join((*self.sentences, wanted))
        return tuple(filter(None, (" ".join(self.context), middle, self.detail)))


def request_text(query: Find, names: Mapping[str, str], rng: Random) -> RequestText:
    """A request for what a query finds; `names` are those of firms by their ids. Equal draws, equal requests."""
    chain = list(chain_of(query))
    values: dict[Find, str] = {}
    for outer, one in pairwise(chain):
        attribute = next(condition.of_attribute for condition in outer.conditions if condition.of is one)
        same = SAME.get(ATTRIBUTE_TYPES[attribute]) if one.kind in SAME_KINDS or attribute == "topic" else None
        plain = WORDS[one.kind, attribute].of.format(KINDS[one.kind].that)
        values[one] = same if same and rng.random() < 0.6 else plain
    steps = [_sentences(one, values, names=names, rng=rng) for one in reversed(chain[1:])]
    what, detail, last = "it", "", list[str]()
    if query.kind == "person":
        what = values[chain[1]]
    else:
        can_follow = query.order is not None or any(one.month for one in query.conditions)
        left = can_follow and rng.random() < 0.5
        last = _sentences(query, values, names=names, rng=rng, whole=not left)
        detail = _detail(query, rng) if left else ""
    context: list[str] = []
    if query.joins >= LONG_JOINS and (not detail or query.joins > LONG_JOINS):
        half = len(steps) // 2
        context, steps = [one for step in steps[:half] for one in step], steps[half:]
    sentences = [one for step in steps for one in step] + last
    return RequestText(context=tuple(context), sentences=tuple(sentences), what=what, detail=detail)


def chain_of(query: Find) -> Iterator[Find]:
    """Yield a query, the query inside it, and so on."""
    yield query
    for condition in query.conditions:
        if condition.of is not None:
            yield from chain_of(condition.of)


def _sentences(
    query: Find, values: Mapping[Find, str], *, names: Mapping[str, str], rng: Random, whole: bool = True
) -> list[str]:
    """A happening in one text; where not `whole`, without what `_detail` says of it."""
    left = None if whole else _left_out(query)
    shown = [one for one in query.conditions if one is not left]
    led = [one for one in shown if one.of or one.value or one.who]
    first = min(led, key=lambda one: (ATTRIBUTE_TYPES[one.attribute] != "person", not one.of), default=None)
    if first is None:
        text = KINDS[query.kind].lead
    else:
        text = WORDS[query.kind, first.attribute].lead.format(_value(first, values, names))
    rest = sorted((one for one in shown if one is not first), key=_place)
    text += "".join(_phrase(query.kind, one, values, names=names) for one in rest)
    text = f"{text[0].upper()}{text[1:]}"
    if not whole or query.order is None:
        return [f"{text}."]
    way = ORDERS_SHORT if rng.random() < 0.5 else rng.choice(ORDERS_LONG)
    return [way.format(text=text, order=ORDER_WORDS[query.order], such=KINDS[query.kind].several)]


def _left_out(query: Find) -> Condition | None:
    """The condition that a second message gives, where that is no order."""
    return None if query.order is not None else next((one for one in query.conditions if one.month), None)


def _detail(query: Find, rng: Random) -> str:
    kind, month = KINDS[query.kind], _left_out(query)
    if query.order is not None:
        return rng.choice(DETAILS).format(ORDER_WORDS[query.order], such=kind.several)
    return rng.choice(MONTH_DETAILS).format(kind.month.format(month_name[(month and month.month) or 1]))


def _place(one: Condition) -> int:
    """The place of a condition in a sentence: people and places, then months, then that it was called off."""
    return 0 if one.value or one.who or one.of else 1 if one.month else 2


def _phrase(kind: str, one: Condition, values: Mapping[Find, str], *, names: Mapping[str, str]) -> str:
    if one.month is not None:
        return f" {KINDS[kind].month.format(month_name[one.month])}"
    words = WORDS[kind, one.attribute]
    if one.value or one.who or one.of:
        return f" {words.when.format(_value(one, values, names))}"
    return f", {words.any}"


def _value(one: Condition, values: Mapping[Find, str], names: Mapping[str, str]) -> Value:
    """A value as a request writes it."""
    if one.of is not None:
        return values[one.of]
    if one.who:
        return person_words({part.attribute: str(part.value) for part in one.who})
    value = one.value if one.value is not None else ""
    return names[str(value)] if ATTRIBUTE_TYPES[one.attribute] == "person" else value


def person_words(traits: Mapping[str, str]) -> str:
    """Somebody by what the contacts say: `a friend who lives in Ashford`, `my dentist`."""
    tie = traits.get("tie", "")
    own = tie in FAMILY_GENDERS or tie in SERVICE_JOBS or tie == "partner"
    who = f"my {tie}" if own else f"a {tie}" if tie else "somebody"
    if "town" in traits:
        who += f" who lives in {traits['town']}"
    if "job" in traits:
        job = traits["job"]
        who += f" who works as {'an' if job[0] in 'aeiou' else 'a'} {job}"
    return who
