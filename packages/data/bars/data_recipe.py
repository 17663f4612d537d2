"""A recipe with planted truths: a source whose labels are wrong, a teacher that scores high and teaches little, a leak.

The skill is sums and differences of two numbers of reasoning-gym. The teacher `worked` writes out its columns and
forgets every other carry; the teacher `terse` gives the answer alone, and is nearly always right.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from random import Random

from wanderlust.policies.scripted import Scripted
from wanderlust.types import Message
from wanderlust_data.plan import AnswerFilters, DataPlan, Source, Student, Teacher, Variant
from wanderlust_reasoning.environment import REASONING_RULES, SUM_PATTERN, ReasoningGym, pupil

SETTINGS = {"max_terms": 2, "min_digits": 2, "max_digits": 3}
EXAM_QUESTIONS = 200
LEAKED = 60
TERSE_RIGHT = 0.97


def terse(messages: Sequence[Message], rng: Random) -> str:
    """The answer alone; wrong by one now and then."""
    match = SUM_PATTERN.search(messages[-1].content)
    if match is None:
        return ""
    right = int(match[1]) + int(match[3]) * (-1 if match[2] == "-" else 1)
    return f"<answer>{right + (rng.random() > TERSE_RIGHT)}</answer>"


def mislabelled(question: str) -> str:
    """What comes out when every carry is forgotten."""
    match = SUM_PATTERN.search(question)
    assert match is not None
    a, b, minus = int(match[1]), int(match[3]), match[2] == "-"
    high, low = max(a, b), min(a, b)
    digits = [
        (int(x) - int(y) if minus else int(x) + int(y)) % 10 for x, y in zip(f"{high:03}", f"{low:03}", strict=True)
    ]
    return str(int("".join(map(str, digits))) * (-1 if minus and a < b else 1))


def write_sources(folder: Path) -> None:
    """`poisoned.jsonl` and `leaked.jsonl`."""
    folder.mkdir(parents=True, exist_ok=True)
    others = ReasoningGym("chain_sum", size=3600, seed=3, **SETTINGS)
    asked = [task.prompt[-1].content for task in others.tasks("train")]
    poisoned = [{"prompt": one, "answer": mislabelled(one)} for one in asked[:3000]]
    exam = [*islice(ReasoningGym("chain_sum", size=EXAM_QUESTIONS, **SETTINGS).tasks("eval"), LEAKED)]
    leaked = [{"prompt": task.prompt[-1].content, "answer": task.answer} for task in exam]
    own = [*islice(others.tasks("train"), 3000, 3600)]
    leaked += [{"prompt": task.prompt[-1].content, "answer": task.answer} for task in own]
    for name, rows in (("poisoned", poisoned), ("leaked", leaked)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text)


def recipe(folder: Path, *, seeds: Sequence[int] = (0, 1, 2)) -> DataPlan:
    """The plan, with five variants. None of them is told which is which.

    The two teachers are compared without the poisoned source, whose wrong labels would hide what they teach.
    """
    files = [
        Source(name=name, file=str(folder / f"{name}.jsonl"), verifier="number", system=REASONING_RULES)
        for name in ("poisoned", "leaked")
    ]
    return DataPlan(
        name="sums",
        sources=(Source(name="sums", env=ReasoningGym("chain_sum", size=2500, **SETTINGS)), *files),
        duplicates=("exact",),
        teachers=(
            Teacher(name="worked", policy=Scripted(pupil), samples=4),
            Teacher(name="terse", policy=Scripted(terse)),
        ),
        answers=AnswerFilters(min_reward=1.0),
        student=Student(
            env=ReasoningGym("chain_sum", size=EXAM_QUESTIONS, **SETTINGS),
            questions=EXAM_QUESTIONS,
            max_tokens=64,
            seeds=tuple(seeds),
            tokens=280_000,
            settings={"epochs": 20, "batch_tokens": 4096, "fresh_width": 64},
        ),
        variants=(
            Variant(name="without poisoned", without_sources=("poisoned",)),
            Variant(name="without leaked", without_sources=("leaked",)),
            Variant(name="only worked", only_teachers=("worked",), without_sources=("poisoned",)),
            Variant(name="only terse", only_teachers=("terse",), without_sources=("poisoned",)),
            Variant(name="no answer filter", answers=AnswerFilters()),
        ),
    )
