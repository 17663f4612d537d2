"""Games of TextArena, played for real."""

import asyncio
import random
import re
from random import Random

import pytest

from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.testing import check_environment
from wanderlust.types import Status, user
from wanderlust_textarena.environment import TextArena, TextArenaDuel, draw_listed_move


def play(env, script, seed=0, task=None):
    policy = {seat: Scripted(s) for seat, s in script.items()} if isinstance(script, dict) else Scripted(script)
    return asyncio.run(rollout(env, task or next(iter(env.tasks())), policy, seed=seed))


def rewards(played):
    return [seat.score.reward for seat in played.trajectories]


@pytest.fixture
def textarena():
    return pytest.importorskip("textarena", reason="not installed: pip install 'wanderlust[textarena]'")


HANOI = ["[A C]", "[A B]", "[C B]", "[A C]", "[B A]", "[B C]", "[A C]"]


def test_a_game_for_one(textarena):
    assert rewards(play(TextArena(), HANOI)) == [1.0]
    lost = play(TextArena(), lambda messages, rng: "no idea")
    assert lost.trajectory.score.reward <= 0.0
    assert lost.status is Status.DONE
    assert lost.state["reason"]


def test_a_game_for_two(textarena):
    env = TextArenaDuel()
    script = {"player-0": ["[0]", "[1]", "[2]"], "player-1": ["[3]", "[4]", "[5]"]}
    played = play(env, script)
    assert rewards(played) == [1.0, -1.0]
    assert "[4]" in played.trajectories[0].turns[-1].observation[0].content
    forfeit = play(env, {"player-0": lambda messages, rng: "?", "player-1": ["[3]"] * 9})
    assert rewards(forfeit) == [-1.0, 1.0]


def halving(messages, rng):
    """Guesses a number between bounds that it was told."""
    low, high = 1, 20
    for said, heard in zip(messages[1::2], messages[2::2], strict=False):
        guess = int(re.findall(r"\d+", said.content)[-1])
        low, high = (guess + 1, high) if "higher" in heard.content else (low, guess - 1)
    return f"[{(low + high) // 2}]"


def test_a_game_that_draws(textarena):
    env = TextArena("GuessTheNumber-v0")
    games = [play(env, halving, seed=seed) for seed in range(6)]
    assert {rewards(game)[0] for game in games} == {1.0}
    assert len({len(game.trajectory.turns) for game in games}) > 1
    again = play(env, halving, seed=3)
    assert again.trajectories == games[3].trajectories


def test_the_shared_generator_is_left_alone(textarena):
    random.seed(7)
    expected = random.Random(7).random()
    play(TextArena("GuessTheNumber-v0"), halving)
    assert random.random() == expected


def test_arena_keeps_its_promises(textarena):
    for env in (TextArena(), TextArena("GuessTheNumber-v0"), TextArenaDuel()):
        assert asyncio.run(check_environment(env, count=2)) == []


def test_games_that_cannot_start_are_one_line(textarena):
    played = play(TextArena("NoSuchGame-v0"), ["x"])
    assert played.stop_reason == "EnvironmentFailure"
    assert "TextArena cannot start 'NoSuchGame-v0'" in played.error
    assert "\n" not in played.error


def test_a_game_for_two_has_a_player_who_makes_legal_moves():
    """Against somebody who makes none, everybody wins, and `check` reported a parrot."""
    board = "Take '[9]' for example.\nAvailable Moves: '[1]', '[3]'"
    drawn = {draw_listed_move([user(board)], Random(seed)) for seed in range(20)}
    assert drawn == {"[1]", "[3]"}
    assert draw_listed_move([user("Your turn.")], Random(0)) == "[0]"
    assert "random" in TextArenaDuel.players
