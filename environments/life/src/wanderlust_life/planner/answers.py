"""Answers to questions: which records are looked at, and what is read out of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from wanderlust_life.planner.desk import (
    MAX_READ,
    Desk,
    find_events,
    find_mails,
    find_messages,
    find_person,
    full_name,
    price,
    use,
    when_and_where,
)
from wanderlust_life.planner.requests import names_in, places_in, quotes_in
from wanderlust_life.planner.tools import CannotDo, Steps, words_of

MAX_SHORT_WORD = 3
"""Letters of a word that says nothing about a matter."""
ORDINARY_WORDS = {"from", "have", "that", "them", "they", "this", "what", "when", "where", "with"}
PAGE = 50
"""Rides of one page."""
TITLE = re.compile(r"(?<=[a-z] )([A-Z][\w']+(?: (?:(?:and|of|the|to|in|for|a) )*[A-Z][\w']+)+)")
ASKED_VALUES = (
    (r"^for which day|^on which day|^from which day|^when\b", r"\b\w+day, \d{1,2} [A-Z][a-z]+\b"),
    (r"how much|cost|rent|pay", r"\b[\d,]+\.\d\d EUR\b"),
    (r"number", r"\b[A-Z]-[0-9a-f]{7}\b"),
    (r"^where|which place", r"\bThe [A-Z][a-z]+ [A-Z][a-z]+\b"),
)
"""What a question asks for, and how such a value is written."""


def content_words(text: str) -> set[str]:
    """The words of more than three letters, without those that stand in any sentence."""
    return {word for word in words_of(text) - ORDINARY_WORDS if len(word) > MAX_SHORT_WORD}


def best_sentence(texts: Iterable[str], wanted: set[str]) -> str:
    """The sentence with most of these words, the first of several; empty without any."""
    sentences = [part.strip() for text in texts for part in re.split(r"(?<=[.?!])\s+|\n+", text) if part.strip()]
    return max(sentences, key=lambda one: len(content_words(one) & wanted), default="")


def note(desk: Desk, text: str) -> Steps[None]:
    """Take in a statement: who is going to write, or what people have written."""
    names = names_in(text)
    if names and re.search(r"\b(?:going to|will) (?:mail|send|write)\b", text):
        desk.awaited = yield from find_person(desk, names[0])
    elif names and re.search(r"\bmailed me what\b|\bwrote me what\b", text):
        for name in names[:MAX_READ]:
            person = yield from find_person(desk, name)
            mails = yield from find_mails(desk, person["email"])
            subjects = quotes_in(text)
            fitting = [one["content"] for one in mails if not subjects or subjects[0] in one["subject"]]
            desk.gathered[name] = best_sentence(fitting[:1], content_words(text))


def look_up(desk: Desk, text: str) -> Steps[str]:
    """What an embedded question asks, from the records that it says it is in, or from what was gathered."""
    if desk.gathered:
        return "\n".join(f"{name}: {said}" for name, said in desk.gathered.items())
    found = []
    for part in re.split(r", and (?=what|when|where|who)", text):
        names = names_in(part)
        if "calendar" in part and names:
            events = yield from find_events(desk, names[-1])
            events.sort(key=lambda one: -len(content_words(one["title"]) & content_words(part)))
            if events:
                found.append(f"{events[0]['title']}: {when_and_where(events[0])}.")
        elif "mail" in part and names:
            person = yield from find_person(desk, names[-1])
            mails = yield from find_mails(desk, person["email"])
            found.append(best_sentence([one["content"] for one in mails], content_words(part)))
    if not found:
        raise CannotDo("it is not said where that stands")
    return " ".join(found)


def filters_in(text: str) -> dict[str, Any]:
    """Conditions of a search: counts, bounds of a price, and values in quotes after what they are values of."""
    filters: dict[str, Any] = {f"how_many_{noun}": int(n) for n, noun in re.findall(r"\b(\d+) (?!EUR)(\w+)", text)}
    for bound, key in (("most", "the_highest_price"), ("least", "the_lowest_price")):
        if (found := re.search(rf"at {bound} ([\d.]+) EUR", text)) is not None:
            filters[key] = float(found[1])
    for noun, value in re.findall(r"\b(\w+) (?:of )?'(.+?)'", text):
        filters[noun] = value
        filters.pop(f"how_many_{value.partition(' ')[2]}", None)
    return filters


def answer(desk: Desk, question: str) -> Steps[None]:
    """Look where the answer should be, and note it."""
    text = desk.request.text
    if re.search(r"\brides?\b", text) and places_in(text):
        yield from _sum_of_rides(desk, places_in(text)[0])
    elif re.search(r"\b(?:flat|apartment)s?\b.* with \d", text):
        yield from _cheapest_home(desk, text)
    elif re.search(r"\bmail(?:ed)?\b", text) and re.search(r"\bmeet\b", text):
        yield from _next_meeting(desk, text)
    else:
        yield from _find_sentence(desk, question, text)


def _sum_of_rides(desk: Desk, place: str) -> Steps[None]:
    total, offset = 0.0, 0
    while True:
        page = yield from use(
            desk, "Cabs", "list rides by their places in the history", how_many_to_leave_out=offset, limit=PAGE
        )
        rides = [one for one in page["rides"].values() if one["end_location"] == place]
        total += sum(one["price"] for one in rides if "CANCEL" not in one["status"])
        offset += PAGE
        if offset >= min(page["total"], MAX_READ * PAGE):
            break
    desk.learnt.append(f"{price(total)} in all.")


def _cheapest_home(desk: Desk, text: str) -> Steps[None]:
    homes = yield from use(desk, "RentAFlat", "find apartments that meet all conditions", **filters_in(text))
    if not homes:
        raise CannotDo("there is none")
    best = min(homes.values(), key=lambda one: one["price"])
    told = f"{best['name']}, for {price(best['price'])} a month."
    if "crime" in text:
        rates = yield from use(desk, "City", "look up how much crime there is", zip_code=best["zip_code"])
        told += f" The violent crime rate there is {rates['violent_crime']:g}."
    desk.learnt.append(told)


def _next_meeting(desk: Desk, text: str) -> Steps[None]:
    title = TITLE.search(text)
    mails = yield from find_mails(desk, title[1].strip() if title is not None else text)
    if not mails:
        raise CannotDo("there is no such mail")
    found = yield from use(desk, "Contacts", "find contacts with a text", query=mails[0]["sender"])
    events = yield from find_events(desk, full_name(found[0]))
    if not events:
        raise CannotDo("there is no such entry")
    desk.learnt.append(
        f"{when_and_where(events[0])[:1].upper()}{when_and_where(events[0])[1:]}, with {full_name(found[0])}."
    )


def _find_sentence(desk: Desk, question: str, text: str) -> Steps[None]:
    """The sentence of mails and chats that is most like the request: its writer, or the value that is asked for."""
    titles = [match[1].strip() for match in TITLE.finditer(text)]
    query = next(iter([*titles, *names_in(text), *places_in(text)]), text.rsplit(maxsplit=1)[-1])
    messages = yield from find_messages(desk, "Chats", query)
    wanted = content_words(text)
    texts = [(one["content"], one["sender_id"]) for one in messages]
    mails = yield from find_mails(desk, query)
    texts += [(one["content"], one["sender"]) for one in mails]
    if not texts:
        raise CannotDo(f"nothing is about {query}")
    values = next((pattern for asks, pattern in ASKED_VALUES if re.search(asks, question, re.IGNORECASE)), "")
    if values:
        sentence = best_sentence((one for one, _ in texts if re.search(values, one)), wanted)
        value = re.search(values, sentence)
        desk.learnt.append(f"It is {value[0] if value is not None else 'unknown'}.")
        return
    _, writer = max(texts, key=lambda one: len(content_words(one[0]) & wanted))
    name = writer
    if "@" not in writer:
        name = yield from use(
            desk, "Chats", "find the name of a user by the exact id, there is no such user", id_of_user=writer
        )
    found = yield from use(desk, "Contacts", "find contacts with a text", query_text=name)
    if not found:
        raise CannotDo(f"there is no {name}")
    town = f", who lives in {found[0]['city_living']}" if re.search(r"\b(?:town|live)\b", text) else ""
    desk.learnt.append(f"It was {full_name(found[0])}{town}.")
