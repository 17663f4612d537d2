"""Words by which questions name happenings and their values. The records themselves need not have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from wanderlust_life.lived.queries import Order


class AttributeWords(NamedTuple):
    """Ways of speaking of an attribute; `{}` is the happening in `of` and `asks`, else the value."""

    lead: str = ""
    """A sentence that introduces the happening by the value: "{} suggested a meal out"."""
    when: str = ""
    """The same after a sentence that has introduced it: "that {} suggested"."""
    of: str = ""
    """The value itself: "whoever suggested {}"."""
    any: str = ""
    """That the happening has a value: "and the meal was called off"."""
    asks: str = ""
    """The question for the value."""


class KindWords(NamedTuple):
    """Ways of speaking of a kind of happening."""

    family: str
    """The kind in the description of a family."""
    lead: str
    """A sentence that says that there was one."""
    that: str
    """The word for one that was named before: "that meal"."""
    several: str
    """The word for several of the kind."""
    month: str = "in {}"
    """That its day is in a month."""


KINDS: Mapping[str, KindWords] = {
    "meal": KindWords("meal out", "There was to be a meal out", "that meal", "such meals"),
    "appointment": KindWords("appointment", "I had an appointment", "that appointment", "such appointments"),
    "bill": KindWords("bill", "I got a bill", "that bill", "such bills", "for work done in {}"),
    "meeting": KindWords("meeting at work", "There was to be a meeting at work", "that meeting", "such meetings"),
    "handover": KindWords(
        "change of hands at work",
        "A task at work was passed on",
        "that task",
        "such tasks",
        "as of a day in {}",
    ),
    "order": KindWords("order in a shop", "I ordered something", "that order", "such orders"),
    "ride": KindWords("cab ride", "I took a cab", "that ride", "such rides"),
    "loan": KindWords(
        "loan of something of mine", "Somebody wanted to borrow something of mine", "that loan", "such loans"
    ),
    "advice": KindWords(
        "book recommendation", "A book was recommended to me", "that recommendation", "such recommendations"
    ),
    "trip": KindWords("short journey", "A short journey was booked", "that journey", "such journeys", "to begin in {}"),
    "collection": KindWords(
        "collection for a present",
        "There was a collection for a present",
        "that collection",
        "such collections",
        "ending in {}",
    ),
    "favour": KindWords("favour", "I was asked for a favour", "that favour", "such favours", "to begin in {}"),
    "referral": KindWords("tip whom to go to", "I was given the name of somebody to go to", "that name", "such names"),
    "party": KindWords("birthday party", "I was invited to a birthday party", "that party", "such parties"),
    "parcel": KindWords("parcel next door", "A parcel for me was taken in next door", "that parcel", "such parcels"),
    "viewing": KindWords("flat viewing", "I was to view a flat", "that viewing", "such viewings"),
    "course": KindWords(
        "club evening that fell through", "A club evening fell through", "that evening", "such evenings"
    ),
}
W = AttributeWords
WORDS: Mapping[tuple[str, str], AttributeWords] = {
    ("meal", "proposer"): W(
        "{} suggested a meal out", "that {} suggested", "whoever suggested {}", asks="Who suggested {}?"
    ),
    ("meal", "present"): W("{} was invited to a meal out", "that {} was invited to"),
    ("meal", "place"): W(
        "There was to be a meal out at {}", "at {}", "the place where {} was to be", asks="Where was {} to be?"
    ),
    ("meal", "day"): W(
        "There was to be a meal out on {}", "on {}", "the day of {}", asks="For which day was {} fixed in the end?"
    ),
    ("meal", "canceller"): W(
        "{} called off a meal out",
        "that {} called off",
        "whoever called off {}",
        "and the meal was called off",
        "Who cancelled {}?",
    ),
    ("meal", "mover"): W(
        "{} had a meal out put off",
        "that {} had put off",
        "whoever had {} put off",
        "and the meal was put off",
        "Who had {} put off?",
    ),
    ("meal", "payer"): W("{} paid for a meal out", "that {} paid for", "whoever paid for {}", asks="Who paid for {}?"),
    ("meal", "amount"): W(asks="What was the total bill for {}?"),
    ("meal", "reason"): W(asks="What was the excuse for changing {}?"),
    ("appointment", "provider"): W(
        "I had an appointment with {}",
        "with {}",
        "the person whom I was to see at {}",
        asks="Whom was I to see at {}?",
    ),
    ("appointment", "place"): W(
        "I had an appointment at {}", "at {}", "the address of {}", asks="At which address was {}?"
    ),
    ("appointment", "day"): W(
        "I had an appointment on {}", "on {}", "the day of {}", asks="For which day was {} fixed in the end?"
    ),
    ("appointment", "number"): W(asks="What is its booking number?"),
    ("appointment", "reason"): W(any="and the appointment was put off", asks="Why was {} put off?"),
    ("bill", "issuer"): W("I got a bill from {}", "from {}", "whoever sent {}", asks="Who sent {}?"),
    ("bill", "day"): W("I got a bill for work done on {}", "for work done on {}", "the day of the work on {}"),
    ("bill", "amount"): W(asks="How much is {}?"),
    ("bill", "due"): W(asks="By which day is {} to be paid?"),
    ("bill", "number"): W(asks="What is its number?"),
    ("meeting", "organiser"): W(
        "{} asked for a meeting at work", "that {} asked for", "whoever asked for {}", asks="Who asked for {}?"
    ),
    ("meeting", "attendee"): W("{} was to attend a meeting at work", "that {} was to attend"),
    ("meeting", "topic"): W(
        "There was to be a meeting at work about {}", "about {}", "the subject of {}", asks="What was {} about?"
    ),
    ("meeting", "place"): W(asks="In which room was {} to be?"),
    ("meeting", "day"): W(
        "There was to be a meeting at work on {}",
        "on {}",
        "the day of {}",
        asks="For which day was {} fixed in the end?",
    ),
    ("meeting", "writer"): W(
        "{} wrote up a meeting at work", "that {} wrote up", "whoever wrote up {}", asks="Who wrote {} up?"
    ),
    ("meeting", "canceller"): W(any="and the meeting was dropped"),
    ("meeting", "mover"): W(any="and the meeting was shifted"),
    ("meeting", "reason"): W(asks="What was the excuse for changing {}?"),
    ("handover", "giver"): W("{} passed on a task at work", "from {}", "whoever gave up {}", asks="Who gave it up?"),
    ("handover", "taker"): W(
        "A task at work was passed on to {}", "to {}", "whoever took over {}", asks="Who took it over?"
    ),
    ("handover", "topic"): W(
        "A task at work was passed on that was about {}",
        "that was about {}",
        "the subject of {}",
        asks="Which task was it?",
    ),
    ("handover", "day"): W(
        "A task at work was passed on as of {}",
        "as of {}",
        "the day as of which {} was passed on",
        asks="As of which day was it passed on?",
    ),
    ("order", "shop"): W("I ordered something from {}", "from {}", "the shop of {}", asks="Which shop was {} from?"),
    ("order", "adviser"): W(
        "I ordered something that {} had advised", "that {} had advised", "whoever advised {}", asks="Who advised {}?"
    ),
    ("order", "receiver"): W(
        "I ordered something as a present for {}",
        "as a present for {}",
        "the person whom {} was meant for",
        asks="Whom was {} meant for?",
    ),
    ("order", "teller"): W(
        "{} had the idea for something that I ordered",
        "that {} had the idea for",
        "whoever had the idea for {}",
        asks="Who had the idea for {}?",
    ),
    ("order", "thing"): W(asks="What did I buy?"),
    ("order", "amount"): W(asks="What did {} cost in all?"),
    ("order", "number"): W(asks="What is its number?"),
    ("order", "day"): W("I ordered something on {}", "on {}", "the day of {}", asks="On which day did I order it?"),
    ("ride", "place"): W("I took a cab to {}", "to {}", "the destination of {}", asks="Where did {} go?"),
    ("ride", "day"): W("I took a cab on {}", "on {}", "the day of {}", asks="On which day was {}?"),
    ("ride", "amount"): W(asks="How much did {} cost?"),
    ("loan", "borrower"): W(
        "{} asked to borrow something of mine", "for {}", "whoever asked for {}", asks="Who asked for {}?"
    ),
    ("loan", "thing"): W(asks="Which thing was {} about?"),
    ("loan", "due"): W(
        "Somebody wanted to borrow something of mine until {}",
        "until {}",
        "the day on which {} was to end",
        asks="On which day was {} to end?",
    ),
    ("advice", "adviser"): W("{} recommended a book to me", "by {}", "whoever gave me {}"),
    ("advice", "work"): W(asks="Which book was it?"),
    ("advice", "verdict"): W(any="and I read it", asks="In a word, what did I think of it afterwards?"),
    ("trip", "companion"): W(
        "A short journey was booked with {}", "with {}", "my companion on {}", asks="Who is my companion on {}?"
    ),
    ("trip", "place"): W(asks="Where did {} lead?"),
    ("trip", "day"): W(
        "A short journey was booked to begin on {}",
        "to begin on {}",
        "the first day of {}",
        asks="On which day does {} begin?",
    ),
    ("trip", "amount"): W(asks="What did the rooms cost in all?"),
    ("trip", "number"): W(asks="What is its booking number?"),
    ("collection", "asker"): W(
        "{} began a collection for a present", "that {} began", "whoever began {}", asks="Who began {}?"
    ),
    ("collection", "helper"): W(
        "{} was the first to join a collection for a present",
        "that {} joined first",
        "whoever joined {} first",
        asks="Who first joined {}?",
    ),
    ("collection", "receiver"): W(
        "There was a collection for a present for {}",
        "for {}",
        "the person whom {} was for",
        asks="Whom was {} for?",
    ),
    ("collection", "thing"): W(asks="What was to be bought with {}?"),
    ("collection", "amount"): W(asks="How much was each to pay for {}?"),
    ("collection", "day"): W(
        "There was a collection for a present ending on {}",
        "ending on {}",
        "the last day of {}",
        asks="On which day did {} end?",
    ),
    ("favour", "asker"): W("{} asked me for a favour", "by {}", "whoever wanted {}", asks="Who wanted {}?"),
    ("favour", "keeper"): W(
        "{} had the key when I was asked for a favour",
        "for which {} had the key",
        "the neighbour with the key for {}",
        asks="Who had the key for {}?",
    ),
    ("favour", "task"): W(asks="What did {} consist of?"),
    ("favour", "day"): W(
        "I was asked for a favour to begin on {}",
        "to begin on {}",
        "the first day of {}",
        asks="On which day did {} begin?",
    ),
    ("referral", "adviser"): W("{} gave me the name of somebody to go to", "by {}", "whoever gave me {}"),
    ("referral", "provider"): W(
        "{} was named to me as somebody to go to",
        "namely {}",
        "the person whose name I was given",
        asks="Whose name was it?",
    ),
    ("party", "host"): W("{} invited me to a birthday party", "by {}", "the host of {}", asks="Whose party was {}?"),
    ("party", "place"): W(
        "I was invited to a birthday party at {}", "at {}", "the place where {} was to be", asks="Where was {}?"
    ),
    ("party", "day"): W(
        "I was invited to a birthday party on {}", "on {}", "the day of {}", asks="On which day was {}?"
    ),
    ("party", "thing"): W(asks="What did I want to bring to {}?"),
    ("parcel", "helper"): W(
        "{} signed for a parcel of mine", "by {}", "whoever signed for {}", asks="Who signed for {}?"
    ),
    ("parcel", "shop"): W(
        "A parcel from {} was taken in next door", "sent by {}", "the shop that sent {}", asks="Which firm sent {}?"
    ),
    ("viewing", "companion"): W(
        "{} heard from me about a flat viewing", "that {} heard about from me", "whoever heard from me about {}"
    ),
    ("viewing", "place"): W(asks="What is the flat called?"),
    ("viewing", "amount"): W(asks="What is the rent of the flat?"),
    ("viewing", "day"): W("I was to view a flat on {}", "on {}", "the day of {}", asks="On which day was {}?"),
    ("viewing", "verdict"): W(asks="In a word, what did I think of the flat after {}?"),
    ("course", "organiser"): W(
        "A club evening of {} fell through", "at {}", "the club of {}", asks="Which club had {}?"
    ),
    ("course", "thing"): W(asks="What would {} have been about?"),
    ("course", "day"): W("A club evening fell through on {}", "on {}", "the day of {}"),
    ("course", "reason"): W(asks="Why did {} fall through?"),
    ("person", "town"): W(asks="Where does {} live? The town will do."),
    ("person", "phone"): W(asks="What is the phone number of {}?"),
    ("person", "job"): W(asks="What is the job of {}?"),
}
PRICED = frozenset({"meal", "ride", "order", "bill", "trip", "viewing"})
"""Kinds of which one can be the cheapest."""
ORDER_WORDS: Mapping[Order, str] = {
    "first": "earliest",
    "last": "latest",
    "cheapest": "cheapest",
    "dearest": "most expensive",
}
