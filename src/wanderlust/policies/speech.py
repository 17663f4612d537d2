"""The text of an answer while it is being sampled: what is sure of it so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wanderlust.policies.dialects import Dialect, held_back

UNFINISHED = "\ufffd"
"""What half a character decodes to."""


class Speech:
    """Turns growing ids into text that is never taken back.

    Held back is what may still become something else: half a character, the beginning of a stop text or of a call.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        *,
        ends: frozenset[int],
        stops: Sequence[str] = (),
        dialect: Dialect | None = None,
    ):
        self._decode, self._ends, self._stops, self._dialect = decode, ends, stops, dialect
        self._text, self._read, self._from = "", 0, 0
        self.sent = ""

    def more(self, ids: Sequence[int]) -> str:
        """The text that has become sure, given all ids so far."""
        until = len(ids) - 1 if ids and ids[-1] in self._ends else len(ids)
        # Ids are decoded with a few before them: the first of a text loses its space in some tokenizers.
        before, whole = self._decode(ids[self._from : self._read]), self._decode(ids[self._from : until])
        if len(whole) > len(before) and not whole.endswith(UNFINISHED):
            self._text += whole[len(before) :]
            self._from, self._read = self._read, until
        return self._send(self._text[: self._sure()])

    def rest(self, whole: str) -> str:
        """What is still to be said of the finished text."""
        sent = self.sent if whole.startswith(self.sent) else self.sent.rstrip()  # text before a call ends without space
        left = whole[len(sent) :] if whole.startswith(sent) else ""
        self.sent += left
        return left

    def _send(self, text: str) -> str:
        new, self.sent = text[len(self.sent) :], max(text, self.sent, key=len)
        return new

    def _sure(self) -> int:
        text = self._text
        found = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        until = min([*found, len(text) - max((held_back(text, stop) for stop in self._stops), default=0)])
        return min(until, self._dialect.sure(text)) if self._dialect is not None else until


def cut(text: str, stops: Sequence[str]) -> str:
    """The text up to the first of the stop texts."""
    found = [at for stop in stops if (at := text.find(stop)) >= 0]
    return text[: min(found)] if found else text
