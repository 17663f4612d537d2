"""Which imported mails belong together: by References and In-Reply-To, and by their subject where those are missing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

SUBJECT_DAYS = 60
"""A reply without references belongs to a mail of the same subject that is at most so many days older."""
_PREFIX = re.compile(
    r"(?i)^\s*(?:(?:re|fwd?|aw|wg|sv|vs|antw|tr|rv|odp|ynt|res)(?:\[\d{1,3}\])?\s*:|\[[^\[\]]{1,40}\])\s*"
)
_REPLY = re.compile(r"(?i)^\s*(?:\[[^\[\]]{1,40}\]\s*)?(?:re|aw|sv|vs|antw|odp|ynt|res)(?:\[\d{1,3}\])?\s*:")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFacts:
    """What decides about a mail's thread."""

    number: int
    """Of the mail, from 0 on."""
    message_id: str
    references: tuple[str, ...]
    """The one that it answers is the last."""
    day: int
    subject: str
    people: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MailThreads:
    """The thread of each mail, named after the number of one of its mails, and the mail that each one answers."""

    thread_of: tuple[int, ...]
    answers: Mapping[int, int]


def bare_subject(subject: str) -> str:
    """A subject without `Re:`, `Fwd:` and the names of lists, in lower case."""
    for _ in range(20):
        shorter = _PREFIX.sub("", subject, count=1)
        if shorter == subject:
            break
        subject = shorter
    return " ".join(subject.lower().split())


def find_threads(mails: Iterable[ThreadFacts]) -> MailThreads:
    """Put mails together; they come in the order of their dates, numbered in any order without gaps.

    Two mails are in one thread when one refers to the other, or both refer to a third that may be missing. A reply
    without references joins the newest earlier mail with its subject and one of its people.
    """
    union, answers = _Union(), dict[int, int]()
    number_of = dict[bytes, int]()
    last_of = dict[str, tuple[int, int, frozenset[str]]]()
    count = 0
    for mail in mails:
        count += 1
        union.join(mail.number, *map(_key, filter(None, (mail.message_id, *mail.references))))
        if mail.message_id:
            number_of.setdefault(_key(mail.message_id), mail.number)
        earlier = [number_of[key] for one in reversed(mail.references) if (key := _key(one)) in number_of]
        found = next((number for number in earlier if number != mail.number), None)
        subject = bare_subject(mail.subject)
        if subject and not mail.references and _REPLY.match(mail.subject) and (last := last_of.get(subject)):
            number, day, people = last
            if mail.day - day <= SUBJECT_DAYS and people & mail.people:
                found = number
                union.join(mail.number, number)
        if found is not None:
            answers[mail.number] = found
        if subject:
            last_of[subject] = mail.number, mail.day, mail.people
    return MailThreads(thread_of=tuple(union.name(number) for number in range(count)), answers=answers)


def _key(message_id: str) -> bytes:
    return sha256(message_id.encode("utf-8", "replace")).digest()[:12]


class _Union:
    """Sets of numbers and keys that belong together, each named after the lowest number in it."""

    def __init__(self) -> None:
        self._parent: dict[int | bytes, int | bytes] = {}

    def join(self, number: int, *others: int | bytes) -> None:
        root = self._root(number)
        for other in others:
            one = self._root(other)
            if one == root:
                continue
            low, high = sorted((root, one), key=lambda item: (isinstance(item, bytes), item))
            self._parent[high] = root = low

    def name(self, number: int) -> int:
        root = self._root(number)
        return root if isinstance(root, int) else number

    def _root(self, item: int | bytes) -> int | bytes:
        path = []
        while (above := self._parent.setdefault(item, item)) != item:
            path.append(item)
            item = above
        for one in path:
            self._parent[one] = item
        return item
