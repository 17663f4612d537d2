"""Tokens as text, by the tokenizer of a checkpoint. Needs the package `tokenizers`, and only it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

from wanderlust.errors import PolicyFailure, boundary

PARTIAL, LONGEST_CHARACTER = "\ufffd", 4
"""What an incomplete character is decoded to, and how many tokens it may be spread over."""


@lru_cache(maxsize=4)
def _tokenizer(path: Path) -> Tokenizer:
    with boundary(PolicyFailure):
        return Tokenizer.from_file(str(path))


def pieces(path: Path, ids: Sequence[int]) -> list[str | None]:
    """The text of each token; of those that make up one character together, the first has it and the others nothing.

    None stands for an id that the tokenizer does not know. Raises PolicyFailure where the file is none.
    """
    known = _tokenizer(path)
    out: list[str | None] = []
    while len(out) < len(ids):
        place = len(out)
        for size in range(1, LONGEST_CHARACTER + 1):
            text = _text(known, ids[place : place + size])
            if PARTIAL not in (text or ""):
                break
        else:
            size, text = 1, PARTIAL
        size = min(size, len(ids) - place)
        out += [text, *[""] * (size - 1)]
    return out


def _text(known: Tokenizer, ids: Sequence[int]) -> str | None:
    named: list[str | None] = [known.id_to_token(id) for id in ids]
    if None in named:
        return None
    if known.decoder is None:
        return "".join(name or "" for name in named)
    return str(known.decode(list(ids), skip_special_tokens=False))
