"""What users and tools say stays text, though it spell a special token: nobody ends a turn but who has it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from wanderlust.core.messages import Message

_MARK = "\ue000{}\ue001"
"""Stands for a special token's text in a rendered conversation; from Unicode's private use area."""
_MARKED = re.compile("\ue000(\\d{1,6})\ue001")
_TRUSTED = ("assistant", "system")
"""Roles whose special tokens are tokens: what was sampled, and what whoever wrote the environment says."""


class Quoting:
    """Hides special tokens' texts in untrusted messages before a template writes them; encodes them letter by letter.

    Text without any of them is encoded as ever.
    """

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        added = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
        self._specials = sorted({*map(str, tokenizer.all_special_tokens), *added}, key=lambda text: (-len(text), text))
        self._numbers = {text: number for number, text in enumerate(self._specials)}
        self._pattern = re.compile("|".join(map(re.escape, self._specials))) if self._specials else None

    def hidden(self, messages: Sequence[Message]) -> list[Message]:
        """The messages with marks where untrusted ones spell a special token."""
        return [self._without(message) for message in messages]

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text with marks."""
        ids: list[int] = []
        for place, piece in enumerate(_MARKED.split(text)):
            if place % 2:
                ids += self._plain(int(piece))
            elif piece:
                ids += self.tokenizer.encode(piece, add_special_tokens=False)
        return tuple(ids)

    def _without(self, message: Message) -> Message:
        if self._pattern is None or message.role in _TRUSTED or not self._pattern.search(message.content):
            return message
        return replace(
            message, content=self._pattern.sub(lambda found: _MARK.format(self._numbers[found[0]]), message.content)
        )

    def _plain(self, number: int) -> list[int]:
        text = self._specials[number] if number < len(self._specials) else _MARK.format(number)
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        return ids
