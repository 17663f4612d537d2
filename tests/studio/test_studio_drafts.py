"""Drafted stories in the studio: shown as they are told, accepted, changed and commented on, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from browsing import chromium, window
from studios import Client, served
from wanderlust import Scripted
from wanderlust.studio.application import PAGE_FOLDER
from wanderlust_life.drafts import reviewed_drafts
from wanderlust_life.story_drafts import EXAMPLE_STORY, write_stories

needs_page = pytest.mark.skipif(not (PAGE_FOLDER / "index.html").is_file(), reason="the page is not built: make page")
pytestmark = pytest.mark.xdist_group("browser")
HOSTILE = "<img src=x onerror=document.title='taken'> \u202e"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs beside a folder of drafts: one that is ready, one that failed."""
    folder = tmp_path_factory.mktemp("runs")
    story = json.dumps({**json.loads(EXAMPLE_STORY), "asks": HOSTILE})
    answers = iter([story, "no", "no", "no"])
    write_stories(Scripted(lambda messages, rng: next(answers)), out=folder / "drafts", count=2, progress=False)
    return folder


@pytest.fixture(scope="module")
def studio(root: Path) -> Iterator[Client]:
    with served(root) as client:
        yield client


@pytest.fixture(scope="module")
def browser(root: Path) -> Iterator[Browser]:
    assert root  # made before: Playwright keeps an event loop in this thread, beside which none can run
    with chromium() as browser:
        yield browser


def key_of(studio: Client) -> str:
    """The key of the only folder."""
    (folder,) = studio.get("drafts")["folders"]
    return str(folder["key"])


def test_folders_and_drafts_are_listed_with_their_stories(studio: Client) -> None:
    (folder,) = studio.get("drafts")["folders"]
    assert (folder["name"], folder["drafts"], folder["open"]) == ("drafts", 2, 2)
    ready, failed = studio.get(f"drafts/{folder['key']}")["drafts"]
    assert ready["story"]["name"] == "bring-back"
    assert (failed["draft"]["state"], failed["story"], failed["text"]) == ("failed", None, "")


@pytest.mark.parametrize(
    ("place", "body", "status", "words"),
    [
        ("KEY/bring-back", {"do": "burn"}, 400, "`do` must be one of accept, reject, edit, comment"),
        ("KEY/bring-back", {"do": "comment", "comment": 5}, 400, "must be texts"),
        ("KEY/bring-back", {"do": "edit", "text": "{"}, 400, "truncated"),
        ("KEY/bring-back", {"do": "edit", "text": "x" * 100_001}, 400, "at most 100,000 characters"),
        ("KEY/draft-1", {"do": "accept"}, 400, "draft-1 has no story"),
        ("KEY/nothing", {"do": "accept"}, 400, "has no draft 'nothing'"),
        ("other/bring-back", {"do": "accept"}, 404, "there are no drafts 'other'"),
    ],
)
def test_what_cannot_be_decided_is_one_line_and_changes_nothing(
    studio: Client, root: Path, place: str, body: dict[str, object], status: int, words: str
) -> None:
    before = sorted((one.name, one.read_bytes()) for one in (root / "drafts").glob("*.json*"))
    answer = studio.said(f"/api/drafts/{place.replace('KEY', key_of(studio))}", body)
    assert (answer["status"], "\n" in answer["error"]) == (status, False)
    assert words in answer["error"]
    assert sorted((one.name, one.read_bytes()) for one in (root / "drafts").glob("*.json*")) == before


@needs_page
def test_a_draft_is_read_commented_on_changed_and_accepted(browser: Browser, studio: Client, root: Path) -> None:
    with window(browser, studio) as seen:
        seen.go("/drafts")
        review(seen.page)
    ready = reviewed_drafts(root / "drafts")[0]
    assert (ready.decision, "No, but on" in ready.text) == ("accepted", True)


def review(page: Page) -> None:
    """Read the draft, comment on it, change it wrongly and rightly, accept it."""
    page.get_by_role("link", name="bring-back").click()
    expect(page.locator(".draft-steps")).to_contain_text("Chats.send_message")
    assert "taken" not in page.title()
    page.get_by_label("Comment").fill("when?")
    page.get_by_role("button", name="Comment only").click()
    expect(page.locator(".draft-reviews")).to_have_text("comment: when?")
    text = page.get_by_label("The story as JSON")
    whole = text.input_value()
    text.fill(whole.replace('"friend"', '"emperor"'))
    expect(page.get_by_role("button", name="Accept")).to_be_disabled()
    page.get_by_role("button", name="Check and save the text").click()
    expect(page.get_by_role("alert")).to_contain_text("people.who: nobody is a 'emperor'")
    text.fill(whole.replace("Not then, but on", "No, but on"))
    page.get_by_role("button", name="Check and save the text").click()
    expect(page.locator(".draft-reviews li")).to_have_count(2)
    page.get_by_role("button", name="Accept").click()
    expect(page.locator(".draft-open .panel-head").first).to_contain_text("accepted")
