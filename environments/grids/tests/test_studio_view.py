"""Grid games in the studio: drawn, played, scrubbed and branched; first plays of people become baselines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from wanderlust import rollout
from wanderlust.errors import UsageError
from wanderlust.store.run_folder import CONFIG_FILE, STORE_FILE
from wanderlust.store.store import RunStore
from wanderlust.studio.application import running_studio
from wanderlust.studio.games import playable_environments
from wanderlust.studio.viewers import installed_viewers
from wanderlust.types import Group, Task
from wanderlust_grids.baselines import read_baselines
from wanderlust_grids.drawing import PALETTE
from wanderlust_grids.environment import Grids
from wanderlust_grids.game import GridSession
from wanderlust_grids.generation import make_game

KEY = "eval-0"
LEVELS = 2
TOKEN = "a-token-of-the-tests"


@dataclass(frozen=True, slots=True)
class Client:
    """Asks the studio at an address."""

    url: str

    def said(self, path: str, body: object = None) -> dict:
        """The JSON of an answer, also of one that is an error."""
        asked = Request(self.url + path, headers={"Authorization": f"Bearer {TOKEN}"})
        if body is not None:
            asked.data = json.dumps(body).encode()
        try:
            with urlopen(asked) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                return json.load(error)


@contextmanager
def served(root: Path, *, plays_folder: Path) -> Iterator[Client]:
    """The studio's server over a folder of runs, in a thread of its own."""
    ready, over, urls = Event(), Event(), list[str]()

    async def run() -> None:
        async with running_studio([root], token=TOKEN, plays_folder=plays_folder) as url:
            urls.append(url)
            ready.set()
            await asyncio.to_thread(over.wait)

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(lambda: asyncio.run(run()))
        ended.add_done_callback(lambda _: ready.set())
        ready.wait()
        try:
            yield Client(urls[0])
        finally:
            over.set()
        ended.result()


def lines(key: str = KEY) -> list[str]:
    """What the shortest solutions say."""
    env, task = Grids(levels=LEVELS), Task(id=f"grids-{key}")
    played = asyncio.run(rollout(env, task, env.oracle(task)))
    return [turn.action.content for turn in played.trajectory.turns]


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Import all environments, which takes long on a busy machine."""
    playable_environments(installed_viewers())


@pytest.fixture(scope="module")
def plays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plays")


@pytest.fixture(scope="module")
def solution() -> list[str]:
    return lines()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, solution: list[str]) -> Path:
    """An evaluation of the explorer, which leaves a graph behind."""
    folder = tmp_path_factory.mktemp("runs") / "explored"
    folder.mkdir()
    env, task = Grids(levels=LEVELS), Task(id="grids-eval-1")
    played = asyncio.run(rollout(env, task, env.players["explorer"]()))
    config = {"recipe": "EvalConfig", "config": {"env": f"grids,levels={LEVELS}", "policy": "explorer"}}
    (folder / CONFIG_FILE).write_text(json.dumps(config))
    with RunStore.create(folder / STORE_FILE) as store:
        store.add([Group(task=task, rollouts=[played], index=0)], stage="eval", step=0, env="grids")
    return folder.parent


@pytest.fixture(scope="module")
def studio(root: Path, plays: Path) -> Iterator[Client]:
    with served(root, plays_folder=plays) as client:
        yield client


def begun(client: Client, **more: object) -> dict:
    body = {"env": f"grids,levels={LEVELS}", "split": "eval", "task": f"grids-{KEY}", **more}
    return client.said("/api/play", body)


def played(client: Client, game: dict, answers: list[str]) -> dict:
    for text in answers:
        game = client.said(f"/api/play/{game['id']}/act", {"text": text})
    return game


def test_the_list_of_games_does_not_tell_their_rules(studio):
    answer = studio.said("/api/play/tasks?env=grids&split=train")
    assert len(answer["tasks"]) > 10
    assert {one["begins"] for one in answer["tasks"]} == {""}


def pixels(play: dict, frame: int) -> bytes:
    return bytes(int(pixel, 16) for row in play["frames"][frame] for pixel in play["rows"][row])


def test_a_game_is_sent_frame_by_frame_and_its_solution_only_at_the_end(studio, solution):
    game = begun(studio)
    play = studio.said(f"/api/play/{game['id']}/grid")
    assert play["palette"] == [*PALETTE]
    assert pixels(play, 0) == GridSession(make_game(KEY)).begin().frame
    assert play["optimum"] is None
    assert played(studio, game, solution)["over"]
    play = studio.said(f"/api/play/{game['id']}/grid")
    assert [one["action"] for one in play["moments"]] == [None, *solution]
    assert play["moments"][-1]["level"] == LEVELS
    assert play["optimum"] == [*make_game(KEY).optimum[:LEVELS]]
    other = studio.said("/api/play", {"env": "tictactoe", "task": 0})
    assert "no frames" in studio.said(f"/api/play/{other['id']}/grid")["error"]


def test_a_game_goes_on_from_any_moment_and_the_opening_counts(studio, solution):
    game = played(studio, begun(studio), ["up", "up", *solution[:1]])
    answer = studio.said(f"/api/play/{game['id']}/grid/branch", {"n": 2})
    play = studio.said(f"/api/play/{answer['session']['id']}/grid")
    assert [one["action"] for one in play["moments"]] == [None, "up", "up"]
    done = played(studio, answer["session"], solution)
    assert done["state"]["level_actions"][0] == 2 + make_game(KEY).optimum[0]
    assert done["state"]["opening"] == ["up", "up"]
    stored = done["stored"]
    again = studio.said(f"/api/runs/{stored['key']}/rollouts/{stored['id']}/grid")
    assert [one["action"] for one in again["moments"]] == [None, "up", "up", *solution]
    for bad in ({}, {"n": 99}, {"n": True}):
        assert "say from where" in studio.said(f"/api/play/{game['id']}/grid/branch", bad)["error"]


def test_a_stored_rollout_shows_its_frames_and_is_branched(studio):
    opened = studio.said("/api/runs/explored/rollouts/1")
    assert opened["grid"] is True
    play = studio.said("/api/runs/explored/rollouts/1/grid")
    assert len(play["moments"]) == 1 + len(opened["trajectories"][0]["turns"])
    assert play["moments"][-1]["actions"] == opened["state"]["actions"]
    assert len(play["frames"]) > 5
    session = studio.said("/api/runs/explored/rollouts/1/grid/branch", {"n": 3})["session"]
    assert session["since"] == {"run": "explored", "rollout": 1, "n": 3}
    assert "say from where" in studio.said("/api/runs/explored/rollouts/1/grid/branch", {"n": "3"})["error"]


def test_first_plays_are_stored_with_consent_and_become_baselines(tmp_path, solution):
    with served(tmp_path / "runs", plays_folder=tmp_path) as client:
        assert "first play" in client.said("/api/play")["consent"]
        for person, waste in (("ada", 3), ("ben", 0), ("cy", 1)):
            done = played(client, begun(client, person=person), ["act"] * waste + solution)
            assert done["state"]["person"] == person
            assert "stored on this computer" in done["state"]["consent"]
        for person, why in (("ada", "has played"), ("x" * 41, "1 to 40"), ("a\nb", "printable"), (7, "printable")):
            assert why in begun(client, person=person)["error"]
        wrong = client.said("/api/play", {"env": "tictactoe", "task": 0, "person": "ada"})
        assert "grids alone" in wrong["error"]
        played(client, begun(client), ["act"] * 9 + solution)  # not recorded as a first play
        folder = tmp_path / done["stored"]["key"]
    optimum = make_game(KEY).optimum
    assert read_baselines(folder) == {KEY: [optimum[0] + 1, optimum[1]]}
    env, task = Grids(levels=LEVELS, baselines=str(folder)), Task(id=f"grids-{KEY}")
    score = asyncio.run(rollout(env, task, env.oracle(task))).trajectory.score
    assert score.metrics["score/baseline_actions"] == sum(optimum[:LEVELS]) + 1
    assert score.metrics["score/human_levels"] == 1.0
    assert score.metrics["score/against_optimum"] == 1.0
    (file := tmp_path / "people.json").write_text(json.dumps(read_baselines(folder)))
    assert Grids(baselines=str(file)).baseline(make_game(KEY))[1] == LEVELS
    file.write_text('{"eval-0": [0]}')
    for bad in (file, tmp_path / "runs", tmp_path / "none"):
        with pytest.raises(UsageError, match="baselines="):
            Grids(baselines=str(bad))
