"""The studio's part `grid`: a game is played by clicks and keys, its past is branched, and its graph is shown."""

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
from wanderlust import load_environment, rollout
from wanderlust.store.run_folder import CONFIG_FILE, STORE_FILE
from wanderlust.store.store import RunStore
from wanderlust.studio.application import PAGE_FOLDER
from wanderlust.studio.games import playable_environments
from wanderlust.studio.viewers import installed_viewers
from wanderlust.tasks.registry import installed_environments
from wanderlust.types import Group, Policy, Rollout, Task

KEY = "eval-0"
LEVELS = 2
NAME = f"grids,levels={LEVELS}"
pytestmark = [
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(not (PAGE_FOLDER / "index.html").is_file(), reason="the page is not built: make page"),
    pytest.mark.skipif("grids" not in installed_environments(), reason="wanderlust[grids] is not installed"),
]


def play(task: Task, player: str) -> Rollout:
    env = load_environment(NAME)
    policy: Policy = env.oracle(task) if player == "oracle" else env.players[player]()
    return asyncio.run(rollout(env, task, policy))


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Import all environments, which takes long on a busy machine."""
    playable_environments(installed_viewers())


@pytest.fixture(scope="module")
def plays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plays")


@pytest.fixture(scope="module")
def solution() -> list[str]:
    """What the shortest solutions say."""
    return [turn.action.content for turn in play(Task(id=f"grids-{KEY}"), "oracle").trajectory.turns]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, solution: list[str]) -> Path:
    """An evaluation of the explorer, which leaves a graph behind."""
    folder = tmp_path_factory.mktemp("runs") / "explored"
    folder.mkdir()
    task = Task(id="grids-eval-1")
    config = {"recipe": "EvalConfig", "config": {"env": NAME, "policy": "explorer"}}
    (folder / CONFIG_FILE).write_text(json.dumps(config))
    with RunStore.create(folder / STORE_FILE) as store:
        store.add([Group(task=task, rollouts=[play(task, "explorer")], index=0)], stage="eval", step=0, env="grids")
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


def test_moves_are_keys_and_the_past_is_branched(tab: Window, studio: Client) -> None:
    game = studio.said("/api/play", {"env": NAME, "split": "eval", "task": "grids-eval-1"})
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
