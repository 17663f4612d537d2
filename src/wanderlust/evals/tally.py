"""Counts rollouts as they come, in any order; what is reported of them does not depend on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wanderlust.core.types import Group, Rollout, Score, Status
from wanderlust.evals.report import Errors, Prices, Report, TaskRow, Usage
from wanderlust.evals.statistics import Estimate, estimate, pass_all_k, pass_at_k, percentile
from wanderlust.rollout.records import count_tokens

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


@dataclass(slots=True)
class Tally:
    """Keeps the numbers of rollouts, not the rollouts."""

    passing: float = 1.0
    """The reward from which on a rollout counts as passed."""
    prices: Prices | None = None
    scores: dict[str, list[tuple[str, Score]]] = field(default_factory=dict)
    """(task id, score) by seat."""
    failures: dict[str, list[tuple[int, int, str]]] = field(default_factory=dict)
    """(group, sibling, message) by class."""
    totals: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)
    tasks: dict[str, int] = field(default_factory=dict)
    """Rollouts by task id."""
    seconds: list[float] = field(default_factory=list)
    """Of each rollout that did not fail."""

    def add(self, groups: Iterable[Group]) -> None:
        """Count every rollout of these groups, which may be parts of groups."""
        for group in groups:
            for rollout in group.rollouts:
                self.tasks[rollout.task.id] = self.tasks.get(rollout.task.id, 0) + 1
                self.stops[rollout.stop] += 1
                self._count(rollout)
                if rollout.status is Status.ERROR:
                    message = (group.index, rollout.sibling, rollout.error or "")
                    self.failures.setdefault(rollout.stop, []).append(message)
                else:
                    self.seconds.append(rollout.seconds)

    def _count(self, rollout: Rollout) -> None:
        read, written = count_tokens([turn for seat in rollout.trajectories for turn in seat.turns])
        turns = sum(len(seat.turns) for seat in rollout.trajectories)
        self.totals.update(played=1, turns=turns, tokens_in=read, tokens_out=written)
        scored = [seat for seat in rollout.trajectories if seat.score is not None]
        self.totals["scored"] += bool(scored)
        for seat in scored:
            if seat.score is not None:
                self.scores.setdefault(seat.seat, []).append((rollout.task.id, seat.score))

    def running(self) -> Estimate | None:
        """The first seat's reward so far; None before the first score."""
        for scores in self.scores.values():
            return _estimate((task, score.reward) for task, score in scores)
        return None

    def rows(self) -> list[TaskRow]:
        """The first seat's rewards task by task, in the order of the tasks' ids."""
        first = next(iter(sorted(self.scores.items())), ("", []))[1]
        rewards = _by_task((task, score.reward) for task, score in first)
        return [
            TaskRow(
                task=task,
                played=played,
                scored=len(rewards.get(task, ())),
                reward=sum(rewards[task]) / len(rewards[task]) if task in rewards else None,
                passed=sum(value >= self.passing for value in rewards.get(task, ())),
            )
            for task, played in sorted(self.tasks.items())
        ]

    def report(self, seconds: float) -> Report:
        """Everything counted so far; `seconds` is the wall-clock time it took."""
        seats = sorted(self.scores.items())
        return Report(
            tasks=len(self.tasks),
            played=self.totals["played"],
            scored=self.totals["scored"],
            rewards={seat: _estimate((task, score.reward) for task, score in scores) for seat, scores in seats},
            passes=self._passes(),
            parts=self._named("parts"),
            metrics=self._named("metrics"),
            errors={n: Errors(count=len(f), first=min(f)[2]) for n, f in sorted(self.failures.items())},
            stops=dict(sorted(self.stops.items())),
            usage=self._usage(seconds),
        )

    def _passes(self) -> dict[str, Estimate]:
        """pass@k and pass^k of every seat, for k = 1, 2, 4, ... and the most samples that a task has."""
        out: dict[str, Estimate] = {}
        for seat, scores in sorted(self.scores.items()):
            counted = [
                (len(values), sum(value >= self.passing for value in values))
                for values in _by_task((task, score.reward) for task, score in scores).values()
            ]
            most = max(samples for samples, _ in counted)
            for k in sorted({2**n for n in range(most.bit_length())} | {most}) if most > 1 else ():
                enough = [(samples, right) for samples, right in counted if samples >= k]
                out[f"{self._label(seat)}pass@{k}"] = estimate([[pass_at_k(n, c, k)] for n, c in enough])
                if k > 1:  # pass^1 is pass@1
                    out[f"{self._label(seat)}pass^{k}"] = estimate([[pass_all_k(n, c, k)] for n, c in enough])
        return out

    def _named(self, kind: str) -> dict[str, Estimate]:
        """Estimates of `parts`, which count as 0 where a score lacks one, or of `metrics`, which do not."""
        out: dict[str, Estimate] = {}
        for seat, scores in sorted(self.scores.items()):
            found: list[tuple[str, Mapping[str, float]]] = [(task, getattr(score, kind)) for task, score in scores]
            for name in sorted({name for _, values in found for name in values}):
                known = [(t, v.get(name, 0.0)) for t, v in found if name in v or kind == "parts"]
                out[self._label(seat) + name] = _estimate(known)
        return out

    def _label(self, seat: str) -> str:
        return f"{seat}: " if len(self.scores) > 1 else ""

    def _usage(self, seconds: float) -> Usage:
        read, written, ordered = self.totals["tokens_in"], self.totals["tokens_out"], sorted(self.seconds)
        return Usage(
            turns=self.totals["turns"],
            tokens_in=read,
            tokens_out=written,
            seconds=seconds,
            latency={name: percentile(ordered, share) for name, share in PERCENTILES.items()} if ordered else {},
            dollars=self.prices.of(read, written) if self.prices else None,
        )


def _by_task(values: Iterable[tuple[str, float]]) -> dict[str, list[float]]:
    clusters: dict[str, list[float]] = {}
    for task, value in values:
        clusters.setdefault(task, []).append(value)
    return clusters


def _estimate(values: Iterable[tuple[str, float]]) -> Estimate:
    return estimate(_by_task(values).values())
