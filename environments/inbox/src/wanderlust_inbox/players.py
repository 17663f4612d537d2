"""Scripted readers of an inbox: what shortcuts earn, and how far search without learning goes.

A reader sees the question and the whole index, which it ranks by BM25, while the agent's search lists the newest mails
first. It knows the forms of the four kinds of values.

| reader | what it does |
|---|---|
| `closed-book` | reads nothing; gives the commonest answer of training to such a question |
| `silent` | always says that it does not know |
| `bm25` | the best mail by all words of the question, and the value in it that stands nearest to the question's words |
| `reread` | the newest value in the ten best mails of the person and month that the question names |
| `thesaurus` | `reread` with related words, learnt from the questions of training and the mails that answer them |
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Protocol, TypeAlias

from wanderlust.types import Task
from wanderlust_inbox.language import ATTRIBUTES, MONTHS, Attribute
from wanderlust_inbox.mail import InboxMail
from wanderlust_inbox.store import Hit, InboxFile

READERS = ("closed-book", "silent", "bm25", "reread", "thesaurus")
VALUES: Mapping[Attribute, re.Pattern[str]] = {
    "time": re.compile(r"\b((?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day at \d\d:\d\d)\b"),
    "place": re.compile(r"\b(?:the|The) ([A-Z][a-z]+ [A-Z][a-z]+)\b"),
    "amount": re.compile(r"\b(\d+ EUR)\b"),
    "who": re.compile(r"\b([A-Z][a-z]+ [A-Z][a-z]+)\b"),
}
"""How values look in mails."""
ASKED: Mapping[Attribute, frozenset[str]] = {
    "time": frozenset({"when", "hour", "day"}),
    "place": frozenset({"where", "venue", "meet"}),
    "amount": frozenset({"much", "sum", "add", "price", "cost"}),
    "who": frozenset({"who", "whom", "responsible"}),
}
"""Words of questions for each kind of value; the first kind that fits counts."""
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "when is the with on which day and at what hour did set for where do i meet about venue how much does"
        " want sum who responsible according to whom name named it in was of all parts together add up one a are",
    )
)
READ_MAILS = 10
MIN_PAIRS = 2
"""Times that a word of questions and one of mails stood together, at least, to count as related."""
RELATED_WORDS = 3
COMMON_SHARE = 0.05
"""A word in a larger share of mails than this is related to nothing."""


@dataclass(frozen=True, slots=True)
class Given:
    """A reader's answer, empty for none, and the mails it is from."""

    answer: str = ""
    sources: tuple[str, ...] = ()


Reader: TypeAlias = Callable[[InboxFile, str], Given]


class HasInboxes(Protocol):
    """The environment as readers need it."""

    def tasks(self, split: str = "train") -> list[Task]: ...

    def inbox(self, name: str) -> InboxFile: ...


def reader_policy(env: HasInboxes, name: str) -> Reader:
    """The reader of that name; two of them learn from the questions of training first."""
    if name == "closed-book":
        return closed_book(env.tasks("train"))
    if name == "thesaurus":
        related = related_words(env)
        return lambda inbox, question: reread(inbox, question, related=related)
    return {"silent": lambda _inbox, _question: Given(), "bm25": best_mail, "reread": reread}[name]


def asked_attribute(question: str) -> Attribute:
    """The kind of value that a question asks for."""
    words = set(re.findall(r"[a-z]+", question.lower()))
    return next((one for one in ATTRIBUTES if words & ASKED[one]), "who")


def content_words(question: str) -> list[str]:
    """The words of a question without function words."""
    return [word for word in re.findall(r"[a-z]+", question.lower()) if word not in STOP_WORDS]


def closed_book(tasks: Sequence[Task]) -> Reader:
    """Gives the commonest answer of the tasks to a question of the same kind."""
    answers: dict[Attribute, Counter[str]] = defaultdict(Counter)
    for task in tasks:
        answers[asked_attribute(task.info["question"])].update(task.answer["answers"][:1])

    def answer(_inbox: InboxFile, question: str) -> Given:
        common = answers[asked_attribute(question)].most_common(1)
        return Given(common[0][0]) if common else Given()

    return answer


def best_mail(inbox: InboxFile, question: str) -> Given:
    """The value in the one mail that fits best."""
    words = content_words(question)
    for hit in inbox.ranked(words, limit=1):
        mail = inbox.read(hit.id)
        if mail is not None and (value := value_in(mail, asked_attribute(question), words, inbox=inbox)):
            return Given(value, (mail.id,))
    return Given()


def reread(inbox: InboxFile, question: str, *, related: Mapping[str, Sequence[str]] | None = None) -> Given:
    """The newest value in the mails of the question's person and month that have its words, or related ones.

    Where no mail has them, the newest value in that person's newest mails.
    """
    attribute, words = asked_attribute(question), content_words(question)
    sender = next((word for word in words if inbox.ranked([], sender=word) or _is_name(inbox, word)), "")
    month = next((n for n, name in enumerate(MONTHS, 1) if name.lower() in words), 0)
    topical = [word for word in words if word != sender and word not in {name.lower() for name in MONTHS}]
    wanted = [*topical, *(other for word in topical for other in (related or {}).get(word, ()))]
    found = _of_month(inbox.ranked(wanted, limit=5 * READ_MAILS, sender=sender), month)
    if not found and related is None:  # nothing has these words: whatever this person wrote
        recent = inbox.search((), sender=sender, limit=READ_MAILS) if sender else []
        found = _of_month(recent, month)
    mails = [mail for hit in found[:READ_MAILS] if (mail := inbox.read(hit.id)) is not None]
    for mail in sorted(mails, key=lambda mail: mail.date, reverse=True):
        if value := value_in(mail, attribute, wanted, inbox=inbox, strict=bool(related)):
            return Given(value, (mail.id,))
    return Given()


def _is_name(inbox: InboxFile, word: str) -> bool:
    return any(name.lower().endswith(f" {word}") for name in inbox.names.values())


def _of_month(hits: Iterable[Hit], month: int) -> list[Hit]:
    return [hit for hit in hits if month in (0, int(hit.date[5:7]))]


def value_in(
    mail: InboxMail, attribute: Attribute, words: Sequence[str], *, inbox: InboxFile, strict: bool = False
) -> str:
    """The value of the kind in the mail's sentence that has most of the words; `strict`: the topic has to be named."""
    names = set(inbox.names.values()) if attribute == "who" else set()
    best, most = "", 0 if strict else -1
    titled = bool(set(words) & set(re.findall(r"[a-z]+", mail.subject.lower())))
    for sentence in re.split(r"(?<=[.!?])\s+|\n", mail.new_text):
        values = [one for one in VALUES[attribute].findall(sentence) if not names or one in names]
        said = set(re.findall(r"[a-z]+", sentence.lower()))
        score = 2 * len(said & set(words)) + titled
        if values and score > most:
            best, most = values[0], score
    return best


def related_words(env: HasInboxes) -> dict[str, list[str]]:
    """For each word of the questions of training, the words of their mails that go with it (pointwise information)."""
    pairs: Counter[tuple[str, str]] = Counter()
    asked: Counter[str] = Counter()
    said: Counter[str] = Counter()
    mails = 0
    for task in env.tasks("train"):
        inbox = env.inbox(task.info["inbox"])
        question = set(content_words(task.info["question"]))
        for source in task.answer["sources"]:
            mail = inbox.read(source)
            text = f"{mail.subject} {mail.new_text}" if mail is not None else ""
            words = set(re.findall(r"[a-z]+", text.lower()))
            asked.update(question)
            said.update(words)
            pairs.update((one, other) for one in question for other in words)
            mails += 1
    total = sum(asked.values()) or 1
    related: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for (one, other), count in pairs.items():
        if count >= MIN_PAIRS and said[other] <= COMMON_SHARE * mails:
            gain = log(count * total / (asked[one] * said[other]))
            related[one].append((count * gain, other))
    return {one: [word for _, word in sorted(found, reverse=True)[:RELATED_WORDS]] for one, found in related.items()}
