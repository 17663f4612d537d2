"""A mail as the inbox keeps it, and its new text apart from what it quotes."""

from __future__ import annotations

import re
from dataclasses import dataclass

QUOTE_HEADER = re.compile(r"^(?:On .{1,200} wrote:|-{2,} ?(?:Original|Forwarded) message ?-{2,}.*)$", re.MULTILINE)
"""The line that introduces quoted history or a forwarded mail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxMail:
    """One mail; addresses are plain, and their display names stand in the inbox's table of names.

    Example:
        >>> InboxMail(id="m1", thread="t1", date="2026-05-12T09:30:00", sender="ann@post.example",
        ...      recipients=("me@post.example",), subject="Boiler", body="He comes on Tuesday.").new_text
        'He comes on Tuesday.'
    """

    id: str
    """Unique in its inbox."""
    thread: str
    """The same for all mails of one conversation."""
    date: str
    """UTC, as `YYYY-MM-DDTHH:MM:SS`."""
    sender: str
    recipients: tuple[str, ...]
    cc: tuple[str, ...] = ()
    subject: str
    body: str
    """The whole text, quoted history included."""
    attachments: tuple[str, ...] = ()
    """File names."""
    reply_to: str | None = None
    """Id of the mail that this one answers."""

    @property
    def new_text(self) -> str:
        """The body without quoted lines and the header lines before them; a forwarded text is kept."""
        return unquoted(self.body)


def unquoted(body: str) -> str:
    """A body without the lines that begin with `>` and the line that introduces them."""
    lines = body.splitlines()
    kept = [
        line
        for line, after in zip(lines, [*lines[1:], ""], strict=True)
        if not line.startswith(">") and not (after.startswith(">") and QUOTE_HEADER.match(line))
    ]
    return "\n".join(kept).strip()
