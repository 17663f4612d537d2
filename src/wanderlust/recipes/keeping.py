"""Which checkpoints of a run stay, and when it may stop early."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from wanderlust.core.errors import UsageError

BEST = "best"
STEP = "step-{:06}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """What the examinations of a run decide, and its monitors."""

    metric: str = "reward"
    """Name of the figure that is best when highest; a hidden part of the rubric, which is never trained on, is the
    one to choose where a reward might be gamed."""
    keep: int = 1
    """The newest examined checkpoints that stay, beside the best one; 0: none."""
    patience: int = 0
    """Examinations in a row without a better figure after which the run stops; 0: never."""
    on_finding: Literal["note", "stop"] = "note"
    """What happens when a monitor finds what looks like gaming: it is written down, or the run stops as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """A point of the learning curve, as far as it is needed here."""

    step: int
    value: float


def figures_of(point: Mapping[str, Any]) -> dict[str, float]:
    """All figures of an examination by name: rewards by seat, `reward` for the first one, parts, metrics."""
    rewards = {name: found for name, found in point["rewards"].items() if found is not None}
    named = {**rewards, "reward": next(iter(rewards.values()), None)}
    parts = {**point["parts"], **point["metrics"]}
    return {name: float(found["value"]) for name, found in {**parts, **named}.items() if found is not None}


def course(curve: Sequence[Mapping[str, Any]], metric: str) -> list[Examined]:
    """The figure over the examinations. UsageError, with the names that there are, when no point has it."""
    points = [(int(point["step"]), figures_of(point)) for point in curve]
    if points and not any(metric in figures for _, figures in points):
        there = ", ".join(sorted({name for _, figures in points for name in figures}))
        raise UsageError(f"examinations of this environment have no figure {metric!r}; they have {there}")
    return [Examined(step=step, value=figures[metric]) for step, figures in points if metric in figures]


def best(examined: Sequence[Examined]) -> Examined | None:
    """The highest; of equals the first."""
    return max(examined, key=lambda point: (point.value, -point.step), default=None)


def stale(examined: Sequence[Examined], patience: int) -> bool:
    """Whether the last `patience` examinations brought nothing better than what came before them."""
    if not patience or len(examined) <= patience:
        return False
    before, since = examined[:-patience], examined[-patience:]
    return max(p.value for p in since) <= max(p.value for p in before)


def keep(folder: Path, curve: Sequence[Mapping[str, Any]], keeping: Keeping, *, save: Callable[[Path], None]) -> bool:
    """Keep what was examined last, by `save`, as far as it is to stay below `folder`; whether the run should go on.

    What stays depends on the curve alone, so a resumed run ends with the same folders. The start of the run is not
    written again.
    """
    examined = course(curve, keeping.metric)
    if not examined:
        return True
    newest, top = int(curve[-1]["step"]), best(examined)
    if newest and top is not None and top.step == newest:
        save(folder / BEST)
    if newest and keeping.keep:
        save(folder / STEP.format(newest))
    steps = [int(point["step"]) for point in curve if point["step"]]
    staying = {STEP.format(step) for step in steps[-keeping.keep :]} if keeping.keep else set()
    for old in folder.glob("step-*"):
        if old.name not in staying:
            shutil.rmtree(old)
    return not stale(examined, keeping.patience)
