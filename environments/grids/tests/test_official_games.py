"""Grid games and the official ARC-AGI-3 engine: the same actions give the same frames and scores, both ways."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from wanderlust import Scripted, rollout
from wanderlust.errors import EnvironmentFailure, UsageError
from wanderlust_grids.cells import CLICK, FRAME, RESET
from wanderlust_grids.drawing import pixel_of
from wanderlust_grids.environment import action_text
from wanderlust_grids.game import GameState, GridAction, GridSession
from wanderlust_grids.generation import make_game
from wanderlust_grids.official_environment import OfficialGames
from wanderlust_grids.official_folder import export_games, find_games
from wanderlust_grids.official_process import OfficialProcess, engine_paths
from wanderlust_grids.score import game_score

PEERS = Path(os.environ.get("WANDERLUST_PEERS", Path(__file__).parents[3] / ".peers"))
TOOLKIT = next((ready.parent for ready in PEERS.glob("arc_toolkit/ready")), None)
needs_toolkit = pytest.mark.skipif(TOOLKIT is None, reason="the ARC-AGI toolkit is not installed: make peers")
LADDER = '''
"""A game of three levels: push the block onto the mark; a click takes a wall away. Made for this test."""
from arcengine import ARCBaseGame, BlockingMode, Camera, GameAction, InteractionMode, Level, Sprite

def one(name, color, x, y, **more):
    return Sprite(pixels=[[color]], name=name, **more).clone().set_position(x, y)

def level(number):
    walls = [one("wall", 3, 5, y, tags=["sys_click"]) for y in range(8) if y != number]
    mark = one("mark", 14, 7, 3 + number, blocking=BlockingMode.NOT_BLOCKED)
    return Level(sprites=[*walls, mark, one("me", 9, 1, 3 + number)], grid_size=(8, 8))

class Ladder(ARCBaseGame):
    def __init__(self, seed=0):
        self.fuel, self.moving = 0, 0
        screen = Camera(0, 0, 8, 8, 1 + seed % 2, 5)
        super().__init__("ladder-1", [level(n) for n in range(3)], screen, available_actions=[3, 4, 6])

    def on_set_level(self, level):
        self.fuel, self.moving = 12, 0

    def step(self):
        action, me = self.action, self.current_level.get_sprites_by_name("me")[0]
        if action.id == GameAction.RESET:
            return self.complete_action()
        if action.id == GameAction.ACTION6:
            place = self.camera.display_to_grid(action.data["x"], action.data["y"])
            wall = place and self.current_level.get_sprite_at(*place, tag="sys_click")
            if wall:
                self.current_level.remove_sprite(wall)
        elif action.id in (GameAction.ACTION3, GameAction.ACTION4):
            self.moving += 1
            self.try_move("me", -1 if action.id == GameAction.ACTION3 else 1, 0)
            if self.moving % 2:  # two frames for each move
                return None
        self.fuel -= 1
        mark = self.current_level.get_sprites_by_name("mark")[0]
        if me.x == mark.x:
            self.next_level()
        elif self.fuel <= 0:
            self.lose()
        self.complete_action()
'''
KEYS = ("train-2", "train-3", "train-7", "eval-0", "eval-3", "eval-11")


def ladder(folder, source=LADDER, **metadata):
    """A folder with one game, as a stranger hands it over."""
    place = folder / "ladder" / "1"
    place.mkdir(parents=True)
    about = {"game_id": "ladder-1", "class_name": "Ladder", "baseline_actions": [4, 4, 4], **metadata}
    (place / "metadata.json").write_text(json.dumps(about))
    (place / "ladder.py").write_text(source)
    return folder


@pytest.fixture
def toolkit(monkeypatch, tmp_path):
    """The official toolkit in this process, on a folder of games; gone again at the end."""
    monkeypatch.chdir(tmp_path)
    before = {*sys.modules}
    assert TOOLKIT is not None
    site = next(TOOLKIT.glob("lib/python*/site-packages"))
    monkeypatch.syspath_prepend(site)

    def open_arcade(folder):
        from arc_agi import Arcade, OperationMode

        quiet = logging.getLogger("quiet")
        return Arcade(operation_mode=OperationMode.OFFLINE, environments_dir=str(folder), logger=quiet)

    yield open_arcade
    for name in {*sys.modules} - before:
        if name.partition(".")[0] in ("arc_agi", "arcengine") or name.endswith("official_game"):
            del sys.modules[name]


def walk(key, *, levels_only):
    """A walk that strays, resets, takes actions that the game lacks, and solves levels all the same."""
    rng, session = Random(f"walk/{key}"), GridSession(make_game(key), level_resets=levels_only)
    session.begin()
    for _ in range(4):
        for _ in range(rng.randrange(3, 25)):
            number = rng.choice((*range(8), *session.game.actions))
            action = GridAction(number=number, x=rng.randrange(FRAME), y=rng.randrange(FRAME))
            yield action, session.perform(action), session
        yield (one := GridAction(number=RESET)), session.perform(one), session
        if session.state is GameState.NOT_FINISHED:
            level, solution = session.level, session.game.solutions[session.number]
            for step in solution.actions:
                x, y = pixel_of(level.size, step.cell) if step.number == CLICK else (0, 0)
                action = GridAction(number=step.number, x=x, y=y)
                yield action, session.perform(action), session


def taken(game, action):
    """The official engine's answer to an action."""
    from arcengine import GameAction

    data = {"x": action.x, "y": action.y} if action.number == CLICK else {}
    return game.step(GameAction.from_id(action.number), data=data)


def pixels(frame):
    return bytes(pixel for row in frame.tolist() for pixel in row)


@needs_toolkit
@pytest.mark.parametrize("levels_only", [False, True])
@pytest.mark.parametrize("key", KEYS)
def test_our_games_play_alike_in_the_official_engine(key, levels_only, toolkit, monkeypatch, tmp_path):
    if levels_only:
        monkeypatch.setenv("ONLY_RESET_LEVELS", "true")
    export_games([key], tmp_path / "environment_files")
    arcade = toolkit(tmp_path / "environment_files")
    theirs = arcade.make(key, seed=1)
    first = theirs.observation_space
    begun = GridSession(make_game(key)).begin()
    assert pixels(first.frame[-1]) == begun.frame
    assert tuple(first.available_actions) == begun.available_actions
    steps = 0
    for action, seen, played in walk(key, levels_only=levels_only):
        answer = taken(theirs, action)
        steps, session = steps + 1, played
        assert answer.state.value == seen.state.value, (steps, action)
        if answer.frame:  # it shows nothing after a lost level
            assert pixels(answer.frame[-1]) == seen.frame, (steps, action)
            assert answer.levels_completed == seen.levels_completed
    assert steps > 40
    card = arcade.get_scorecard()
    run = card.environments[0].runs[-1] if card.environments else None
    if levels_only and run is None:  # their scorecard begins with a reset of the whole game
        return
    assert run.actions == session.actions
    assert run.level_actions[: run.levels_completed] == session.level_actions
    assert run.score == pytest.approx(game_score(session.level_actions, session.game.optimum))
    assert run.levels_completed >= 1


@asynccontextmanager
async def opened(folder, seed=0):
    game = await OfficialProcess.open(find_games(folder)[0], seed=seed)
    try:
        yield game
    finally:
        await game.close()


@needs_toolkit
def test_their_games_play_alike_in_our_environment(toolkit, monkeypatch, tmp_path):
    folder = ladder(tmp_path / "files")
    theirs = toolkit(folder).make("ladder", seed=3)
    monkeypatch.setenv("ONLY_RESET_LEVELS", "true")
    rng = Random(0)
    actions = []
    for row in (28, 28, 36, 44, 28):
        numbers = [*rng.choices((0, 3, 4, 6, 1), (1, 4, 4, 2, 1), k=20), 0, 6, 4, 4, 4]
        actions += [GridAction(number=n, x=44, y=row) for n in numbers]

    async def played():
        async with opened(folder, seed=3) as game:
            first = await game.begin()
            return first, [(await game.perform(one), game.actions, [*game.level_actions]) for one in actions]

    first, seen = asyncio.run(played())
    assert first.frame == pixels(theirs.observation_space.frame[-1])
    for action, (ours, _, _) in zip(actions, seen, strict=True):
        answer = taken(theirs, action)
        assert ours.state.value == answer.state.value
        if answer.frame:
            assert ours.frame == pixels(answer.frame[-1])
            assert ours.levels_completed == answer.levels_completed
    assert {one.state for one, _, _ in seen} >= {GameState.GAME_OVER}
    assert seen[-1][2]


@needs_toolkit
def test_an_episode_is_scored_as_their_scorecard_scores_it(toolkit, tmp_path):
    folder = ladder(tmp_path / "files")
    arcade = toolkit(folder)
    theirs, env = arcade.make("ladder"), OfficialGames(str(folder))
    wall = {n: f"click 44 {8 * (3 + n) + 2}" for n in range(3)}
    script = [wall[0], *["right"] * 3, "click 0 0", wall[1], *["right"] * 3, wall[2], *["right"] * 3]
    for line in script:
        number = {"left": 3, "right": 4}.get(line, 6)
        x, y = (int(word) for word in line.split()[1:]) if number == 6 else (0, 0)
        taken(theirs, GridAction(number=number, x=x, y=y))
    run = arcade.get_scorecard().environments[0].runs[-1]
    task = next(iter(env.tasks("eval")))
    result = asyncio.run(rollout(env, task, Scripted(script)))
    assert result.error is None
    assert result.trajectory.score.reward == pytest.approx(run.score / 100)
    assert run.score > 0
    assert result.state["level_actions"] == run.level_actions[: run.levels_completed]


@needs_toolkit
@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import socket; socket.create_connection(('127.0.0.1', 1), 1)", "Connection refused|unreachable"),
        ("class Ladder:\n    pass", "AttributeError"),
        ("import os; os._exit(3)", "ended"),
        (f"open({str(Path(__file__).parent / 'conftest.py')!r})", "No such file"),
    ],
)
def test_a_strangers_game_is_kept_apart_and_its_failure_is_no_score(source, why, toolkit, tmp_path):
    env = OfficialGames(str(ladder(tmp_path / "files", source)))
    result = asyncio.run(rollout(env, next(iter(env.tasks("eval"))), Scripted(["left"])))
    assert result.trajectory.score is None
    assert result.error
    with pytest.raises(EnvironmentFailure, match=why):
        asyncio.run(_begin(tmp_path / "files"))


async def _begin(folder):
    async with opened(folder) as game:
        await game.begin()


@needs_toolkit
def test_a_random_player_plays_by_the_actions_that_the_rules_name(toolkit, tmp_path):
    env = OfficialGames(str(ladder(tmp_path / "files")), levels=1)
    result = asyncio.run(rollout(env, next(iter(env.tasks("eval"))), env.players["random"]()))
    said = {message.content.split()[0] for message in result.trajectory.messages if message.role == "assistant"}
    assert said <= {"left", "right", "click", "reset"}
    assert len(said) == 4


def test_folders_are_read_and_their_faults_are_told(tmp_path):
    folder = tmp_path / "environment_files"
    export_games(["train-2", "eval-0"], folder)
    env = OfficialGames(str(folder))
    assert [task.id for task in env.tasks("train")] == ["arc-train-2"]
    assert [task.id for task in env.tasks("eval")] == ["arc-eval-0"]
    (game,) = find_games(folder / "train")
    assert game.baselines == make_game("train-2").optimum
    assert "official_game('train-2')" in game.source.read_text()
    with pytest.raises(UsageError, match="no split 'test'"):
        next(iter(env.tasks("test")))
    with pytest.raises(UsageError, match="no folder"):
        next(iter(OfficialGames(str(tmp_path / "none")).tasks("eval")))
    for number, bad in enumerate(({"game_id": "../x"}, {"baseline_actions": [0]}, {"class_name": "a b"})):
        with pytest.raises(UsageError, match=next(iter(bad))):
            find_games(ladder(tmp_path / f"bad{number}", **bad))
    bare = OfficialGames(str(ladder(tmp_path / "bare", baseline_actions=[])))
    with pytest.raises(UsageError, match="no baseline_actions"):
        next(iter(bare.tasks("eval")))


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="there the extra brings the engine")
def test_a_missing_engine_is_told_in_one_line():
    with pytest.raises(UsageError, match="pip install"):
        engine_paths()


def test_actions_are_written_as_they_are_read():
    assert action_text(GridAction(number=6, x=1, y=2)) == "click 1 2"
