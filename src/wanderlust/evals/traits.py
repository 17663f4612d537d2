"""Traits of reasoning, from the samples of each task: whether more tokens help, and where they are wasted.

Thinking is cut at SHARES of its tokens. A policy that samples tokens (a checkpoint, or `TokenPolicy` over vLLM) then
writes its answer from there, which the environment scores. Of other policies the answer is read from the text up to
the cut, and is right where a right sample of the task has the same.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum, sqrt
from typing import Protocol, TypeAlias, runtime_checkable

from wanderlust.environment import Environment
from wanderlust.errors import PolicyFailure, RubricFailure
from wanderlust.evals.choices import ScaledSample, expected_majority
from wanderlust.evals.statistics import Z95, Estimate, estimate, fisher, mean
from wanderlust.evals.traits_report import ConfidenceReport, ParallelPoint, TokenPoint, TraitsReport
from wanderlust.rubrics.label_free import ExtractAnswer, answer_extractor, environment_score, plurality
from wanderlust.rubrics.lengths import TASK_REWARD, completion_tokens, reports_tokens
from wanderlust.rubrics.moments import correlation
from wanderlust.types import Group, Rollout, Score, Trajectory

SHARES = (0.0, 0.125, 0.25, 0.5, 0.75)
"""Shares of the thinking at which it is cut."""
PARALLEL = (2, 4, 8)
"""Samples that share the tokens of one: each is cut so that all together have no more."""
LENGTH_BINS = 6
"""Points of the curve of accuracy against tokens: bins with equally many samples."""
CONFIDENCE_BINS = 10
"""Bins of equal width over which the calibration error is summed."""
MAX_CONCURRENT_CUTS = 256
_CONFIDENCE = re.compile(r"(?i)(?:<confidence>\s*|\bconfidence\s*[:=][\s*_]*)([^\s<*_]{0,40})")


@runtime_checkable
class ContinuesThinking(Protocol):
    """A policy that can end its thinking anywhere and answer from there."""

    def thinking_of(self, completion: Sequence[int]) -> Sequence[int] | None:
        """The ids of a completion before the end of its thinking; None where it does not end."""
        ...

    async def answer_after(self, prompt: Sequence[int], thinking: Sequence[int], *, key: str) -> str:
        """The whole text of an answer that begins with this thinking, and goes on after its end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A sample whose thinking was cut."""

    right: bool
    answer: str
    tokens: int
    """Completion tokens: those of the thinking that is left, and of the answer in full."""


Cuts: TypeAlias = tuple[Mapping[float, Cut], Mapping[int, Cut]]
"""Of one sample by share, and by the number of samples in parallel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonedSample:
    """What the traits need of a rollout."""

    task: str
    right: bool
    answer: str
    """Empty where there is none."""
    tokens: int
    confidence: float | None
    """As stated, from 0 to 1."""
    cuts: Mapping[float, Cut] = field(default_factory=dict)
    """By share of the thinking; empty where it could not be cut."""
    short: Mapping[int, Cut] = field(default_factory=dict)
    """By the number of samples in parallel, cut so that this many have no more tokens than the sample in full."""


def right_of(score: Score, threshold: float) -> bool:
    """Whether the task's own reward reaches the threshold, whatever lengths earned beside it."""
    return score.parts.get(TASK_REWARD, score.reward) >= threshold


def parse_confidence(text: str) -> float | None:
    """The last stated confidence, as `0.8`, `80%` or `80`; None where none is stated. ValueError for no such number."""
    found = [match[1] for match in _CONFIDENCE.finditer(text)]
    if not found:
        return None
    try:
        value = float(found[-1].rstrip("%.,;"))
    except ValueError:
        value = -1.0
    value = value / 100 if value > 1 or "%" in found[-1] else value
    if not 0 <= value <= 1:
        raise ValueError(f"the confidence {found[-1]!r} is no number from 0 to 1, or from 0% to 100%")
    return value


@dataclass(slots=True, kw_only=True)
class TraitsAccumulator:
    """Collects groups as they finish, and makes the report when all have."""

    env: Environment
    policy: object
    pass_threshold: float = 1.0
    groups: list[Group] = field(default_factory=list)

    def add(self, group: Group) -> None:
        """Some rollouts of a task."""
        self.groups.append(group)

    async def report(self) -> TraitsReport:
        """Cut the thinking of every sample, and make all figures."""
        extract, counts = answer_extractor(self.env), {"failed": 0, "unknown": 0, "unreadable": 0}
        scored: list[tuple[Rollout, Trajectory]] = []
        samples: list[ReasonedSample] = []
        played = sorted((r for g in self.groups for r in g.rollouts), key=lambda r: (r.task.id, r.seed, r.sample_index))
        for rollout in played:
            trajectory = rollout.trajectories[0] if len(rollout.trajectories) == 1 else None
            if trajectory is None or trajectory.score is None or not trajectory.turns:
                counts["failed"] += 1
                continue
            counts["unknown"] += not reports_tokens(trajectory)
            text = trajectory.turns[-1].action.content
            try:
                confidence = parse_confidence(text)
            except ValueError:
                counts["unreadable"] += 1
                confidence = None
            scored.append((rollout, trajectory))
            samples.append(
                ReasonedSample(
                    task=rollout.task.id,
                    right=right_of(trajectory.score, self.pass_threshold),
                    answer=extract(text),
                    tokens=completion_tokens(trajectory),
                    confidence=confidence,
                )
            )
        forced = isinstance(self.policy, ContinuesThinking)
        if forced:
            at_once = asyncio.Semaphore(MAX_CONCURRENT_CUTS)
            made = await asyncio.gather(*(self._force(*one, at_once) for one in scored))
        else:
            made = _read(scored, samples, extract)
        samples = [replace(one, cuts=cuts, short=short) for one, (cuts, short) in zip(samples, made, strict=True)]
        return make_report(samples, counts, cut_by="forced" if forced else "read")

    async def _force(self, rollout: Rollout, trajectory: Trajectory, at_once: asyncio.Semaphore) -> Cuts:
        """The answers that the policy gives after each cut of one sample; none where one of them fails."""
        policy, tokens = self.policy, trajectory.turns[0].tokens
        assert isinstance(policy, ContinuesThinking)
        thinking = None if tokens is None else policy.thinking_of(tokens.completion)
        if tokens is None or thinking is None or len(trajectory.turns) > 1:
            return {}, {}
        check, extract = environment_score(self.env), answer_extractor(self.env)
        place, whole = f"{rollout.task.id}/{rollout.seed}/{rollout.sample_index}", len(tokens.completion)
        rest = whole - len(thinking)

        async def cut(kept: int) -> Cut:
            async with at_once:
                text = await policy.answer_after(tokens.prompt, thinking[:kept], key=f"cut/{place}/{kept}")
            score = await check(rollout.task, rollout.seed, text)
            return Cut(right=right_of(score, self.pass_threshold), answer=extract(text), tokens=kept + rest)

        try:
            cuts = {share: await cut(round(share * len(thinking))) for share in SHARES}
            short = {k: await cut(whole // k - rest) for k in PARALLEL if whole // k >= rest}
        except (RubricFailure, PolicyFailure):
            return {}, {}
        return cuts, short


def _read(
    scored: Sequence[tuple[Rollout, Trajectory]], samples: Sequence[ReasonedSample], extract: ExtractAnswer
) -> list[Cuts]:
    """The answers in the text of each sample up to each cut."""
    right: dict[str, set[str]] = {}
    for one in samples:
        if one.right and one.answer:
            right.setdefault(one.task, set()).add(one.answer)
    made: list[Cuts] = []
    for (_, trajectory), one in zip(scored, samples, strict=True):
        action, accepted = trajectory.turns[-1].action, right.get(one.task, set())
        text = f"{action.reasoning or ''}{action.content}"
        cuts: dict[float, Cut] = {}
        for share in {*SHARES, *(1 / k for k in PARALLEL)} if len(trajectory.turns) == 1 else ():
            answer = extract(_whole_words(text, round(share * len(text))))
            cuts[share] = Cut(right=answer in accepted, answer=answer, tokens=round(share * one.tokens))
        made.append(({s: cuts[s] for s in SHARES if cuts}, {k: cuts[1 / k] for k in PARALLEL if cuts}))
    return made


def _whole_words(text: str, end: int) -> str:
    """The text up to a place, without a word or number that is cut there."""
    return text[:end] if end >= len(text) or text[end].isspace() else text[:end].rpartition(" ")[0]


def by_task(samples: Iterable[ReasonedSample]) -> dict[str, list[ReasonedSample]]:
    """The samples of each task."""
    tasks: dict[str, list[ReasonedSample]] = {}
    for one in samples:
        tasks.setdefault(one.task, []).append(one)
    return tasks


def make_report(samples: Sequence[ReasonedSample], counts: Mapping[str, int], *, cut_by: str) -> TraitsReport:
    """All figures of these samples."""
    tasks = by_task(samples)
    several = {task: group for task, group in tasks.items() if len(group) > 1 and any(one.answer for one in group)}
    answers = {task: [one.answer for one in group] for task, group in several.items()}
    shares = {task: given.count(plurality(given)) / len(given) for task, given in answers.items()}
    voted = {task: expected_majority(_votes(group), len(group), key=task) for task, group in several.items()}
    over = {task: [_wasted(one) for one in group if one.right and one.cuts] for task, group in tasks.items()}
    halves = [(group[::2], group[1::2]) for group in tasks.values() if len(group) > 1]
    points = [(1 - _accuracy(one), fsum(s.tokens for s in other) / len(other)) for one, other in halves]
    return TraitsReport(
        tasks=len(tasks),
        samples=len(samples),
        failed=counts["failed"],
        tokens_unknown=counts["unknown"],
        cut_by=cut_by,
        uncut=sum(not one.cuts for one in samples),
        accuracy=estimate([[float(one.right) for one in group] for group in tasks.values()]) if tasks else None,
        by_tokens=_length_curve(samples),
        by_share=_share_curve(tasks),
        overthinking=mean(over.values()) if any(over.values()) else None,
        difficulty=rank_correlation(points),
        difficulty_points=tuple(points),
        parallel=tuple(_parallel(tasks)),
        agreement=mean([[one] for one in shares.values()]) if shares else None,
        majority=estimate([[one] for one in voted.values()]) if voted else None,
        majority_gain=mean([[voted[task] - _accuracy(several[task])] for task in voted]) if voted else None,
        confidence=_confidence(samples, counts["unreadable"]),
    )


def _accuracy(samples: Sequence[ReasonedSample]) -> float:
    return sum(one.right for one in samples) / len(samples)


def _votes(samples: Sequence[ReasonedSample | Cut]) -> list[ScaledSample]:
    return [ScaledSample(reward=float(one.right), answer=one.answer, tokens=one.tokens, cost=0.0) for one in samples]


def _wasted(sample: ReasonedSample) -> float:
    """The share of a right sample's tokens after the first cut with a right answer."""
    first = next((cut.tokens for _, cut in sorted(sample.cuts.items()) if cut.right), sample.tokens)
    return max(0.0, 1 - first / sample.tokens) if sample.tokens else 0.0


def _length_curve(samples: Sequence[ReasonedSample]) -> tuple[TokenPoint, ...]:
    ordered = sorted(samples, key=lambda one: (one.tokens, one.task))
    count = min(LENGTH_BINS, len(ordered))
    bins = [ordered[n * len(ordered) // count : (n + 1) * len(ordered) // count] for n in range(count)]
    return tuple(
        TokenPoint(
            tokens=fsum(one.tokens for one in some) / len(some),
            accuracy=estimate([[float(one.right) for one in group] for group in by_task(some).values()]),
        )
        for some in bins
    )


def _share_curve(tasks: Mapping[str, Sequence[ReasonedSample]]) -> tuple[TokenPoint, ...]:
    points = []
    for share in (*SHARES, 1.0):
        groups = [  # the samples cut at the share, or in full
            [one.cuts.get(share) or Cut(right=one.right, answer=one.answer, tokens=one.tokens) for one in cut]
            for cut in ([one for one in group if one.cuts] for group in tasks.values())
        ]
        spent = [cut.tokens for group in groups for cut in group]
        if spent:
            accuracy = estimate([[float(cut.right) for cut in group] for group in groups if group])
            points.append(TokenPoint(tokens=fsum(spent) / len(spent), accuracy=accuracy, share=share))
    return tuple(points)


def _parallel(tasks: Mapping[str, Sequence[ReasonedSample]]) -> Iterable[ParallelPoint]:
    """For each k, the tasks with at least k samples that could be cut so short."""
    for k in PARALLEL:
        groups = {task: [one for one in group if k in one.short] for task, group in tasks.items()}
        groups = {task: group for task, group in groups.items() if len(group) >= k}
        if not groups:
            continue
        cuts = {task: [one.short[k] for one in group] for task, group in groups.items()}
        voted = {task: expected_majority(_votes(group), k, key=task) for task, group in cuts.items()}
        single = {task: _accuracy(group) for task, group in groups.items()}
        spent, full = _mean_tokens(cuts.values()), _mean_tokens(groups.values())
        yield ParallelPoint(
            k=k,
            parallel=TokenPoint(tokens=k * spent, accuracy=estimate([[v] for v in voted.values()])),
            serial=TokenPoint(tokens=full, accuracy=estimate([[v] for v in single.values()])),
            gain=mean([[voted[task] - single[task]] for task in voted]),
        )


def _mean_tokens(groups: Iterable[Sequence[ReasonedSample | Cut]]) -> float:
    """Over tasks, the mean over their samples."""
    means = [fsum(one.tokens for one in group) / len(group) for group in groups]
    return fsum(means) / len(means)


def rank_correlation(points: Sequence[tuple[float, float]]) -> Estimate | None:
    """Spearman's, with Fisher's interval by Fieller's variance; None below four points or where one does not vary."""
    value = correlation(list(zip(*(_ranks([p[i] for p in points]) for i in (0, 1)), strict=True)))
    if value is None or len(points) < 4:
        return None
    return fisher(value, Z95 * sqrt(1.06 / (len(points) - 3)), count=len(points))


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    places = {value: ordered.index(value) + (ordered.count(value) - 1) / 2 for value in {*values}}
    return [places[value] for value in values]


def _confidence(samples: Sequence[ReasonedSample], unreadable: int) -> ConfidenceReport:
    stated = [(one.confidence, one) for one in samples if one.confidence is not None]
    bins: dict[int, list[tuple[float, bool]]] = {}
    for value, one in stated:
        bins.setdefault(min(int(value * CONFIDENCE_BINS), CONFIDENCE_BINS - 1), []).append((value, one.right))
    shown = tuple(
        (fsum(v for v, _ in pairs) / len(pairs), sum(r for _, r in pairs) / len(pairs), len(pairs))
        for _, pairs in sorted(bins.items())
    )
    groups: dict[str, list[tuple[float, float]]] = {}
    for value, one in stated:
        groups.setdefault(one.task, []).append(((value - one.right) ** 2, value - one.right))
    return ConfidenceReport(
        stated=len(stated),
        missing=len(samples) - len(stated) - unreadable,
        unreadable=unreadable,
        brier=mean([[square for square, _ in group] for group in groups.values()]) if stated else None,
        excess=mean([[excess for _, excess in group] for group in groups.values()]) if stated else None,
        error=fsum(abs(c - a) * n for c, a, n in shown) / len(stated) if stated else None,
        bins=shown,
    )
