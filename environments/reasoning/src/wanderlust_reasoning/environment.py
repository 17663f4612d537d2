"""Any data set of reasoning-gym as a single-turn environment; the extra `reasoning` needs a C compiler.

Tasks and scorers are those of https://github.com/open-thought/reasoning-gym, 0.1.25. Some scorers evaluate a
model's answer as Python or with sympy. `is_harmless` lets only literals and short formulas through. Not covered: a
formula that sympy takes long over stops everything else for that time. In each process `codeio`, `list_functions` and
`polynomial_multiplication` make some other questions, and `knight_swap` and `word_ladder` some other answers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import fields
from difflib import get_close_matches
from functools import lru_cache
from itertools import zip_longest
from random import Random
from typing import Any

from wanderlust._lazy import needs_extra
from wanderlust.environment import Environment, Episode, Limits
from wanderlust.errors import RubricFailure, UsageError, boundary
from wanderlust.evals.splits import without_shared
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.parsing import XmlFields
from wanderlust.types import Message, Policy, Task, system, user

EVAL_SEED_OFFSET = 10_000_019
"""Distance of the seeds of two splits: a data set draws task n from seed + n, so near seeds share tasks."""
MAX_TAGGED_ANSWER_CHARS = 20_000
"""Characters of an answer; a longer one scores 0 unread."""
REASONING_RULES = "Think as long as you like. Then give the answer, and nothing else, between <answer> and </answer>."
EVAL_CALLING_DATASETS = {"string_insertion", "spiral_matrix", "binary_matrix", "n_queens"}
"""Data sets whose scorer calls `eval` on an answer."""
ARITHMETIC_DATASETS = {"countdown", "puzzle24"}
"""Data sets whose answers have only numbers and the four basic operations."""
SYMPY_PARSING_DATASETS = {"polynomial_multiplication", "simple_integration", "intermediate_integration"}
"""Other data sets whose scorer parses an answer with sympy, which evaluates it."""
ALLOWED_WORDS = {
    *"abcdefghijklmnopqrstuvwxyz",
    *["C", "E", "pi", "sin", "cos", "tan", "exp", "log", "ln", "sqrt", "asin", "acos", "atan"],
}
POWER_TOWER_PATTERN = re.compile(
    r"(?:\*\*|\^)(?:[\s(+-]*\d{3}|[\s(+-]*[\w./]+[\s)]*(?:\*\*|\^)|[\s+-]*\([^)]*(?:\*\*|\^))"
)
"""A power of a power, or one with an exponent over 99."""
FORGET_PROBABILITY = 0.5
"""Probability that a carry is forgotten."""
SUM_PATTERN = re.compile(r"(\d+) ([+-]) (\d+)\D*$")
ANSWER_FIELD = XmlFields("answer").field("answer")


def parse_tagged_answer(text: str) -> str | None:
    """The content of the last answer tags; None without one, or above MAX_TAGGED_ANSWER_CHARS."""
    answer = ANSWER_FIELD(text)
    return answer if answer is not None and len(answer) <= MAX_TAGGED_ANSWER_CHARS else None


class ReasoningGym(Environment):
    """Any data set of reasoning-gym, by its own scorer: `ReasoningGym("chain_sum", max_terms=3)`.

    `size` tasks for each split, of different seeds; other settings go to the data set. With `level`, those that the
    data set's curriculum has for it, from 0 on, come first. The reward `score` is what the data set's own scorer gives.
    The scorer sees what stands in the last <answer> tags.
    """

    limits = Limits(max_turns=1)

    def __init__(self, dataset: str = "chain_sum", *, size: int = 500, seed: int = 0, **settings: Any):
        """Raises UsageError when there is no such data set, or it does not take the settings."""
        self.dataset, self.size, self.seed = dataset, size, seed
        self.settings = tuple(sorted(settings.items()))
        sums = dataset == "chain_sum" and settings.get("max_terms") == 2
        self.players: Mapping[str, Callable[[], Policy]] = {"teacher": lambda: Scripted(pupil)} if sums else {}
        """For sums of two numbers, a pupil that forgets carries; otherwise empty."""

    def tasks(self, split: str = "train") -> Iterable[Task]:
        """`size` tasks of `train`, or those of as many of `eval` that `train` does not have.

        A data set with so few questions that `train` asks them all has no clean split: `eval` is then all of its own.
        """
        drawn = self._drawn(split)
        if split == "train":
            return drawn
        own = list(drawn)
        return without_shared([*self._drawn("train")], own) or own

    def _drawn(self, split: str) -> Iterator[Task]:
        for index in range(self.size):
            entry = self._entry(split, index)
            yield Task(
                id=f"{self.dataset}-{split}-{self.seed}-{index}",
                prompt=(system(REASONING_RULES), user(entry["question"])),
                answer=None if entry["answer"] is None else str(entry["answer"]),
                info={"split": split, "index": index},
            )

    def oracle(self, task: Task) -> Policy:
        """Knows the answer."""
        return Scripted([f"<answer>{task.answer}</answer>"])

    async def run(self, episode: Episode) -> None:
        """One question, one answer, scored."""
        answer = (await episode.agent.act(*episode.task.prompt)).content
        info, read = episode.task.info, parse_tagged_answer(answer)
        entry = self._entry(info["split"], info["index"])
        scorer = make_dataset(self.dataset, size=self.size, seed=self._seed(info["split"]), config=self.settings)
        episode.reward("score", score_answer(self.dataset, scorer, read, entry=entry))

    def _entry(self, split: str, index: int) -> Mapping[str, Any]:
        return make_entry(self.dataset, size=self.size, seed=self._seed(split), config=self.settings, index=index)

    def _seed(self, split: str) -> int:
        if split not in ("train", "eval"):
            raise UsageError(f"reasoning-gym has no split {split!r}: one of train, eval")
        return EVAL_SEED_OFFSET * (2 * self.seed + (split == "eval"))


def dataset_names() -> list[str]:
    """All data sets."""
    with needs_extra("reasoning"):
        from reasoning_gym.factory import DATASETS
    return sorted(DATASETS)


class SortedSet(set[Any]):
    """A set that is read in order. Data sets draw letters from sets, whose own order differs between processes."""

    def __iter__(self) -> Iterator[Any]:
        """The members, sorted."""
        return iter(sorted(super().__iter__()))

    def __sub__(self, other: Set[Any]) -> SortedSet:
        """The members that another set does not have."""
        return SortedSet(super().__sub__(other))


@lru_cache(maxsize=128)
def make_dataset(name: str, *, size: int, seed: int, config: tuple[tuple[str, Any], ...]) -> Any:
    """A data set; equal arguments, equal tasks. Raises UsageError for an unknown name or a wrong setting."""
    if name not in (names := dataset_names()):
        alike = get_close_matches(name, names, n=4, cutoff=0.5) or names
        raise UsageError(f"reasoning-gym has no data set {name!r}; there are {', '.join(alike)}")
    try:
        from reasoning_gym import create_dataset

        settings = dict(config)
        if (level := settings.pop("level", None)) is not None:
            settings = curriculum_settings(name, level) | settings
        data = create_dataset(name, size=size, seed=seed, **settings)
    except (TypeError, ValueError, AssertionError) as error:
        raise UsageError(f"reasoning-gym cannot make {name!r} of {dict(config)}: {error}") from error
    for attribute, value in vars(data).items():
        if type(value) is set:
            setattr(data, attribute, SortedSet(value))
    return data


@lru_cache(maxsize=4096)
def make_entry(
    name: str, *, size: int, seed: int, config: tuple[tuple[str, Any], ...], index: int
) -> Mapping[str, Any]:
    """A question of a data set with its answer, kept for a while: some sets search for seconds to make one."""
    entry: Mapping[str, Any] = make_dataset(name, size=size, seed=seed, config=config)[index]
    return entry


def curriculum_settings(name: str, level: int) -> dict[str, Any]:
    """The settings of one level of a data set's curriculum. Raises UsageError where there is no such level."""
    with needs_extra("reasoning"):
        from reasoning_gym.factory import create_curriculum, has_curriculum
    if not has_curriculum(name):
        raise UsageError(f"reasoning-gym has no curriculum for {name!r}: leave level out")
    curriculum = create_curriculum(name)
    top = max(len(one.levels) for one in curriculum.attributes.values()) - 1
    if type(level) is not int or not 0 <= level <= top:
        raise UsageError(f"level is {level!r}, and must be a whole number from 0 to {top}")
    curriculum.set_global_level(level)
    made = curriculum.generate_configuration({})
    return {one.name: getattr(made, one.name) for one in fields(made) if one.name not in ("seed", "size")}


def score_answer(name: str, data: Any, answer: str | None, *, entry: Mapping[str, Any]) -> float:
    """The score of the data set's own scorer, from 0 to 1; 0 where it raises."""
    if answer is None or not (answer == entry["answer"] or is_harmless(name, answer)):
        return 0.0
    try:
        with boundary(RubricFailure):
            value = float(data.score_answer(answer=answer, entry=entry))
    except RubricFailure:
        return 0.0
    return value if 0.0 <= value <= 1.0 else 0.0


def is_harmless(name: str, answer: str) -> bool:
    """Whether an answer may be given to the scorer of a data set."""
    if name in EVAL_CALLING_DATASETS:
        try:
            ast.literal_eval(answer)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return False
        return True
    if name in ARITHMETIC_DATASETS:
        return bool(re.fullmatch(r"[0-9+\-*/().=\s]{1,300}", answer)) and not re.search(r"\*\s*\*|\d{12}", answer)
    if name in SYMPY_PARSING_DATASETS:
        plain = (
            re.fullmatch(r"[0-9A-Za-z+\-*/^().,\s]{1,300}", answer)
            and {*re.findall("[A-Za-z]+", answer)} <= ALLOWED_WORDS
        )
        nested = POWER_TOWER_PATTERN.search(answer) or len(re.findall(r"\)\s*(?:\*\*|\^)", answer)) > 2
        return bool(plain) and not nested and not re.search(r"\.\s*[A-Za-z]|\d{12}", answer)
    return True


def pupil(messages: Sequence[Message], rng: Random) -> str:
    """`<think>7+5=12 3+2+1=6</think> <answer>62</answer>`; empty where there is no sum of two numbers at the end."""
    match = SUM_PATTERN.search(messages[-1].content)
    if match is None:
        return ""
    a, b, minus = int(match[1]), int(match[3]), match[2] == "-"
    columns, digits = work_columns(max(a, b), min(a, b), minus=minus, rng=rng)
    value = int(digits) * (-1 if minus and a < b else 1)
    return f"<think>{' '.join(columns)}</think> <answer>{value}</answer>"


def work_columns(a: int, b: int, *, minus: bool, rng: Random) -> tuple[list[str], str]:
    """The columns from the last one on, and the digits of what they give; `a` is at least `b`."""
    columns, digits, carried = list[str](), "", False
    pairs = list(zip_longest(str(a)[::-1], str(b)[::-1], fillvalue="0"))
    for place, (x, y) in enumerate(pairs):
        sign = "-" if minus else "+"
        carry = f"{sign}1" if carried else ""
        value = int(x) - int(y) - carried if minus else int(x) + int(y) + carried
        over = value < 0 if minus else value > 9
        borrowed = "1" if minus and over else ""
        value = value + 10 if borrowed else value
        columns.append(f"{borrowed}{x}{sign}{y}{carry}={value}")
        last = place == len(pairs) - 1
        digits = (str(value) if last else str(value % 10)) + digits
        carried = over and rng.random() >= FORGET_PROBABILITY
    return columns, digits
