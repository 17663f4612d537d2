"""One SQLite file per inbox, with a full-text index (FTS5): search by keywords and headers, newest first; read by id.

Rows are numbered by date, so that the newest hits are read from the end of the index without sorting, and a range of
dates is a range of rows.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from wanderlust.errors import StoreError, UsageError, one_line
from wanderlust.store.whole_files import replacing
from wanderlust_inbox.mail import InboxMail

T = TypeVar("T")

MAX_HITS = 10
"""Mails that a search lists at most (ART-E)."""
SNIPPET_WORDS = 15
"""Words of a hit's snippet (ART-E)."""
MAX_KEYWORDS, MAX_KEYWORD_CHARS = 16, 100
"""Keywords of a search that are read, and characters of each."""
FORMAT = 1
"""Version of the file's tables."""
DATE = re.compile(r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\d)?")
SCHEMA = """
create table about (name text primary key, value text not null);
create table mails (
    place integer primary key, id text not null unique, thread text not null, date text not null, sender text not null,
    recipients text not null, cc text not null, subject text not null, body text not null, attachments text not null,
    reply_to text, senders text not null, receivers text not null
);
create index by_thread on mails (thread);
create index by_date on mails (date);
create virtual table words using fts5 (
    subject, body, attachments, senders, receivers,
    content='mails', content_rowid='place', tokenize='porter unicode61 remove_diacritics 2'
);
"""
TEXT_COLUMNS = "{subject body attachments}"
"""Columns that keywords are looked for in."""
BODY_COLUMN = 1
COLUMNS = "id, thread, date, sender, recipients, cc, subject, body, attachments, reply_to"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A mail that a search found."""

    id: str
    date: str
    sender: str
    subject: str
    snippet: str
    """The words of the body around a keyword, or its first ones."""


def write_inbox(
    path: Path,
    mails: Iterable[InboxMail],
    *,
    owner: str,
    names: Mapping[str, str] | None = None,
    about: Any = None,
    in_order: bool = False,
) -> int:
    """Write an inbox in one file, in whole or not at all; returns the number of mails.

    `owner` is an address, `names` has display names by address, and `about` is JSON data that is kept with the inbox.
    Mails that come `in_order` of date and id are not gathered in memory. An existing file is replaced.
    UsageError for two mails of one id, StoreError where the file cannot be written.
    """
    ordered = mails if in_order else sorted(mails, key=lambda mail: (mail.date, mail.id))
    facts = {"format": FORMAT, "owner": owner, "names": dict(names or {}), "about": about}
    try:
        with (
            replacing(path, mode=0o600, shared=True) as draft,
            closing(sqlite3.connect(draft, isolation_level=None)) as db,
        ):
            db.executescript(f"pragma journal_mode = off; pragma synchronous = off; begin;{SCHEMA}")
            db.executemany("insert into about values (?, ?)", [(key, _dump(value)) for key, value in facts.items()])
            rows = (_row(place, mail, names or {}) for place, mail in enumerate(ordered, 1))
            db.executemany(f"insert into mails values ({', '.join('?' * 13)})", rows)
            db.execute("insert into words (words) values ('rebuild')")
            count = int(db.execute("select count(*) from mails").fetchone()[0])
            db.execute("commit")
    except sqlite3.IntegrityError as error:
        raise UsageError(f"two mails have the same id, so {path.name} was not written: {error}") from error
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"cannot write the inbox {path}: {error}") from error
    return count


def _row(place: int, mail: InboxMail, names: Mapping[str, str]) -> tuple[Any, ...]:
    def named(addresses: Iterable[str]) -> str:
        return "\n".join(f"{names.get(one, '')} {one}".strip() for one in addresses)

    lists = [_dump(one) for one in (mail.recipients, mail.cc, mail.attachments)]
    fields = (mail.id, mail.thread, mail.date, mail.sender, lists[0], lists[1], mail.subject, mail.body, lists[2])
    people = (named([mail.sender]), named([*mail.recipients, *mail.cc]))
    return (place, *(_encodable(one) for one in fields), mail.reply_to, *map(_encodable, people))


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _encodable(text: str) -> str:
    """The text without NUL and halves of characters, neither of which SQLite keeps."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


class InboxFile:
    """A written inbox, opened read-only at the first use; many threads and forked processes may use one object.

    Raises StoreError for a file that is missing or no inbox.
    """

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._pid = 0
        facts = dict(self._use(lambda db: db.execute("select name, value from about").fetchall()))
        if facts.get("format") != str(FORMAT):
            raise StoreError(f"{self.path} is an inbox of another format: import it again")
        self.owner: str = json.loads(facts["owner"])
        self.names: dict[str, str] = json.loads(facts["names"])
        self.about: Any = json.loads(facts["about"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[InboxFile], tuple[Path]]:
        """Another process opens the file anew."""
        return InboxFile, (self.path,)

    def __len__(self) -> int:
        return int(self._use(lambda db: db.execute("select count(*) from mails").fetchone())[0])

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            if self._db is not None and self._pid == os.getpid():
                self._db.close()
            self._db = None

    def __del__(self) -> None:
        if hasattr(self, "_db"):
            self.close()

    def search(
        self,
        keywords: Sequence[str] = (),
        *,
        sender: str = "",
        recipient: str = "",
        after: str = "",
        before: str = "",
        limit: int = MAX_HITS,
        snippet_words: int = SNIPPET_WORDS,
    ) -> list[Hit]:
        """The newest mails, at most `limit`, with all keywords in subject, body or attachments' names.

        A keyword is a word, or several that stand together; any text is taken as words, and one without letters or
        digits is ignored. `sender` and `recipient` are words of a name or address. Mails are from `after` on and
        earlier than `before`, dates like 2026-05-14. Raises UsageError for another form of date.
        """
        terms = [f"{TEXT_COLUMNS} : {phrase}" for phrase in map(_phrase, keywords[:MAX_KEYWORDS]) if phrase]
        for column, value in (("senders", sender), ("receivers", recipient)):
            if phrase := _phrase(value):
                terms.append(f"{column} : {phrase}")
        count = max(0, min(limit, MAX_HITS))
        return self._use(
            lambda db: _found(db, terms, rows=self._rows(db, after, before), count=count, words=snippet_words)
        )

    def ranked(self, words: Iterable[str], *, limit: int = MAX_HITS, sender: str = "") -> list[Hit]:
        """The mails that fit best by BM25 over headers and text, where any of the words may be missing."""
        phrases = [phrase for phrase in map(_phrase, words) if phrase]
        if not phrases:
            return []
        match = " OR ".join(phrases)
        if phrase := _phrase(sender):
            match = f"({match}) AND senders : {phrase}"
        sql = (
            f"select m.id, m.date, m.sender, m.subject, snippet(words, {BODY_COLUMN}, '', '', '…', {SNIPPET_WORDS}) "
            "from words join mails m on m.place = words.rowid where words match ? order by rank, words.rowid limit ?"
        )
        return self._use(lambda db: [_hit(row) for row in db.execute(sql, (match, limit))])

    def read(self, mail_id: str) -> InboxMail | None:
        """The mail of that id; None where there is none."""
        sql = f"select {COLUMNS} from mails where id = ?"
        row = self._use(lambda db: db.execute(sql, (_encodable(mail_id),)).fetchone())
        return None if row is None else _mail(row)

    def thread(self, name: str) -> list[InboxMail]:
        """The mails of a thread, the oldest first."""
        sql = f"select {COLUMNS} from mails where thread = ? order by place"
        return [_mail(row) for row in self._use(lambda db: db.execute(sql, (name,)).fetchall())]

    def mails(self) -> list[InboxMail]:
        """Every mail, the oldest first."""
        return [
            _mail(r) for r in self._use(lambda db: db.execute(f"select {COLUMNS} from mails order by place").fetchall())
        ]

    def name_of(self, address: str) -> str:
        """The display name of an address, or the address."""
        return self.names.get(address, address)

    def _rows(self, db: sqlite3.Connection, after: str, before: str) -> tuple[int, int]:
        """The first row of the dates asked for, and the one behind the last."""
        bounds = []
        for value in (after, before):
            if value and not DATE.fullmatch(value):
                raise UsageError(f"{one_line(repr(value), 60)} is no date: write it like 2026-05-14")
            sql = "select place from mails where date >= ? order by date, place limit 1"
            row = db.execute(sql, (value,)).fetchone() if value else None
            bounds.append(row[0] if row else None)
        behind = int(db.execute("select coalesce(max(place), 0) + 1 from mails").fetchone()[0])
        first, last = (
            behind if value and row is None else row for value, row in zip((after, before), bounds, strict=True)
        )
        return first or 0, last or behind

    def _use(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """The result of an action on the connection, one action at a time."""
        with self._lock:
            try:
                if self._db is None or self._pid != os.getpid():
                    self._db, self._pid = _open(self.path), os.getpid()
                return action(self._db)
            except sqlite3.Error as error:
                raise StoreError(f"cannot read the inbox {self.path}: {error}") from error


def _open(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise StoreError(f"there is no inbox {path}")
    uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    return sqlite3.connect(uri, uri=True, check_same_thread=False)


def _phrase(text: str) -> str:
    """The words of a text as one phrase of FTS5, where nothing is syntax; empty where there is no word."""
    words = re.findall(r"\w+", _encodable(text[:MAX_KEYWORD_CHARS]).replace("_", " "))
    return f'"{" ".join(words)}"' if words else ""


def _found(db: sqlite3.Connection, terms: Sequence[str], *, rows: tuple[int, int], count: int, words: int) -> list[Hit]:
    if not terms:
        sql = "select id, date, sender, subject, substr(body, 1, 400) from mails where place >= ? and place < ? "
        found = db.execute(f"{sql} order by place desc limit ?", (*rows, count))
        return [_hit((*row[:4], " ".join(row[4].split()[:words]))) for row in found]
    sql = (
        f"select m.id, m.date, m.sender, m.subject, snippet(words, {BODY_COLUMN}, '', '', '…', ?) "
        "from words join mails m on m.place = words.rowid "
        "where words match ? and words.rowid >= ? and words.rowid < ? order by words.rowid desc limit ?"
    )
    return [_hit(row) for row in db.execute(sql, (max(1, min(words, 64)), " AND ".join(terms), *rows, count))]


def _hit(row: Sequence[Any]) -> Hit:
    return Hit(id=row[0], date=row[1], sender=row[2], subject=row[3], snippet=" ".join(row[4].split()))


def _mail(row: Sequence[Any]) -> InboxMail:
    lists = [tuple(json.loads(row[at])) for at in (4, 5, 8)]
    return InboxMail(
        id=row[0],
        thread=row[1],
        date=row[2],
        sender=row[3],
        recipients=lists[0],
        cc=lists[1],
        subject=row[6],
        body=row[7],
        attachments=lists[2],
        reply_to=row[9],
    )
