"""The studio's page stays itself: one layout per address, any name, a server that comes and goes, the keyboard."""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from browsing import Window, chromium, window
from studio_runs import evaluated, one_more
from studios import TOKEN, Client, served
from wanderlust.store.store import RunStore
from wanderlust.studio.application import PAGE_FOLDER
from wanderlust.types import Group, Rollout, Score, Task, Trajectory, Turn, assistant, user

pytestmark = [
    pytest.mark.skipif(not (PAGE_FOLDER / "index.html").is_file(), reason="the page is not built: make page"),
    pytest.mark.xdist_group("browser"),
]

INHERITED = ("constructor", "toString", "__proto__", "hasOwnProperty")
ADDRESSES = (
    "/run/strange",
    "/run/teacher",
    "/run/teacher/rollouts",
    "/run/teacher/rollout/1",
    "/run/teacher/group/eval/0/0",
    "/compare?a=random&b=teacher",
)


def strange(folder: Path, *, steps: int = 3) -> Path:
    """A training run whose parts and metrics are called like what every JavaScript object has."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"recipe": "train", "config": {"env": "toy", "policy": "fresh"}}))
    with RunStore.create(folder / "rollouts.db") as store:
        for step in range(steps):
            seat = Trajectory(
                turns=[Turn(observation=(user("?"),), action=assistant("word\n" * 20)) for _ in range(10)],
                score=Score(reward=0.5, parts=dict.fromkeys(INHERITED, 0.5), metrics=dict.fromkeys(INHERITED, 1.0)),
                advantage=-2.78e-16,
            )
            info = {f"fact {number}": "x" for number in range(60)}
            played = Rollout(task=Task(id="t", info=info), seed=0, sample_index=0, trajectories=[seat], state=info)
            metrics = {name: float(step) for part in INHERITED for name in (part, f"part/{part}")}
            group = Group(task=played.task, rollouts=[played])
            store.add([group], stage="rl", step=step, metrics={"loss": 0.0, "reward": 0.5, **metrics})
        for step in range(steps):
            store.add_event("reward_hacking_warning", {"monitor": "m", "step": step, "stage": "rl", "text": "x"})
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    evaluated(root / "teacher", "teacher")
    evaluated(root / "random", "random")
    strange(root / "strange")
    report = Path(shutil.copytree(root / "random", root / "bounded")) / "report.json"
    report.write_text(json.dumps(json.loads(report.read_text()) | {"not_started": 3, "stopped": "the cost reached $1"}))
    return root


@pytest.fixture(scope="module")
def studio(runs: Path) -> Iterator[Client]:
    with served(runs) as client:
        yield client


@pytest.fixture(scope="module")
def browser(runs: Path) -> Iterator[Browser]:
    assert runs  # made before: Playwright keeps an event loop in this thread, beside which none can run
    with chromium() as found:
        yield found


@pytest.fixture
def tab(browser: Browser, studio: Client) -> Iterator[Window]:
    with window(browser, studio) as seen:
        yield seen
        assert seen.complaints == []


BOXES = """() => [...document.querySelectorAll('main h1, main h2, main .button, main .tabs a, main .panel')]
    .map(one => { const box = one.getBoundingClientRect(); const text = one.tagName + '.' + one.className;
                  return [text, Math.round(box.x), Math.round(box.y), Math.round(box.width)] })"""


def places(page: Page) -> Any:
    """Where headings, buttons, tabs and panels stand, once nothing moves any more."""
    expect(page.locator("main :is(h1, h2)").first).to_be_visible()
    last: Any = None
    for _ in range(100):
        page.wait_for_timeout(150)
        now = page.evaluate(BOXES)
        if now == last and page.locator(".skeleton").count() == 0:
            return now
        last = now
    raise AssertionError("the page does not come to rest")


def test_an_address_has_one_layout_whatever_was_seen_before(browser: Browser, studio: Client) -> None:
    alone = {}
    for address in ADDRESSES:
        with window(browser, studio) as fresh:
            alone[address] = places(fresh.go(address))
    with window(browser, studio) as seen:
        for address in ("/play", *reversed(ADDRESSES)):  # by links of the page itself, so that nothing is loaded anew
            seen.page.evaluate(
                "to => { history.pushState(null, '', to); dispatchEvent(new Event('popstate')) }", address
            )
            seen.page.wait_for_timeout(150)
        for address in ADDRESSES:
            seen.page.evaluate(
                "to => { history.pushState(null, '', to); dispatchEvent(new Event('popstate')) }", address
            )
            assert places(seen.page) == alone[address], address


PROMISES = """for (const name of ['scrollIntoView', 'scroll', 'scrollTo', 'scrollBy']) {
    const scrolled = Element.prototype[name]
    Element.prototype[name] = function (...how) { scrolled.apply(this, how); return Promise.resolve() }
}"""
"""Newer browsers' scrolling methods return a promise; an effect that hands it on as its clean-up breaks the screen."""


@pytest.mark.parametrize("address", ["/run/teacher/group/eval/0/0", "/run/teacher/rollout/1", "/run/teacher/rollouts"])
def test_a_browser_whose_scrolling_returns_promises(tab: Window, address: str) -> None:
    tab.page.add_init_script(PROMISES)
    page = tab.go(address)
    expect(page.locator("main h1").first).to_be_visible()
    for key in ("j", "j", "k", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
        page.wait_for_timeout(60)
    page.get_by_role("link", name="Compare").first.click()
    expect(page.get_by_role("heading", name="Compare")).to_be_visible()
    expect(page.get_by_text("This screen failed")).to_have_count(0)


def test_names_that_every_object_has_are_names(tab: Window) -> None:
    page = tab.go("/run/strange")
    for name in ("Constructor", "ToString", "  proto  ".strip(), "HasOwnProperty"):
        expect(page.get_by_role("figure", name=re.compile(f"^\\s*{name}\\s* over steps$", re.I))).to_be_visible()
    parts = page.get_by_role("figure", name="Reward parts over steps")
    for name in INHERITED:
        expect(parts).to_contain_text(name)
    page = tab.go("/run/strange/rollout/1")
    card = page.locator(".rollout-side")
    for name in INHERITED:
        expect(card.get_by_text(name, exact=True).first).to_be_visible()
    expect(card.locator(".score strong").nth(1)).to_have_text("0")
    page = tab.go("/run/strange/constructor")
    expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()
    assert "native code" not in page.title()
    for name in ("/run/constructor", "/run/__proto__"):
        page = tab.go(name)
        expect(page.get_by_role("heading", name=re.compile("There is no run"))).to_be_visible()
    page = tab.go("/run/teacher/rollout/1?view=constructor")
    expect(page.get_by_role("button", name="Conversation")).to_have_attribute("aria-pressed", "true")
    tab.complaints[:] = [said for said in tab.complaints if "404" not in said]


def test_a_page_of_a_run_that_has_not_begun_becomes_the_run(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path) as client, window(browser, client) as tab:
        page = tab.go("/run/later")
        expect(page.get_by_role("heading", name="There is no run later yet")).to_be_visible()
        expect(page.locator(".live")).to_have_text("live")
        strange(tmp_path / "later")
        expect(page.get_by_role("heading", name="later", exact=True)).to_be_visible()
        expect(page.get_by_role("figure", name="Reward over steps")).to_be_visible()


def test_a_tab_goes_on_when_the_server_is_back(browser: Browser, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run = strange(tmp_path / "runs/one")
    with served(tmp_path / "runs", port=port) as client:
        context = window(browser, client)
        tab = context.__enter__()
        page = tab.go("/run/one/rollouts")
        rows = page.get_by_role("grid", name="Rollouts").get_by_role("row")
        expect(rows).to_have_count(4)
        expect(page.locator(".live")).to_have_text("live")
    try:
        expect(page.locator(".live")).to_have_text("no server")
        with RunStore.open(run / "rollouts.db") as store:
            one_more(store, "meanwhile", index=0)
        with served(tmp_path / "runs", port=port):
            expect(page.locator(".live")).to_have_text("live")
            expect(rows).to_have_count(5)
        with served(tmp_path / "runs", port=port, token="another-token-of-the-tests"):
            field = page.get_by_label("The studio wants its token")
            expect(field).to_be_visible()
            expect(page.locator(".live")).to_have_text("no access")
            field.fill("another-token-of-the-tests")
            field.press("Enter")
            expect(page).to_have_url(re.compile("/run/one/rollouts$"))
            expect(page.locator(".live")).to_have_text("live")
            expect(rows).to_have_count(5)
    finally:
        context.__exit__(None, None, None)


def test_an_address_without_its_token_asks_for_it_and_opens(browser: Browser, studio: Client) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{studio.url}/run/teacher/rollouts?filter=reward%20%3E%200")
    page.get_by_label("Token").fill("wrong")
    page.get_by_label("Token").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("not the token")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("grid", name="Rollouts").get_by_role("row").nth(1)).to_be_visible()
    assert page.url.endswith("/run/teacher/rollouts?filter=reward+%3E+0")
    context.close()


def test_after_sorting_by_keyboard_enter_opens_the_row(tab: Window) -> None:
    page = tab.go("/run/teacher/rollouts")
    head = page.get_by_role("columnheader", name="Reward").get_by_role("button")
    head.focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("sort=-reward"))
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/rollout/\d+"))


def test_an_evaluation_shows_its_result_and_its_settings(tab: Window, runs: Path) -> None:
    report = json.loads((runs / "random/report.json").read_text())
    page = tab.go("/run/random")
    table = page.get_by_role("table").first
    for name in ("reward", "pass@1", "pass^2", *report["parts"], *report["metrics"]):
        expect(table.get_by_role("rowheader", name=name, exact=True)).to_be_visible()
    reward = report["rewards"]["agent"]
    interval = f"{reward['low']:.3f} to {reward['high']:.3f}".replace("-", "\N{MINUS SIGN}")
    expect(table.get_by_role("row").nth(1)).to_contain_text(interval)
    expect(page.locator("dl.figures")).to_contain_text("Rollouts")
    expect(page.locator("dl.figures dt").get_by_text("Step")).to_have_count(0)
    page.get_by_label("By").select_option("opponent")
    expect(page.get_by_role("rowheader", name="optimal")).to_be_visible()
    expect(page).to_have_url(re.compile("by=opponent"))
    expect(page.locator(".facts").first).to_contain_text("unknown")
    assert tab.faults() == []
    page.get_by_role("link", name="Config").click()
    expect(page.get_by_text("num_tasks")).to_be_visible()
    expect(tab.go("/run/bounded").locator(".facts").first).to_contain_text("Not started3: the cost reached $1")
    page = tab.go("/run/random/config")
    expect(page.get_by_text("the rubric")).to_be_visible()
    assert tab.faults() == []


def many(folder: Path, reward: float, *, tasks: int) -> Path:
    """An evaluation with three samples of its first task, and one of each of the others."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"recipe": "eval", "config": {"env": "toy", "policy": "mine"}}))
    with RunStore.create(folder / "rollouts.db") as store:
        groups = []
        for index in range(tasks):
            task, seat = Task(id=f"t{index}"), Trajectory(turns=[], score=Score(reward=reward))
            group = [Rollout(task=task, seed=0, sample_index=n, trajectories=[seat]) for n in range(1 if index else 3)]
            groups.append(Group(task=task, rollouts=group, index=index))
        store.add(groups, stage="eval", step=0, env="toy")
    return folder


def test_what_is_cut_is_said_and_figures_are_of_all(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wanderlust.studio.runs.MAX_GROUPS", 40)
    monkeypatch.setattr("wanderlust.studio.rollouts.MAX_SIBLINGS", 2)
    many(tmp_path / "one", 0.0, tasks=3050)
    many(tmp_path / "two", 1.0, tasks=3050)
    with served(tmp_path) as client, window(browser, client) as tab:
        page = tab.go("/run/one?stage=eval&step=0")
        expect(
            page.get_by_text("The first 40 of 3,050 groups are listed, and sorted among themselves.")
        ).to_be_visible()
        page = tab.go("/run/one/group/eval/0/0")
        expect(page.locator("dl.figures")).to_contain_text("the first 2 are shown and counted here")
        page = tab.go("/compare?a=one&b=two")
        better = page.locator(".scatter dl div", has_text="Better in the second")
        expect(better.locator("dd")).to_have_text("3,050")
        expect(page.locator(".scatter dl")).to_contain_text("the first 3,000")
        assert tab.complaints == []


def test_what_scrolls_is_reached_by_the_keyboard(browser: Browser, studio: Client) -> None:
    with window(browser, studio, color_scheme="light") as tab:
        page = tab.go("/run/strange/rollout/1")
        side = page.locator("aside.rollout-side")
        expect(side).to_be_visible()
        assert side.evaluate("one => one.scrollHeight > one.clientHeight")
        assert tab.faults() == []
        page.emulate_media(color_scheme="dark")
        assert tab.faults("color-contrast") == []
        page.emulate_media(color_scheme="light")
        tab.go("/compare?a=random&b=teacher&show=all")
        expect(page.get_by_role("grid", name="Tasks")).to_be_visible()
        page.keyboard.press("j")
        expect(page.locator(".transcripts .sibling")).to_have_count(2)
        assert tab.faults() == []
