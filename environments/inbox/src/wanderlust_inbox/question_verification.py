"""Verification of a proposed question: by its form, and by what its writer answers from more and fewer mails."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from datetime import date, timedelta
from hashlib import sha256
from random import Random

from wanderlust_inbox.answer_forms import answer_forms
from wanderlust_inbox.language import bare_answer
from wanderlust_inbox.mail import InboxMail
from wanderlust_inbox.question_file import MailQuestion, QuestionSplit
from wanderlust_inbox.question_writers import (
    MAX_ANSWER_CHARS,
    MAX_QUESTION_CHARS,
    Candidate,
    QuestionWriter,
)
from wanderlust_inbox.store import InboxFile
from wanderlust_inbox.threads import bare_subject

OTHER_MAILS = 10
"""Mails of a search that a question is verified against."""
RELATED_MAILS = 10
"""Further ones: by the sender of a source about its subject, and of its thread."""
MAX_SOURCES = 5
MAX_SEARCH_WORDS = 40
UNANSWERABLE = "unanswerable"
"""Kind of the questions that no mail answers."""
MAX_DAYS_LATER = 30
"""A question is asked 1 to so many days after its newest mail (ART·E)."""


class Verifier:
    """Decides about candidates, with the answers of a writer."""

    def __init__(self, inbox: InboxFile, writer: QuestionWriter, *, eval_share: float, seed: int):
        self.inbox, self.writer, self._eval_share, self._seed = inbox, writer, eval_share, seed

    async def reason_against(self, candidate: Candidate, batch: Sequence[InboxMail]) -> str:
        """Why a candidate is not taken; empty where nothing is against it. Raises what the writer raises."""
        sources = [mail for mail in batch if mail.id in candidate.sources]
        for fails, reason in self._form(candidate, sources):
            if fails:
                return reason
        answers = self._answers if candidate.answer else self._silences
        async with aclosing(answers(candidate, sources)) as checks:
            async for fails, reason in checks:
                if fails:
                    return reason
        return ""

    async def _answers(
        self, candidate: Candidate, sources: Sequence[InboxMail]
    ) -> AsyncGenerator[tuple[bool, str], None]:
        """What is asked of the writer, one after the other, and the reason that each may give."""
        forms = {bare_answer(form) for form in answer_forms(candidate.answer)}

        async def gives_it(mails: Sequence[InboxMail]) -> bool:
            return bare_answer(await self.writer.answer(candidate.question, mails)) in forms

        yield not await gives_it(sources), "its sources give another answer, or none"
        yield await gives_it([]), "answered without any mail"
        for missing in sources if len(sources) > 1 else []:
            yield await gives_it([mail for mail in sources if mail is not missing]), "a source is not needed"
        if others := self._others(candidate):
            yield await gives_it(others), "other mails answer it too"
            together = sorted([*sources, *others], key=lambda mail: (mail.date, mail.id))
            yield not await gives_it(together), "other mails change the answer"

    async def _silences(
        self, candidate: Candidate, about: Sequence[InboxMail]
    ) -> AsyncGenerator[tuple[bool, str], None]:
        """The same for a question that no mail answers; `about` are the mails that it seems to be about."""
        yield bool(await self.writer.answer(candidate.question, [])), "answered without any mail"
        mails = sorted([*about, *self._others(candidate)], key=lambda mail: (mail.date, mail.id))
        yield bool(await self.writer.answer(candidate.question, mails)), "a mail has the answer that was to be none"

    def question(self, candidate: Candidate, batch: Sequence[InboxMail]) -> MailQuestion:
        """A candidate that was taken."""
        sources = [mail for mail in batch if mail.id in candidate.sources]
        key = sha256("\0".join((candidate.question, *sorted(candidate.sources))).encode()).hexdigest()[:10]
        days = Random(f"{self._seed}/{key}/day").randint(1, MAX_DAYS_LATER)
        asked_on = date.fromisoformat(max(mail.date for mail in sources)[:10]) + timedelta(days=days)
        return MailQuestion(
            id=f"q{key}",
            question=candidate.question,
            answer=candidate.answer,
            sources=candidate.sources if candidate.answer else (),
            asked_on=asked_on.isoformat(),
            split=self._split(sources[0].thread),
            kind=candidate.kind if candidate.answer else UNANSWERABLE,
        )

    def _form(self, candidate: Candidate, sources: Sequence[InboxMail]) -> Iterator[tuple[bool, str]]:
        """What needs no writer."""
        question, answer = candidate.question, answer_words(candidate.answer)
        yield not question.strip() or len(question) > MAX_QUESTION_CHARS, "no question, or too long a one"
        bare = bare_answer(candidate.answer)
        yield (
            bool(candidate.answer) and (not bare or len(candidate.answer) > MAX_ANSWER_CHARS),
            "no answer, or too long",
        )
        shown = 0 < len(sources) == len(candidate.sources) <= MAX_SOURCES
        yield not shown, "its sources are no mails that were shown"
        yield bool(answer) and {*answer} <= {*answer_words(question)}, "the question holds its answer"
        there = {word for mail in sources for word in answer_words(self._text(mail))}
        missing = {*answer} - there
        adds_up = len(sources) > 1 and all(word[0].isdigit() for word in missing)
        yield bool(missing) and not adds_up, "its answer does not stand in its sources"
        yield len({self._split(mail.thread) for mail in sources}) > 1, "its sources are in both splits"

    def _others(self, candidate: Candidate) -> list[InboxMail]:
        """The mails that may answer too, without the sources.

        Those that a search for question and answer finds, the newest of the sources' threads, and those by their
        senders about their subjects.
        """
        words = list(dict.fromkeys([*answer_words(candidate.answer), *answer_words(candidate.question)]))
        sources = [mail for one in candidate.sources if (mail := self.inbox.read(one)) is not None]
        found = [hit.id for hit in self.inbox.ranked(words[:MAX_SEARCH_WORDS], limit=OTHER_MAILS + MAX_SOURCES)]
        ids = [one for one in found if one not in candidate.sources][:OTHER_MAILS]
        for mail in sources:
            about = answer_words(bare_subject(mail.subject))[:MAX_SEARCH_WORDS] or words[:MAX_SEARCH_WORDS]
            hits = self.inbox.ranked(about, limit=RELATED_MAILS + MAX_SOURCES, sender=mail.sender)
            ids += [hit.id for hit in hits if hit.id not in candidate.sources][:RELATED_MAILS]
        for thread in {mail.thread: None for mail in sources}:
            ids += [mail.id for mail in self.inbox.thread(thread) if mail.id not in candidate.sources][-RELATED_MAILS:]
        mails = [mail for one in dict.fromkeys(ids) if (mail := self.inbox.read(one)) is not None]
        return sorted(mails, key=lambda mail: (mail.date, mail.id))

    def _text(self, mail: InboxMail) -> str:
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
