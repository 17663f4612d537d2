"""The mail agent's reward `art-e` against ART·E's published function."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.bar import Bar

from published_art_e import differing


def bars() -> Iterator[Bar]:
    """How many rewards differ."""
    wrong, count = differing()
    note = f"of {count:,}: every combination of its flags, 1 to 11 turns, 0 to 3 sources; equal to the last bit"
    yield Bar(name="rewards that differ from ART·E's published function", figure=wrong, bar=0, aim=0, note=note)
