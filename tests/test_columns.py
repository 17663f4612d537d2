"""The pupil who forgets what is carried, and the sums he is asked for."""

from __future__ import annotations

import re
from random import Random

import pytest
from benchmarks.bars_arithmetic import unseen

from wanderlust.environments import reasoning
from wanderlust.environments.reasoning import pupil
from wanderlust.tasks.registry import load_environment
from wanderlust.training.presets import ARITHMETIC
from wanderlust.types import user


def share(rng: Random) -> float:
    asked = [(rng.randrange(10, 1000), rng.choice("+-"), rng.randrange(10, 1000)) for _ in range(1000)]
    said = [pupil([user(f"What is {a} {sign} {b} = ?")], rng) for a, sign, b in asked]
    right = [a + b if sign == "+" else a - b for a, sign, b in asked]
    return sum(f"<answer>{value}</answer>" in text for value, text in zip(right, said, strict=True)) / len(asked)


def test_a_pupil_who_forgets_nothing_is_always_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasoning, "FORGET_PROBABILITY", 0.0)
    assert share(Random("columns")) == 1.0


def test_the_pupil_as_he_is_leaves_something_to_be_learnt() -> None:
    assert 0.4 < share(Random("columns")) < 0.75


@pytest.mark.parametrize(("a", "sign", "b"), [(7, "+", 5), (99, "+", 901), (100, "-", 1), (1, "-", 100), (5, "-", 5)])
def test_every_column_that_he_writes_is_right_by_itself(a: int, sign: str, b: int) -> None:
    text = pupil([user(f"{a} {sign} {b}")], Random(0))
    worked = re.findall(r"([\d+-]+)=(\d+)", text)
    assert worked
    assert all(eval(left) == int(right) for left, right in worked)


def test_anything_else_leaves_him_silent() -> None:
    assert pupil([user("What is 1 + 2 * 3?"), user("And who are you?")], Random(0)) == ""


def test_unseen_sums_are_unseen() -> None:
    pytest.importorskip("reasoning_gym")
    asked = {task.prompt for task in load_environment(ARITHMETIC.env).tasks("train")}
    assert len(asked) > 4000
    assert not asked & {task.prompt for task in unseen()}
