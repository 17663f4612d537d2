"""The learner of grid games: what it finds out by watching, its options, its training, and files of weights."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import pstdev

import pytest

from learner_training import (
    Choice,
    LearnerConfig,
    compared,
    policy_gradient,
    train_learner,
)
from learner_training import main as train_command
from regret import MAX_REGRET, Regrets
from wanderlust.cli.main import main
from wanderlust.errors import UsageError
from wanderlust_grids.aims import next_way
from wanderlust_grids.avatar import Lattice
from wanderlust_grids.cells import CLICK, FRAME, RESET
from wanderlust_grids.drawing import margin_of, scale_of
from wanderlust_grids.environment import Grids
from wanderlust_grids.experience import Counts, Experience
from wanderlust_grids.frontier import FrameGraph, all_actions
from wanderlust_grids.game import GameState, GridAction, GridSession, Observation
from wanderlust_grids.generation import LEVELS, TRAIN_MECHANICS, make_game
from wanderlust_grids.learner import Decision, Learner, option_shares, shipped_weights
from wanderlust_grids.learner_options import Option, Situation, options
from wanderlust_grids.players import PLAYERS
from wanderlust_grids.routes import find_routes
from wanderlust_grids.score import game_score
from wanderlust_grids.search import distances

FLOOR, WALL, GEM = (1, 1, 1), (4, 4, 4), (6, 1, 1)
TINY = LearnerConfig(trainings=1, steps=2, games_per_step=1, plays_per_game=2, games=3)
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


def scene(avatar, squares):
    """A frame of squares of five pixels: a wall along the top, floor, an avatar, and squares of one colour each."""
    pixels = bytearray([FLOOR[0]]) * (FRAME * FRAME)
    colored = {(column, 0): WALL[0] for column in range(12)} | squares
    for (column, row), color in colored.items():
        for y in range(5 * row, 5 * row + 5):
            pixels[y * FRAME + 5 * column : y * FRAME + 5 * column + 5] = bytes([color]) * 5
    for y in range(5 * avatar[1] + 1, 5 * avatar[1] + 4):
        pixels[y * FRAME + 5 * avatar[0] + 1 : y * FRAME + 5 * avatar[0] + 4] = bytes([9]) * 3
    return bytes(pixels)


def walked():
    """A memory that has seen the avatar go right."""
    memory = Experience()
    memory.lattice = memory.avatar.watch(scene((4, 5), {}), scene((5, 5), {}), number=4, lattice=None)
    return memory


def test_the_seeker_goes_first_to_what_ended_levels_and_not_where_it_lost():
    red, green = (6, 5), (9, 5)
    frame, memory = scene((5, 5), {red: 8, green: 14}), walked()
    seen = Observation(frame=frame, state=GameState.NOT_FINISHED, levels_completed=0, available_actions=(1, 2, 3, 4))
    graph = FrameGraph(Random(0), memory)
    graph.see(seen)

    def aim():
        way = next_way(seen, memory, graph)
        return way.name, way.actions[-1][1]

    assert memory.square(frame) == (5, 5)
    assert aim() == ("new", red)
    memory.kinds[14, 14, 14] = Counts(tried=1, solved=1)
    assert aim() == ("solved", green)
    memory.fatal[green] += 1
    assert aim() == ("new", red)
    memory.kinds[8, 8, 8] = Counts(tried=1, changed=1, used=1)
    assert aim() == ("used", red)
    memory.touched[red] = memory.revision
    assert aim() == ("solved", green)
    memory.touched[green] = memory.revision
    assert aim()[0] == "ground"
    memory.revision += 1
    assert aim() == ("solved-again", green)
    seen = replace(seen, available_actions=(1, 2, 3, 4, 5))
    way = next_way(seen, memory, graph)
    assert (way.name, way.actions) == ("new", [(GridAction(number=5), None)])


def test_an_action_that_goes_another_way_twice_is_believed():
    memory = walked()
    for directions in ((1, 0), (-1, 0)):
        assert memory.avatar.direction(4) == directions
        for _ in range(2):
            memory.avatar.watch(scene((5, 5), {}), scene((4, 5), {}), number=4, lattice=memory.lattice)


def test_actions_that_changed_nothing_come_last_until_something_changes():
    memory = walked()
    frame = scene((5, 5), {(7, 5): 8})
    seen = Observation(frame=frame, state=GameState.NOT_FINISHED, levels_completed=0, available_actions=(5, CLICK))
    graph = FrameGraph(Random(0), memory)
    graph.see(seen)
    for action in all_actions(seen):
        attempt = memory.begin(frame, action, None)
        assert memory.learn(attempt, seen, solved=False)
    assert graph.way(frame).name == "frame-3"
    memory.revision += 1
    assert graph.way(frame).name == "frame-1"


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


def test_seeker_and_learner_score_more_than_the_explorer_and_that_more_than_random():
    keys = [f"train-{n}" for n in range(8)]
    scores = {name: sum(played(key, player)[1] for key in keys) for name, player in PLAYERS.items()}
    assert scores["random"] < scores["explorer"] < min(scores["seeker"], scores["learner"])


def test_the_learner_resets_lost_levels():
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
        graph = FrameGraph(rng, memory)
        memory.begin_level(seen.frame)
        for number in range(30):
            graph.see(seen)
            found = [*options(Situation(seen=seen, memory=memory, graph=graph, since_reset=number))]
            action, _ = rng.choice(found).actions[0]
            assert action.number in (*seen.available_actions, RESET)
            assert all(math.isfinite(value) for one in found for value in one.features.values())
            attempt, level = memory.begin(seen.frame, action, None), seen.levels_completed
            seen = session.perform(action)
            if seen.state is not GameState.NOT_FINISHED:
                break
            memory.learn(attempt, seen, solved=seen.levels_completed != level)
            if seen.levels_completed != level:
                memory.begin_level(seen.frame)
                graph.begin_level()


def test_the_gradient_is_that_of_differences():
    rng = Random(3)
    rows = [[{name: rng.random() for name in rng.sample("abcd", 3)} for _ in range(4)] for _ in range(5)]
    weights = {name: rng.gauss(0, 1) for name in "abcd"}
    choices = [Choice(row, rng.randrange(4), [3 * rng.random() for _ in row], rng.gauss(0, 9)) for row in rows]
    choices = [replace(one, share=option_shares(one.features, weights)[one.chosen]) for one in choices]
    spread = pstdev([one.later for one in choices]) + 1

    def objective(at):
        total = 0.0
        for one in choices:
            shares = option_shares(one.features, at)
            total -= sum(share * cost for share, cost in zip(shares, one.regrets, strict=True)) / spread
            total -= one.later / spread * shares[one.chosen] / one.share
            total -= 0.1 * sum(share * math.log(share) for share in shares)
        return total / len(choices)

    slope = policy_gradient(choices, weights, entropy=0.1)
    for name, weight in weights.items():
        up, down = ({**weights, name: weight + sign * 1e-5} for sign in (1, -1))
        assert slope[name] == pytest.approx((objective(up) - objective(down)) / 2e-5, abs=1e-6)


def test_an_option_whose_share_has_moved_far_counts_no_more():
    rows = [{"a": 1.0}, {"b": 1.0}]
    far = [Choice(rows, 0, [0.0, 0.0], later=-5.0, share=0.3), Choice(rows, 0, [0.0, 0.0], later=5.0, share=0.7)]
    assert not any(policy_gradient(far, {}, entropy=0.0).values())
    near = [replace(one, share=0.5) for one in far[:1]]
    assert policy_gradient(near, {}, entropy=0.0)["a"] > 0


def test_later_regrets_stand_against_other_plays_of_the_level():
    rows = [{"a": 1.0}]
    plays = [
        {("g", 0): [Choice(rows, 0, [0.0], later)], ("g", 1): [Choice(rows, 0, [0.0], 7.0)]} for later in (1.0, 3.0)
    ]
    assert [one.later for one in compared(plays)] == [-1.0, 1.0, 0.0, 0.0]


def test_regrets_are_counted_by_the_true_rules():
    game = make_game("train-2")
    session = GridSession(game, level_resets=True)
    session.begin()
    known = distances(game.rules, game.levels[0], max_states=4000)
    assert known[session.position] == game.optimum[0]
    moves = [Option([(GridAction(number=number), None)], {}) for number in (1, 2, 3, 4)]
    found = Regrets().of(session, Decision([*moves, Option([(GridAction(number=RESET), None)], {})], 0, None, 1.0))
    best = game.solutions[0].actions[0].number
    assert found[best - 1] == 0
    assert all(0 <= one <= MAX_REGRET for one in found)
    assert found[-1] == 1
    far = Option([(GridAction(number=best), (9, 9)), (GridAction(number=best), None)], {})
    assert Regrets().of(session, Decision([far], 0, (0, 0), 1.0)) == [0]


def test_what_was_picked_up_is_remembered_as_used_and_what_was_left_as_skipped():
    game = make_game("train-11")
    assert game.mechanics[0] == "gems"
    session, memory = GridSession(game, level_resets=True), Experience()
    seen = session.begin()
    memory.begin_level(seen.frame)
    for number in (1, 2, 3, 4):  # shows the avatar, and takes back what a move did
        attempt = memory.begin(seen.frame, GridAction(number=number), None)
        seen = session.perform(attempt.action)
        memory.learn(attempt, seen, solved=False)
    session.perform(GridAction(number=RESET))
    memory.begin_try()
    seen = session.observe()
    for action in game.solutions[0].actions:
        attempt = memory.begin(seen.frame, GridAction(number=action.number), None)
        seen = session.perform(attempt.action)
        memory.learn(attempt, seen, solved=seen.levels_completed > 0)
    assert seen.levels_completed == 1
    kinds = {name: [one for one in memory.kinds.values() if getattr(one, name)] for name in ("used", "solved")}
    assert len(kinds["used"]) == 1
    assert all(one.changed >= 1 and not one.skipped for one in kinds["used"])
    assert len(kinds["solved"]) == 1


def test_squares_where_levels_were_lost_now_and_then_bar_no_way():
    assert Counts(tried=2, lost=1).bars
    assert Counts(tried=3, blocked=3).bars
    assert not Counts(tried=3, lost=1).bars
    assert not Counts().bars


def test_equal_seeds_train_equal_weights_and_the_command_writes_them(tmp_path, capsys):
    steps = []
    first = train_learner(TINY, on_step=lambda step, solved: steps.append(step))
    assert first == train_learner(TINY)
    assert first != train_learner(replace(TINY, seed=1))
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
    assert {name for n in range(4) for name in make_game(f"train-{1000 + n}").mechanics} <= names
