"""A player that searches once for a name, a month or a word of the request, and takes what it finds first."""

from __future__ import annotations

import re
from collections.abc import Sequence

from wanderlust_life.players import CallPlan, KeywordPolicy

NAME = re.compile(r"\b[A-Z][a-z]+ [A-Z][a-z]+\b")
RARE = re.compile(r"(?<=[a-z] )[A-Z][a-z]+\b")
"""A town or a month."""
DAY = re.compile(r"\b\w+day, \d{1,2} [A-Z][a-z]+\b")
PRICE = re.compile(r"\b[\d,]+\.\d\d EUR\b")
NUMBER = re.compile(r"\b[WRBT]-[0-9a-f]{7}\b")
PLACE = re.compile(r"\bThe [A-Z][a-z]+ [A-Z][a-z]+\b")
TOPIC = re.compile(r"\b(?:meal|appointment|bill|meeting|order|cab|borrow|book|journey|present|party|parcel|flat|key)\b")
WANTED = re.compile(r"(?:(?:Forward|Answer|Delete|Cancel|Order|Send) .+|.+\?)", re.DOTALL)
"""The sentence that says what is wanted."""
PATTERNS: Sequence[tuple[str, re.Pattern[str]]] = (
    ("day", DAY),
    ("How much|cost|rent|total", PRICE),
    ("number", NUMBER),
    ("Where|shop|club", PLACE),
)
"""What a question asks for, and how it is written."""


def search_policy() -> KeywordPolicy:
    """The player, without a memory of its own."""
    return KeywordPolicy({r"(?s)(.+)": _search_plan})


def _search_plan(request: str) -> CallPlan:
    sentences = re.split(r"(?<=[.?])\s+", request)
    at = next((n for n, one in enumerate(sentences) if WANTED.fullmatch(one)), len(sentences) - 1)
    question, story = " ".join(sentences[at:]), " ".join(sentences[:at])
    sought = NAME.search(story) or RARE.search(story) or TOPIC.search(request)
    query = sought[0] if sought is not None else request.rsplit(maxsplit=1)[-1]
    mails = yield "Emails__search_emails", {"query": query}
    if "mail" in question and mails:
        to = NAME.search(question)
        if to is not None:
            found = yield "Contacts__search_contacts", {"query": to[0]}
            yield "Emails__forward_email", {"email_id": mails[0]["email_id"], "recipients": [found[0]["email"]]}
        elif "'" in question:
            words = question.split("'")[1]
            yield "Emails__reply_to_email", {"email_id": mails[0]["email_id"], "content": words}
        return "It is done."
    if "calendar" in question:
        events = yield "Calendar__search_events", {"query": query}
        yield "Calendar__delete_calendar_event", {"event_id": events[0]["event_id"]}
        return "It is done."
    talks = yield "Chats__search", {"query": query}
    texts = [mail["content"] for mail in mails[:1]]
    sender = ""
    if talks:
        talk = yield "Chats__read_conversation", {"conversation_id": talks[0], "limit": 10}
        texts += [one["content"] for one in talk["messages"]]
        others = [one["sender_id"] for one in talk["messages"] if one["sender_id"] != "me"]
        if others:
            sender = yield "Chats__get_user_name_from_id", {"user_id": others[0]}
            if "in Chats" in question:
                yield "Chats__send_message", {"user_id": others[0], "content": question.split("'")[1]}
                return "It is done."
    return _answer(question, texts, sender)


def _answer(question: str, texts: Sequence[str], sender: str) -> str:
    for asks, pattern in PATTERNS:
        if re.search(asks, question):
            found = (match[0] for text in texts for match in pattern.finditer(text))
            return f"It is {next(found, 'unknown')}."
    return f"It was {sender}."
