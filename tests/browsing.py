"""A real browser before the studio's real server: Debian's Chromium, driven from here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

from patience import PATIENCE
from studios import TOKEN, Client

AXE = Path(__file__).parent.parent / "web/node_modules/axe-core/axe.min.js"
PATIENT = 1000 * PATIENCE
"""Milliseconds."""

expect.set_options(timeout=PATIENT)


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium, headless."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    assert found, "chromium is missing: make browser"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *said: object) -> None:
        pass


@contextmanager
def plain_files(folder: Path) -> Iterator[str]:
    """The address of a plain file server over a folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=folder))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(slots=True)
class Window:
    """A tab before one studio, and everything that went wrong in it."""

    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def go(self, address: str) -> Page:
        """Open an address of the studio."""
        self.page.goto(self.base + address)
        return self.page

    def faults(self, *rules: str) -> list[dict[str, Any]]:
        """What axe-core finds serious or critical on the page as it stands, by all its rules or these."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.read_text(encoding="utf-8"))
        options: dict[str, Any] = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
        found = self.page.evaluate("async options => (await axe.run(document, options)).violations", options)
        bad = [one for one in found if one["impact"] in ("serious", "critical")]
        return [{"rule": one["id"], "where": [node["html"][:160] for node in one["nodes"][:3]]} for one in bad]


@contextmanager
def window(browser: Browser, studio: Client, *, entry: str = f"/?token={TOKEN}", **look: Any) -> Iterator[Window]:
    """A fresh tab that has been let in; it must end without a word of complaint on its console."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, **look)
    context.set_default_timeout(PATIENT)
    seen = Window(context.new_page(), studio.url)
    seen.page.on(
        "console", lambda said: seen.complaints.append(said.text) if said.type in ("error", "warning") else None
    )
    seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    seen.page.on("request", lambda request: seen.asked.append(request.url))
    seen.go(entry)
    try:
        yield seen
    finally:
        context.close()
