"""The studio's page in a real browser, over real runs: screens, keyboard, what goes wrong, what means no good."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from browsing import Window, chromium, plain_files, window
from studio_runs import LONG, SCRIPT, branched, evaluated, hostile, one_more, trained
from studios import TOKEN, Client, served
from wanderlust.cli.main import main
from wanderlust.store.store import RunStore
from wanderlust.studio.application import PAGE_FOLDER

pytestmark = [
    pytest.mark.skipif(not (PAGE_FOLDER / "index.html").is_file(), reason="the page is not built: make page"),
    pytest.mark.xdist_group("browser"),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    trained(root / "learning", root / "fresh", seed=0)
    trained(root / "learning-again", root / "fresh-again", seed=1)
    evaluated(root / "teacher", "teacher")
    evaluated(root / "random", "random")
    hostile(root / "hostile")
    branched(root / "branched")
    (root / "foreign").mkdir()
    (root / "foreign/rollouts.db").write_bytes(b"this is no store" * 100)
    return root


@pytest.fixture(scope="module")
def exported(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "site"
    with pytest.raises(SystemExit) as end:
        main(["studio", str(runs / "learning"), "--export", str(folder)])
    assert end.value.code == 0
    return folder


@pytest.fixture(scope="module")
def studio(runs: Path) -> Iterator[Client]:
    with served(runs) as client:
        yield client


@pytest.fixture(scope="module")
def browser(runs: Path, exported: Path) -> Iterator[Browser]:
    assert runs != exported  # made before: Playwright keeps an event loop in this thread, beside which none can run
    with chromium() as found:
        yield found


@pytest.fixture
def tab(browser: Browser, studio: Client) -> Iterator[Window]:
    with window(browser, studio) as seen:
        yield seen
        assert seen.complaints == []
        assert all(url.startswith((studio.url, "data:", "blob:")) for url in seen.asked)


def test_all_runs_stand_in_one_table_and_the_first_load_is_small(browser: Browser, studio: Client) -> None:
    context = browser.new_context()
    page = context.new_page()
    wire = context.new_cdp_session(page)
    sizes: list[float] = []
    wire.on("Network.loadingFinished", lambda done: sizes.append(done["encodedDataLength"]))
    wire.send("Network.enable")
    page.goto(f"{studio.url}/?token={TOKEN}")
    table = page.get_by_role("grid", name="Runs")
    for name in ("learning", "learning-again", "teacher", "random", "hostile"):
        expect(table.get_by_role("link", name=name, exact=True)).to_be_visible()
    expect(table).to_contain_text("not a run store, or damaged")
    expect(page.get_by_text("live")).to_be_visible()
    assert sum(sizes) <= 350_000
    context.close()


def test_runs_are_found_picked_and_opened_by_keys(tab: Window) -> None:
    page = tab.go("/?sort=name")
    expect(page.get_by_role("row", name="learning-again")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("learning")
    expect(page.get_by_role("row")).to_have_count(3)
    page.keyboard.press("Escape")
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page).to_have_url(re.compile(r"pick=learning(%2C|,)learning-again"))
    page.keyboard.press("o")
    expect(page.locator(".legend").filter(has_text="learning-again").first).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("h")
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Open the run")


def test_a_run_shows_its_curves_findings_and_the_groups_of_a_step(tab: Window) -> None:
    page = tab.go("/run/learning")
    for title in (
        "Reward",
        "Reward parts",
        "Entropy nats",
        "Sampler KL (k3) nats",
        "Groups with signal share",
        "Time of a step seconds",
        "Trainer idle share",
    ):
        expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
    expect(page.locator(".findings")).to_contain_text("longer and longer")
    reward = page.get_by_role("figure", name="Reward over steps")
    expect(reward.locator("figcaption")).to_contain_text("step 5")
    plot = reward.locator(".u-over")
    plot.hover(position={"x": 1, "y": 40})
    expect(reward.locator("figcaption")).to_contain_text("step 0")
    plot.click(position={"x": 1, "y": 40})
    expect(page.get_by_role("heading", name="Step 0 of rl")).to_be_visible()
    groups = page.get_by_role("grid", name="Groups of step 0")
    expect(groups.get_by_role("row").nth(1)).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile("step=1"))
    expect(page.get_by_role("grid", name="Groups of step 1").get_by_role("row").nth(1)).to_be_visible()
    page.keyboard.press("s")
    expect(page).to_have_url(re.compile("smooth=0.8"))
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/run/learning/group/rl/1/"))


def test_a_training_run_shows_what_it_came_to(tab: Window, runs: Path) -> None:
    report = json.loads((runs / "learning/report.json").read_text())
    page = tab.go("/run/learning")
    panel = page.locator(".panel", has=page.get_by_role("heading", name="Result", exact=True))
    expect(panel).to_contain_text(report["result"]["sentence"])
    expect(panel).to_contain_text("--policy RUN takes checkpoints/")
    rows = panel.get_by_role("row")
    expect(rows).to_have_count(1 + len(report["result"]["rows"]) + 1)
    expect(rows.nth(2)).to_contain_text("After training, step 6")
    expect(rows.nth(2)).to_contain_text(f"{report['result']['rows'][1]['reward']['value']:.3f}")
    expect(rows.last).to_contain_text("After less before, paired")
    for advice in report["advice"]:
        expect(panel.get_by_role("list", name="Advice")).to_contain_text(advice)


def test_a_chart_becomes_a_picture(tab: Window) -> None:
    page = tab.go("/run/learning")
    for form, start in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        with page.expect_download() as saved:
            page.get_by_role("button", name=f"Entropy as {form}").click()
        assert Path(saved.value.path()).read_bytes().startswith(start)


def test_a_wrong_filter_is_a_red_line_with_the_fields_and_no_rows(tab: Window) -> None:
    page = tab.go("/run/teacher/rollouts")
    rows = page.get_by_role("grid", name="Rollouts").get_by_role("row")
    expect(rows).to_have_count(17)
    page.keyboard.press("/")
    page.keyboard.type('rewad < 0.5 and env == "tictactoe"')
    page.keyboard.press("Enter")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("rewad")
    expect(page.locator("#filter-said")).to_contain_text("tokens_out")
    expect(page.get_by_role("grid")).to_have_count(0)
    colour = alert.evaluate("element => getComputedStyle(element).color")
    assert colour == "rgb(168, 40, 29)"
    page.get_by_role("button", name="Show all").click()
    expect(rows).to_have_count(17)
    tab.complaints.clear()  # the browser itself notes an answer of 400


def test_parts_and_metrics_are_offered_and_filter_the_rows(tab: Window, runs: Path) -> None:
    page = tab.go("/run/random/rollouts")
    offered = page.get_by_role("group", name="Fields for the filter").get_by_role("button")
    expect(offered.first).to_have_text("parts.format")
    expect(offered.filter(has_text="metrics.win")).to_have_count(1)
    page.keyboard.press("/")
    page.keyboard.type("metrics.lo")
    expect(offered).to_have_count(1)
    offered.click()
    expect(page.get_by_label("Filter", exact=True)).to_be_focused()
    page.keyboard.type("== 1")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"filter=metrics\.loss"))
    rewards = page.get_by_role("grid", name="Rollouts").get_by_role("row")
    with RunStore.read(runs / "random/rollouts.db") as store:
        scores = [store.get(row.id).trajectory.score for row in store.rollouts()]
    lost = sum(score is not None and score.metrics["loss"] == 1 for score in scores)
    expect(rewards).to_have_count(1 + lost)
    assert 0 < lost < 16


def test_rollouts_are_filtered_sorted_and_walked_through(tab: Window) -> None:
    page = tab.go(f"/run/random/rollouts?filter={quote('sample_index == 1')}")
    rows = page.get_by_role("grid", name="Rollouts").get_by_role("row")
    expect(rows).to_have_count(9)
    page.get_by_role("button", name="Reward").click()
    expect(page).to_have_url(re.compile("sort=-reward"))
    expect(page.get_by_role("columnheader", name="Reward")).to_have_attribute("aria-sort", "descending")
    page.reload()  # so that the rows that come first are in the new order
    expect(rows.nth(3).get_by_role("gridcell").first).to_have_text(re.compile(r"\d"))
    page.keyboard.press("j")
    expect(rows.nth(2)).to_have_attribute("aria-selected", "true")
    second = rows.nth(2).get_by_role("gridcell").first.inner_text()
    third = rows.nth(3).get_by_role("gridcell").first.inner_text()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/rollout/{second}\\?"))
    expect(page.get_by_role("link", name="Next rollout")).to_be_visible()
    page.keyboard.press("]")
    expect(page).to_have_url(re.compile(f"/rollout/{third}\\?"))
    page.keyboard.press("Escape")
    expect(page).to_have_url(re.compile("/random/rollouts\\?filter=.*at=2"))


def test_siblings_stand_side_by_side_and_two_are_told_apart(tab: Window) -> None:
    page = tab.go("/run/random/group/eval/0/0")
    siblings = page.get_by_role("region", name=re.compile("Sample"))
    expect(siblings).to_have_count(2)
    expect(siblings.nth(1)).to_contain_text("diverges here")
    page.keyboard.press("d")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("d")
    expect(page.get_by_role("heading", name="Sample 0 beside Sample 1")).to_be_visible()
    expect(page.locator("mark.come").first).to_be_visible()
    assert "diff=0%2C1" in page.url


def test_a_rollout_is_read_turn_by_turn_and_token_by_token(tab: Window) -> None:
    page = tab.go("/run/learning/rollout/1")
    expect(page.get_by_role("heading", name="Turn 1")).to_be_visible()
    expect(page.get_by_role("complementary")).to_contain_text("echo")
    page.keyboard.press("v")
    expect(page).to_have_url(re.compile("view=tokens"))
    sampled = page.locator(".token.sampled").first
    expect(sampled).to_be_visible()
    sampled.hover()
    expect(page.locator(".readout")).to_contain_text(re.compile(r"id \d+.*log p"))
    page.locator(".token:not(.sampled)").first.hover()
    expect(page.locator(".readout")).to_contain_text("masked")
    page.keyboard.press("r")
    expect(page.get_by_role("link", name="Download the whole record")).to_be_visible()
    page.keyboard.press("u")
    expect(page.get_by_role("region", name=re.compile("Sample")).first).to_be_visible()


def test_what_means_no_good_is_only_shown(tab: Window) -> None:
    page = tab.go("/run/hostile/rollout/1")
    expect(page.locator(".message").first).to_contain_text(SCRIPT)
    page.keyboard.press("j")
    for sign in ("RLO", "BS", "ZWSP"):
        expect(page.locator(".control", has_text=sign).first).to_be_visible()
    expect(page.locator(".ansi-1").first).to_have_text("red")
    assert "\x1b" not in page.locator("main").inner_text()
    expect(page.locator(".call-result").first).to_contain_text("plain")
    fold = page.get_by_role("button", name="Show all 1,000,000 characters")
    fold.scroll_into_view_if_needed()
    fold.click()
    expect(page.get_by_role("button", name="Fold")).to_be_visible()
    assert LONG in (page.locator(".message .text").last.text_content() or "")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page = tab.go("/run/hostile/rollout/2")
    expect(page.get_by_role("alert")).to_contain_text("raised by the tool")
    page.keyboard.press("u")
    expect(page.get_by_role("region", name="Sample 1")).to_contain_text("unscored")
    tab.go("/run/hostile/rollouts")
    expect(page.get_by_role("row", name=re.compile("hostile")).first).to_contain_text("<script>")
    assert page.evaluate("window.hacked") is None


def test_what_is_stored_appears_by_itself(tab: Window, runs: Path) -> None:
    page = tab.go("/run/hostile/rollouts")
    rows = page.get_by_role("grid", name="Rollouts").get_by_role("row")
    expect(rows).to_have_count(3)
    with RunStore.open(runs / "hostile/rollouts.db") as store:
        one_more(store, "warm-up", index=0)
        expect(rows).to_have_count(4)
        one_more(store, "fresh", index=1)
        expect(rows.nth(1)).to_contain_text("fresh")
    tab.go("/")
    expect(page.get_by_role("row", name="hostile")).to_contain_text("4")


def test_two_runs_are_compared_task_by_task(tab: Window) -> None:
    page = tab.go("/compare?a=random&b=teacher")
    expect(page.locator(".whisker")).to_contain_text("95% interval")
    rows = page.get_by_role("grid", name="Tasks").get_by_role("row")
    expect(rows).to_have_count(9)
    page.keyboard.press("j")
    expect(page.locator(".transcripts .sibling")).to_have_count(2)
    assert "task=" in page.url
    sides = page.locator(".transcript-sides section")
    shown = page.locator(".sibling-score dd").first
    for at, column in enumerate((1, 2)):
        side = sides.nth(at)
        cell = rows.nth(1).get_by_role("gridcell").nth(column)
        mean = re.findall(r"mean ([\d.]+)", side.inner_text())[0]
        rewards = [float(text.partition(": ")[2]) for text in side.get_by_role("button").all_inner_texts()]
        expect(cell).to_contain_text(mean)
        assert abs(sum(rewards) / len(rewards) - float(mean)) < 0.001
    pressed = sides.first.locator("[aria-pressed=true]")
    first, second = sides.first.get_by_role("button").all()
    expect(shown).to_have_text(pressed.inner_text().partition(": ")[2])
    other = second if first.get_attribute("aria-pressed") == "true" else first
    other.click()
    expect(page).to_have_url(re.compile(r"first=\d+"))
    expect(shown).to_have_text(other.inner_text().partition(": ")[2])
    page.get_by_role("button", name=re.compile("Alike")).click()
    expect(page).to_have_url(re.compile("show=alike"))


def test_what_is_not_there_is_said_in_one_line(tab: Window) -> None:
    page = tab.go("/run/foreign")
    expect(page.get_by_role("alert").first).to_contain_text("not a run store")
    for what in ("rollout/99999", "group/rl/0/999"):
        page = tab.go(f"/run/learning/{what}")
        expect(page.get_by_role("alert").get_by_role("link", name="The run")).to_be_visible()
    tab.complaints[:] = [said for said in tab.complaints if "404" not in said]
    page = tab.go("/nowhere")
    expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()
    tab.complaints.clear()


def test_the_look_is_chosen_and_kept(browser: Browser, studio: Client) -> None:
    with window(browser, studio, color_scheme="dark") as seen:
        page = seen.go("/run/learning")
        paper = "getComputedStyle(document.documentElement).backgroundColor"
        expect(page.get_by_role("button", name="Look: system")).to_be_visible()
        assert page.evaluate(paper) == "rgb(17, 21, 20)"
        page.keyboard.press("t")
        expect(page.get_by_role("button", name="Look: light")).to_be_visible()
        assert page.evaluate(paper) == "rgb(248, 247, 243)"
        page.reload()
        expect(page.get_by_role("button", name="Look: light")).to_be_visible()
        assert page.evaluate(paper) == "rgb(248, 247, 243)"


def test_an_export_shows_the_same_from_plain_files(browser: Browser, exported: Path) -> None:
    with plain_files(exported) as url, window(browser, Client(url), entry="/") as seen:
        page = seen.page
        expect(page.get_by_role("grid", name="Runs")).to_contain_text("learning")
        expect(page.get_by_text("exported", exact=True)).to_be_visible()
        page = seen.go(f"/#/run/learning/rollouts?sort=-reward&filter={quote('reward > 0.2 and not step in (0, 1)')}")
        rows = page.get_by_role("grid", name="Rollouts").get_by_role("row")
        expect(rows.nth(1)).to_be_visible()
        rewards = [float(row) for row in page.locator(".table-body .table-line > :nth-child(8)").all_inner_texts()]
        assert rewards == sorted(rewards, reverse=True)
        assert min(rewards) > 0.2
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Turn 1")).to_be_visible()
        page.keyboard.press("v")
        expect(page.locator(".token.sampled").first).to_be_visible()
        page.keyboard.press("u")
        expect(page.get_by_role("region", name="Sample 1", exact=True)).to_be_visible()
        seen.go("/#/run/learning?step=2")
        expect(page.get_by_role("grid", name="Groups of step 2").get_by_role("row").nth(1)).to_be_visible()
        seen.go("/#/run/learning/rollouts?filter=rewad%20%3C%202")
        expect(page.get_by_role("alert")).to_contain_text("rewad")
        assert seen.complaints == []
        assert not any("/api/" in url for url in seen.asked)


FILTERS = (
    "reward > 0.2 and not step in (0, 1)",
    "not reward > 0.2 and step == 0",
    "reward > 0.9 or step == 1 and reward < 0.5",
    "not (reward > 0.9 or step == 1)",
    "advantage == null",
    "advantage != 0.5",
    "not advantage > 0",
    "advantage not in (0, 1)",
    'task contains "-3"',
    'task in ("echo-1", "echo-2") and group != 0',
    "reward >= .5 and reward <= 1e0",
    "advantage > -1",
    "parts.echo < 0.5",
    'not parts."echo" < 0.5',
)


def test_an_export_filters_as_the_server_does(browser: Browser, studio: Client, exported: Path) -> None:
    with plain_files(exported) as url, window(browser, Client(url), entry="/") as seen:
        totals = {}
        for text in FILTERS:
            seen.page.goto("about:blank")  # what is shown then is of no filter before
            page = seen.go(f"/#/run/learning/rollouts?filter={quote(text)}")
            expect(page.locator("[data-filter]")).to_have_value(text)
            total = page.locator(".filter-line [aria-live]")
            expect(total).to_have_text(re.compile(r"rollouts?$"))
            totals[text] = int(total.inner_text().split()[0].replace(",", ""))
    assert totals == {text: studio.get("runs/learning/rollouts", filter=text)["total"] for text in FILTERS}
    assert len(set(totals.values())) > 6


SCREENS = (
    "/",
    "/run/learning?step=1",
    "/run/learning/rollouts",
    "/run/learning/rollouts?filter=wrong",
    "/run/learning/group/rl/1/4?diff=0,1",
    "/run/hostile/rollout/1",
    "/run/learning/rollout/1?view=tokens",
    "/compare?a=random&b=teacher",
)


def test_nobody_is_shut_out(browser: Browser, studio: Client) -> None:
    with window(browser, studio, color_scheme="light") as seen:
        for address in SCREENS:
            page = seen.go(address)
            expect(page.locator("main h1, main h2").first).to_be_visible()
            expect(page.locator(".skeleton")).to_have_count(0)
            page.emulate_media(color_scheme="light")
            assert seen.faults() == [], address
            page.emulate_media(color_scheme="dark")
            assert seen.faults("color-contrast") == [], f"{address} in the dark"


def test_a_seat_with_several_conversations_is_shown_as_a_graph(browser: Browser, studio: Client) -> None:
    with window(browser, studio) as seen:
        page = seen.go("/run/branched/rollout/1")
        graph = page.get_by_role("region", name="Conversations of this seat")
        expect(graph).to_contain_text("4 in 6 turns")
        expect(graph.locator("circle")).to_have_count(6)
        expect(graph.locator("circle.graph-root")).to_have_count(2)
        expect(graph.locator("path")).to_have_count(4)
        main = page.get_by_role("main")
        expect(main).to_contain_text("continues turn 1")
        expect(main).to_contain_text("a context of its own begins here")
        graph.get_by_role("button", name="5. answer to Sure?").click()
        expect(page.locator(".turn-here h2")).to_have_text("Turn 5")
        page.get_by_role("group", name="Conversation").get_by_text("Up to turn 5").click()
        expect(page.locator(".turn h2")).to_have_text(["Turn 1", "Turn 4", "Turn 5"])
        assert not seen.faults()
        assert not seen.complaints
