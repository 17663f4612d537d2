"""The learner of grid games: what it finds out by watching, its options, its training, and files of weights."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from wanderlust.cli.main import main
from wanderlust.environments.grids.avatar import Lattice
from wanderlust.environments.grids.cells import CLICK, RESET
from wanderlust.environments.grids.drawing import margin_of, scale_of
from wanderlust.environments.grids.environment import Grids
from wanderlust.environments.grids.experience import Experience
from wanderlust.environments.grids.game import GameState, GridAction, GridSession
from wanderlust.environments.grids.generation import LEVELS, TRAIN_MECHANICS, make_game
from wanderlust.environments.grids.learner import Decision, Learner, option_shares, options, shipped_weights
from wanderlust.environments.grids.learner_training import LearnerConfig, policy_gradient, train_learner
from wanderlust.environments.grids.learner_training import main as train_command
from wanderlust.environments.grids.players import PLAYERS
from wanderlust.environments.grids.routes import find_routes
from wanderlust.environments.grids.score import game_score
from wanderlust.errors import UsageError

FLOOR, WALL, GEM = (1, 1, 1), (4, 4, 4), (6, 1, 1)
TINY = LearnerConfig(steps=2, games_per_step=2, games=3)
WALKED, CLICKED = ("train-2", "train-3", "train-4"), "eval-0"


def played(key, player, seed=0):
    """Levels solved and the official score, with five times the shortest solution for each level."""
    game = make_game(key)
    session = GridSession(game, level_resets=True)
    chooses, seen = player(Random(f"{key}/{seed}")), session.begin()
    while len(session.level_actions) < LEVELS and session.open_actions < max(40, 5 * game.optimum[session.number]):
        seen = session.perform(chooses.choose(seen))
    return len(session.level_actions), game_score(session.level_actions, game.optimum)


@pytest.mark.parametrize("key", WALKED)
def test_moves_show_the_avatar_and_the_squares_of_the_board(key):
    session, memory = GridSession(make_game(key), level_resets=True), Experience()
    seen = session.begin()
    memory.begin_level(seen.frame)
    assert memory.square(seen.frame) is None
    moves = (GridAction(number=number) for number in (1, 2, 3, 4) * 2)
    while memory.lattice is None:
        attempt = memory.begin(seen.frame, move := next(moves), None)
        seen = session.perform(move)
        memory.learn(attempt, seen, solved=False)
    size, (left, top) = session.level.size, margin_of(session.level.size)
    step = scale_of(size)
    assert memory.lattice == Lattice(step, left % step, top % step)
    column, row = memory.square(seen.frame)
    avatar = session._states[-1].avatar
    assert (column - left // step, row - top // step) == (avatar % size, avatar // size)


def test_ways_take_what_was_seen_for_true_and_run_into_what_bars_them():
    kinds = {(x, y): FLOOR for x in range(4) for y in range(3)} | {(2, 0): WALL, (3, 2): GEM}
    directions = {1: (0, -1), 2: (0, 1), 3: (-1, 0), 4: (1, 0)}
    slid = {((0, 0), 2): (FLOOR, (0, 2)), ((1, 0), 2): (WALL, (1, 2))}  # the second was of another square
    routes = find_routes((0, 0), kinds, directions=directions, seen=slid, barred=lambda kind: kind == WALL)
    assert routes.reached[0, 2].distance == 1
    assert routes.reached[1, 1].distance == 2
    assert routes.reached[0, 2].guesses == 0
    assert routes.way((3, 2))[-1] == (4, (3, 2))
    assert [end for _, end in routes.way((2, 0))] == [(1, 0), (2, 0)]
    assert (2, 0) not in routes.reached


def test_a_learner_without_weights_solves_more_than_the_explorer_and_resets_lost_levels():
    keys = [f"train-{n}" for n in range(8)]
    learnt = [played(key, lambda rng: Learner(rng, {}))[0] for key in keys]
    explored = [played(key, PLAYERS["explorer"])[0] for key in keys]
    assert sum(learnt) > sum(explored)
    lost = Learner(Random(0), {})
    session = GridSession(make_game("train-2"), level_resets=True)
    seen = session.begin()
    assert lost.choose(replace(seen, state=GameState.GAME_OVER)).number == RESET


def test_shipped_weights_score_more_than_none_on_games_that_they_were_not_trained_on():
    keys = [f"train-{n}" for n in range(12)]
    shipped = [played(key, PLAYERS["learner"])[1] for key in keys]
    none = [played(key, lambda rng: Learner(rng, {}))[1] for key in keys]
    assert sum(shipped) > sum(none)
    assert len(shipped_weights()) > 30


def test_every_frame_has_an_option_and_clicks_are_at_pieces():
    assert CLICK in make_game(CLICKED).actions
    for key in ("train-2", "eval-3", CLICKED):
        session = GridSession(make_game(key), level_resets=True)
        seen, memory, rng = session.begin(), Experience(), Random(key)
        memory.begin_level(seen.frame)
        for _ in range(30):
            found = [*options(seen, memory)]
            action, _ = rng.choice(found).actions[0]
            assert action.number in seen.available_actions
            assert all(math.isfinite(value) for one in found for value in one.features.values())
            attempt, level = memory.begin(seen.frame, action, None), seen.levels_completed
            seen = session.perform(action)
            if seen.state is not GameState.NOT_FINISHED:
                break
            memory.learn(attempt, seen, solved=seen.levels_completed != level)
            if seen.levels_completed != level:
                memory.begin_level(seen.frame)


def test_the_gradient_is_that_of_differences():
    rng = Random(3)
    rows = [[{name: rng.random() for name in rng.sample("abcd", 3)} for _ in range(4)] for _ in range(5)]
    choices = [(Decision(row, rng.randrange(4), 0), rng.random()) for row in rows]
    weights = {name: rng.gauss(0, 1) for name in "abcd"}
    returns = [value for _, value in choices]
    mean = sum(returns) / 5
    spread = math.sqrt(sum((one - mean) ** 2 for one in returns) / 5) + 1e-6

    def objective(at):
        total = 0.0
        for decision, value in choices:
            shares = option_shares(decision.options, at)
            total += (value - mean) / spread * math.log(shares[decision.chosen])
            total -= 0.1 * sum(share * math.log(share) for share in shares)
        return total / len(choices)

    slope = policy_gradient(choices, weights, entropy=0.1)
    for name, weight in weights.items():
        up, down = ({**weights, name: weight + sign * 1e-5} for sign in (1, -1))
        assert slope[name] == pytest.approx((objective(up) - objective(down)) / 2e-5, abs=1e-6)


def test_equal_seeds_train_equal_weights_and_the_command_writes_them(tmp_path, capsys):
    steps = []
    first = train_learner(TINY, on_step=lambda step, solved: steps.append(step))
    assert first == train_learner(TINY)
    assert first != train_learner(LearnerConfig(steps=2, games_per_step=2, games=3, seed=1))
    assert (steps, any(first.values())) == ([1, 2], True)
    with pytest.raises(SystemExit):
        train_command(["--out", str(tmp_path / "w.json"), "--steps", "0"])
    assert "--steps is 1 or more" in capsys.readouterr().err


def test_weights_of_ones_own_are_read_and_bad_ones_are_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.json").write_text(json.dumps({"walk": 2.5}))
    assert "learner" in Grids(learner="own.json").players
    for body in ("[]", '{"walk": "much"}', '{"walk": 1e9}', "{", '{"walk": NaN}'):
        Path("bad.json").write_text(body)
        with pytest.raises(UsageError) as refused:
            Grids(learner="bad.json")
        assert "\n" not in str(refused.value)
    with pytest.raises(UsageError, match="cannot be read"):
        Grids(learner="none.json")
    with pytest.raises(SystemExit) as done:
        main(["eval", "grids,levels=2,learner=own.json", "--policy", "learner", "-n", "2", "--json"])
    assert done.value.code in (0, None)


def test_the_learner_is_trained_on_mechanics_of_train_alone():
    names = {one.name for one in TRAIN_MECHANICS}
    assert {name for n in range(12) for name in make_game(f"train-{1000 + n}").mechanics} <= names
