"""The task that ours and TRL's trainer both learn: say digits. What both sides must agree on stands here."""

from __future__ import annotations

ASKED, GROUPS, SIBLINGS, TOKENS, LR = 256, 8, 8, 64, 1e-3


def prompt(number: int) -> str:
    """What is asked."""
    return f"Count up from {number % ASKED}: "


def share(text: str) -> float:
    """The reward: the share of digits."""
    return sum(letter.isdigit() for letter in text) / max(1, len(text))
