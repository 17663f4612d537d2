"""The World and Play screens in a real browser: scrubbing, changes, the verdict, branches, games to their score."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from browsing import Window, chromium, plain_files, window
from studios import Client, served
from wanderlust.runner.engine import rollout
from wanderlust.runner.progress import NullLogger
from wanderlust.store.run_folder import CONFIG_FILE, EVALUATION_RECIPE, EVALUATION_STAGE, STORE_FILE
from wanderlust.store.store import RunStore
from wanderlust.studio.application import PAGE_FOLDER
from wanderlust.studio.static_export import export_site
from wanderlust.types import Completion, Group, ToolCall, assistant
from wanderlust_life.assistant_life import AssistantLife
from wanderlust_worlds.wrap.world_environment import fixed_thinking_time

pytestmark = [
    pytest.mark.skipif(not (PAGE_FOLDER / "index.html").is_file(), reason="the page is not built: make page"),
    pytest.mark.xdist_group("browser"),
]

TASK = "sold-out/eval-0/1"
BAD = "<img src=x onerror=document.title='gone'><script>alert(1)</script>\u202efdp.exe \x1b[31mred\x1b[0m"


class Meddling:
    """The oracle, but for a mail of its own that nobody asked for and a last word that comes too soon."""

    def __init__(self, inner: Any):
        self.inner, self.turns = inner, 0

    async def complete(self, messages: Sequence[Any], tools: Any = (), *, key: str = "") -> Completion:
        self.turns += 1
        if self.turns == 2:
            args = json.dumps({"recipients": ["nobody@example.org"], "subject": BAD, "content": BAD * 20})
            return Completion(message=assistant("", ToolCall(id="x", name="Emails__send_email", arguments=args)))
        done: Completion = await self.inner.complete(messages, tools, key=key)
        return done if self.turns < 6 else replace(done, message=assistant("That is all."))


def _broken(log: str) -> str:
    """A log that no replay of its scenario leaves."""
    assert '"cancel_order"' in log
    return log.replace('"cancel_order"', '"cancel_orders"')


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "lives"
    folder.mkdir()
    env = AssistantLife(thinking=fixed_thinking_time(6))
    task = next(one for one in islice(env.tasks("eval"), 200) if one.id == TASK)
    played = [asyncio.run(rollout(env, task, one)) for one in (env.oracle(task), Meddling(env.oracle(task)))]
    played.append(replace(played[0], state={**played[0].state, "log": _broken(played[0].state["log"])}))
    (folder / CONFIG_FILE).write_text(
        json.dumps({"recipe": EVALUATION_RECIPE, "config": {"env": "life", "policy": "oracle"}})
    )
    with RunStore.create(folder / STORE_FILE) as store:
        groups = [Group(task=task, rollouts=[one], index=n) for n, one in enumerate(played)]
        store.add(groups, stage=EVALUATION_STAGE, step=0, env="life")
    return folder.parent


@pytest.fixture(scope="module")
def studio(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with served(root, plays_folder=tmp_path_factory.mktemp("plays")) as client:
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


def moment(page: Page) -> Locator:
    return page.get_by_role("slider", name="Moment")


def test_a_world_is_scrubbed_by_keys_and_its_apps_follow(tab: Window) -> None:
    page = tab.go("/run/lives/rollout/1?view=world&n=-1&app=Shopping")
    slider = moment(page)
    expect(slider).to_have_attribute("aria-valuenow", "-1")
    expect(page.get_by_role("tab", name="Shopping")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_text("The cart is empty.")).to_be_visible()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("j")
    expect(page).to_have_url(re.compile(r"[?&]n=4\b"))
    expect(page.locator(".log-line[aria-current=step]")).to_contain_text("add to cart")
    expect(page.get_by_role("region", name="Cart").locator(".fresh")).to_have_count(1)
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_text("The cart is empty.")).to_be_visible()
    page.keyboard.press("End")
    expect(slider).to_have_attribute("aria-valuenow", re.compile(r"[3-9]\d|2\d"))
    slider.focus()
    page.keyboard.press("Home")
    expect(slider).to_have_attribute("aria-valuenow", "-1")
    box = slider.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] - 30, box["y"] + 60)
    expect(slider).not_to_have_attribute("aria-valuenow", "-1")


def test_every_app_can_be_looked_at(tab: Window) -> None:
    page = tab.go("/run/lives/rollout/1?view=world")
    tabs = page.get_by_role("tablist", name="Apps").get_by_role("tab")
    expect(tabs).to_have_count(13)
    for one in tabs.all():
        one.click()
        expect(one).to_have_attribute("aria-selected", "true")
        expect(page.get_by_role("tabpanel")).not_to_be_empty()
    page.get_by_role("tab", name="Calendar").click()
    page.get_by_role("button", name="Day", exact=True).click()
    expect(page.locator(".calendar-hold")).to_have_count(1)


def test_changes_and_verdict_are_told(tab: Window) -> None:
    page = tab.go("/run/lives/rollout/2?view=world&side=verdict")
    pane = page.get_by_role("region", name="Verdict")
    expect(pane.get_by_text("rejected")).to_be_visible()
    expect(pane.get_by_text("nobody did it").first).to_be_visible()
    pane.get_by_role("button", name="Emails: send email").click()
    expect(page).to_have_url(re.compile(r"[?&]n=7\b"))
    page.keyboard.press("d")
    changes = page.get_by_role("region", name="Changes")
    expect(changes.locator(".is").first).to_contain_text("nobody@example.org")
    changes.get_by_role("button", name="The start").click()
    expect(changes.get_by_text("cart").first).to_be_visible()
    page.get_by_role("button", name="Notices", exact=True).click()
    expect(page.get_by_role("region", name="Notices").get_by_text("the user").first).to_be_visible()
    graph = page.get_by_role("region", name="Events and what they wait for")
    expect(graph.get_by_text("nobody asked").first).to_be_attached()
    expect(graph.get_by_text("missed").first).to_be_attached()
    graph.get_by_role("button", name=re.compile("add to cart .* as expected")).first.click()
    expect(page).to_have_url(re.compile(r"[?&]n=4\b"))


def test_hostile_words_stay_words(tab: Window) -> None:
    page = tab.go("/run/lives/rollout/2?view=world&n=7&app=Emails&open=sent/")
    mail = page.get_by_role("article", name="Mail")
    expect(mail).to_contain_text("<script>alert(1)</script>")
    expect(mail.get_by_title("U+202E right-to-left override").first).to_be_visible()
    assert page.evaluate("document.querySelectorAll('main script, main img').length") == 0
    assert "gone" not in page.title()


def test_what_cannot_be_shown_is_said(tab: Window) -> None:
    page = tab.go("/run/lives/rollout/3?view=world")
    expect(page.get_by_role("note")).to_contain_text(re.compile("shown up to line|cannot be made again"))
    expect(page.locator(".log-line").first).to_be_visible()


def test_one_branches_and_plays_on(tab: Window) -> None:
    page = tab.go("/run/lives/rollout/2?view=world&n=3")
    page.get_by_label("Who goes on").select_option("oracle")
    page.get_by_role("button", name="Branch here").click()
    expect(page.get_by_text("over", exact=True)).to_be_visible()
    expect(page.locator(".figure").first).to_contain_text("1.000")
    page.get_by_role("link", name="Open the stored rollout").click()
    expect(page.get_by_text("accepted").first).to_be_visible()
    expect(page).to_have_url(re.compile(r"/run/branch-lives/rollout/1\?view=world"))
    page = tab.go("/run/lives/rollout/2?view=world&n=3")
    page.get_by_role("button", name="Branch here").click()
    expect(page.get_by_text("your turn")).to_be_visible()
    page.get_by_label("Find a tool").fill("get product details")
    page.get_by_role("button", name="get product details").click()
    form = page.get_by_role("form", name="Shopping__get_product_details")
    form.get_by_role("button", name=re.compile("^Call")).click()
    expect(page.locator(".call-result").last).to_be_visible()
    page.get_by_role("button", name="Apps", exact=True).click()
    page.get_by_role("tab", name="Shopping").click()
    expect(page.get_by_role("region", name="Products")).to_be_visible()
    page.get_by_role("button", name="End and score").click()
    expect(page.get_by_role("link", name="Open the stored rollout")).to_be_visible()


def test_tic_tac_toe_is_clicked_to_its_score(tab: Window) -> None:
    page = tab.go("/play")
    page.get_by_label("Find an environment").fill("tictactoe")
    page.get_by_role("button", name=re.compile("^tictactoe one or two")).click()
    page.get_by_role("button", name="eval", exact=True).click()
    page.get_by_role("button", name="tictactoe-eval-random-0").click()
    page.get_by_role("button", name="Begin", exact=True).click()
    board = page.get_by_role("group", name="Board")
    for turn in range(5):
        expect(page.get_by_text(re.compile("^(your turn|over)$"))).to_be_visible()
        if page.get_by_text("over", exact=True).is_visible():
            break
        board.get_by_role("button", name=re.compile("free$")).first.click()
        expect(page.locator(".role-assistant")).to_have_count(turn + 1)
    expect(page.get_by_text("over", exact=True)).to_be_visible()
    expect(page.get_by_text("Your reward")).to_be_visible()
    ended = page.locator(".game-over")
    expect(ended).to_contain_text(re.compile(r"Game\s*(won|lost|draw)"))
    expect(ended).to_contain_text(re.compile(r"Last move\s*[XO][0-8]"))
    expect(ended.get_by_role("group", name="Board").get_by_role("button")).to_have_count(9)
    page.get_by_role("link", name="Open the stored rollout").click()
    expect(page).to_have_url(re.compile("/run/play-tictactoe/rollout/1"))
    score = page.locator(".panel", has=page.get_by_role("heading", name="Score", exact=True))
    expect(score).to_contain_text(re.compile(r"format\s*1\.000"))


def test_against_a_player_and_what_goes_wrong(tab: Window, studio: Client) -> None:
    page = tab.go("/play?env=kuhn&task=kuhn-KQ&seat=first")
    expect(page.get_by_role("button", name="Begin", exact=True)).to_be_disabled()
    page.get_by_label("Against").select_option("equilibrium")
    page.get_by_role("button", name="Begin", exact=True).click()
    expect(page.get_by_text("against equilibrium")).to_be_visible()
    page.get_by_label("Your answer").fill("<move>bet</move>")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("Reward of second")).to_be_visible()
    page = tab.go("/play?session=nothing")
    expect(page.get_by_role("alert")).to_contain_text("no game")
    page = tab.go("/play?env=wordle&task=nothing")
    page.get_by_role("button", name="Begin", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("has no task")
    assert all("400" in said for said in tab.complaints)
    tab.complaints.clear()


def test_an_export_shows_worlds_and_asks_for_nothing_else(browser: Browser, root: Path, tmp_path: Path) -> None:
    export_site([root / "lives"], tmp_path / "out", page=PAGE_FOLDER, progress=NullLogger())
    with plain_files(tmp_path / "out") as url, window(browser, Client(url), entry="/") as seen:
        page = seen.go("/#/run/lives/rollout/2?view=world&n=-1")
        slider = moment(page)
        expect(slider).to_be_visible()
        slider.focus()
        page.keyboard.press("End")
        expect(page.get_by_role("button", name="Verdict")).to_be_visible()
        page = seen.go("/#/run/lives/rollout/2?view=world&side=constructor&app=constructor&open=constructor")
        expect(page.get_by_role("button", name="Log", exact=True)).to_have_attribute("aria-pressed", "true")
        page.wait_for_load_state("networkidle")
        assert seen.complaints == []
        assert not any("/api/" in asked for asked in seen.asked)


@pytest.mark.parametrize(
    "address",
    [
        "/run/lives/rollout/2?view=world&side=verdict&n=8&app=Emails",
        "/run/lives/rollout/2?view=world&n=8&app=Calendar",
        "/play?env=life&split=eval",
        "/play?session=GAME&tool=Emails__send_email",
    ],
)
def test_nobody_is_shut_out(browser: Browser, studio: Client, address: str) -> None:
    if "GAME" in address:
        body = {"env": "life", "split": "eval", "task": TASK}
        address = address.replace("GAME", studio.said("/api/play", body)["id"])
    with window(browser, studio, color_scheme="light") as seen:
        page = seen.go(address)
        page.locator(".panel").first.wait_for()
        page.wait_for_load_state("networkidle")
        assert seen.faults() == []
        page.emulate_media(color_scheme="dark")
        assert seen.faults("color-contrast") == []
