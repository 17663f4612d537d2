"""Somebody plays in the browser: sessions over real HTTP, scored and kept like a model's rollouts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from studios import Client, served
from wanderlust.environment import Environment, Episode
from wanderlust.environments.tictactoe import TicTacToe
from wanderlust.errors import UsageError
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.store.run_folder import CONFIG_FILE, STORE_FILE, StoredRollout
from wanderlust.store.store import RunStore
from wanderlust.studio.games import GameSessions
from wanderlust.studio.play_session import SessionLimits
from wanderlust.studio.viewers import GameSetting
from wanderlust.training.tiny_model import ModelShape, fresh_model, fresh_tokenizer
from wanderlust.types import Task, Tool, user
from wanderlust_worlds.studio.world_view import live_apps


def with_studio(root: Path, *, plays: Path, use: Callable[[Client], Any]) -> Any:
    """What `use` returns, of a studio over `root` that keeps games below `plays`."""
    with served(root, plays_folder=plays) as client:
        return use(client)


def to_the_end(client: Client, game: dict[str, Any], moves: Sequence[str]) -> dict[str, Any]:
    for move in moves:
        if game["over"]:
            break
        game = client.said(f"/api/play/{game['id']}/act", {"text": move})
        while not (game["over"] or game["waiting"]):
            game = client.said(f"/api/play/{game['id']}")
    return game


def test_a_game_is_scored_and_kept(tmp_path):
    def use(client: Client) -> dict[str, Any]:
        offered = client.said("/api/play")
        names = {one["name"]: one for one in offered["environments"]}
        assert names["tictactoe"]["opponent"] == "possible"
        assert names["kuhn"]["opponent"] == "needed"
        assert names["calculator"]["opponent"] == "none"
        possible = {one["name"] for one in offered["environments"] if one["opponent"] == "possible"}
        assert possible == {"tictactoe", "budget", "instructed"}  # the last two have the opponent of what they wrap
        assert "oracle" in names["life"]["players"]
        assert "oracle" not in names["kuhn"]["players"]
        assert names["life"]["world"] is True
        listed = client.said("/api/play/tasks?env=tictactoe&split=eval&limit=3")
        assert len(listed["tasks"]) == 3
        begun = {"env": "tictactoe", "split": "eval", "task": listed["tasks"][1]["id"], "seed": 3}
        game = client.said("/api/play", begun)
        assert game["waiting"]
        assert game["state"] == {}
        assert game["messages"][0]["role"] == "system"
        game = to_the_end(client, game, [f"<think>?</think><move>{cell}</move>" for cell in range(9)])
        assert game["over"]
        assert game["stored"] == {"key": "play-tictactoe", "id": 1}
        assert (client.said(f"/api/play/{game['id']}/act", {"text": "4"}))["status"] == 400
        opened = client.said("/api/runs/play-tictactoe/rollouts/1")
        assert opened["trajectories"][0]["score"]["reward"] == game["score"]["reward"]
        assert game["state"] == opened["state"]
        assert game["state"]["winner"] in ("X", "O", "draw")
        listed = client.said("/api/runs")
        assert [run["kind"] for run in listed["runs"] if run["key"] == "play-tictactoe"] == ["other"]
        again = to_the_end(client, client.said("/api/play", begun), ["nonsense"] * 9)
        assert again["stored"] == {"key": "play-tictactoe", "id": 2}
        assert again["stop"] == "max_turns"
        return game

    game = with_studio(tmp_path, plays=tmp_path / "plays", use=use)
    with RunStore.read(tmp_path / "plays" / "play-tictactoe" / STORE_FILE) as store:
        played = store.get(1)
    assert played.trajectory.score.parts == game["score"]["parts"]
    assert played.seed == 3


@pytest.mark.parametrize(
    ("env", "seat", "move"), [("tictactoe", "opponent", "{}"), ("kuhn", "second", "<move>call</move>")]
)
def test_against_a_player(tmp_path, env, seat, move):
    def use(client: Client) -> None:
        opponent = {"tictactoe": "optimal", "kuhn": "equilibrium"}[env]
        game = client.said("/api/play", {"env": env, "opponent": opponent, "seat": seat, "task": 0})
        assert game["seat"] == seat
        assert opponent in game["labels"].values()
        game = to_the_end(client, game, [move.format(n % 9) for n in range(40)])
        assert game["over"]
        assert len(game["scores"]) == 2
        assert game["score"]["reward"] == game["scores"][seat]
        opened = client.said(f"/api/runs/{game['stored']['key']}/rollouts/{game['stored']['id']}")
        assert opened["state"]["seats"] == game["labels"]

    with_studio(tmp_path, plays=tmp_path / "plays", use=use)


def test_against_a_checkpoint(tmp_path):
    run = tmp_path / "runs" / "learned"
    tokenizer = fresh_tokenizer(["You are X. You start. 0 1 2 3 4 5 6 7 8 <move></move>"] * 20)
    shape = ModelShape(width=32, layers=1, heads=2, inner=64, positions=1024)
    run.mkdir(parents=True)
    save_pretrained(run / "checkpoints" / "rl", fresh_model(tokenizer, shape, seed=0), tokenizer)
    (run / CONFIG_FILE).write_text('{"recipe": "TrainConfig", "config": {"env": "kuhn"}}')

    def use(client: Client) -> None:
        client.said("/api/runs")
        (checkpoint,) = client.said("/api/play")["checkpoints"]
        assert checkpoint["name"] == "learned/rl"
        body = {"env": "kuhn", "seat": "first", "task": "kuhn-KQ"}
        game = client.said("/api/play", body | {"opponent": checkpoint["path"]})
        game = to_the_end(client, game, ["<move>bet</move>"])
        assert game["error"] is None
        assert game["labels"] == {"first": "hand", "second": checkpoint["path"]}
        assert sum(game["scores"].values()) == 0
        elsewhere = tmp_path / "elsewhere"
        assert "no opponent" in client.said("/api/play", body | {"opponent": str(elsewhere)})["error"]

    with_studio(tmp_path / "runs", plays=tmp_path / "plays", use=use)


def test_a_world_is_played_with_its_apps_in_sight(tmp_path):
    def use(client: Client) -> None:
        game = client.said("/api/play", {"env": "life", "split": "eval", "task": "invite/eval-0/1"})
        assert game["world"]
        tool = next(one for one in game["tools"] if one["name"] == "Contacts__search_contacts")
        assert tool["parameters"]["properties"]["query"]["type"] == "string"
        apps = client.said(f"/api/play/{game['id']}/apps")
        assert apps["kinds"]["Calendar"] == "Calendar"
        call = {"name": "Contacts__search_contacts", "arguments": {"query": "a"}}
        game = client.said(f"/api/play/{game['id']}/act", {"call": call})
        assert [one["role"] for one in game["messages"][-2:]] == ["assistant", "tool"]
        wrong = {"name": "Contacts__search_contacts", "arguments": {"nobody": 1}}
        game = client.said(f"/api/play/{game['id']}/act", {"call": wrong})
        assert "nobody" in game["messages"][-1]["content"]
        game = client.said(f"/api/play/{game['id']}/act", {"text": "done \ud800"})
        assert game["over"]
        assert game["score"]["reward"] == 0
        world = client.said(f"/api/runs/{game['stored']['key']}/rollouts/{game['stored']['id']}/world")
        assert world["verdict"]["success"] is False

    with_studio(tmp_path, plays=tmp_path / "plays", use=use)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "which environment"),
        ({"env": "nowhere"}, "no environment"),
        ({"env": "os:system"}, "only ready-made"),
        ({"env": "kuhn"}, "choose who plays the others"),
        ({"env": "kuhn", "opponent": "http://127.0.0.1/"}, "no opponent"),
        ({"env": "kuhn", "opponent": "teacher", "seat": "third"}, "no seat"),
        ({"env": "wordle", "task": -1}, "no task"),
        ({"env": "wordle", "task": "nothing"}, "no task"),
        ({"env": "tictactoe", "seed": "x"}, "whole number"),
        ({"env": "are,folder=/nowhere"}, "/nowhere"),
    ],
)
def test_what_cannot_be_played_is_one_line(tmp_path, body, said):
    refused = with_studio(tmp_path, plays=tmp_path / "plays", use=lambda client: client.said("/api/play", body))
    assert said in refused["error"]
    assert refused["status"] in (400, 409)
    assert "\n" not in refused["error"]
    assert not (tmp_path / "plays").exists()


def setting(env: Environment, kept: list[Any], **more: Any) -> GameSetting:
    def keep(played: Any) -> StoredRollout:
        kept.append(played)
        return StoredRollout(folder=Path("nowhere"), id=len(kept))

    task = next(iter(env.tasks()), Task(id="one"))
    return GameSetting(name="toy", env=env, task=task, seed=0, seat=env.seats[0], save=keep, **more)


class Asks(Environment):
    """Asks until the person says enough."""

    async def run(self, episode: Episode) -> None:
        while (await episode.agent.act(user("And?"))).content != "enough":
            episode.reward("patience", 1.0)


class Fails(Environment):
    """Breaks after the first answer."""

    async def run(self, episode: Episode) -> None:
        await episode.agent.act(user("And?"))
        raise ValueError("the dice fell under the table")


class Hangs(Environment):
    """Never comes back after the first answer."""

    async def run(self, episode: Episode) -> None:
        await episode.agent.act(user("And?"))
        await asyncio.Event().wait()


def test_sessions_are_bounded():
    kept: list[Any] = []
    games = GameSessions(SessionLimits(sessions=2, answer=10, total=30))
    try:
        first = games.begin(setting(Asks(), kept))
        second = games.begin(setting(Asks(), kept))
        with pytest.raises(UsageError, match="no more can be"):
            games.begin(setting(Asks(), kept))
        with pytest.raises(UsageError, match="11 characters; 10"):
            games.act(first["id"], {"text": "x" * 11})
        while not (now := games.act(first["id"], {"text": "x" * 10}))["over"]:
            assert len(now["messages"]) < 9
        assert now["stop"] == "too_much_said"
        assert kept[0].stop_reason == "too_much_said"
        third = games.begin(setting(Asks(), kept))
        with pytest.raises(UsageError, match="no game"):
            games.record(first["id"])
        games.drop(second["id"])
        assert [one["id"] for one in games.list()] == [third["id"]]
        for wrong in ({}, [], {"text": 3}, {"call": {"arguments": {}}}):
            with pytest.raises(UsageError):
                games.act(third["id"], wrong)
    finally:
        games.close()
    assert len(kept) == 1


def test_who_does_nothing_has_left():
    kept: list[Any] = []
    games = GameSessions(SessionLimits(idle=0.0))
    try:
        game = games.begin(setting(Asks(), kept))
        while not game["over"]:
            game = games.record(game["id"])
        assert (game["stop"], kept[0].stop_reason, kept[0].status) == ("idle", "idle", "truncated")
    finally:
        games.close()


def test_an_environment_that_fails_or_hangs_ends_its_game_alone():
    kept: list[Any] = []
    games = GameSessions(SessionLimits(step=0.3))
    try:
        other = games.begin(setting(Asks(), []))
        failing = games.begin(setting(Fails(), kept))
        game = games.act(failing["id"], {"text": "go"})
        assert "the dice fell under the table" in game["error"]
        assert kept[0].status == "error"
        hanging = games.begin(setting(Hangs(), kept))
        game = games.act(hanging["id"], {"text": "go"})
        assert "nothing came within" in game["error"]
        assert game["over"]
        assert games.record(other["id"])["waiting"]
    finally:
        games.close()


def test_a_policy_plays_on_by_itself():
    kept: list[Any] = []
    games = GameSessions()
    try:
        env = TicTacToe()
        game = games.begin(setting(env, kept, policy=env.players["optimal"]()))
        while not game["over"]:
            game = games.record(game["id"])
        assert game["score"] is not None
        assert game["messages"][-1]["role"] == "assistant"
        assert len(kept) == 1
    finally:
        games.close()


def test_tools_are_those_of_the_turn():
    games = GameSessions()
    tools: Sequence[Tool] = ()
    try:
        game = games.begin(setting(Asks(), []))
        assert game["tools"] == list(tools)
        with pytest.raises(UsageError, match="no world"):
            games.read(game["id"], live_apps)
    finally:
        games.close()
