"""Statistics of a training step for the monitors: rewards, similarity and repetition of texts, rollouts to read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from random import Random

from wanderlust.types import Group, Trajectory

MAX_PAIRS = 200
"""Most pairs of texts that are compared."""
MAX_TEXT_CHARS = 4_000
"""Words, not characters, of a text that are used."""

_WORD = re.compile(r"\w+|[^\w\s]")
_LAST = re.compile(r"<(answer|guess|move|title|group|action|final)>(.*?)</\1>|\\boxed\{([^{}]*)\}", re.DOTALL)


def split_words(text: str) -> list[str]:
    """Lower-case words and signs."""
    return _WORD.findall(text.lower())[:MAX_TEXT_CHARS]


def normalize_answer(text: str) -> str:
    """The answer in a text, or all of it, without case, white space or signs: equal for what says the same."""
    matches = _LAST.findall(text)
    answer = (matches[-1][1] or matches[-1][2]) if matches else text
    return " ".join(re.findall(r"\w+", answer.lower()))[:1_000]


def ngrams(text: Sequence[str], n: int) -> list[tuple[str, ...]]:
    """All runs of n words."""
    return [tuple(text[i : i + n]) for i in range(len(text) - n + 1)]


def repeated_ngram_share(text: str, n: int = 4) -> float:
    """Share of its runs of n words that stood in it before: 0 for prose, near 1 for a loop."""
    runs = ngrams(split_words(text), n)
    return 1 - len(set(runs)) / len(runs) if runs else 0.0


def distinct_n(texts: Sequence[str], n: int = 2) -> float:
    """Different runs of n words over all runs, in all texts together (distinct-n, arXiv 1510.03055); 1 without any."""
    runs = [run for text in texts for run in ngrams(split_words(text), n)]
    return len(set(runs)) / len(runs) if runs else 1.0


def most_frequent_answer(texts_by_task: Sequence[Sequence[str]]) -> tuple[str, float]:
    """The answer that most tasks have in common, and the mean share that it has of each task's answers.

    0 for fewer than two tasks: one task's siblings may well agree.
    """
    if len(texts_by_task) < 2:
        return "", 0.0
    shares: Counter[str] = Counter()
    for texts in texts_by_task:
        for answer, count in Counter(map(normalize_answer, texts)).items():
            shares[answer] += count / len(texts)  # type: ignore[assignment]
    answer, total = max(shares.items(), key=lambda item: (item[1], item[0]))
    return answer, total / len(texts_by_task)


def ngram_overlap(texts_by_task: Sequence[Sequence[str]], n: int = 3, *, seed: int = 0) -> float:
    """Mean Jaccard overlap of runs of n words between answers to *different* tasks, over at most PAIRS pairs."""
    gram_sets = [[set(ngrams(split_words(text), n)) for text in texts] for texts in texts_by_task if texts]
    if len(gram_sets) < 2:
        return 0.0
    rng, total = Random(f"overlap/{seed}"), 0.0
    for _ in range(MAX_PAIRS):
        one, other = (rng.choice(texts) for texts in rng.sample(gram_sets, 2))
        union = len(one | other)
        total += len(one & other) / union if union else 0.0
    return total / MAX_PAIRS


RolloutPlace = tuple[int, int]
"""Group and sibling of a rollout within its step."""


@dataclass(frozen=True, slots=True)
class Moments:
    """A mean over rollouts and its standard error, clustered by group; both 0 without any."""

    mean: float = 0.0
    error: float = 0.0
    count: int = 0

    @classmethod
    def of(cls, clusters: Sequence[Sequence[float]]) -> Moments:
        """Of values by group."""
        full = [cluster for cluster in clusters if cluster]
        count = sum(map(len, full))
        if not count:
            return cls()
        mean = fsum(value for cluster in full for value in cluster) / count
        if len(full) < 2:
            return cls(mean, 0.0, count)
        spread = fsum(fsum(value - mean for value in cluster) ** 2 for cluster in full)
        return cls(mean, sqrt(spread * len(full) / (len(full) - 1)) / count, count)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSimilarity:
    """Similarity of the answers to different tasks."""

    frequent: float
    """Mean share, over tasks, of the answer that the tasks have most in common."""
    answer: str
    """The normalised answer that most tasks have in common."""
    overlap: float
    """Of their wording."""
    distinct_bigrams: float
    """Share of different pairs of words among all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStatistics:
    """One step, for one seat."""

    step: int
    reward: Moments
    parts: Mapping[str, Moments]
    held_out: Mapping[str, Moments]
    """Metrics of the scores that stand for what is wanted and are never trained on."""
    reward_minus_held_out: Mapping[str, Moments]
    """Reward less each hidden figure, rollout by rollout: what tasks and luck do to both is gone from it."""
    agreement: Mapping[str, float]
    """Correlation of the reward with each hidden figure over the step's rollouts, and as `PART ~ HIDDEN` of each of
    several parts, a judge for example; only where both vary."""
    similarity: AnswerSimilarity
    repetition: Moments
    length: Moments
    """Words said in an episode."""
    length_reward_correlation: float
    """Correlation of reward and length among siblings, pooled; 0 where one of them does not vary."""
    by_opponent_strength: Mapping[float, Moments]
    """Reward by the strength of the opponent, where tasks say it (`info["strength"]`)."""
    examples: Mapping[str, tuple[RolloutPlace, ...]]
    """Rollouts to read: `reward` (highest), `frequent`, `repetition`, `length`."""


def compute_step_statistics(
    groups: Sequence[Group],
    *,
    step: int,
    seat: str | None = None,
    strength: str = "strength",
    held_out_names: Collection[str] | None = None,
) -> StepStatistics:
    """Compute the statistics of a step's scored rollouts for one seat, by default each rollout's first trainable one.

    `held_out_names` names the metrics that measure the real goal, the held-out parts of a rubric; None takes all.
    """
    rows = [[*_rows(group, seat)] for group in groups]
    flat = [row for group in rows for row in group]
    texts = [[row.text for row in group] for group in rows if group]
    answer, frequent = most_frequent_answer(texts)

    def metrics(trajectory: Trajectory) -> Mapping[str, float]:
        values = trajectory.score.metrics if trajectory.score else {}
        return values if held_out_names is None else {name: values[name] for name in held_out_names if name in values}

    hidden, parts = _columns(rows, metrics), _columns(rows, _parts)
    gaps: dict[str, list[list[float]]] = {}
    for name in hidden:
        pairs = [[(row.reward, _metric(row, name)) for row in group] for group in rows]
        gaps[name] = [[reward - value for reward, value in group if value is not None] for group in pairs]
    return StepStatistics(
        step=step,
        reward=Moments.of([[row.reward for row in group] for group in rows]),
        parts={name: Moments.of(column) for name, column in parts.items()},
        held_out={name: Moments.of(column) for name, column in hidden.items()},
        reward_minus_held_out={name: Moments.of(gap) for name, gap in gaps.items()},
        agreement=dict(_agreements(flat, hidden, parts=parts if len(parts) > 1 else ())),
        similarity=AnswerSimilarity(
            frequent=frequent,
            answer=answer,
            overlap=ngram_overlap(texts, seed=step),
            distinct_bigrams=distinct_n([text for group in texts for text in group]),
        ),
        repetition=Moments.of([[row.repetition for row in group] for group in rows]),
        length=Moments.of([[float(row.length) for row in group] for group in rows]),
        length_reward_correlation=_pooled(rows),
        by_opponent_strength=_by_opponent_strength(groups, rows, strength),
        examples=_examples(flat, answer),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    place: RolloutPlace
    trajectory: Trajectory
    reward: float
    text: str
    repetition: float
    length: int


def _rows(group: Group, seat: str | None) -> Iterator[_Row]:
    for rollout in group.rollouts:
        for trajectory in rollout.trajectories:
            if trajectory.score is None or (trajectory.seat != seat if seat else not trajectory.trainable):
                continue
            texts = list[str]()
            for turn in trajectory.turns:
                texts += [turn.action.content, *(f"{c.name} {c.arguments}" for c in turn.action.tool_calls)]
            text = "\n".join(texts)
            yield _Row(
                place=(group.index, rollout.sample_index),
                trajectory=trajectory,
                reward=trajectory.score.reward,
                text=text,
                repetition=repeated_ngram_share(text),
                length=len(split_words(text)),
            )
            break


def _parts(trajectory: Trajectory) -> Mapping[str, float]:
    return trajectory.score.parts if trajectory.score else {}


def _columns(
    rows: Sequence[Sequence[_Row]], of: Callable[[Trajectory], Mapping[str, float]]
) -> dict[str, list[list[float]]]:
    names = dict.fromkeys(name for group in rows for row in group for name in of(row.trajectory))
    return {
        name: [[of(row.trajectory)[name] for row in group if name in of(row.trajectory)] for group in rows]
        for name in names
    }


def _agreements(
    flat: Sequence[_Row], held_out: Collection[str], *, parts: Collection[str]
) -> Iterator[tuple[str, float]]:
    for name in held_out:
        pairs = [(row.reward, value) for row in flat if (value := _metric(row, name)) is not None]
        if (coefficient := correlation(pairs)) is not None:
            yield name, coefficient
        for part in parts:
            both = ((_parts(row.trajectory).get(part), _metric(row, name)) for row in flat)
            if (coefficient := correlation([(a, b) for a, b in both if a is not None and b is not None])) is not None:
                yield f"{part} ~ {name}", coefficient


def _metric(row: _Row, name: str) -> float | None:
    return row.trajectory.score.metrics.get(name) if row.trajectory.score else None


def _pooled(rows: Sequence[Sequence[_Row]]) -> float:
    """Correlation within groups, so that differences between tasks in reward and length do not count."""
    pairs: list[tuple[float, float]] = []
    for group in rows:
        if len(group) > 1:
            reward = fsum(row.reward for row in group) / len(group)
            length = fsum(row.length for row in group) / len(group)
            pairs += [(row.reward - reward, row.length - length) for row in group]
    return correlation(pairs) or 0.0


def _by_opponent_strength(groups: Sequence[Group], rows: Sequence[Sequence[_Row]], name: str) -> dict[float, Moments]:
    by: dict[float, list[list[float]]] = {}
    for group, group_rows in zip(groups, rows, strict=True):
        strength = group.task.info.get(name)
        if isinstance(strength, int | float) and group_rows:
            by.setdefault(float(strength), []).append([row.reward for row in group_rows])
    return {strength: Moments.of(clusters) for strength, clusters in sorted(by.items())}


def _examples(flat: Sequence[_Row], answer: str) -> dict[str, tuple[RolloutPlace, ...]]:
    def most(key: Callable[[_Row], float], among: Sequence[_Row] = flat) -> tuple[RolloutPlace, ...]:
        return tuple(row.place for row in sorted(among, key=key, reverse=True)[:5])

    same = [row for row in flat if normalize_answer(row.text) == answer]
    return {
        "reward": most(lambda row: row.reward),
        "frequent": most(lambda row: row.reward, same),
        "repetition": most(lambda row: row.repetition),
        "length": most(lambda row: row.length),
    }


def correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Pearson's; None where one of the two does not vary."""
    if len(pairs) < 3:
        return None
    count = len(pairs)
    x, y = (fsum(pair[i] for pair in pairs) / count for i in (0, 1))
    across = fsum((a - x) * (b - y) for a, b in pairs)
    own = fsum((a - x) ** 2 for a, _ in pairs) * fsum((b - y) ** 2 for _, b in pairs)
    return across / sqrt(own) if own > 1e-24 else None
