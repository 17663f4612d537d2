"""Wordle: its marks, its refusals, and the rewards that the published classic environment gives."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from project_files import ROOT
from wanderlust.environments import wordle
from wanderlust.environments.wordle import GUESS_WORDS, SECRET_WORDS, WORDLE_RULES, Wordle, mark_guess_letters
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.testing import check_environment
from wanderlust.types import Task

ENV = Wordle()


def play(secret, *said, env=ENV):
    return asyncio.run(rollout(env, Task(id="w", answer=secret), Scripted(list(said))))


def solver(messages, rng):
    """Guesses any word that agrees with all marks so far: an oracle that is told no more than a model."""
    lines = [m.content.split("\n") for m in messages if m.role == "user"]
    told = [
        (word.replace(" ", "").lower(), seen.replace(" ", "")) for word, seen, *_ in (t for t in lines if len(t) == 3)
    ]
    left = [word for word in SECRET_WORDS if all(mark_guess_letters(guess, word) == seen for guess, seen in told)]
    return f"<guess>[{left[rng.randrange(len(left))]}]</guess>"


@pytest.mark.parametrize(
    ("guess", "secret", "expected"),
    [
        ("crane", "crane", "GGGGG"),
        ("allee", "eagle", "YYXYG"),
        ("eerie", "eagle", "GXXXG"),
        ("geese", "eagle", "YYXXG"),
        ("llama", "label", "GYYXX"),
        ("speed", "abide", "XXYXY"),
        ("speed", "erase", "YXYYX"),
        ("crimp", "mousy", "XXXYX"),
    ],
)
def test_letters_are_marked_once_each(guess, secret, expected):
    assert mark_guess_letters(guess, secret) == expected


@given(*[st.text("abc", min_size=5, max_size=5)] * 2)
def test_marks_agree_with_counting(guess, secret):
    told = mark_guess_letters(guess, secret)
    for letter in "abc":
        earned = sum(m != "X" for m, g in zip(told, guess, strict=True) if g == letter)
        assert earned == min(guess.count(letter), secret.count(letter))
    assert [m == "G" for m in told] == [g == s for g, s in zip(guess, secret, strict=True)]


def test_words_are_five_letters_each_once():
    assert {len(word) for word in SECRET_WORDS + GUESS_WORDS} == {5}
    assert len({*SECRET_WORDS, *GUESS_WORDS}) == len(SECRET_WORDS) + len(GUESS_WORDS) > 4000
    train, held = ({task.answer for task in ENV.tasks(split)} for split in ("train", "eval"))
    assert (len(train & held), train | held) == (0, {*SECRET_WORDS})
    assert len(held) > 100


def test_a_solver_scores_high_and_garbage_low():
    async def go(script):
        return [await rollout(ENV, task, Scripted(script)) for task in ENV.tasks("eval")[:10]]

    high = [played.trajectory.score.reward for played in asyncio.run(go(solver))]
    assert sum(high) / len(high) > 1.1
    low = [played.trajectory.score.reward for played in asyncio.run(go(lambda messages, rng: "I think it is crane."))]
    assert max(low) == pytest.approx(0.04)  # the gift of 0.2 for form, weighed with 0.2
    assert asyncio.run(check_environment(ENV, Scripted(solver))) == []
    assert asyncio.run(check_environment(ENV)) == []


def test_the_word_is_not_shown():
    task = ENV.tasks()[7]
    shown = task.id + "".join(message.content for message in task.prompt)
    assert task.answer not in shown
    assert WORDLE_RULES in shown


def test_what_is_told():
    played = play("eagle", "<guess>[geese]</guess>", "<guess>[geese]</guess>", "<guess>[eagle]</guess>")
    told = [turn.observation[-1].content for turn in played.trajectory.turns if turn.observation]
    assert told == ["G E E S E\nY Y X X G\nYou have 5 guesses left.", "'geese' was guessed before. Give another guess."]
    assert played.state == {"guesses": ["geese", "eagle"], "marks": ["YYXXG", "GGGGG"]}


@pytest.mark.parametrize(
    "said", ["<guess>[zzzzz]</guess>", "<guess>[<guess>", "", "<guess>[cranes]</guess>", "<guess>[]</guess>"]
)
def test_two_refused_guesses_in_a_row_end_the_game(said):
    played = play("eagle", "<guess>[crane]</guess>", said, said, "never asked")
    assert (len(played.trajectory.turns), played.stop_reason) == (3, "done")
    assert played.state["guesses"] == ["crane"]


def test_hostile_tags_take_linear_time():
    wordle.parse_guesses("<guess>" * 200_000 + " " * 1_000_000)
    assert wordle.parse_guesses("<guess> " * 200_000 + "[crane]</guess>")


RECORDED = json.loads((ROOT / "tests" / "recorded/wordle.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", RECORDED["games"], ids=lambda case: case["about"])
def test_rewards_are_the_published_ones(case):
    """The same answers to the same secret earn what the published definition pays, part by part; see the file."""
    known = [*SECRET_WORDS, *GUESS_WORDS]
    played = play(case["secret"], *case["said"], env=Wordle(known))
    score = played.trajectory.score
    assert len(played.trajectory.turns) == len(case["said"])
    assert score.parts == pytest.approx(case["parts"])
    assert score.reward == pytest.approx(case["reward"])
