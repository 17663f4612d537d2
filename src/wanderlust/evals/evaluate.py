"""Plays tasks and reports what came out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from wanderlust.core.contracts import Environment, Limits, Rubric
from wanderlust.core.types import Group, Rollout, Score, Status, Task
from wanderlust.evals.report import Errors, Report
from wanderlust.evals.statistics import Estimate, estimate
from wanderlust.rollout.engine import Policies, rollouts
from wanderlust.rollout.records import count_tokens

Observer = Callable[[Group], None]
"""Sees every group as it finishes: a progress bar, or `RunStore.sink(stage=..., step=...)`."""


async def evaluate(
    env: Environment,
    policy: Policies,
    *,
    tasks: Iterable[Task],
    rubric: Rubric | None = None,
    samples: int = 1,
    observers: Sequence[Observer] = (),
    concurrency: int = 64,
    seed: int = 0,
    limits: Limits | None = None,
) -> Report:
    """Play every task `samples` times; `tasks` must end. Without `rubric` and `limits` the environment's are used.

    A rollout that fails is in no estimate and never counts as reward 0; the report says how many failed and why.
    What an observer raises ends the evaluation.
    """
    tally, started = _Tally(), time.monotonic()
    async with rollouts(
        env,
        tasks,
        policy,
        rubric=rubric,
        group_size=samples,
        concurrency=concurrency,
        seed=seed,
        limits=limits,
    ) as groups:
        async for group in groups:
            tally.add(group)
            for observer in observers:
                observer(group)
    return tally.report(time.monotonic() - started)


def report(groups: Iterable[Group], seconds: float = 0.0) -> Report:
    """The report of groups that were played before, as `RunStore.groups` returns them."""
    tally = _Tally()
    for group in groups:
        tally.add(group)
    return tally.report(seconds)


@dataclass(slots=True)
class _Tally:
    """Keeps the numbers of rollouts, not the rollouts."""

    scores: dict[str, list[tuple[str, Score]]] = field(default_factory=dict)
    """(task id, score) by seat."""
    failures: dict[str, list[tuple[int, int, str]]] = field(default_factory=dict)
    """(group, sibling, message) by class."""
    totals: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)
    tasks: set[str] = field(default_factory=set)

    def add(self, group: Group) -> None:
        self.tasks.add(group.task.id)
        for rollout in group.rollouts:
            self.stops[rollout.stop] += 1
            self._count(rollout)
            if rollout.status is Status.ERROR:
                message = (group.index, rollout.sibling, rollout.error or "")
                self.failures.setdefault(rollout.stop, []).append(message)

    def _count(self, rollout: Rollout) -> None:
        read, written = count_tokens([turn for seat in rollout.trajectories for turn in seat.turns])
        turns = sum(len(seat.turns) for seat in rollout.trajectories)
        self.totals.update(played=1, turns=turns, tokens_in=read, tokens_out=written)
        scored = [seat for seat in rollout.trajectories if seat.score is not None]
        self.totals["scored"] += bool(scored)
        for seat in scored:
            if seat.score is not None:
                self.scores.setdefault(seat.seat, []).append((rollout.task.id, seat.score))

    def report(self, seconds: float) -> Report:
        several = len(self.scores) > 1
        parts: dict[str, Estimate] = {}
        metrics: dict[str, Estimate] = {}
        for seat, scores in sorted(self.scores.items()):
            label = f"{seat}: " if several else ""
            for name in sorted({name for _, score in scores for name in score.parts}):
                parts[label + name] = _estimate([(task, score.parts.get(name, 0.0)) for task, score in scores])
            for name in sorted({name for _, score in scores for name in score.metrics}):
                known = [(task, score.metrics[name]) for task, score in scores if name in score.metrics]
                metrics[label + name] = _estimate(known)
        return Report(
            tasks=len(self.tasks),
            played=self.totals["played"],
            scored=self.totals["scored"],
            rewards={
                seat: _estimate([(task, score.reward) for task, score in scores])
                for seat, scores in sorted(self.scores.items())
            },
            parts=parts,
            metrics=metrics,
            errors={n: Errors(count=len(f), first=min(f)[2]) for n, f in sorted(self.failures.items())},
            stops=dict(sorted(self.stops.items())),
            turns=self.totals["turns"],
            tokens_in=self.totals["tokens_in"],
            tokens_out=self.totals["tokens_out"],
            seconds=seconds,
        )


def _estimate(values: Iterable[tuple[str, float]]) -> Estimate:
    clusters: dict[str, list[float]] = {}
    for task, value in values:
        clusters.setdefault(task, []).append(value)
    return estimate(clusters.values())
