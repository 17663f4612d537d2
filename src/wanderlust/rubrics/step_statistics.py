"""Statistics of a training step for the monitors: rewards, similarity and repetition of texts, rollouts to read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from heapq import nsmallest
from itertools import combinations
from math import fsum, isclose, sqrt
from random import Random
from typing import Any, TypeAlias

from wanderlust.rubrics.answers import comparable, extract_answer, marked_answer, stated_answer
from wanderlust.rubrics.moments import Moments, PairMoments, correlation
from wanderlust.types import Group, Score

MAX_PAIRS = 200
"""Most pairs of texts that are compared."""
MAX_TEXT_CHARS = 4_000
"""Words, not characters, of a text that are used."""

MAX_PHRASE_WORDS = 4
"""Words of a phrase that answers may share, at most."""
MAX_PHRASES = 8
"""Shared phrases of each number of words that a step's statistics keep."""
LOW_SHARE = 0.25
"""Share of the range of rewards below which an answer counts as badly paid."""
MIN_MATCHED_SHARE = 0.25
"""Share of rollouts with a sibling of the same answer from which on length and reward are compared among those."""

_WORD = re.compile(r"\w+|[^\w\s]")


def split_words(text: str) -> list[str]:
    """Lower-case words and signs."""
    return _WORD.findall(text.lower())[:MAX_TEXT_CHARS]


def normalize_answer(text: str) -> str:
    """The answer that a text marks, or all of it, without case, layout or signs: equal for what says the same."""
    marked = marked_answer(text)
    return " ".join(re.findall(r"\w+", text.lower()))[:1_000] if marked is None else comparable(marked)


def ngrams(text: Sequence[str], n: int) -> list[tuple[str, ...]]:
    """All runs of n words."""
    return [tuple(text[i : i + n]) for i in range(len(text) - n + 1)]


def repeated_ngram_share(text: str, n: int = 4) -> float:
    """Share of its runs of n words that stood in it before: 0 for prose, near 1 for a loop."""
    runs = ngrams(split_words(text), n)
    return 1 - len(set(runs)) / len(runs) if runs else 0.0


def similarity_of(
    texts_by_task: Sequence[Sequence[str]], answers_by_task: Sequence[Sequence[str]], *, seed: int = 0
) -> AnswerSimilarity:
    """How far the answers to different tasks are the same, in answer and wording."""
    answer, frequent = most_frequent_answer(answers_by_task)
    answers = [Counter(found) for found in answers_by_task]
    totals: Counter[str] = Counter()
    for task in answers:
        totals.update(task)
    count, own = totals.total(), [task.total() for task in answers]
    siblings = sum(n * (n - 1) for task in answers for n in task.values())
    sibling_pairs = sum(n * (n - 1) for n in own)
    across = sum(n * n for n in totals.values()) - sum(n * n for task in answers for n in task.values())
    across_pairs = count * count - sum(n * n for n in own)
    overlap, tasks = Moments.of([[one] for one in _overlaps(texts_by_task, seed=seed)]), len(texts_by_task)
    # The error is that of as many pairs as there are tasks, as pairs share their tasks.
    error = overlap.error * sqrt(max(overlap.count / max(tasks, 1), 1.0))
    return AnswerSimilarity(
        frequent=Moments.of([[task[answer] / task.total()] for task in answers]) if frequent else Moments(),
        answer=answer,
        same_for_siblings=siblings / sibling_pairs if sibling_pairs else 1.0,
        same_across_tasks=across / across_pairs if across_pairs else 0.0,
        tasks=len(answers),
        answers_per_task=len(totals) / len(answers) if answers else 0.0,
        overlap=Moments(overlap.mean, error, overlap.count, min(tasks, overlap.count)),
    )


def shared_phrases(phrases_by_task: Sequence[Sequence[Collection[str]]], prompts: Collection[str]) -> list[str]:
    """The phrases that most answers have in common, by number of words and share, those of the prompts left out.

    Empty for fewer than two tasks.
    """
    if len(phrases_by_task) < 2:
        return []
    shares: Counter[str] = Counter()
    for answers in phrases_by_task:
        for gram, count in Counter(gram for phrases in answers for gram in phrases).items():
            shares[gram] += count / len(answers)  # type: ignore[assignment]
    asked = {gram for prompt in prompts for gram in phrases_in(prompt)}
    by_words: dict[int, list[tuple[float, str]]] = {}
    for gram, share in shares.items():
        if gram not in asked:
            by_words.setdefault(gram.count(" "), []).append((-share, gram))
    return [gram for _, ranked in sorted(by_words.items(), reverse=True) for _, gram in nsmallest(MAX_PHRASES, ranked)]


def phrases_in(text: str) -> set[str]:
    """All runs of up to MAX_PHRASE_WORDS words of a text; numbers and signs are no words."""
    words = re.findall(r"[^\W\d_]+", text.lower())[:MAX_TEXT_CHARS]
    return {" ".join(gram) for n in range(1, MAX_PHRASE_WORDS + 1) for gram in ngrams(words, n)}


def most_frequent_answer(answers_by_task: Sequence[Sequence[str]]) -> tuple[str, float]:
    """The answer that most tasks have in common, and the mean share that it has of each task's answers.

    0 for fewer than two tasks: one task's siblings may well agree.
    """
    if len(answers_by_task) < 2:
        return "", 0.0
    shares: Counter[str] = Counter()
    for answers in answers_by_task:
        for answer, count in Counter(answers).items():
            shares[answer] += count / len(answers)  # type: ignore[assignment]
    answer, total = max(shares.items(), key=lambda item: (item[1], item[0]))
    return answer, total / len(answers_by_task)


def _overlaps(texts_by_task: Sequence[Sequence[str]], n: int = 3, *, seed: int = 0) -> list[float]:
    """Jaccard overlaps of runs of n words between answers to *different* tasks, of MAX_PAIRS pairs."""
    answered = [texts for texts in texts_by_task if texts]
    if len(answered) < 2:
        return []
    rng, overlaps = Random(f"overlap/{seed}"), list[float]()
    grams = cache(lambda text: set(ngrams(split_words(text), n)))
    for _ in range(MAX_PAIRS):
        one, other = (grams(rng.choice(texts)) for texts in rng.sample(answered, 2))
        union = len(one | other)
        overlaps.append(len(one & other) / union if union else 0.0)
    return overlaps


RolloutPlace = tuple[int, int]
"""Group and sibling of a rollout within its step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSimilarity:
    """Similarity of the answers to different tasks; tasks with the same first message count as one."""

    frequent: Moments
    """Mean share, over tasks, of the answer that the tasks have most in common."""
    answer: str
    """The normalised answer that most tasks have in common."""
    same_for_siblings: float
    """Probability that two rollouts of one task have the same answer; 1 without siblings."""
    same_across_tasks: float
    """Probability that two rollouts of different tasks have the same answer."""
    tasks: int
    """Number of different tasks."""
    answers_per_task: float
    """Number of different answers over the number of tasks: small where the answers are a few labels."""
    overlap: Moments
    """Of their wording."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhraseFigures:
    """How often a phrase is said, and how the answers are paid that have it."""

    share: Moments
    """Over tasks."""
    said: int
    """Answers with the phrase."""
    said_low: int
    """Of these, the badly paid ones: in the lowest LOW_SHARE of the range of rewards."""
    unsaid: int
    unsaid_low: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthEffect:
    """How reward and length of an answer go together within groups, so that differences between tasks do not count."""

    correlation: float = 0.0
    """0 where one of the two does not vary."""
    order: float = 0.0
    """Of pairs that differ in both, the share that is longer and better paid less that which is longer and worse paid:
    Goodman & Kruskal's gamma (1954)."""
    is_matched: bool = False
    """Whether only rollouts with the same final answer were compared: longer reasoning that is right more often is no
    reward of length."""


Contributions: TypeAlias = Callable[[Mapping[str, float]], Mapping[str, float]]
"""From the raw parts of a score, what each of them adds to the reward: sign and weight included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStatistics:
    """One step, for one seat."""

    step: int
    reward: Moments
    parts: Mapping[str, Moments]
    """What each part adds to the reward; empty where that does not sum up to it."""
    held_out: Mapping[str, Moments]
    """Metrics of the scores that stand for what is wanted and are never trained on."""
    pairs: Mapping[str, PairMoments]
    """The reward with each held-out metric, by its name, and as `PART ~ METRIC` each of several parts."""
    similarity: AnswerSimilarity
    phrases: Mapping[str, PhraseFigures]
    """The phrases that most first answers share, the longest first; those of the prompts left out."""
    repetition: Moments
    length: Moments
    """Words per answer."""
    length_effect: LengthEffect
    by_opponent_strength: Mapping[float, Moments]
    """Reward by the strength of the opponent, where tasks say it (`info["strength"]`)."""
    examples: Mapping[str, tuple[RolloutPlace, ...]]
    """Rollouts to read: `reward` (highest), `frequent`, `repetition`, `length`."""
    swaps: Mapping[str, PairMoments] = field(default_factory=dict)
    """By part (`reward` for all of it): what answers earn on their own tasks, and what they earn as answers to other
    tasks. Empty where that was not tried."""


def compute_step_statistics(
    groups: Sequence[Group],
    *,
    step: int,
    seat: str | None = None,
    held_out_names: Collection[str] | None = None,
    contributions: Contributions = dict,
) -> StepStatistics:
    """Compute the statistics of a step's scored rollouts for one seat, by default each rollout's first trainable one.

    `held_out_names` names the metrics that measure the real goal, the held-out parts of a rubric; None takes all.
    `contributions` weighs the parts of a score; by default they count as they are.
    """
    described = cache(_describe)
    rows = [[*_rows(group, seat, contributions, described=described)] for group in groups]
    flat = [row for group in rows for row in group]
    by_question: dict[str, list[_Row]] = {}
    for group, group_rows in zip(groups, rows, strict=True):
        for row in group_rows:
            by_question.setdefault(row.question or group.task.id, []).append(row)
    questions = list(by_question.values())
    similarity = similarity_of(
        [[row.text for row in those] for those in questions],
        [[row.answer for row in those] for those in questions],
        seed=step,
    )
    shared = shared_phrases([[row.phrases for row in those] for those in questions], by_question)

    def metrics(row: _Row) -> Mapping[str, float]:
        values = row.score.metrics
        return values if held_out_names is None else {name: values[name] for name in held_out_names if name in values}

    hidden, parts = _columns(rows, metrics), _columns(rows, lambda row: row.parts)
    return StepStatistics(
        step=step,
        reward=Moments.of([[row.reward for row in group] for group in rows]),
        parts={name: Moments.of(column) for name, column in parts.items()},
        held_out={name: Moments.of(column) for name, column in hidden.items()},
        pairs=dict(_pairs(rows, hidden, parts=parts if len(parts) > 1 else ())),
        similarity=similarity,
        phrases={phrase: _phrase_figures(phrase, questions) for phrase in shared},
        repetition=Moments.of([[row.repetition for row in group] for group in rows]),
        length=Moments.of([[row.length for row in group] for group in rows]),
        length_effect=_length_effect(rows),
        by_opponent_strength=_by_opponent_strength(groups, rows),
        examples=_examples(flat, similarity.answer),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    place: RolloutPlace
    score: Score
    reward: float
    parts: Mapping[str, float]
    """What each part adds to the reward."""
    question: str
    """The first messages that the seat saw."""
    last: str
    """What it wrote in its last turn, without calls of tools."""
    phrases: Collection[str]
    """Those of its first turn."""
    text: str
    answer: str
    """Its normalised answers, of all turns."""
    repetition: float
    length: float


def _describe(texts: tuple[str, ...], turns: tuple[str, ...]) -> dict[str, Any]:
    """What a row says of its texts, which many rollouts of a step may share."""
    text = "\n".join(texts)
    return {
        # Later turns answer what happened: what they say goes with success without being paid.
        "phrases": phrases_in(turns[0]) if turns else set(),
        "text": text,
        "answer": " / ".join(map(normalize_answer, texts)),
        "repetition": repeated_ngram_share(text),
        "length": len(split_words(text)) / max(len(turns), 1),
    }


def _rows(
    group: Group, seat: str | None, contributions: Contributions, *, described: Callable[..., dict[str, Any]]
) -> Iterator[_Row]:
    for rollout in group.rollouts:
        for trajectory in rollout.trajectories:
            if trajectory.score is None or (trajectory.seat != seat if seat else not trajectory.trainable):
                continue
            texts = list[str]()
            for turn in trajectory.turns:
                texts += [turn.action.content, *(f"{c.name} {c.arguments}" for c in turn.action.tool_calls)]
            parts = contributions(trajectory.score.parts)
            adds_up = isclose(fsum(parts.values()), trajectory.score.reward, rel_tol=1e-6, abs_tol=1e-6)
            first = trajectory.turns[0].observation if trajectory.turns else ()
            yield _Row(
                place=(group.index, rollout.sample_index),
                score=trajectory.score,
                reward=trajectory.score.reward,
                parts=parts if adds_up else {},
                question="\n".join(message.content for message in first),
                last=trajectory.turns[-1].action.content if trajectory.turns else "",
                **described(tuple(texts), tuple(turn.action.content for turn in trajectory.turns)),
            )
            break


def _columns(rows: Sequence[Sequence[_Row]], of: Callable[[_Row], Mapping[str, float]]) -> dict[str, list[list[float]]]:
    names = dict.fromkeys(name for group in rows for row in group for name in of(row))
    return {name: [[of(row)[name] for row in group if name in of(row)] for group in rows] for name in names}


def _pairs(
    rows: Sequence[Sequence[_Row]], held_out: Collection[str], *, parts: Collection[str]
) -> Iterator[tuple[str, PairMoments]]:
    for name in held_out:
        known = [[row for row in group if name in row.score.metrics] for group in rows]
        yield name, PairMoments.of([[(row.reward, row.score.metrics[name]) for row in group] for group in known])
        for part in parts:
            pairs = [[(row.parts[part], row.score.metrics[name]) for row in g if part in row.parts] for g in known]
            yield f"{part} ~ {name}", PairMoments.of(pairs)


def _phrase_figures(phrase: str, questions: Sequence[Sequence[_Row]]) -> PhraseFigures:
    flat = [row for those in questions for row in those]
    rewards = [row.reward for row in flat]
    low = min(rewards) + LOW_SHARE * (max(rewards) - min(rewards))
    with_it, without = ([row.reward for row in flat if (phrase in row.phrases) is said] for said in (True, False))
    return PhraseFigures(
        share=Moments.of([[sum(phrase in row.phrases for row in those) / len(those)] for those in questions]),
        said=len(with_it),
        said_low=sum(reward <= low for reward in with_it),
        unsaid=len(without),
        unsaid_low=sum(reward <= low for reward in without),
    )


def _length_effect(rows: Sequence[Sequence[_Row]]) -> LengthEffect:
    """Over siblings with the same final answer where there are enough, else over all siblings."""
    matched: list[list[_Row]] = []
    for group in rows:
        by_answer: dict[str, list[_Row]] = {}
        for row in group:
            by_answer.setdefault(extract_answer(stated_answer(row.last)) or normalize_answer(row.last), []).append(row)
        matched += [alike for alike in by_answer.values() if len({row.length for row in alike}) > 1]
    enough = sum(map(len, matched)) >= MIN_MATCHED_SHARE * sum(map(len, rows))
    pairs: list[tuple[float, float]] = []
    order, ordered = 0, 0
    for cluster in matched if enough else [group for group in rows if len(group) > 1]:
        reward = fsum(row.reward for row in cluster) / len(cluster)
        length = fsum(row.length for row in cluster) / len(cluster)
        pairs += [(row.reward - reward, row.length - length) for row in cluster]
        for one, other in combinations(cluster, 2):
            both = (one.reward - other.reward) * (one.length - other.length)
            order, ordered = order + (both > 0) - (both < 0), ordered + (both != 0)
    return LengthEffect(correlation=correlation(pairs) or 0.0, order=order / max(ordered, 1), is_matched=enough)


def _by_opponent_strength(groups: Sequence[Group], rows: Sequence[Sequence[_Row]]) -> dict[float, Moments]:
    by: dict[float, list[list[float]]] = {}
    for group, group_rows in zip(groups, rows, strict=True):
        strength = group.task.info.get("strength")
        if isinstance(strength, int | float) and group_rows:
            by.setdefault(float(strength), []).append([row.reward for row in group_rows])
    return {strength: Moments.of(clusters) for strength, clusters in sorted(by.items())}


def _examples(flat: Sequence[_Row], answer: str) -> dict[str, tuple[RolloutPlace, ...]]:
    def most(key: Callable[[_Row], float], among: Sequence[_Row] = flat) -> tuple[RolloutPlace, ...]:
        return tuple(row.place for row in sorted(among, key=key, reverse=True)[:5])

    same = [row for row in flat if row.answer == answer]
    return {
        "reward": most(lambda row: row.reward),
        "frequent": most(lambda row: row.reward, same),
        "repetition": most(lambda row: row.repetition),
        "length": most(lambda row: row.length),
    }
