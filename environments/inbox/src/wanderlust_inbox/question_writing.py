"""Verified questions over an imported inbox, written in batches of mails; stopped at any time, the same call goes on.

A proposed question is taken when

- its sources are mails of the batch, and the words of its answer stand in them;
- its sources alone give its answer again, and without any one of them they do not;
- no mails at all do not give it (closed book), nor do the other mails that a search for question and answer finds,
  newer mails of its thread and others by its sender among them;
- sources and other mails together still give it, so that no later mail has replaced it.

A question that no mail answers is taken when neither the mails that it seems to be about nor those of the search give
an answer, and a share of the questions is of that kind.

Whatever is not taken is counted with the reason.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from wanderlust.errors import PolicyRefused, RubricFailure, StoreError, UsageError, WanderlustError, one_line
from wanderlust.rubrics.rubric import gather_results
from wanderlust_inbox.mail import InboxMail
from wanderlust_inbox.message import NO_DATE
from wanderlust_inbox.question_file import MailQuestion, parse_question, write_questions
from wanderlust_inbox.question_verification import Verifier
from wanderlust_inbox.question_writers import QuestionWriter
from wanderlust_inbox.store import InboxFile

JOURNAL_SUFFIX = ".journal"
SURPLUS = "verified, and more than are wanted"
"""Reason of what stays in the journal: beyond the count, beyond the share without an answer, or asked already."""
MAX_PER_BATCH = 60
"""Questions that are taken of one batch."""
MIN_MAIL_CHARS = 20
"""Mails with a shorter text are not asked about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingOptions:
    """What is written."""

    count: int = 100
    """Questions that are wanted."""
    batch: int = 20
    """Mails that are shown at once (ART·E)."""
    unanswerable: float = 0.15
    """Share of questions that no mail answers, at most."""
    eval_share: float = 0.2
    """Share of threads whose questions are held out."""
    seed: int = 0
    """Orders the batches and draws the days of the questions."""
    concurrency: int = 8
    """Batches in work at once; the questions are the same with any number."""

    def __post_init__(self) -> None:
        if self.count < 1 or self.batch < 1 or self.concurrency < 1:
            raise UsageError("count, batch and concurrency are at least 1")
        for name in ("eval_share", "unanswerable"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} is from 0 to 1, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingReport:
    """What became of the proposals."""

    file: str
    questions: int
    """In the file: the wanted number, or fewer where no batch is left."""
    train: int
    eval: int
    unanswerable: int
    """Those that no mail answers, in both splits."""
    batches: int
    """Done so far, of `all_batches`."""
    all_batches: int
    proposed: int
    """Questions that were proposed in them: those taken and those rejected."""
    rejected: Mapping[str, int]
    """Proposals by the reason why they were not taken."""
    unread_batches: int
    """Batches whose list could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """What one batch gave; a line of the journal."""

    number: int
    taken: tuple[MailQuestion, ...] = ()
    rejected: Mapping[str, int] = field(default_factory=dict)
    unread: bool = False


async def write_inbox_questions(
    inbox: InboxFile,
    out: Path,
    writer: QuestionWriter,
    *,
    options: WritingOptions | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> WritingReport:
    """Write a file of verified questions, and beside it a journal by which the same call goes on after a stop.

    Raises UsageError where the journal is of another inbox, writer or options (a larger `count` goes on), and the
    failure of the writer's model when every batch in work failed; what was done by then is kept.
    """
    chosen = options or WritingOptions()
    every_mail = [mail for mail in inbox.mails() if _is_asked_about(mail)]
    if not every_mail:
        raise UsageError(f"{inbox.path} has no mail that could be asked about")
    batches = [every_mail[at : at + chosen.batch] for at in range(0, len(every_mail), chosen.batch)]
    order = [*range(len(batches))]
    Random(f"questions/{chosen.seed}").shuffle(order)
    journal = _Journal(out.with_name(out.name + JOURNAL_SUFFIX), _settings(every_mail, writer, chosen))
    verifier = Verifier(inbox, writer, eval_share=chosen.eval_share, seed=chosen.seed)
    done = journal.batches
    while len(_chosen(done, order, chosen)) < chosen.count and (left := [n for n in order if n not in done]):
        window = left[: chosen.concurrency]
        results = await gather_results(_work(verifier, number, batches[number]) for number in window)
        failures = [one for one in results if isinstance(one, WanderlustError)]
        for result in results:
            if isinstance(result, _Batch):
                journal.add(result)
        if failures and (len(failures) == len(results) or any(isinstance(one, PolicyRefused) for one in failures)):
            write_questions(out, _chosen(done, order, chosen))
            raise failures[0]
        say(f"{len(done):,} of {len(batches):,} batches: {len(_chosen(done, order, chosen)):,} questions")
    kept = _chosen(done, order, chosen)
    write_questions(out, kept)
    return _report(out, kept, done, batches=len(batches))


def _is_asked_about(mail: InboxMail) -> bool:
    return len(mail.new_text) >= MIN_MAIL_CHARS and mail.date != NO_DATE


def _settings(mails: Sequence[InboxMail], writer: QuestionWriter, options: WritingOptions) -> dict[str, Any]:
    """What a journal must agree with to go on."""
    ids = sha256("\0".join(mail.id for mail in mails).encode()).hexdigest()[:16]
    chosen = {name: getattr(options, name) for name in ("batch", "eval_share", "seed")}
    return {"mails": len(mails), "ids": ids, "writer": writer.name, **chosen}


def _chosen(done: Mapping[int, _Batch], order: Sequence[int], options: WritingOptions) -> list[MailQuestion]:
    """The questions of the first batches that suffice, each text once; all of them where they do not suffice."""
    found: dict[str, MailQuestion] = {}
    kept: list[MailQuestion] = []
    for number in order:
        if number not in done:
            break
        for one in done[number].taken:
            found.setdefault(" ".join(one.question.lower().split()), one)
        kept = _mixed([*found.values()], options)
        if len(kept) == options.count:
            break
    return kept


def _mixed(questions: Sequence[MailQuestion], options: WritingOptions) -> list[MailQuestion]:
    """At most `count` questions, of which at most the share `unanswerable` have no answer."""
    answered = [one.id for one in questions if one.answer]
    silent = [one.id for one in questions if not one.answer]
    silent = silent[: int(options.unanswerable * options.count + 1e-9)]
    answered = answered[: options.count - len(silent)]
    while silent and len(silent) > options.unanswerable * (len(silent) + len(answered)) + 1e-9:
        silent.pop()
    chosen = {*answered, *silent}
    return [one for one in questions if one.id in chosen]


def _report(out: Path, kept: Sequence[MailQuestion], done: Mapping[int, _Batch], *, batches: int) -> WritingReport:
    rejected = Counter[str]()
    for batch in done.values():
        rejected.update(batch.rejected)
    taken = sum(len(batch.taken) for batch in done.values())
    if taken > len(kept):
        rejected[SURPLUS] = taken - len(kept)
    return WritingReport(
        file=str(out),
        questions=len(kept),
        train=sum(one.split == "train" for one in kept),
        eval=sum(one.split == "eval" for one in kept),
        unanswerable=sum(not one.answer for one in kept),
        batches=len(done),
        all_batches=batches,
        proposed=len(kept) + sum(rejected.values()),
        rejected=dict(rejected.most_common()),
        unread_batches=sum(batch.unread for batch in done.values()),
    )


async def _work(verifier: Verifier, number: int, mails: Sequence[InboxMail]) -> _Batch:
    """One batch: proposals, each verified. Raises where the model fails, so that the batch is done again."""
    try:
        candidates = await verifier.writer.propose(mails)
    except RubricFailure as error:
        if _is_fault(error):
            raise
        return _Batch(number=number, unread=True)
    taken, rejected = [], Counter[str]()
    if len(candidates) > MAX_PER_BATCH:
        rejected["more than are taken of one batch"] = len(candidates) - MAX_PER_BATCH
    for candidate in candidates[:MAX_PER_BATCH]:
        try:
            reason = await verifier.reason_against(candidate, mails)
        except RubricFailure as error:
            if _is_fault(error):
                raise
            reason = "an answer that cannot be read"
        if reason:
            rejected[reason] += 1
        else:
            taken.append(verifier.question(candidate, mails))
    return _Batch(number=number, taken=tuple(taken), rejected=dict(rejected))


def _is_fault(error: RubricFailure) -> bool:
    """Whether the model failed, and did not merely answer in another form."""
    return error.transient or error.__cause__ is not None


class _Journal:
    """The batches that are done, one JSON line each, after a line with what they were made by."""

    def __init__(self, path: Path, settings: Mapping[str, Any]):
        self._path, self._settings = path, dict(settings)
        self.batches: dict[int, _Batch] = {}
        self._read()

    def add(self, batch: _Batch) -> None:
        """Keep a batch, on the disk before this returns."""
        self.batches[batch.number] = batch
        self._append(asdict(batch))

    def _append(self, row: Mapping[str, Any]) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(handle, "a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(f"cannot write {self._path}: {error}") from error

    def _read(self) -> None:
        lines = [*self._lines()]
        if not lines:
            self._append(self._settings)
            return
        settings, *rows = lines
        if settings != self._settings:
            names = [name for name in self._settings if settings.get(name) != self._settings[name]]
            shown = one_line(str(settings.get(names[0])), 60) if names else "unknown"
            raise UsageError(
                f"{self._path} was begun with other settings ({', '.join(names)}; there {shown}): "
                "name another file with --out, or delete it"
            )
        for row in rows:
            taken = tuple(parse_question({**one, "sources": list(one["sources"])}) for one in row["taken"])
            self.batches[row["number"]] = _Batch(**{**row, "taken": taken})

    def _lines(self) -> Iterator[dict[str, Any]]:
        """The rows; a last line that was cut off is dropped, from the file too."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"cannot read {self._path}: {error}") from error
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            os.truncate(self._path, len(whole))
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise StoreError(f"{self._path}, line {number}: {one_line(str(error))}") from error
            if not isinstance(row, dict) or (number > 1 and row.keys() != {one.name for one in fields(_Batch)}):
                raise StoreError(f"{self._path}, line {number}: it is no row of a journal")
            yield row
