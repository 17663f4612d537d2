"""A raw message as a parsed one: decoded headers, one plain text, names of attachments, and what had to be mended.

Mail is written by strangers. Every bound below keeps parsing short; whatever cannot be read as it claims to be is read
in the likeliest other way, and said in `repairs`.
"""

from __future__ import annotations

import codecs
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.errors import CloseBoundaryNotFoundDefect, HeaderParseError, StartBoundaryNotFoundDefect
from email.header import decode_header
from email.message import Message as EmailMessage
from email.parser import BytesHeaderParser
from email.utils import getaddresses, parsedate_tz
from functools import partial
from typing import Any, TypeVar

from wanderlust.errors import Failure, boundary, one_line
from wanderlust_inbox.markup import html_text
from wanderlust_inbox.sources import LINE_BYTES, MAX_PART_BYTES, RawMessage

T = TypeVar("T")

MAX_BODY_CHARS = 50_000
"""Characters of a mail's text that are kept."""
MAX_HEADER_CHARS = 10_000
"""Characters of one header that are read; lists of addresses may have ten times as many."""
MAX_SUBJECT_CHARS = 500
MAX_ADDRESSES = 1_000
MAX_ATTACHMENTS = 100
MAX_NAME_CHARS = 200
MAX_REFERENCES = 50
"""The nearest ones; longer lists lose their oldest."""
UNKNOWN_SENDER = "unknown@invalid"
NO_DATE = "1970-01-01T00:00:00"
"""Date of a mail that has none anywhere."""

TEXT_TYPES = {
    "text/html": "text/html",
    **dict.fromkeys(("text/plain", "text/markdown", "text/enriched", "text/x-markdown"), "text/plain"),
}
"""Types of parts that are a mail's text, and what they are read as."""
_BYTES = re.compile("[\udc80-\udcff]")
"""Bytes beyond ASCII in a header, as the standard library hands them over."""
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_REFUSED_CODECS = frozenset({"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "oem"})
"""Codecs of Python that are no charset of mail, or that hostile text makes slow."""
_SINGLE_BYTE_CODECS = ("ascii", "iso8859", "cp", "koi8", "mac", "tis", "hp", "ptcp", "kz")
_SEVEN_BIT_CODECS = ("iso2022", "hz", "utf-7")
"""Charsets whose other characters are written in ASCII."""
_MESSAGE_ID = re.compile(r"<([^<>\s]{1,500})>")
_PARENTHESES = re.compile(r"\([^()]{0,200}\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedMessage:
    """One message, in plain Python values."""

    place: str
    message_id: str
    """Empty where it has none."""
    references: tuple[str, ...]
    """Message ids of the earlier mails of its thread, the one that it answers last."""
    date: str
    sender: str
    recipients: tuple[str, ...]
    cc: tuple[str, ...]
    delivered_to: str
    subject: str
    body: str
    attachments: tuple[str, ...]
    names: tuple[tuple[str, str], ...]
    """Addresses with the display names that they had here."""
    repairs: tuple[str, ...]


class MessageUnreadable(Failure):
    """A raw message that is no mail."""


def parse_message(raw: RawMessage) -> ParsedMessage:
    """Parse a message. Raises MessageUnreadable, in one line, for what is no mail, and nothing else."""
    with boundary(MessageUnreadable):
        return _Parser(raw).parse()


class _Parser:
    """One message, and what was mended in it so far."""

    def __init__(self, raw: RawMessage):
        self.raw, self.repairs = raw, [*raw.repairs]
        self.mail = _safely(partial(message_from_bytes, raw.data)) or self._headers_and_text()
        self._headers = defaultdict[str, list[str]](list)
        for name, value in self.mail.raw_items():
            self._headers[name.lower()].append(str(value))

    def _headers_and_text(self) -> EmailMessage:
        """The message as one text, where its parts cannot be told apart."""
        self._mend("a message whose parts cannot be told apart")
        mail = BytesHeaderParser().parsebytes(self.raw.data)
        del mail["Content-Type"]
        return mail

    def parse(self) -> ParsedMessage:
        if not any(self._headers[name] for name in ("from", "date", "subject", "message-id", "to", "received")):
            raise MessageUnreadable("no header of a mail")
        froms = self._people("from", "sender", "return-path")
        to, cc = self._people("to", "resent-to"), self._people("cc")
        if not froms:
            self._mend("no sender")
        names = {address: name for name, address in (*cc, *to, *froms) if name}
        texts, attachments = self._content()
        ids = _MESSAGE_ID.findall(self._header("message-id")) or [""]
        return ParsedMessage(
            place=self.raw.place,
            message_id=ids[0],
            references=self._references(),
            date=self._date(),
            sender=froms[0][1] if froms else UNKNOWN_SENDER,
            recipients=tuple(address for _, address in to),
            cc=tuple(address for _, address in cc),
            delivered_to=next((a for _, a in self._people("delivered-to", "x-original-to")), ""),
            subject=_one_line(self._header("subject"), MAX_SUBJECT_CHARS),
            body=self._body(texts),
            attachments=attachments,
            names=tuple(names.items()),
            repairs=tuple(dict.fromkeys(self.repairs)),
        )

    def _mend(self, what: str) -> None:
        self.repairs.append(what)

    def _header(self, name: str) -> str:
        """A header, decoded; empty where there is none."""
        return self._decoded(self._raw(name, MAX_HEADER_CHARS))

    def _raw(self, name: str, limit: int) -> str:
        return next(iter(self._headers[name]), "")[:limit]

    def _decoded(self, value: str) -> str:
        """A header's text with its encoded words decoded."""
        if _BYTES.search(value):
            value = self._decode(value.encode("utf-8", "surrogateescape"), "")
        if "=?" not in value:
            return value
        try:
            pieces: Sequence[tuple[bytes | str, str | None]] = decode_header(value)
        except (HeaderParseError, ValueError):
            self._mend("a header with a broken encoded word")
            return value
        return "".join(self._piece(piece, charset) for piece, charset in pieces)

    def _piece(self, piece: bytes | str, charset: str | None) -> str:
        """A piece of a header; the standard library escapes what stands between encoded words."""
        if isinstance(piece, str):
            return piece
        return self._decode(piece, charset) if charset else piece.decode("raw_unicode_escape", "replace")

    def _people(self, *names: str) -> list[tuple[str, str]]:
        """Display names and addresses of the first of these headers that has any; each address once."""
        for name in names:
            values = [value[: 10 * MAX_HEADER_CHARS] for value in self._headers[name][:20]]
            found = dict[str, str]()
            for shown, address in getaddresses([_flat(value) for value in values])[:MAX_ADDRESSES]:
                plain = _plain_address(address)
                if plain and (plain not in found or not found[plain]):
                    found[plain] = _one_line(self._decoded(shown), MAX_NAME_CHARS)
            if found:
                return [(shown, address) for address, shown in found.items()]
        return []

    def _references(self) -> tuple[str, ...]:
        earlier = _MESSAGE_ID.findall(self._raw("references", 10 * MAX_HEADER_CHARS))
        answered = _MESSAGE_ID.findall(self._header("in-reply-to"))[:1]
        return tuple(dict.fromkeys([*(one for one in earlier if one not in answered), *answered]))[-MAX_REFERENCES:]

    def _date(self) -> str:
        """The date in UTC; that of its transport where its own is broken."""
        if date := _parsed_date(self._header("date")):
            return date
        received = [value[:MAX_HEADER_CHARS].rpartition(";")[2] for value in self._headers["received"]]
        for other in (*received, self.raw.envelope.partition(" ")[2].partition(" ")[2]):
            if date := _parsed_date(other):
                self._mend("no date, or a broken one: that of its transport was taken")
                return date
        self._mend(f"no date anywhere: {NO_DATE[:10]} was taken")
        return NO_DATE

    def _content(self) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
        """Texts with their types, and the names of attachments."""
        texts, attachments = [], []
        for part in _parts(self.mail):
            kind, name = part.get_content_type(), self._file_name(part)
            placed = _safely(part.get_content_disposition)
            attached = placed == "attachment" or (name and kind != "text/html")
            if kind.startswith("multipart/"):
                self._mend("a message whose parts cannot be told apart")
                del part["Content-Type"]
                kind = "text/plain"
            if kind in TEXT_TYPES and not attached:
                texts.append((TEXT_TYPES[kind], self._part_text(part)))
            elif kind in ("application/pgp-encrypted", "application/pkcs7-mime"):
                self._mend("encrypted: it has no text")
            else:
                attachments.append(name or f"({kind})")
        if any(isinstance(d, StartBoundaryNotFoundDefect | CloseBoundaryNotFoundDefect) for d in self.mail.defects):
            self._mend("a message that ends before its last part")
        return texts, tuple(dict.fromkeys(attachments[:MAX_ATTACHMENTS]))

    def _file_name(self, part: EmailMessage) -> str:
        name = _safely(part.get_filename) or ""
        if not name and part.get_content_type() == "message/rfc822":
            inner: Any = part.get_payload() if part.is_multipart() else None
            subject = str(inner[0].get("subject", "")) if isinstance(inner, list) and inner else ""
            name = f"{self._decoded(subject[:MAX_HEADER_CHARS]) or 'message'}.eml"
        return _one_line(self._decoded(name[:MAX_HEADER_CHARS]), MAX_NAME_CHARS)

    def _part_text(self, part: EmailMessage) -> str:
        charset = _safely(part.get_content_charset) or ""
        payload: Any = _safely(partial(part.get_payload, decode=True))
        if payload is None:  # its parameters are broken: without them the standard library can decode it
            del part["Content-Type"]
            self._mend("a part whose type cannot be read")
            payload = _safely(partial(part.get_payload, decode=True))
        data = payload if isinstance(payload, bytes) else b""
        if self.raw.shortened and len(data) >= 0.7 * (MAX_PART_BYTES - LINE_BYTES):  # base64 takes a third more
            self._mend(f"a text of more than {MAX_PART_BYTES:,} bytes was cut")
        return self._decode(data, charset)

    def _decode(self, data: bytes, charset: str) -> str:
        text, repair = decode_text(data, charset)
        if repair:
            self._mend(repair)
        return text

    def _body(self, texts: Sequence[tuple[str, str]]) -> str:
        """The plain texts, or else the HTML ones as text."""
        plain = [text for kind, text in texts if kind == "text/plain" and text.strip()]
        if not plain:
            plain = [html_text(text) for kind, text in texts if kind == "text/html"]
            if any(plain):
                self._mend("HTML alone: its text was taken")
        body = _CONTROLS.sub("", "\n\n".join(plain).replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n"))
        body = "\n".join(line.rstrip() for line in body.split("\n")).strip()
        if len(body) > MAX_BODY_CHARS:
            self._mend(f"a text of more than {MAX_BODY_CHARS:,} characters was cut")
            return f"{body[:MAX_BODY_CHARS].rstrip()}\n[{len(body) - MAX_BODY_CHARS} characters left out]"
        return body


def _parts(mail: EmailMessage) -> Iterator[EmailMessage]:
    """The leaves of a message; of `multipart/alternative` all, and nothing inside attached messages."""
    waiting = [mail]
    while waiting:
        part = waiting.pop()
        inner: Any = part.get_payload() if part.is_multipart() else None
        if part.get_content_maintype() == "multipart" and isinstance(inner, list):
            waiting += [one for one in reversed(inner) if isinstance(one, EmailMessage)]
        else:
            yield part


def _safely(read: Callable[[], T]) -> T | None:
    """What the standard library reads; None where it raises, as it does for broken parameters."""
    try:
        with boundary(MessageUnreadable):
            return read()
    except MessageUnreadable:
        return None


def decode_text(data: bytes, charset: str) -> tuple[str, str]:
    """The text of some bytes, and what was mended.

    A charset that is unknown or does not fit gives way to UTF-8, and that to Windows-1252. So does a single-byte
    charset for text beyond ASCII that is valid UTF-8, as that is no accident.
    """
    known = _codec(charset)
    if data.isascii() and b"\0" not in data and not known.startswith(_SEVEN_BIT_CODECS):
        return data.decode("ascii"), _charset_repair(charset, known, known)
    if not known or known.startswith(_SINGLE_BYTE_CODECS):
        guesses = ["utf-8", "cp1252" if known in ("", "ascii", "iso8859-1") else known, "cp1252"]
    else:
        guesses = [known, "utf-8", "cp1252"]
    for guess in guesses:
        try:
            return data.decode(guess), _charset_repair(charset, known, guess)
        except ValueError:
            continue
    return data.decode("cp1252", "replace"), _charset_repair(charset, known, "")


def _charset_repair(charset: str, known: str, taken: str) -> str:
    if charset and not known:
        return "an unknown charset"
    if taken == known or (known in ("", "iso8859-1") and taken in ("utf-8", "cp1252")[known != "" :]):
        return ""
    return "a charset that does not fit its text"


def _codec(charset: str) -> str:
    """Python's name of a charset; empty for an unknown one."""
    try:
        name = codecs.lookup(charset.strip("\"' ")).name
        "".encode(name)
    except (LookupError, ValueError, UnicodeError):
        return ""
    return "" if name.replace("-", "_") in _REFUSED_CODECS else name


def _parsed_date(text: str) -> str:
    """A date of a header in UTC; empty where it is none, or none of a mail's time."""
    parts = parsedate_tz(" ".join(_PARENTHESES.sub(" ", text[:200]).split()))
    if parts is None:
        return ""
    try:
        moment = datetime(*parts[:6], tzinfo=UTC) - timedelta(seconds=parts[9] or 0)
    except (ValueError, OverflowError):
        return ""
    return moment.strftime("%Y-%m-%dT%H:%M:%S") if 1971 <= moment.year <= 2100 else ""


def _flat(value: str) -> str:
    """A header of addresses without comments, which may be nested thousands deep."""
    return value if value.count("(") < 50 else value.replace("(", " ").replace(")", " ")


def _plain_address(address: str) -> str:
    plain = address.strip().strip("<>").lower()
    return one_line(plain, 320) if "@" in plain and " " not in plain and len(plain) <= 320 else ""


def _one_line(text: str, limit: int) -> str:
    line = " ".join(_CONTROLS.sub(" ", text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
