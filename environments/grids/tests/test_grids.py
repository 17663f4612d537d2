"""Grid games: solutions, splits, sessions, the official score, text views and players."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random

import pytest

from wanderlust import Scripted, rollout
from wanderlust.errors import UsageError
from wanderlust.types import Task
from wanderlust_grids.board import Action, Outcome
from wanderlust_grids.cells import CLICK, FRAME, RESET, UNDO
from wanderlust_grids.drawing import BLACK, BLUE, RED, cell_at, pixel_of, png
from wanderlust_grids.environment import Grids, action_text, read_action
from wanderlust_grids.game import GameState, GridAction, GridSession
from wanderlust_grids.generation import (
    EVAL_MECHANICS,
    LEVELS,
    MECHANICS,
    TRAIN_MECHANICS,
    active_mechanics,
    game_keys,
    make_game,
)
from wanderlust_grids.players import PLAYERS, ChangeLearner, GraphExplorer
from wanderlust_grids.score import game_score, human_baseline, level_score
from wanderlust_grids.search import shortest_solution
from wanderlust_grids.view import MAX_TEXT_CHARS, blobs, describe, describe_change

KEYS = [*(f"train-{n}" for n in (0, 2, 3, 6, 9)), *(f"eval-{n}" for n in (0, 1, 3, 5, 8, 9, 11))]
SCORES = json.loads((Path(__file__).parent / "recorded/arc_scores.json").read_text())


def official(level, action):
    x, y = pixel_of(level.size, action.cell) if action.number == CLICK else (0, 0)
    return GridAction(number=action.number, x=x, y=y)


def solved(session, *, levels=LEVELS):
    for level, solution in [*zip(session.game.levels, session.game.solutions, strict=True)][:levels]:
        for action in solution.actions:
            seen = session.perform(official(level, action))
    return seen


def colored(*blocks):
    """A black frame with blocks: colour, x, y, width, height."""
    pixels = bytearray([BLACK]) * (FRAME * FRAME)
    for color, x, y, width, height in blocks:
        for row in range(y, y + height):
            pixels[row * FRAME + x : row * FRAME + x + width] = bytes([color]) * width
    return bytes(pixels)


@pytest.mark.parametrize("key", KEYS)
def test_solutions_solve_every_level_and_none_is_shorter(key):
    game, session = make_game(key), GridSession(make_game(key))
    session.begin()
    seen = solved(session)
    assert (seen.state, session.level_actions) == (GameState.WIN, [*game.optimum])
    for level, solution in zip(game.levels, game.solutions, strict=True):
        assert shortest_solution(game.rules, level, max_actions=len(solution.actions) - 1) is None


def test_random_walks_never_need_fewer_actions_than_the_shortest_solution():
    tries = 0
    for key in ("train-2", "train-9", "eval-1", "eval-3"):
        game = make_game(key)
        for level, least in zip(game.levels, game.optimum, strict=True):
            for seed in range(40):
                rng, state, outcome = Random(f"{key}/{seed}"), game.rules.begin(level), Outcome.OPEN
                for taken in range(1, least):
                    state, outcome = game.rules.step(level, state, rng.choice(game.rules.candidates(level)))
                    assert outcome is not Outcome.SOLVED, f"{key}: {taken} actions"
                    if outcome is Outcome.LOST:
                        break
                tries += 1
    assert tries == 4 * LEVELS * 40


def test_equal_keys_make_equal_games_and_splits_share_no_mechanic():
    make_game.cache_clear()
    first = make_game("train-3")
    make_game.cache_clear()
    assert make_game("train-3") == first
    assert not {*TRAIN_MECHANICS} & {*EVAL_MECHANICS}
    assert len(MECHANICS) >= 12
    names = {name for key in KEYS if key.startswith("eval") for name in make_game(key).mechanics}
    assert names <= {one.name for one in EVAL_MECHANICS}


def test_levels_introduce_mechanics_one_by_one():
    assert [len(active_mechanics(("a", "b", "c"), number)) for number in range(LEVELS)] == [1, 1, 2, 1, 2, 3]
    assert {name for number in range(LEVELS) for name in active_mechanics(("a", "b"), number)} == {"a", "b"}
    game = make_game("train-0")
    assert [sum(one is not None for one in level.placed) for level in game.levels] == [1, 1, 2, 1, 2, 3]


def test_private_games_need_the_secret_and_runs_do_not_show_it(tmp_path):
    with pytest.raises(UsageError, match="secret"):
        game_keys("private", 3)
    mine, yours = game_keys("private", 3, secret="mine"), game_keys("private", 3, secret="yours")
    assert not {*mine} & {*yours}
    assert mine == game_keys("private", 3, secret="mine")
    (file := tmp_path / "secret.txt").write_text("mine\n")
    env = Grids(secret=str(file), games=3)
    assert [task.id for task in env.tasks("eval")] == [f"grids-{key}" for key in mine]
    assert [task.id for task in env.tasks("train")] == [f"grids-train-{n}" for n in range(3)]
    file.write_text(" ")
    for bad in (file, tmp_path / "none"):
        with pytest.raises(UsageError, match="the secret"):
            Grids(secret=str(bad))


def test_scores_equal_those_of_the_official_calculator():
    assert len(SCORES) == 300
    for actions, baselines, score, levels in SCORES:
        assert game_score(actions, baselines) == pytest.approx(score, abs=1e-12)
        expected = [level_score(taken, least) for taken, least in zip(actions, baselines, strict=False)]
        assert expected == pytest.approx(levels[: len(actions)])


def test_scores_of_no_game_are_refused_and_baselines_are_upper_medians():
    with pytest.raises(UsageError):
        game_score([1, 2], [1])
    with pytest.raises(UsageError):
        game_score([], [])
    assert human_baseline([[9, 20], [7], [8, 30], [20, 22]]) == [9, 22]
    assert human_baseline([]) == []


def test_resets_begin_the_level_then_the_game_and_everything_counts():
    game = make_game("train-2")
    session = GridSession(game)
    first = session.begin()
    move = GridAction(number=game.solutions[0].actions[0].number)
    session.perform(move)
    assert session.perform(GridAction(number=RESET)).frame == first.frame
    assert (session.actions, session.open_actions) == (2, 2)
    seen = solved(session, levels=1)
    assert (seen.levels_completed, session.level_actions) == (1, [2 + game.optimum[0]])
    assert session.perform(GridAction(number=RESET)).levels_completed == 0  # no action was taken in level 2
    assert session.actions == 0  # a new play, as the official scorecard has it


def test_a_lost_level_goes_on_with_a_reset_alone():
    game = make_game("train-3")  # energy
    session = GridSession(game)
    first = seen = session.begin()
    while seen.state is GameState.NOT_FINISHED:
        seen = session.perform(GridAction(number=1))
    assert seen.state is GameState.GAME_OVER
    assert session.perform(GridAction(number=2)).state is GameState.GAME_OVER
    assert session.perform(GridAction(number=RESET)).frame == first.frame


def test_undo_takes_back_and_counts_where_the_game_has_it():
    game = next(one for one in map(make_game, KEYS) if one.undo and one.rules.mechanics[0].walks)
    session = GridSession(game)
    first = session.begin()
    session.perform(GridAction(number=game.solutions[0].actions[0].number))
    assert session.perform(GridAction(number=UNDO)).frame == first.frame
    assert session.perform(GridAction(number=UNDO)).frame == first.frame
    assert session.actions == 3


def test_actions_that_the_game_lacks_change_nothing_and_count():
    game = make_game("train-2")
    session = GridSession(game)
    first = session.begin()
    assert session.perform(GridAction(number=CLICK, x=3, y=3)).frame == first.frame
    assert session.actions == 1
    for bad in ({"number": 8}, {"number": -1}, {"number": 6, "x": 64}):
        with pytest.raises(UsageError, match="there is no action"):
            GridAction(**bad)


@pytest.mark.parametrize("key", KEYS)
def test_frames_have_64_times_64_pixels_of_16_colours_and_texts_are_short(key):
    for level in (game := make_game(key)).levels:
        session = GridSession(game)
        frame = session.begin().frame
        assert len(frame) == FRAME * FRAME
        assert max(frame) < 16
        assert sum(one.pixels for one in blobs(frame)) == FRAME * FRAME
        assert 0 < len(describe(frame)) <= MAX_TEXT_CHARS + 20
        assert all(cell_at(level.size, *pixel_of(level.size, cell)) == cell for cell in range(level.size**2))


def test_changes_are_told_by_objects():
    before = colored((RED, 4, 4, 6, 6), (BLUE, 20, 20, 3, 3))
    assert describe_change(before, before) == "nothing changed"
    assert describe_change(before, colored((RED, 10, 4, 6, 6), (BLUE, 20, 20, 3, 3))) == "moved: red 6x6 at 4,4 to 10,4"
    assert (
        describe_change(before, colored((RED, 4, 4, 6, 6), (RED, 20, 20, 3, 3)))
        == "recoloured: blue 3x3 at 20,20 to red"
    )
    assert "gone: blue 3x3 at 20,20" in describe_change(before, colored((RED, 4, 4, 6, 6)))
    assert describe(before).startswith("objects: ")
    noise = bytes(Random(0).randrange(16) for _ in range(FRAME * FRAME))
    assert len(describe_change(before, noise)) < MAX_TEXT_CHARS + 20


def test_a_png_has_the_frame():
    image = png(make_game("eval-0") and GridSession(make_game("eval-0")).begin().frame)
    assert image.startswith(b"\x89PNG")
    assert image.endswith(b"IEND\xaeB`\x82")


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("up", GridAction(number=1)),
        ("I go LEFT, then right.", GridAction(number=4)),
        ("click 12, 63", GridAction(number=6, x=12, y=63)),
        ("click 64 2", None),
        ("upwards", None),
        ("", None),
    ],
)
def test_actions_are_read_from_text(text, action):
    assert read_action(text) == action
    if action is not None:
        assert read_action(action_text(action)) == action


def played(env, task, policy):
    return asyncio.run(rollout(env, task, policy))


def test_the_oracle_earns_everything_and_wasted_actions_cost_by_the_square():
    env = Grids(levels=2)
    task = next(iter(env.tasks("eval")))
    result = played(env, task, env.oracle(task))
    assert result.trajectory.score.reward == 1.0
    assert result.trajectory.score.metrics["completion"] == 1.0
    script = [message.content for message in result.trajectory.messages if message.role == "assistant"]
    slow = played(env, task, Scripted(["act", "act", "act", *script]))
    optimum = env.game(task).optimum[:2]
    assert slow.trajectory.score.reward == pytest.approx(game_score([optimum[0] + 3, optimum[1]], optimum) / 100)


def test_unread_answers_count_as_actions_and_end_the_game():
    env = Grids(levels=2)
    task = next(iter(env.tasks("eval")))
    result = played(env, task, Scripted(lambda messages, rng: "what is this?"))
    score = result.trajectory.score
    assert (score.reward, score.metrics["unread"], score.metrics["actions"]) == (0.0, 40.0, 40.0)


def test_actions_that_lead_to_new_frames_can_be_paid_for():
    task = next(iter(Grids().tasks("train")))
    standing = Scripted(lambda messages, rng: "act")
    still, explores = (
        played(Grids(levels=1, exploration=0.5), task, one).trajectory.score
        for one in (standing, Grids().players["explorer"]())
    )
    assert still.parts["explored"] < 0.1 < explores.parts["explored"] <= 1
    assert still.reward == pytest.approx(0.5 * still.parts["explored"])
    plain = played(Grids(levels=1), task, standing).trajectory.score
    assert (plain.reward, plain.metrics["explored"]) == (0.0, still.parts["explored"])
    for wrong in (-1.0, "much"):
        with pytest.raises(UsageError, match="a weight is a number of at least 0"):
            Grids(exploration=wrong)


@pytest.mark.parametrize("name", PLAYERS)
def test_players_play_by_frames_and_play_the_same_again(name):
    env = Grids(levels=2)
    task = Task(id="grids-eval-1")
    first, second = (played(env, task, env.players[name]()) for _ in range(2))
    assert first.trajectory.messages == second.trajectory.messages
    assert first.state["actions"] == sum(message.role == "assistant" for message in first.trajectory.messages)


def test_the_explorer_solves_what_random_actions_do_not():
    def levels(make):
        done = 0
        for key in ("train-9", "eval-1", "eval-3"):
            session, player = GridSession(make_game(key)), make(Random(key))
            seen = session.begin()
            for _ in range(120):
                seen = session.perform(player.choose(seen))
            done += len(session.level_actions)
        return done

    assert levels(GraphExplorer) > levels(PLAYERS["random"])
    assert levels(ChangeLearner) >= levels(PLAYERS["random"])


def test_images_are_shown_where_they_are_asked_for():
    env = Grids(levels=1, view="both")
    task = Task(id="grids-eval-0")
    messages = played(env, task, env.oracle(task)).trajectory.messages
    assert messages[1].images[0].startswith("data:image/png;base64,")
    for bad in ({"view": "sound"}, {"levels": 0}, {"levels": 7}):
        with pytest.raises(UsageError):
            Grids(**bad)
    with pytest.raises(UsageError, match="there is no split"):
        next(iter(env.tasks("test")))


def test_hidden_controls_are_the_same_in_all_levels_of_a_game():
    game = make_game("train-6")
    orders = {level.placed[game.mechanics.index("controls")] for level in game.levels} - {None}
    assert len(orders) == 1
    assert orders != {(0, 1, 2, 3, 4)}


def test_candidates_cover_clicks_at_everything_that_can_be_clicked():
    game = make_game("eval-11")  # flood
    cells = game.rules.candidates(game.levels[0])
    assert len(cells) == 9
    assert all(isinstance(one, Action) and one.number == CLICK for one in cells)
