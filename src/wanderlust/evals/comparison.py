"""Two evaluations of the same tasks, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wanderlust.core.errors import UsageError
from wanderlust.evals.statistics import Estimate, chance, difference, differences, estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What the second did better or worse than the first, on the tasks that both scored."""

    first: Estimate
    second: Estimate
    """Both over the common tasks only."""
    difference: Estimate
    """Second minus first, paired by task."""
    chance: float
    """How often a difference this large comes about where there is none; see `statistics.chance`."""
    gained: Sequence[str]
    """Tasks that only the second passes: at least half of its samples reach the passing reward."""
    lost: Sequence[str]
    """Tasks that only the first passes."""
    missing: int
    """Tasks that only one of them scored; they are in no figure."""

    @property
    def clear(self) -> bool:
        """Whether the interval leaves 0 out and chance is below 5%: few tasks are never clear."""
        low, high = self.difference.low, self.difference.high
        return low is not None and high is not None and not low <= 0 <= high and self.chance < 0.05


def compare(
    first: Mapping[str, Sequence[float]], second: Mapping[str, Sequence[float]], *, passing: float = 1.0
) -> Comparison:
    """Compare the rewards by task of two runs. Raises UsageError when they have no scored task in common."""
    ours, theirs = ({task: values for task, values in run.items() if values} for run in (first, second))
    common = sorted(ours.keys() & theirs.keys())
    if not common:
        raise UsageError("the two runs have no scored task in common")
    before, after = ({t for t in common if _passes(run[t], passing)} for run in (ours, theirs))
    return Comparison(
        first=estimate(ours[task] for task in common),
        second=estimate(theirs[task] for task in common),
        difference=difference(theirs, ours),
        chance=chance(differences(theirs, ours)),
        gained=sorted(after - before),
        lost=sorted(before - after),
        missing=len(ours.keys() ^ theirs.keys()),
    )


def _passes(values: Sequence[float], passing: float) -> bool:
    return 2 * sum(value >= passing for value in values) >= len(values)
