"""Text from outside, made safe to show."""

from __future__ import annotations

import re

_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Controls but newline and tab, what reorders or breaks lines unseen, and lone surrogates."""


def visible(text: str) -> str:
    """`text` with every character escaped that could steer a terminal; newlines and tabs stay."""
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def one_line(text: str, limit: int = 200) -> str:
    """`visible` text on one line of at most `limit` characters, cut with an ellipsis."""
    line = visible(" ".join(text[: 4 * limit].split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"
