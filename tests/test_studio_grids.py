"""Grid games in the studio: drawn, played, scrubbed and branched; first plays of people become baselines."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from browsing import Window, chromium, window
from studios import Client, served
from wanderlust import rollout
from wanderlust.environments.grids.baselines import read_baselines
from wanderlust.environments.grids.drawing import PALETTE
from wanderlust.environments.grids.environment import Grids
from wanderlust.environments.grids.game import GridSession
from wanderlust.environments.grids.generation import make_game
from wanderlust.errors import UsageError
from wanderlust.store.run_folder import CONFIG_FILE, STORE_FILE
from wanderlust.store.store import RunStore
from wanderlust.studio.application import PAGE_FOLDER
from wanderlust.studio.games import playable_environments
from wanderlust.studio.viewers import installed_viewers
from wanderlust.types import Group, Task

KEY = "eval-0"
LEVELS = 2
needs_page = pytest.mark.skipif(not (PAGE_FOLDER / "index.html").is_file(), reason="the page is not built: make page")
pytestmark = pytest.mark.xdist_group("browser")


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


@pytest.fixture(scope="module")
def browser(root: Path) -> Iterator[Browser]:
    assert root  # made before: Playwright keeps an event loop in this thread, beside which none can run
    with chromium() as found:
        yield found


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


@pytest.fixture
def tab(browser: Browser, studio: Client) -> Iterator[Window]:
    with window(browser, studio) as seen:
        yield seen
        assert seen.complaints == []


def click_pixel(page: Page, answer: str) -> None:
    """Click the screen where an answer says."""
    _, x, y = answer.split()
    box = page.locator(".grid-screen").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + (int(x) + 0.5) * box["width"] / 64, box["y"] + (int(y) + 0.5) * box["height"] / 64)


@needs_page
def test_a_person_plays_by_clicks_after_agreeing(tab: Window, solution: list[str], plays: Path) -> None:
    page = tab.go(f"/play?env=grids&with=levels%3D{LEVELS}&split=eval&task=grids-{KEY}")
    expect(page.get_by_text("stored on this computer")).to_be_visible()
    page.get_by_label("I have not played this game before, and I agree").check()
    page.get_by_label("Your name in the record").fill("dora")
    page.get_by_role("button", name="Begin", exact=True).click()
    expect(page.get_by_role("img", name=re.compile("Screen at moment 0"))).to_be_visible()
    expect(page.get_by_role("slider")).to_have_count(0)  # a first play has no past to look at, and no graph
    for number, answer in enumerate(solution, 1):
        click_pixel(page, answer)
        if number < len(solution):
            expect(page.get_by_role("img", name=re.compile(f"Screen at moment {number},"))).to_be_visible()
    expect(page.get_by_text("Your reward")).to_be_visible()
    expect(page.get_by_text("Shortest solutions")).to_be_visible()
    (store,) = plays.glob(f"play-grids*/{STORE_FILE}")
    with RunStore.read(store) as stored:
        found = [stored.get(row.id) for row in stored.rollouts({})]
    assert [one.state["person"] for one in found if one.state.get("first_play")] == ["dora"]


@needs_page
def test_moves_are_keys_and_the_past_is_branched(tab: Window, studio: Client) -> None:
    game = begun(studio, task="grids-eval-1")
    page = tab.go(f"/play?session={game['id']}")
    expect(page.get_by_role("img", name=re.compile("Screen at moment 0"))).to_be_visible()
    for number, key in enumerate(("ArrowRight", "ArrowLeft", "r"), 1):
        page.keyboard.press(key)
        expect(page.get_by_text(f"Moment {number} of {number}", exact=True)).to_be_visible()
    page.get_by_role("button", name="act", exact=True).click()
    expect(page.get_by_text("Moment 4 of 4", exact=True)).to_be_visible()
    page.keyboard.press(",")
    page.keyboard.press("Home")
    expect(page.get_by_text("This is a past moment")).to_be_visible()
    page.keyboard.press(".")
    expect(page.get_by_text("Moment 1 of 4", exact=True)).to_be_visible()
    page.get_by_role("button", name="Play on from here").click()
    expect(page.get_by_text("Moment 1 of 1", exact=True)).to_be_visible()
    assert game["id"] not in page.url


@needs_page
@pytest.mark.parametrize("look", ["light", "dark"])
def test_the_graph_of_a_rollout_is_shown_and_nobody_is_shut_out(browser, studio, look):
    with window(browser, studio, color_scheme=look) as seen:
        page = seen.go("/run/explored/rollout/1?n=20")
        page.get_by_role("button", name="Game", exact=True).click()
        graph = page.get_by_role("group", name="Graph of the frames")
        expect(graph.locator("circle").first).to_be_visible()
        assert graph.locator("circle").count() > 3
        graph.locator("circle").nth(2).click()
        expect(page).to_have_url(re.compile(r"[?&]n=\d+"))
        assert seen.faults() == []
        assert seen.complaints == []
