"""Filters of answers, and of questions by what is known of their answers."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from wanderlust.errors import UsageError
from wanderlust.rubrics.answers import comparable, stated_answer
from wanderlust.types import Rollout
from wanderlust_data.plan import AnswerFilters
from wanderlust_data.questions import last_text

COMMON_WORDS = {
    "en": "the of and to in is that it for was on are with as this be not what which you",
    "de": "der die und das ist nicht ein eine zu den mit von auf für sich dem auch es wir ich",
    "fr": "le la les de des et est une un du que dans pour pas qui sur avec il ce sont",
    "es": "el la los las de que y en un una es por con para no se del lo como al",
    "it": "il la di che e un una per non sono con del della è si da gli come nel alla",
    "pt": "o a os as de que e do da em um uma para com não é por no na se",
}
MIN_LANGUAGE_WORDS = 8
"""Texts of fewer letters' words have no language."""
SCRIPTS = ("latin", "cyrillic", "greek", "han", "hiragana", "katakana", "hangul", "arabic", "hebrew", "devanagari")


def language_of(text: str) -> str | None:
    """The language of a text, by its script and its most common words; None where nobody can tell.

    Example:
        >>> language_of("What is the sum of the first ten numbers that are even and not prime?")
        'en'
    """
    words = re.findall(r"[^\W\d_]+", text.lower())
    if len(words) < MIN_LANGUAGE_WORDS and not any(ord(letter) > 0x2E7F for letter in text):
        return None
    script = _script_of("".join(words))
    if script != "latin":
        return script
    counts = {name: sum(word in common.split() for word in words) for name, common in COMMON_WORDS.items()}
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] * 20 >= len(words) else None


def _script_of(letters: str) -> str:
    names = Counter(unicodedata.name(letter, "").split(" ")[0].lower() for letter in letters[:2000])
    name = names.most_common(1)[0][0] if names else "latin"
    return {"cjk": "han"}.get(name, name)


def check_language(name: str) -> None:
    """Raises UsageError for a language that the filter does not know."""
    known = (*COMMON_WORDS, *SCRIPTS)
    if name and name not in known:
        raise UsageError(f"answers.language is {name!r}, and must be one of {', '.join(known)}")


def majority_answer(answers: Sequence[str]) -> tuple[str, float] | None:
    """The most frequent answer and its share; None where there is none, or two are as frequent."""
    counts = Counter(comparable(answer) for answer in answers if answer)
    if not counts:
        return None
    (first, most), *others = counts.most_common(2)
    if others and others[0][1] == most:
        return None
    return first, most / len(answers)


def find_mislabelled(
    labels: Sequence[str], votes: Sequence[Sequence[Sequence[str]]], *, agreement: float = 0.5
) -> list[int]:
    """The numbers of labels that the teachers contradict, and none of them supports.

    Args:
        labels: The answer of each row.
        votes: For each row and teacher, the final answers that the teacher gave. What a teacher says is its most
            frequent answer, so that one teacher's error does not outvote another's answers.
        agreement: Least share of a teacher's answers that its most frequent one needs to contradict a label.

    Example:
        >>> find_mislabelled(["4", "5"], [[["4", "4", "3"]], [["7", "7", "5"], ["7", "6", "8"]]])
        [1]
    """
    return [
        number
        for number, (label, given) in enumerate(zip(labels, votes, strict=True))
        if is_contradicted(label, [majority_answer(one) for one in given], agreement=agreement)
    ]


def is_contradicted(label: str, majorities: Sequence[tuple[str, float] | None], *, agreement: float) -> bool:
    """Whether a teacher's most frequent answer is clearly another one, and no teacher's is the label."""
    said = [one for one in majorities if one is not None]
    own = comparable(label)
    return all(answer != own for answer, _ in said) and any(share >= agreement for _, share in said)


def refused_by(rollout: Rollout, filters: AnswerFilters, majority: tuple[str, float] | None) -> str | None:
    """The first filter that an answer does not pass; None where it passes all."""
    text = last_text(rollout)
    if filters.min_reward is not None and reward_of(rollout) < filters.min_reward:
        return "min_reward"
    if filters.majority is not None:
        own = comparable(stated_answer(text))
        if majority is None or majority[1] < filters.majority or own != majority[0]:
            return "majority"
    length = sum(len(turn.action.content) for one in rollout.trajectories if one.trainable for turn in one.turns)
    if length < filters.min_chars:
        return "min_chars"
    if filters.max_chars and length > filters.max_chars:
        return "max_chars"
    if filters.language:
        language = language_of(text)
        wanted = language is None or language == filters.language
        if not wanted and not (filters.language == "latin" and language in COMMON_WORDS):
            return "language"
    return None


def passed_filters(filters: AnswerFilters) -> list[str]:
    """The names of the filters that are set."""
    values = {name: getattr(filters, name) for name in ("min_reward", "majority", "min_chars", "max_chars", "language")}
    return [name for name, value in values.items() if value or (name == "min_reward" and value is not None)]


def reward_of(rollout: Rollout) -> float:
    """The reward of the learning seat; rollouts without one are left out before."""
    trajectory = rollout.main_trajectory
    if trajectory is None or trajectory.score is None:
        raise UsageError(f"the rollout of {rollout.task.id!r} has no reward")
    return trajectory.score.reward


def longest_answered(rollouts: Mapping[str, Sequence[Rollout]], share: float) -> set[str]:
    """The questions with the longest mean answers: this share of those that were answered."""
    lengths = {
        name: fmean(len(last_text(rollout)) for rollout in answers) for name, answers in rollouts.items() if answers
    }
    order = sorted(lengths, key=lambda name: (-lengths[name], name))
    return {*order[: max(1, round(share * len(order)))]}
