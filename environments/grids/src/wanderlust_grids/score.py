"""The official score of ARC-AGI-3: relative human action efficiency, as `arc-agi` 0.9.9 computes it.

A solved level is worth min(115, 100 (baseline / actions)^2), an unsolved one 0. A game is worth the mean of its levels,
the n-th with weight n, and at most the share of the weights of solved levels. A set is worth the mean of its games.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_high

from wanderlust.errors import UsageError

MAX_LEVEL_SCORE = 115.0


def level_score(actions: int, baseline: int) -> float:
    """The score of a solved level."""
    return min(100 * (baseline / actions) ** 2, MAX_LEVEL_SCORE) if actions > 0 else 0.0


def game_score(actions: Sequence[int], baselines: Sequence[int]) -> float:
    """The score of a game, 0 to 100.

    Args:
        actions: Actions of each solved level, from the first one on.
        baselines: Those of a person, or of the shortest solution, of every level.

    Raises UsageError where more levels are solved than there are, or there is none.
    """
    if not baselines or len(actions) > len(baselines):
        raise UsageError(f"{len(actions)} levels are solved of {len(baselines)}")
    scores = [level_score(taken, least) for taken, least in zip(actions, baselines, strict=False)]
    weights = range(1, len(baselines) + 1)
    total = sum(weights)
    score = sum(one * weight for one, weight in zip(scores, weights, strict=False)) / total
    solved = sum(weight for one, weight in zip(scores, weights, strict=False) if one > 0)
    return min(score, solved / total * 100)


def human_baseline(first_plays: Sequence[Sequence[int]]) -> list[int]:
    """Per level the upper median of the actions of first-time players who solved it.

    `first_plays` has each player's actions by solved level. The list ends before the first level that nobody solved.
    """
    out = []
    for number in range(max(map(len, first_plays), default=0)):
        solved = [play[number] for play in first_plays if len(play) > number]
        out.append(median_high(solved))
    return out
