"""Agents' text read as markdown, in a real browser: what means no good is still only shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.bars_page import HARD_MARKDOWN
from playwright.sync_api import Page, expect

from browsing import Window, chromium, window
from studio_runs import SCRIPT, TERMINAL, said
from studios import served
from wanderlust.store.store import RunStore
from wanderlust.studio.application import PAGE_FOLDER
from wanderlust.types import Group, Turn, assistant, user

pytestmark = [
    pytest.mark.skipif(not (PAGE_FOLDER / "index.html").is_file(), reason="the page is not built: make page"),
    pytest.mark.xdist_group("browser"),
]

NICE = """# Plan

Two **bold** words, `code`, [a link](https://example.org/a "there") and <https://example.org/b>.

| a | b |
|---|---|
| 1 | 2 |

- [x] done
- next

```python
print("<b>")
```
"""
HOSTILE = f"""{SCRIPT} <iframe src="//evil.test"></iframe>

[a](javascript:window.hacked=3) [b](JaVaScRiPt&#58;window.hacked=4) [c](data:text/html,<script>1</script>)
[d](//evil.test/x) [e]( vbscript:x) [f](/api/runs) <javascript:window.hacked=5>
[g][ref] <a href="javascript:alert(1)">h</a>

![loads?](https://evil.test/pixel.png) ![](//evil.test/p.png) ![x](data:image/svg+xml,<svg/onload=alert(1)>)

[ref]: javascript:window.hacked=6

{TERMINAL}
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    texts = [NICE, HOSTILE, *HARD_MARKDOWN.values()]
    groups = []
    for index, text in enumerate(texts):
        one = said(Turn(observation=(user("Write."),), action=assistant(text)), task=f"text-{index}")
        groups.append(Group(task=one.task, rollouts=[one], index=index))
    (root / "texts").mkdir()
    with RunStore.create(root / "texts/rollouts.db") as store:
        store.add(groups, stage="play", step=0)
    return root


@pytest.fixture(scope="module")
def tab(runs: Path) -> Iterator[Window]:
    with served(runs) as studio, chromium() as browser, window(browser, studio) as seen:
        yield seen
        assert seen.complaints == []
        assert all(url.startswith((studio.url, "data:", "blob:")) for url in seen.asked)


def _read(tab: Window, id: int) -> Page:
    page = tab.go(f"/run/texts/rollout/{id}?read=markdown")
    expect(page.get_by_role("button", name="Markdown")).to_have_attribute("aria-pressed", "true")
    return page


def test_text_becomes_markdown_and_back_by_a_key(tab: Window) -> None:
    page = tab.go("/run/texts/rollout/1")
    expect(page.locator(".message").last).to_contain_text("**bold**")
    page.keyboard.press("m")
    expect(page).to_have_url(re.compile("read=markdown"))
    read = page.locator(".message .markdown").last
    expect(read.locator("strong")).to_have_text("bold")
    expect(read.locator("td")).to_have_text(["1", "2"])
    expect(read.locator("pre")).to_have_text('print("<b>")')
    expect(read.get_by_role("checkbox")).to_be_checked()
    links = read.get_by_role("link")
    assert [link.get_attribute("href") for link in links.all()] == ["https://example.org/a", "https://example.org/b"]
    assert {link.get_attribute("rel") for link in links.all()} == {"noopener noreferrer"}
    assert tab.faults() == []
    page.keyboard.press("r")
    expect(page.locator(".rollout-main")).to_contain_text("**bold**")  # a record stays as it is
    page.keyboard.press("c")
    page.keyboard.press("m")
    expect(page.locator(".message").last).to_contain_text("**bold**")


def test_nothing_in_it_acts_or_is_fetched(tab: Window) -> None:
    page = _read(tab, 2)
    read = page.locator(".message .markdown").last
    expect(read).to_contain_text("<script>window.hacked = 1</script>")
    assert read.locator("script, img, iframe, a").count() == 0
    expect(read.locator(".no-image").first).to_contain_text("loads?")
    expect(read).to_contain_text("\u27e8RLO\u27e9")
    for word in read.locator(".no-link").all():
        word.click()
    assert page.evaluate("window.hacked") is None


@pytest.mark.parametrize("name", HARD_MARKDOWN)
def test_hard_texts_are_shown(tab: Window, name: str) -> None:
    """A bar in `benchmarks/bars_page.py` has how long they hold the page up."""
    page = _read(tab, 3 + list(HARD_MARKDOWN).index(name))
    expect(page.locator(".message").last.locator(".text")).not_to_be_empty()
    expect(page.locator(".error-line")).to_have_count(0)
    unfold = page.locator(".message").last.get_by_role("button", name=re.compile("Show all"))
    if unfold.count():
        unfold.click()
    if name in ("brackets", "quotes", "line"):
        expect(page.locator(".unfit")).to_contain_text("Shown as text")
