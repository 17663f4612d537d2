"""One's own mail as an inbox: mbox files, Maildir folders, single messages, and folders of these.

Mails are read one at a time into a scratch file beside the new inbox, which nobody else may read and which has no name,
so that nothing of it is left behind. Everything that was mended or left out is a line of the report. Nothing leaves
this machine.
"""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from wanderlust.errors import StoreError, UsageError, one_line
from wanderlust.store.whole_files import PARTIAL
from wanderlust_inbox.mail import InboxMail
from wanderlust_inbox.message import MessageUnreadable, ParsedMessage, parse_message
from wanderlust_inbox.sources import LeftOut, raw_messages
from wanderlust_inbox.store import InboxFile, write_inbox
from wanderlust_inbox.threads import MailThreads, ThreadFacts, find_threads

REPORT_SUFFIX = ".report.txt"
"""Ending of the report's name, after that of the inbox."""
ID_DIGITS = 10
"""Hexadecimal digits of a mail's id; the same mail gets the same id whenever it is imported."""
PROGRESS_EVERY = 1_000
MAX_NAMES = 8
"""Different names of an address that are counted."""
OWN_NAME_WEIGHT = 10
"""How often a name counts that an address gives itself: anybody may call others what they like."""
MAX_PEOPLE_PER_MAIL = 50
"""People of one mail that threads are found by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What became of everything that was found."""

    inbox: str
    """Path of the written file; empty where there was no mail."""
    report: str
    """Path of the list of all that was mended or left out, a line each."""
    found: int
    """Messages, and files and folders that hold none: `mails` and `left_out` sum up to it."""
    mails: int
    threads: int
    owner: str
    owner_share: float
    """Share of the mails that the owner sent or got."""
    first_date: str
    last_date: str
    mended: Mapping[str, int]
    """Mails that were taken, by what was mended in them."""
    left_out: Mapping[str, int]
    """By reason."""
    places: Mapping[str, str]
    """For each reason, the first place that it was found at."""


def import_mail(
    paths: Iterable[Path | str], out: Path | str, *, owner: str = "", say: Callable[[str], None] = lambda _: None
) -> ImportReport:
    """Import mail into one inbox file, which only its user may read; an older inbox at `out` is replaced.

    `owner` is an address; by default the one that most mails were sent to or from. A mail that occurs again, with the
    same Message-ID, sender, date and subject, is left out. Where there is no mail nothing is written but the report.

    Raises UsageError for a path that is missing and for an `out` that is no inbox, StoreError for what cannot be
    written. Anything else that is wrong with a mail or a file is a line of the report.
    """
    places, target = [Path(path) for path in paths], Path(out)
    for path in places:
        if not os.path.lexists(path):
            raise UsageError(f"there is nothing at {path}")
    if not places:
        raise UsageError("nothing to import: name an mbox file, a Maildir folder or a message")
    if owner and "@" not in owner:
        raise UsageError(f"the owner is an address, not {one_line(repr(owner), 60)}")
    _refuse_foreign(target)
    report_path = target.with_name(target.name + REPORT_SUFFIX)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _private(report_path) as report, closing(_scratch(target)) as db:
            found = _Found(report=report, own=frozenset({str(report_path), str(target)}))
            found.read(places, db, say)
            return found.written(db, target, owner=owner.lower(), report_path=report_path)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"cannot write the inbox {target}: {one_line(str(error))}") from error


def _refuse_foreign(target: Path) -> None:
    if os.path.lexists(target):
        try:
            InboxFile(target).close()
        except StoreError:
            raise UsageError(f"{target} exists and is no inbox: name another file with --out") from None


def _private(path: Path) -> IO[str]:
    """A new file that only its user may read."""
    with suppress(FileNotFoundError):
        path.unlink()
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8")


def _scratch(target: Path) -> sqlite3.Connection:
    """A database without a name, beside the file that will be written."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name}", suffix=".part", dir=target.parent)
    os.close(handle)
    db = sqlite3.connect(name, isolation_level=None)
    db.executescript(
        "pragma journal_mode = off; pragma synchronous = off; pragma temp_store = memory; begin;"
        "create table mails (number integer primary key, date text, id text, facts text);"
        "create index by_date on mails (date, id);"
    )
    with suppress(OSError):  # some systems do not take the name from an open file
        os.unlink(name)
    return db


@dataclass(slots=True, kw_only=True)
class _Found:
    """Counts and facts of an import while it runs."""

    report: IO[str]
    own: frozenset[str]
    """Files of this import, which are no finds."""
    found: int = 0
    mended: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    places: dict[str, str] = field(default_factory=dict)
    names: dict[str, Counter[str]] = field(default_factory=dict)
    people: Counter[str] = field(default_factory=Counter)
    mails: int = 0
    _keys: set[bytes] = field(default_factory=set)
    _ids: set[str] = field(default_factory=set)

    def read(self, paths: Iterable[Path], db: sqlite3.Connection, say: Callable[[str], None]) -> None:
        """Read all mails into the scratch file."""
        for raw in raw_messages(paths):
            if raw.place in self.own or raw.place.endswith((".part", PARTIAL)):
                continue
            self.found += 1
            if isinstance(raw, LeftOut):
                self._leave(raw.place, raw.reason)
                continue
            try:
                self._take(parse_message(raw), db)
            except MessageUnreadable as error:
                self._leave(raw.place, f"cannot be read as a mail: {one_line(str(error), 80)}")
            if self.found % PROGRESS_EVERY == 0:
                say(f"{self.found:,} messages read")

    def _take(self, mail: ParsedMessage, db: sqlite3.Connection) -> None:
        people = (mail.sender, *mail.recipients, *mail.cc)
        text = (mail.message_id, mail.sender, mail.date, mail.subject, *(() if mail.message_id else (mail.body,)))
        key = sha256("\0".join(text).encode("utf-8", "replace")).digest()
        if key[:16] in self._keys:
            self._leave(mail.place, "the same mail again")
            return
        self._keys.add(key[:16])
        digits = ID_DIGITS
        while (mail_id := f"m{key.hex()[:digits]}") in self._ids:
            digits += 2
        self._ids.add(mail_id)
        for repair in mail.repairs:
            self.mended[repair] += 1
            self._note("mended", repair, mail.place)
        for address, name in mail.names:
            shown = self.names.setdefault(address, Counter())
            if name in shown or len(shown) < MAX_NAMES:
                shown[name] += OWN_NAME_WEIGHT if address == mail.sender else 1
        self.people.update({*people} | ({mail.delivered_to} - {""}))
        db.execute("insert into mails values (?, ?, ?, ?)", (self.mails, mail.date, mail_id, json.dumps(asdict(mail))))
        self.mails += 1

    def _leave(self, place: str, reason: str) -> None:
        self.left_out[reason] += 1
        self._note("left out", reason, place)

    def _note(self, what: str, reason: str, place: str) -> None:
        self.places.setdefault(reason, one_line(place, 300))
        self.report.write(f"{what}\t{one_line(reason)}\t{one_line(place, 1000)}\n")

    def written(self, db: sqlite3.Connection, target: Path, *, owner: str, report_path: Path) -> ImportReport:
        """Write the inbox, and say what it has."""
        threads = find_threads(_thread_facts(db))
        dates = db.execute("select min(date), max(date) from mails").fetchone()
        whose = owner or next((address for address, _ in self.people.most_common(1)), "")
        report = ImportReport(
            inbox=str(target) if self.mails else "",
            report=str(report_path),
            found=self.found,
            mails=self.mails,
            threads=len({*threads.thread_of}),
            owner=whose,
            owner_share=self.people[whose] / self.mails if self.mails else 0.0,
            first_date=dates[0] or "",
            last_date=dates[1] or "",
            mended=dict(self.mended.most_common()),
            left_out=dict(self.left_out.most_common()),
            places=self.places,
        )
        if self.mails:
            about = {"imported": {"mails": self.mails, "mended": report.mended, "left_out": report.left_out}}
            names = {address: shown.most_common(1)[0][0] for address, shown in self.names.items()}
            write_inbox(target, _mails(db, threads), owner=whose, names=names, about=about, in_order=True)
            os.chmod(target, 0o600)
        return report


def _thread_facts(db: sqlite3.Connection) -> Iterator[ThreadFacts]:
    for number, facts in db.execute("select number, facts from mails indexed by by_date order by date, id"):
        mail: Mapping[str, Any] = json.loads(facts)
        people = (mail["sender"], *mail["recipients"], *mail["cc"])
        yield ThreadFacts(
            number=number,
            message_id=mail["message_id"],
            references=tuple(mail["references"]),
            day=date.fromisoformat(mail["date"][:10]).toordinal(),
            subject=mail["subject"],
            people=frozenset(people[:MAX_PEOPLE_PER_MAIL]),
        )


def _mails(db: sqlite3.Connection, threads: MailThreads) -> Iterator[InboxMail]:
    """The mails in the order of their dates."""
    ids = [mail_id for (mail_id,) in db.execute("select id from mails order by number")]
    for number, facts in db.execute("select number, facts from mails indexed by by_date order by date, id"):
        mail: Mapping[str, Any] = json.loads(facts)
        yield InboxMail(
            id=ids[number],
            thread=f"t{ids[threads.thread_of[number]][1:]}",
            date=mail["date"],
            sender=mail["sender"],
            recipients=tuple(mail["recipients"]),
            cc=tuple(mail["cc"]),
            subject=mail["subject"],
            body=mail["body"],
            attachments=tuple(mail["attachments"]),
            reply_to=ids[threads.answers[number]] if number in threads.answers else None,
        )
