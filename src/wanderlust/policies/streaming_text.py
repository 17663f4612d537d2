"""The text of an unfinished answer, decoded in as many steps as it has tokens, each of a few ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from wanderlust.policies.tool_formats.tagged_json import ToolCallFormat, partial_mark_length

UNFINISHED_MARK = "\ufffd"
"""Decoded text of an unfinished character, and of bytes that are none."""
MAX_UNFINISHED_TOKENS = 8
"""Tokens without a finished character after which those that cannot be part of one are taken as text."""
MAX_CHARACTER_TOKENS = 4
"""UTF-8 has at most four bytes a character, and a token at least one byte."""
Decode: TypeAlias = Callable[[Sequence[int]], str]


@dataclass(slots=True, kw_only=True)
class DecodedText:
    """Text of growing ids: what is certain, and what later ids may change.

    New ids are decoded with a few before them: the first of a text loses its space in some tokenizers. A tokenizer for
    which that gives another text than the whole is decoded whole.
    """

    decode: Decode
    certain: str = ""
    pending: str = ""
    """Text after it that ends in an unfinished character, or empty."""
    _from: int = 0
    """First id of the window that is decoded."""
    _read: int = 0
    """Ids whose text is certain."""
    _before: str = ""
    """Text of the window up to there."""

    def extend(self, ids: Sequence[int]) -> int:
        """Take in all ids so far, which begin with those of the call before; returns where the text may be new."""
        start, whole = len(self.certain), self.decode(ids[self._from :])
        if not whole.startswith(self._before):
            start, self.certain, self._from, self._before = 0, "", 0, ""
            whole = self.decode(ids)
        self.pending = whole[len(self._before) :]
        if not whole.endswith(UNFINISHED_MARK):
            self._take(ids, len(ids), whole)
        elif len(ids) - self._read > MAX_UNFINISHED_TOKENS:
            until = len(ids) - MAX_CHARACTER_TOKENS
            if whole.startswith(sure := self.decode(ids[self._from : until])):
                self._take(ids, until, sure)
        return start

    def _take(self, ids: Sequence[int], until: int, whole: str) -> None:
        """The text of the ids before `until` is certain; `whole` is that of the window up to there."""
        new = whole[len(self._before) :]
        if not new:
            return
        self.certain, self.pending = self.certain + new, self.pending[len(new) :]
        self._from, self._read = self._read, until
        self._before = self.decode(ids[self._from : until])


def first_stop(text: str, stops: Sequence[str]) -> str:
    """The stop text that comes first in `text`; empty where none is in it."""
    return min((stop for stop in stops if stop in text), key=text.find, default="")


def cut_at_stops(text: str, stops: Sequence[str]) -> str:
    """The text up to the first of the stop texts."""
    stop = first_stop(text, stops)
    return text[: text.find(stop)] if stop else text


class StopTexts:
    """Finds the first of some texts in growing ids; every call decodes and searches what is new."""

    def __init__(self, decode: Decode, stops: Sequence[str]):
        self._text, self._stops = DecodedText(decode=decode), tuple(stops)
        self._longest = max(map(len, stops), default=0)

    def found(self, ids: Sequence[int]) -> bool:
        """Whether the text of all ids so far, which begin with those of the call before, has one of the texts."""
        start = max(self._text.extend(ids) - self._longest + 1, 0)
        new = self._text.certain[start:] + self._text.pending
        return any(stop in new for stop in self._stops)


class StreamingText:
    """Decode growing ids into text that is never taken back.

    Text that later ids may change is held back: half a character, the beginning of a stop text or of a call.
    """

    def __init__(
        self,
        decode: Decode,
        *,
        ends: frozenset[int],
        stops: Sequence[str] = (),
        tool_call_format: ToolCallFormat | None = None,
    ):
        self._ends, self._stops, self._tool_call_format = ends, stops, tool_call_format
        self._decoded = DecodedText(decode=decode)
        self._longest, self._searched = max(map(len, stops), default=0), 0
        self._stop_at: int | None = None
        self.sent = ""

    def advance(self, ids: Sequence[int]) -> str:
        """Return the text that has become certain, given all ids so far."""
        self._decoded.extend(ids[:-1] if ids and ids[-1] in self._ends else ids)
        text = self._decoded.certain
        if self._stop_at is None:
            start = max(self._searched - self._longest + 1, 0)
            self._searched = len(text)
            self._stop_at = min((at for stop in self._stops if (at := text.find(stop, start)) >= 0), default=None)
        held = max((partial_mark_length(text, stop) for stop in self._stops), default=0)
        certain = len(text) - held if self._stop_at is None else min(self._stop_at, len(text) - held)
        if self._tool_call_format is not None:
            certain = min(certain, self._tool_call_format.certain_length(text))
        new, self.sent = text[len(self.sent) : certain], max(text[:certain], self.sent, key=len)
        return new

    def remainder(self, whole: str) -> str:
        """Return the part of the finished text that has not been sent."""
        sent = self.sent if whole.startswith(self.sent) else self.sent.rstrip()  # text before a call ends without space
        left = whole[len(sent) :] if whole.startswith(sent) else ""
        self.sent += left
        return left
