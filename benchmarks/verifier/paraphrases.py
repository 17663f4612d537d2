"""Other words for the same, and a judge who knows them: for testing verifiers without a model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from random import Random

from benchmarks.verifier.lookalikes import SYNONYMS

from wanderlust.policies.scripted import Scripted
from wanderlust.types import Message


def paraphrase(text: str) -> str:
    """The same in other words."""
    for word, other in SYNONYMS.items():
        text = re.sub(rf"\b{word}\b", other, text, flags=re.IGNORECASE)
    return text if text.startswith("Hello") else f"Hello, {text}"


def plain_words(text: str) -> str:
    """What all paraphrases of a text have in common."""
    text = text.strip().casefold().removeprefix("hello, ")
    for word, other in SYNONYMS.items():
        text = text.replace(other, word)
    return " ".join(text.split())


def paraphrase_judge() -> Scripted:
    """A judge that knows these paraphrases and nothing else: a policy like any other, without a model."""
    sides = re.compile(r"<wanted>\n(.*?)\n?</wanted>\n<written>\n(.*?)\n?</written>", re.DOTALL)

    def answer(messages: Sequence[Message], _: Random) -> str:
        texts: Iterator[tuple[str, str]] = iter(sides.findall(messages[-1].content))
        same = all(plain_words(wanted) == plain_words(written) for wanted, written in texts)
        return f'{{"reason": "the words", "same": {str(same).lower()}}}'

    return Scripted(answer)
