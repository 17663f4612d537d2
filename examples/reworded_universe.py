"""The same universe in a model's words: off unless asked for, recorded in a book, and never with other facts.

Not covered: a rewording that keeps all names, numbers, days and places can still turn a yes into a no.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from dataclasses import replace as changed

from msgspec.structs import replace

from wanderlust.errors import PolicyFailure, boundary
from wanderlust.types import Policy, system, user
from wanderlust.worlds.apps.mail import Email, Mail
from wanderlust.worlds.engine.cow_dict import CowDict
from wanderlust.worlds.life.universes.generate import Universe

INSTRUCTIONS = (
    "Write the mail again in other words, as the same person would on another day. Keep every name, number, day, time, "
    "place and amount exactly as it is written, add no fact and leave none out. Answer with the mail alone."
)
FACT = re.compile(r"\S*\d[\S]*|\b[A-Z][\w'-]+")
"""What must be kept: words with digits, and words that begin with a capital letter."""
ORDINARY = re.compile(r"(?:^|[.?!:\n]\s*)[A-Z][\w'-]+")
"""Capital letters that only begin a sentence."""
LONGEST = 3.0
"""How many times as long a rewording may be."""
Book = Mapping[str, str]
"""Texts, and what they became: JSON data, to be kept."""


async def reword(universe: Universe, policy: Policy, *, most: int = 1_000, at_once: int = 8) -> dict[str, str]:
    """A book of rewordings of the universe's mails, the first `most` of them, from a policy; what loses a fact is left.

    Keys of the calls follow from the universe alone. Raises PolicyFailure when the policy fails.
    """
    mail = universe.life.mail
    texts = list(dict.fromkeys(one.content for one in (*mail.inbox.values(), *mail.sent.values())))[:most]
    slots = asyncio.Semaphore(at_once)

    async def one(number: int, text: str) -> tuple[str, str]:
        key = f"reword/{universe.name}/{number}"
        async with slots:
            with boundary(PolicyFailure):
                said = await policy.complete([system(INSTRUCTIONS), user(text)], key=key)
            release = getattr(policy, "release", None)
            if release is not None:
                release(key)
        return text, said.message.content.strip()

    found = await asyncio.gather(*(one(number, text) for number, text in enumerate(texts)))
    names = {part for person in universe.people.values() for part in (person.first, person.last) if part}
    return {text: said for text, said in found if keeps(text, said, names)}


def keeps(text: str, said: str, names: Collection[str] = ()) -> bool:
    """Whether a rewording has all facts of a text, no new number, and is not much longer.

    `names` are facts also where they begin a sentence, and where others would be taken for ordinary words.
    """
    wanted = _facts(text) | {name for name in names if name in text}
    new = {fact for fact in _facts(said) if any(map(str.isdigit, fact))}
    return len(said) <= LONGEST * len(text) and all(fact in said for fact in wanted) and new <= wanted


def _facts(text: str) -> set[str]:
    opening = {found[0].lstrip(".?!: \n") for found in ORDINARY.finditer(text)}
    inside = [found[0].strip(".,;:!?()'\"") for found in FACT.finditer(text)]
    return {fact for fact in inside if any(map(str.isdigit, fact)) or fact not in opening}


def in_words(universe: Universe, book: Book) -> Universe:
    """The universe in the words of a book: no model is needed, and what is not in the book stays as it is."""
    mail = universe.life.mail
    folders = {
        name: CowDict(_rows(folder.rows(), book)) for name, folder in (("inbox", mail.inbox), ("sent", mail.sent))
    }
    reworded = Mail(mail.name, user_email=mail.user_email, **folders)
    return changed(universe, life=universe.life._replace(mail=reworded))


def _rows(rows: Mapping[str, Email], book: Book) -> dict[str, Email]:
    return {key: replace(one, content=book.get(one.content, one.content)) for key, one in rows.items()}
