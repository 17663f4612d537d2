"""The text of an unfinished answer that no later token can change."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wanderlust.policies.tool_formats.tagged_json import ToolCallFormat, partial_mark_length

UNFINISHED_MARK = "\ufffd"
"""Decoded text of an unfinished character."""


class StreamingText:
    """Decode growing ids into text that is never taken back.

    Text that later ids may change is held back: half a character, the beginning of a stop text or of a call.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        *,
        ends: frozenset[int],
        stops: Sequence[str] = (),
        tool_call_format: ToolCallFormat | None = None,
    ):
        self._decode, self._ends, self._stops, self._tool_call_format = decode, ends, stops, tool_call_format
        self._text, self._read, self._from = "", 0, 0
        self.sent = ""

    def advance(self, ids: Sequence[int]) -> str:
        """Return the text that has become certain, given all ids so far."""
        until = len(ids) - 1 if ids and ids[-1] in self._ends else len(ids)
        # Ids are decoded with a few before them: the first of a text loses its space in some tokenizers.
        before, whole = self._decode(ids[self._from : self._read]), self._decode(ids[self._from : until])
        if len(whole) > len(before) and not whole.endswith(UNFINISHED_MARK):
            self._text += whole[len(before) :]
            self._from, self._read = self._read, until
        text = self._text
        positions = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        held = max((partial_mark_length(text, stop) for stop in self._stops), default=0)
        certain = min([*positions, len(text) - held])
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
