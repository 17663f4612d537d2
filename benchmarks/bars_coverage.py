"""How often a 95% interval holds the truth of few tasks, and how wide it is: drawn outcomes of nine shapes.

Each shape draws a task's difficulty, then its rewards; the truth is known, or the mean of many draws. A figure is that
of the worst number of tasks and samples of a shape: draws whose interval does not leave out the truth. Draws without an
interval ("too few tasks to tell") leave nothing out; the note says at which numbers of tasks most have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from math import exp
from random import Random
from statistics import fmean

from benchmarks.bar import Bar
from wanderlust.evals import statistics
from wanderlust.evals.statistics import Estimate, difference_over_seeds, estimate, paired_difference
from wanderlust.rubrics.moments import student_quantile

TASKS, SAMPLES, SEEDS = (3, 5, 8, 10, 15, 20, 40, 100, 500), (1, 4, 8), (2, 3, 5, 10)
DRAWS, MANY, LARGEST = 1000, 100_000, 800
"""Draws of each cell; of a truth that no formula gives; most rewards of a cell's draw (500 tasks have one sample)."""
Draw = Callable[[Random, int], tuple[list[float], list[float]]]
"""The rewards of one task on two sides, so many samples each: the second side is a little better."""


def _right(chance: float, samples: int, rng: Random) -> list[float]:
    return [float(rng.random() < chance) for _ in range(samples)]


def _beta(a: float, b: float, up: float) -> Draw:
    """Right or wrong, with chances of a beta distribution."""

    def draw(rng: Random, samples: int) -> tuple[list[float], list[float]]:
        chance = rng.betavariate(a, b)
        better = chance + up * (1 - chance) * rng.random()
        return _right(chance, samples, rng), _right(better, samples, rng)

    return draw


def _all_or_nothing(rng: Random, samples: int) -> tuple[list[float], list[float]]:
    """Tasks that are nearly always right, or nearly never; one in ten is won."""
    luck = rng.random()
    one, other = (_right(0.98 if luck < share else 0.03, samples, rng) for share in (0.6, 0.7))
    return one, other


def _graded(rng: Random, samples: int) -> tuple[list[float], list[float]]:
    """Rewards around a task's own level."""
    level = 0.9 * rng.betavariate(2, 2)
    one, other = (
        [rng.betavariate(1 + 8 * at, 1 + 8 * (1 - at)) for _ in range(samples)] for at in (level, level + 0.1)
    )
    return one, other


def _near_nothing(rng: Random, samples: int) -> tuple[list[float], list[float]]:
    """Graded rewards of which most are near 0."""
    level = rng.betavariate(0.4, 1.6)
    better = level + 0.2 * (1 - level) * rng.random()
    one, other = ([rng.betavariate(0.2 + 4 * at, 0.2 + 4 * (1 - at)) for _ in range(samples)] for at in (level, better))
    return one, other


def _steps(rng: Random, samples: int) -> tuple[list[float], list[float]]:
    """0, a half or 1."""
    level = rng.random()
    better = level + 0.2 * (1 - level)
    one, other = (
        [1.0 if luck < at * at else 0.5 if luck < at else 0.0 for luck in (rng.random() for _ in range(samples))]
        for at in (level, better)
    )
    return one, other


def _cost(rng: Random, samples: int) -> tuple[list[float], list[float]]:
    """Right or wrong, less a cent for each of up to 19 calls."""
    chance = rng.betavariate(2, 2)
    one, other = (
        [value - 0.01 * rng.randrange(1, 20) for value in _right(at, samples, rng)]
        for at in (chance, min(chance + 0.1, 1.0))
    )
    return one, other


def _long_tail(rng: Random, samples: int) -> tuple[list[float], list[float]]:
    """Scores without a bound, lognormal."""
    level = rng.gauss(0, 0.7)
    one, other = ([exp(level + up + rng.gauss(0, 0.7)) for _ in range(samples)] for up in (0.0, 0.2))
    return one, other


SHAPES: dict[str, Draw] = {
    "right or wrong": _beta(2, 2, 0.3),
    "seldom right": _beta(0.5, 9.5, 0.2),
    "nearly always right": _beta(19, 1, 0.5),
    "all or nothing": _all_or_nothing,
    "graded": _graded,
    "graded, most near 0": _near_nothing,
    "in steps": _steps,
    "less a cost": _cost,
    "without a bound": _long_tail,
}


@dataclass(slots=True)
class Coverage:
    """Of the draws of one cell."""

    held: int = 0
    widths: float = 0.0
    draws: int = 0
    none: int = 0

    def add(self, found: Estimate, truth: float) -> None:
        """Count one interval, or that there was none."""
        if found.low is None or found.high is None:
            self.none += 1
            return
        self.draws += 1
        self.held += found.low - 1e-12 <= truth <= found.high + 1e-12
        self.widths += found.high - found.low

    @property
    def share(self) -> float:
        """Draws whose interval does not leave the truth out."""
        return (self.held + self.none) / (self.draws + self.none)


def truths(name: str) -> tuple[float, float]:
    """Mean reward of the first side, and the gain of the second."""
    rng = Random(f"truth/{name}")
    drawn = [SHAPES[name](rng, 1) for _ in range(MANY)]
    return fmean(one[0] for one, _ in drawn), fmean(other[0] - one[0] for one, other in drawn)


def measure(name: str) -> dict[str, dict[tuple[int, int], Coverage]]:
    """Coverage of the mean and of the paired difference, by tasks and samples."""
    average, gain = truths(name)
    found: dict[str, dict[tuple[int, int], Coverage]] = {"mean": {}, "paired difference": {}}
    for tasks in TASKS:
        for samples in (one for one in SAMPLES if tasks * one <= LARGEST):
            rng = Random(f"{name}/{tasks}/{samples}")
            cells = Coverage(), Coverage()
            for _ in range(DRAWS):
                drawn = [SHAPES[name](rng, samples) for _ in range(tasks)]
                theirs, ours = ({str(n): pair[side] for n, pair in enumerate(drawn)} for side in (0, 1))
                cells[0].add(estimate(theirs.values()), average)
                cells[1].add(paired_difference(ours, theirs), gain)
            for kind, cell in zip(found, cells, strict=True):
                found[kind][tasks, samples] = cell
    return found


def over_seeds(seeds: int, tasks: int) -> Coverage:
    """Of the gain over seeds and tasks, where a seed moves all tasks by 0.03 and tasks differ in what is gained."""
    rng, cell = Random(f"seeds/{seeds}/{tasks}"), Coverage()
    for _ in range(DRAWS):
        gains = [rng.gauss(0.1, 0.2) for _ in range(tasks)]
        ours, theirs = list[dict[str, float]](), list[dict[str, float]]()
        for _ in range(seeds):
            moved = rng.gauss(0, 0.03)
            ours.append({str(n): gain + moved + rng.gauss(0, 0.2) for n, gain in enumerate(gains)})
            theirs.append({str(n): rng.gauss(0, 0.2) for n in range(tasks)})
        cell.add(difference_over_seeds(ours, theirs, [str(n) for n in range(tasks)]), 0.1)
    return cell


def _bar(name: str, cells: dict[tuple[int, int], Coverage], unit: str) -> Bar:
    (tasks, other), worst = min(cells.items(), key=lambda one: one[1].share)
    without = sorted({where[0] for where, cell in cells.items() if cell.none > cell.draws})
    few, many = min(where for where, cell in cells.items() if cell.draws > cell.none), max(cells)
    note = f"worst at {tasks} tasks, {other} {unit}; mean width " + ", ".join(
        f"{cells[where].widths / cells[where].draws:.2f} at {where[0]}" for where in dict.fromkeys((few, many))
    )
    if without:
        note += f"; no interval at {', '.join(map(str, without))} tasks"
    return Bar(name=name, figure=worst.share, bar=0.93, aim=0.945, better="higher", note=note)


def bars() -> Iterator[Bar]:
    """The least coverage of each shape, and over seeds."""
    statistics.student_quantile = cache(student_quantile)  # the same quantiles, drawn many thousand times
    try:
        for name in SHAPES:
            for kind, cells in measure(name).items():
                yield _bar(f"{name}: {kind}", cells, "samples")
        yield _bar(
            "gain over seeds", {(n, seeds): over_seeds(seeds, n) for n in (5, 20, 100) for seeds in SEEDS}, "seeds"
        )
    finally:
        statistics.student_quantile = student_quantile
