"""Tokens as text, by the tokenizer of a checkpoint. Needs the package `tokenizers` alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

from wanderlust.errors import PolicyFailure, boundary

REPLACEMENT_CHARACTER, MAX_TOKENS_PER_CHARACTER = "\ufffd", 4
"""Text of an incomplete character, and the most tokens of one character."""


@lru_cache(maxsize=4)
def _tokenizer(path: Path) -> Tokenizer:
    with boundary(PolicyFailure):
        return Tokenizer.from_file(str(path))


def token_texts(path: Path, ids: Sequence[int]) -> list[str | None]:
    """The text of each token; of the tokens of one character, the first has it and the others are empty.

    None stands for an id that the tokenizer does not know. Raises PolicyFailure where the file is no tokenizer.
    """
    tokenizer = _tokenizer(path)
    out: list[str | None] = []
    while len(out) < len(ids):
        place = len(out)
        for size in range(1, MAX_TOKENS_PER_CHARACTER + 1):
            text = _text(tokenizer, ids[place : place + size])
            if REPLACEMENT_CHARACTER not in (text or ""):
                break
        else:
            size, text = 1, REPLACEMENT_CHARACTER
        size = min(size, len(ids) - place)
        out += [text, *[""] * (size - 1)]
    return out


def _text(tokenizer: Tokenizer, ids: Sequence[int]) -> str | None:
    named: list[str | None] = [tokenizer.id_to_token(id) for id in ids]
    if None in named:
        return None
    if tokenizer.decoder is None:
        return "".join(name or "" for name in named)
    return str(tokenizer.decode(list(ids), skip_special_tokens=False))
