"""How questions name happenings and their values, in words that the records themselves need not have."""

from __future__ import annotations

from calendar import month_name
from collections.abc import Mapping
from typing import NamedTuple

from wanderlust.worlds.life.lived.facts_ledger import ATTRIBUTE_TYPES, Value, ValueType
from wanderlust.worlds.life.lived.queries import Condition, Find, Order


class AttributeWords(NamedTuple):
    """Ways of speaking of an attribute; `{}` is the happening in `of` and `asks`, the value in `when`."""

    of: str = ""
    """The value itself: "whoever suggested {}"."""
    when: str = ""
    """The happening by its value: "that {} suggested"."""
    any: str = ""
    """The happening by that it has a value: "that was called off"."""
    asks: str = ""
    """The question for the value."""


NOUNS: Mapping[str, str] = {
    "meal": "meal out",
    "appointment": "appointment",
    "bill": "bill",
    "meeting": "meeting at work",
    "handover": "change of hands at work",
    "order": "order in a shop",
    "ride": "cab ride",
    "loan": "loan of something of mine",
    "advice": "book recommendation",
    "trip": "short journey",
    "collection": "collection for a present",
    "favour": "favour",
    "referral": "tip whom to go to",
    "party": "birthday party",
    "parcel": "parcel next door",
    "viewing": "flat viewing",
    "course": "club evening that fell through",
}
W = AttributeWords
WORDS: Mapping[tuple[str, str], AttributeWords] = {
    ("meal", "proposer"): W("whoever suggested {}", "that {} suggested", "", "Who suggested {}?"),
    ("meal", "present"): W("", "that {} was invited to", "", ""),
    ("meal", "place"): W("the venue of {}", "at {}", "", "Where was {} to be?"),
    ("meal", "day"): W("the day of {}", "on {}", "", "For which day was {} fixed in the end?"),
    ("meal", "canceller"): W("whoever called off {}", "that {} called off", "that was called off", "Who cancelled {}?"),
    ("meal", "mover"): W("whoever had {} put off", "that {} had put off", "that was put off", "Who had {} put off?"),
    ("meal", "payer"): W("whoever paid for {}", "that {} paid for", "", "Who paid for {}?"),
    ("meal", "amount"): W("", "", "", "What was the total bill for {}?"),
    ("meal", "reason"): W("", "", "", "What was the excuse for changing {}?"),
    ("appointment", "provider"): W("the person whom I was to see at {}", "with {}", "", "Whom was I to see at {}?"),
    ("appointment", "place"): W("the address of {}", "at {}", "", "At which address was {}?"),
    ("appointment", "day"): W("the day of {}", "on {}", "", "For which day was {} fixed in the end?"),
    ("appointment", "number"): W("", "", "", "What is the booking number of {}?"),
    ("appointment", "reason"): W("", "", "that was put off", "Why was {} put off?"),
    ("bill", "issuer"): W("whoever sent {}", "from {}", "", "Who sent {}?"),
    ("bill", "day"): W("the day of the work on {}", "for work done on {}", "", ""),
    ("bill", "amount"): W("", "", "", "How much is {}?"),
    ("bill", "due"): W("", "", "", "By which day is {} to be paid?"),
    ("bill", "number"): W("", "", "", "What is the number of {}?"),
    ("meeting", "organiser"): W("whoever asked for {}", "that {} asked for", "", "Who asked for {}?"),
    ("meeting", "attendee"): W("", "that {} was to attend", "", ""),
    ("meeting", "topic"): W("the subject of {}", "about {}", "", "What was {} about?"),
    ("meeting", "place"): W("", "", "", "In which room was {} to be?"),
    ("meeting", "day"): W("the day of {}", "on {}", "", "For which day was {} fixed in the end?"),
    ("meeting", "writer"): W("whoever wrote up {}", "that {} wrote up", "", "Who wrote {} up?"),
    ("meeting", "canceller"): W("", "", "that was dropped", ""),
    ("meeting", "mover"): W("", "", "that was shifted", ""),
    ("meeting", "reason"): W("", "", "", "What was the excuse for changing {}?"),
    ("handover", "giver"): W("whoever gave up a task in {}", "from {}", "", "Who gave a task up by {}?"),
    ("handover", "taker"): W("whoever got a task in {}", "to {}", "", "Who got a task by {}?"),
    ("handover", "topic"): W("the task of {}", "concerning {}", "", "Which task was {} about?"),
    ("handover", "day"): W("the day of {}", "on {}", "", "From which day does {} hold?"),
    ("order", "shop"): W("the seller of {}", "from {}", "", "Which shop was {} from?"),
    ("order", "adviser"): W("whoever advised {}", "that {} had advised", "", "Who advised {}?"),
    ("order", "receiver"): W("the person whom {} was meant for", "meant for {}", "", "Whom was {} meant for?"),
    ("order", "teller"): W("whoever had the idea for {}", "that {} had the idea for", "", "Who had the idea for {}?"),
    ("order", "thing"): W("", "", "", "What did I buy by {}?"),
    ("order", "amount"): W("", "", "", "What did {} cost in all?"),
    ("order", "number"): W("", "", "", "What is the number of {}?"),
    ("order", "day"): W("the day of {}", "placed on {}", "", "On which day was {} placed?"),
    ("ride", "place"): W("the destination of {}", "to {}", "", "Where did {} go?"),
    ("ride", "day"): W("the day of {}", "on {}", "", "On which day was {}?"),
    ("ride", "amount"): W("", "", "", "How much did {} cost?"),
    ("loan", "borrower"): W("whoever asked for {}", "to {}", "", "Who asked for {}?"),
    ("loan", "thing"): W("", "", "", "Which thing was {} about?"),
    ("loan", "due"): W("the day on which {} was to end", "until {}", "", "On which day was {} to end?"),
    ("advice", "adviser"): W("whoever gave {}", "by {}", "", ""),
    ("advice", "work"): W("", "", "", "Which book was {} about?"),
    ("advice", "verdict"): W("", "", "that I took up", "In a word, what did I think after {}?"),
    ("trip", "companion"): W("whoever began {}", "with {}", "", "Who began {}?"),
    ("trip", "place"): W("", "", "", "Where did {} lead?"),
    ("trip", "day"): W("the first day of {}", "that begins on {}", "", "On which day does {} begin?"),
    ("trip", "amount"): W("", "", "", "What did the rooms of {} cost in all?"),
    ("trip", "number"): W("", "", "", "What is the booking number of {}?"),
    ("collection", "asker"): W("whoever began {}", "that {} began", "", "Who began {}?"),
    ("collection", "helper"): W("whoever joined first in {}", "that {} joined first", "", "Who first joined {}?"),
    ("collection", "receiver"): W("the person whom {} was for", "in honour of {}", "", "Whom was {} for?"),
    ("collection", "thing"): W("", "", "", "What was to be bought with {}?"),
    ("collection", "amount"): W("", "", "", "How much was each to pay for {}?"),
    ("collection", "day"): W("the day of giving in {}", "ending on {}", "", "On which day did {} end?"),
    ("favour", "asker"): W("whoever wanted {}", "for {}", "", "Who wanted {}?"),
    ("favour", "keeper"): W(
        "the neighbour with the key for {}", "for which {} had the key", "", "Who had the key for {}?"
    ),
    ("favour", "task"): W("", "", "", "What did {} consist of?"),
    ("favour", "day"): W("the first day of {}", "beginning on {}", "", "On which day did {} begin?"),
    ("referral", "adviser"): W("whoever gave {}", "by {}", "", ""),
    ("referral", "provider"): W("the person named in {}", "that named {}", "", "Who was named in {}?"),
    ("party", "host"): W("the host of {}", "of {}", "", "Whose was {}?"),
    ("party", "place"): W("the venue of {}", "at {}", "", "Where was {}?"),
    ("party", "day"): W("the day of {}", "on {}", "", "On which day was {}?"),
    ("party", "thing"): W("", "", "", "What did I want to bring to {}?"),
    ("parcel", "helper"): W("whoever signed for {}", "that {} signed for", "", "Who signed for {}?"),
    ("parcel", "shop"): W("the sender of {}", "sent by {}", "", "Which firm sent {}?"),
    ("viewing", "companion"): W("whoever heard from me about {}", "that {} heard about from me", "", ""),
    ("viewing", "place"): W("", "", "", "What is the flat of {} called?"),
    ("viewing", "amount"): W("", "", "", "What is the rent of the flat of {}?"),
    ("viewing", "day"): W("the day of {}", "on {}", "", "On which day was {}?"),
    ("viewing", "verdict"): W("", "", "", "In a word, what did I think of the flat after {}?"),
    ("course", "organiser"): W("the club of {}", "of {}", "", "Which club had {}?"),
    ("course", "thing"): W("", "", "", "What would {} have been about?"),
    ("course", "day"): W("the day of {}", "on {}", "", ""),
    ("course", "reason"): W("", "", "", "Why was there no {}?"),
    ("person", "town"): W("", "", "", "In which town does {} live?"),
    ("person", "phone"): W("", "", "", "What is the phone number of {}?"),
    ("person", "job"): W("", "", "", "What does {} do for a living?"),
}
PRONOUNS: Mapping[ValueType, str] = {
    "person": "this person",
    "place": "this place",
    "day": "this day",
    "topic": "this subject",
}
FIRM_PRONOUNS: Mapping[tuple[str, str], str] = {
    ("order", "shop"): "this shop",
    ("parcel", "shop"): "this shop",
    ("course", "organiser"): "this club",
}
INTRODUCTIONS = ("Think of {}.", "Take {}.", "Start from {}.")
NEXT_STEPS = ("Now take {}.", "Then there is {}.", "From there go to {}.")
MONTH_WORDS: Mapping[str, str] = {
    "loan": "asked for in {}",
    "advice": "given in {}",
    "referral": "given in {}",
    "parcel": "that came in {}",
}
PRICED = frozenset({"meal", "ride", "order", "bill", "trip", "viewing"})
"""Kinds of which one can be the cheapest."""


ORDER_WORDS: Mapping[Order, str] = {
    "first": "earliest",
    "last": "latest",
    "cheapest": "cheapest",
    "dearest": "most expensive",
}


def noun_phrase(query: Find, inner: Mapping[Find, str], names: Mapping[str, str]) -> str:
    """The happening of a query in words: `inner` has the words of values that other queries find.

    `names` are the full names of people by their ids.
    """
    if query.kind == "person":
        condition = query.conditions[0]
        return inner[condition.of] if condition.of is not None else names[str(condition.value)]
    phrases = [condition_words(query.kind, one, inner, names=names) for one in query.conditions]
    order = f"{ORDER_WORDS[query.order]} " if query.order else ""
    return " ".join([f"the {order}{NOUNS[query.kind]}", *phrases])


def pronoun(kind: str, attribute: str) -> str:
    """The word for a value that was named in the sentence before."""
    return FIRM_PRONOUNS.get((kind, attribute), PRONOUNS[ATTRIBUTE_TYPES[attribute]])


def condition_words(kind: str, one: Condition, inner: Mapping[Find, str], *, names: Mapping[str, str]) -> str:
    """A condition in words."""
    if one.month is not None:
        return MONTH_WORDS.get(kind, "in {}").format(month_name[one.month])
    words = WORDS[kind, one.attribute]
    if one.of is not None:
        return words.when.format(inner[one.of])
    return words.any if one.value is None else words.when.format(value_words(one, names))


def value_words(one: Condition, names: Mapping[str, str]) -> Value:
    """A value as a request writes it."""
    value = one.value if one.value is not None else ""
    return names[str(value)] if ATTRIBUTE_TYPES[one.attribute] == "person" else value
