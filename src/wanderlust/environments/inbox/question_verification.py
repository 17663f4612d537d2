"""Verification of a proposed question: by its form, and by what its writer answers from more and fewer mails."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from datetime import date, timedelta
from hashlib import sha256
from random import Random

from wanderlust.environments.inbox.language import bare_answer
from wanderlust.environments.inbox.mail import Mail
from wanderlust.environments.inbox.question_file import MailQuestion, QuestionSplit
from wanderlust.environments.inbox.question_writers import (
    MAX_ANSWER_CHARS,
    MAX_QUESTION_CHARS,
    Candidate,
    QuestionWriter,
)
from wanderlust.environments.inbox.store import InboxFile

OTHER_MAILS = 10
"""Mails of a search that a question is verified against."""
MAX_SOURCES = 5
MAX_SEARCH_WORDS = 40
MAX_DAYS_LATER = 30
"""A question is asked 1 to so many days after its newest mail (ART·E)."""


class Verifier:
    """Decides about candidates, with the answers of a writer."""

    def __init__(self, inbox: InboxFile, writer: QuestionWriter, *, eval_share: float, seed: int):
        self.inbox, self.writer, self._eval_share, self._seed = inbox, writer, eval_share, seed

    async def reason_against(self, candidate: Candidate, batch: Sequence[Mail]) -> str:
        """Why a candidate is not taken; empty where nothing is against it. Raises what the writer raises."""
        sources = [mail for mail in batch if mail.id in candidate.sources]
        for fails, reason in self._form(candidate, sources):
            if fails:
                return reason
        async with aclosing(self._answers(candidate, sources)) as checks:
            async for fails, reason in checks:
                if fails:
                    return reason
        return ""

    async def _answers(self, candidate: Candidate, sources: Sequence[Mail]) -> AsyncGenerator[tuple[bool, str], None]:
        """What is asked of the writer, one after the other, and the reason that each may give."""
        wanted = bare_answer(candidate.answer)

        async def gives_it(mails: Sequence[Mail]) -> bool:
            return bare_answer(await self.writer.answer(candidate.question, mails)) == wanted

        yield not await gives_it(sources), "its sources give another answer, or none"
        yield await gives_it([]), "answered without any mail"
        for missing in sources if len(sources) > 1 else []:
            yield await gives_it([mail for mail in sources if mail is not missing]), "a source is not needed"
        if others := self._others(candidate):
            yield await gives_it(others), "other mails answer it too"
            together = sorted([*sources, *others], key=lambda mail: (mail.date, mail.id))
            yield not await gives_it(together), "other mails change the answer"

    def question(self, candidate: Candidate, batch: Sequence[Mail]) -> MailQuestion:
        """A candidate that was taken."""
        sources = [mail for mail in batch if mail.id in candidate.sources]
        key = sha256("\0".join((candidate.question, *sorted(candidate.sources))).encode()).hexdigest()[:10]
        days = Random(f"{self._seed}/{key}/day").randint(1, MAX_DAYS_LATER)
        asked_on = date.fromisoformat(max(mail.date for mail in sources)[:10]) + timedelta(days=days)
        return MailQuestion(
            id=f"q{key}",
            question=candidate.question,
            answer=candidate.answer,
            sources=candidate.sources,
            asked_on=asked_on.isoformat(),
            split=self._split(sources[0].thread),
            kind=candidate.kind,
        )

    def _form(self, candidate: Candidate, sources: Sequence[Mail]) -> Iterator[tuple[bool, str]]:
        """What needs no writer."""
        question, answer = candidate.question, answer_words(candidate.answer)
        yield not question.strip() or len(question) > MAX_QUESTION_CHARS, "no question, or too long a one"
        yield not bare_answer(candidate.answer) or len(candidate.answer) > MAX_ANSWER_CHARS, "no answer, or too long"
        shown = 0 < len(sources) == len(candidate.sources) <= MAX_SOURCES
        yield not shown, "its sources are no mails that were shown"
        yield {*answer} <= {*answer_words(question)}, "the question holds its answer"
        there = {word for mail in sources for word in answer_words(self._text(mail))}
        missing = {*answer} - there
        adds_up = len(sources) > 1 and all(word[0].isdigit() for word in missing)
        yield bool(missing) and not adds_up, "its answer does not stand in its sources"
        yield len({self._split(mail.thread) for mail in sources}) > 1, "its sources are in both splits"

    def _others(self, candidate: Candidate) -> list[Mail]:
        """The mails that a search for the question and its answer finds, without the sources."""
        words = list(dict.fromkeys([*answer_words(candidate.answer), *answer_words(candidate.question)]))
        hits = self.inbox.ranked(words[:MAX_SEARCH_WORDS], limit=OTHER_MAILS + MAX_SOURCES)
        ids = [hit.id for hit in hits if hit.id not in candidate.sources][:OTHER_MAILS]
        found = [mail for one in ids if (mail := self.inbox.read(one)) is not None]
        return sorted(found, key=lambda mail: (mail.date, mail.id))

    def _text(self, mail: Mail) -> str:
        people = [self.inbox.name_of(one) for one in (mail.sender, *mail.recipients, *mail.cc)]
        day = date.fromisoformat(mail.date[:10])
        days = f"{mail.date[:10]} {day:%A} {day.day} {day:%B} {day.year}"
        return "\n".join([mail.subject, mail.body, *mail.attachments, *people, mail.sender, days])

    def _split(self, thread: str) -> QuestionSplit:
        place = int.from_bytes(sha256(f"split/{thread}".encode()).digest()[:4]) / 2**32
        return "eval" if place < self._eval_share else "train"


def answer_words(text: str) -> list[str]:
    """Words and numbers as answers are compared by them."""
    return re.findall(r"\d+(?:[:.]\d+)*|\w+", text.lower())
