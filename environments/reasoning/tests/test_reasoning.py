"""Tasks of reasoning-gym: its own scorers, and answers that must not reach them."""

import asyncio
import os
import subprocess
import sys
from itertools import islice

import pytest

pytest.importorskip("reasoning_gym", reason="not installed: pip install 'wanderlust[reasoning]'")

from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.testing import check_environment
from wanderlust_reasoning import environment
from wanderlust_reasoning.environment import ReasoningGym, parse_tagged_answer

TRIED = [
    *(
        "chain_sum",
        "gsm_symbolic",
        "countdown",
        "mini_sudoku",
        "sokoban",
        "word_ladder",
        "spell_backward",
        "leg_counting",
    ),
    *(
        "knights_knaves",
        "shortest_path",
        "simple_equations",
        "number_sorting",
        "spiral_matrix",
        "polynomial_multiplication",
    ),
]
UNUSED = {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour", "composite"}
"""What does not score its own answer fully, or needs to be told of what it is composed."""


def rewards(env, said, count=3):
    async def go():
        played = [await rollout(env, task, Scripted([said(task)])) for task in islice(env.tasks("eval"), count)]
        assert [one.error for one in played] == [None] * count
        return [one.trajectory.score.reward for one in played]

    return asyncio.run(go())


@pytest.mark.parametrize("name", TRIED)
def test_the_right_answer_scores_high_and_garbage_low(name):
    env = ReasoningGym(name, size=5)
    assert min(rewards(env, lambda task: f"So: <answer>{task.answer}</answer>")) >= 0.99
    assert max(rewards(env, lambda task: "<answer>no idea</answer>")) <= 0.2
    assert rewards(env, lambda task: str(task.answer)) == [0.0] * 3
    first, again = (list(env.tasks()) for _ in range(2))
    assert first == again != list(ReasoningGym(name, size=5, seed=1).tasks())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a package of theirs leaves a file open
def test_every_data_set_scores_its_own_answer():
    """All of them, one task each, without the episode around it."""
    assert len(environment.dataset_names()) > 100
    low = []
    for name in sorted({*environment.dataset_names()} - UNUSED):
        data = environment.make_dataset(name, size=2, seed=1, config=())
        answer = data[0]["answer"]
        if answer is not None and environment.score_answer(name, data, str(answer), entry=data[0]) < 0.99:
            low.append(name)
    assert low == []


def test_it_keeps_its_promises():
    assert asyncio.run(check_environment(ReasoningGym(), count=2)) == []
    assert asyncio.run(check_environment(ReasoningGym("countdown", size=3), count=2)) == []


@pytest.mark.parametrize(
    ("name", "answer", "kept"),
    [
        ("n_queens", "__import__('os').system('false')", False),
        ("n_queens", "[['_', 'Q'], ['Q', '_']]", True),
        ("spiral_matrix", "[1, 2]", True),
        ("spiral_matrix", "[9**9**9]", False),
        ("countdown", "(1 + 2) * 30", True),
        ("countdown", "9**9**9**9", False),
        ("countdown", "1**999999999", False),
        ("countdown", "().__class__", False),
        ("countdown", "x.free_symbols", False),
        ("countdown", "exit(1)", False),
        ("simple_integration", "x**3/3 + sin(x) + C", True),
        ("simple_integration", "x" * 500, False),
        ("simple_integration", "2**(x**2)", False),
        ("simple_integration", "(((9**99)**99)**99)**99", False),
        ("polynomial_multiplication", "12*x**3 + 4*x**2 - 7", True),
        ("chain_sum", "anything", True),
    ],
)
def test_what_a_scorer_would_execute_does_not_reach_it(name, answer, kept):
    assert environment.is_harmless(name, answer) is kept


def test_the_last_tags_count():
    assert parse_tagged_answer("<answer>1</answer> <answer> 2 </answer> 3") == "2"
    assert parse_tagged_answer("So: <answer>3") is None  # cut off, so no answer
    assert parse_tagged_answer("<answer>3</answer> or <answer>4") == "3"
    assert parse_tagged_answer("1</answer>") is parse_tagged_answer("<answer>" + "9" * 30_000 + "</answer>") is None


def test_wrong_names_and_settings_are_one_line():
    for env, says in (
        (ReasoningGym("nonsense"), "no data set 'nonsense'"),
        (ReasoningGym("chain_sum", tribbles=3), "cannot make 'chain_sum'"),
    ):
        with pytest.raises(UsageError, match=says) as raised:
            next(env.tasks())
        assert "\n" not in str(raised.value)
    with pytest.raises(UsageError, match="no split 'test'"):
        next(ReasoningGym().tasks("test"))


def test_questions_of_the_evaluation_are_not_those_of_training():
    env = ReasoningGym("chain_sum", max_terms=2, min_digits=2, max_digits=2, size=300)
    train, held = ([task.prompt for task in env.tasks(split)] for split in ("train", "eval"))
    assert sum(prompt in train for prompt in held) < 30  # all but one, when the seeds of the splits are neighbours


def test_levels_of_a_curriculum_get_harder_and_wrong_ones_are_refused():
    first, third = (next(iter(ReasoningGym("products", size=1, level=level).tasks())) for level in (0, 3))
    assert len(first.prompt[-1].content) < len(third.prompt[-1].content)
    assert next(iter(ReasoningGym("chain_sum", size=1, level=0, min_terms=4, max_terms=4).tasks())).answer is not None
    with pytest.raises(UsageError, match="level is 99, and must be a whole number from 0 to 10"):
        next(iter(ReasoningGym("chain_sum", size=1, level=99).tasks()))
    with pytest.raises(UsageError, match="no curriculum for 'gsm_symbolic': leave level out"):
        next(iter(ReasoningGym("gsm_symbolic", size=1, level=0).tasks()))


@pytest.mark.parametrize("name", ["isomorphic_strings", "ransom_note"])
def test_sets_that_draw_from_sets_of_letters_are_the_same_in_every_process(name):
    lines = "from wanderlust_reasoning.environment import ReasoningGym\n"
    lines += f"print([(t.prompt[-1].content, t.answer) for t in ReasoningGym({name!r}, size=5).tasks()])"
    made = [
        subprocess.run(
            [sys.executable, "-c", lines], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in "12"
    ]
    assert made[0] == made[1]
    assert made[0].count(b"True") + made[0].count(b"False") >= 5


def test_a_question_is_made_once(monkeypatch):
    env = ReasoningGym("gcd", size=3, seed=41)
    data = environment.make_dataset("gcd", size=3, seed=env._seed("eval"), config=())
    made = []
    real = type(data).__getitem__
    monkeypatch.setattr(type(data), "__getitem__", lambda self, n: made.append((self, n)) or real(self, n))
    assert rewards(env, lambda task: f"<answer>{task.answer}</answer>") == [1.0] * 3
    assert [n for own, n in made if own is data] == [0, 1, 2]
