"""The studio's page in the system's Chromium, before a studio in a process of its own: what is on screen, and when.

Every figure ends when the frame is painted in which the page shows what was asked for, and begins where the person's
waiting begins: with the navigation, with the key, with the commit. By the plain clock: a busy machine shows. Beside
stand the load, and how long processors worked for it in the browser and in the studio, all their threads together.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.bar import Bar
from benchmarks.bars_studio import KEPT, PAGE, TURNS, Studio, fill, one_large, studio, tiny
from wanderlust.store.store import RunStore
from wanderlust.types import Group, Rollout, Task, Trajectory, Turn, assistant, user

ASKED, OPENED, STORED = 7, 5, 40
GLIDE, JUMPS = 240, 12
"""Frames in which the table is scrolled by a screen each, and jumps to anywhere."""

EYE = """
window.eye = {
  row: index => document.querySelector(`.table-line[aria-rowindex="${index + 2}"]`),
  rows: () => [...document.querySelectorAll(".table-body .table-line")],
  cell: (row, name) => row.children[
    [...document.querySelectorAll(".table-head [role=columnheader]")].findIndex(head => head.innerText.startsWith(name))
  ]?.innerText.replace("\u2212", "-") ?? "",
  // Whether every place in sight has a row with something in it.
  whole: () => {
    const box = document.querySelector("[role=grid][aria-label=Rollouts]")
    if (!box || box.getAttribute("aria-busy") === "true") return false
    const { top, bottom } = box.getBoundingClientRect()
    const head = box.querySelector(".table-head").getBoundingClientRect().bottom
    const seen = eye.rows().map(row => [row.getBoundingClientRect(), row]).filter(
      ([at]) => at.bottom > head + 1 && at.top < bottom - 1)
    const covered = seen.reduce((sum, [at]) => sum + Math.min(at.bottom, bottom) - Math.max(at.top, head), 0)
    return seen.length > 0 && covered > bottom - head - 20 && !seen.some(([, row]) => row.querySelector(".ghost"))
  },
  // Milliseconds since 1970 when the first frame was painted in which `test` holds.
  when: test => new Promise((done, fail) => {
    const late = performance.now() + 30000
    const look = () => test()
      ? setTimeout(() => done(performance.timeOrigin + performance.now()))
      : performance.now() > late ? fail(`never came: ${test}`) : requestAnimationFrame(look)
    requestAnimationFrame(look)
  }),
  pressed: 0,
}
for (const kind of ["keydown", "click"])
  addEventListener(kind, event => { eye.pressed = performance.timeOrigin + event.timeStamp }, true)
"""
"""What the bars look with; a timer that is set in a frame is heard after the frame was painted."""

SCROLL = """
async ({ frames, jumps }) => {
  const box = document.querySelector("[role=grid][aria-label=Rollouts]")
  const frame = () => new Promise(requestAnimationFrame)
  const gaps = [], waits = []
  let empty = null, broken = 0
  const look = now => {
    if (eye.whole()) { if (empty !== null) gaps.push(now - empty); empty = null } else { broken++; empty ??= now }
  }
  for (let n = 0; n < frames; n++) { box.scrollBy(0, box.clientHeight / 4); look(await frame()) }
  while (empty !== null) look(await frame())
  for (const share of jumps) {
    const began = performance.now()
    box.scrollTop = share * box.scrollHeight
    await frame()
    while (!eye.whole()) await frame()
    waits.push(performance.now() - began)
  }
  return { broken, gaps, waits }
}
"""
"""A quarter of a screen with each frame, then jumps: how long anything in sight was empty."""


HARD_MARKDOWN = {
    "brackets": "[" * 10_000 + "a" + "](b)" * 10_000,
    "spread": "[a " * 900 + "](b) " * 900,
    "quotes": ">" * 3000 + " deep",
    "lists": "\n".join("  " * n + "- x" for n in range(600)),
    "stars": "*a **b " * 600,
    "line": "0123456789" * 100_000,
    "table": "|a" * 2000 + "|\n" + "|-" * 2000 + "|\n" + ("|b" * 2000 + "|\n") * 3,
}
"""Texts that take a reader of markdown long."""
LONGEST_TASK = """
() => new Promise(done => {
  let longest = 0
  new PerformanceObserver(list => { for (const one of list.getEntries()) longest = Math.max(longest, one.duration) })
    .observe({ type: "longtask", buffered: true })
  setTimeout(() => done(longest), 200)
})
"""
"""Milliseconds of the longest time for which the page answered nothing."""


@dataclass(slots=True)
class Tab:
    """A tab that has been let into a studio."""

    page: Page
    base: str
    sizes: list[float] = field(default_factory=list)
    """Bytes of every answer, as they came over the wire."""
    worked: list[float] = field(default_factory=list)
    """Milliseconds of the processors, for each that was `opened` or `pressed`."""

    def shown(self, test: str) -> float:
        """Milliseconds since 1970 of the frame that shows it."""
        return float(self.page.evaluate(f"eye.when(() => {test})"))

    def opened(self, address: str, test: str) -> float:
        """Milliseconds from the start of the navigation until it is shown."""
        before = below(os.getpid())
        self.page.goto(self.base + address, wait_until="commit")
        seen = self.shown(test)
        self.worked.append(below(os.getpid()) - before)
        return seen - float(self.page.evaluate("performance.timeOrigin"))

    def pressed(self, press: Callable[[], None], test: str) -> float:
        """Milliseconds from the last key or click of `press` until it is shown."""
        before = below(os.getpid())
        press()
        seen = self.shown(test)
        self.worked.append(below(os.getpid()) - before)
        return seen - float(self.page.evaluate("eye.pressed"))


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's, without a window."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        raise FileNotFoundError("chromium is missing: make browser")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def tab(browser: Browser, shown: Studio) -> Iterator[Tab]:
    """A fresh profile: nothing is kept from tabs before. Its process runs: it has shown the studio's icon."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_init_script(EYE)
    seen = Tab(context.new_page(), f"http://{shown.host}")
    wire = context.new_cdp_session(seen.page)
    wire.on("Network.loadingFinished", lambda done: seen.sizes.append(done["encodedDataLength"]))
    wire.send("Network.enable")
    context.add_cookies([{"name": f"wander-{shown.host.rpartition(':')[2]}", "value": shown.token, "url": seen.base}])
    seen.page.goto(f"{seen.base}/icon.svg")
    seen.sizes.clear()
    yield seen
    context.close()


def below(process: int) -> float:
    """Milliseconds of a processor that the processes below this one have used, threads that are over included."""
    used = 0.0
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, file.read_text().split()):
            with suppress(OSError):
                words = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                used += 1000 * (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK") + below(child)
    return used


def load() -> str:
    """How busy the machine is."""
    return f"load {os.getloadavg()[0]:.1f}"


def timed(
    what: str,
    times: list[float],
    *,
    bar: float = 1000,
    aim: float = 300,
    worked: list[float] | None = None,
    note: str = "",
) -> Bar:
    """A bar of milliseconds: their median."""
    busy = f"; processors worked {median(worked):.0f} ms" if worked else ""
    said = f"slowest of {len(times)}: {max(times):.0f} ms; {load()}{busy}{note}"
    return Bar(name=f"page: {what}", figure=median(times), bar=bar, aim=aim, unit="ms", note=said)


def first_load(browser: Browser, shown: Studio) -> Iterator[Bar]:
    """Everything that comes before the list of runs stands."""
    with tab(browser, shown) as seen:
        took = seen.opened("/", "document.querySelectorAll('.table-body .table-line').length > 0")
        seen.page.wait_for_load_state("load")
        size, note = sum(seen.sizes) / 1000, f"{len(seen.sizes)} answers; on screen after {took:.0f} ms; {load()}"
    yield Bar(name="page: first load, transferred", figure=size, bar=700, aim=350, unit="KB", note=note)


def table(browser: Browser, path: Path) -> Iterator[Bar]:
    """Open, filter, scroll, sort: a run of KEPT rollouts."""
    where, rng, million = f"/run/{path.stem}/rollouts", Random(1), f", {KEPT:,} rollouts"
    firsts, worked = [], list[float]()
    for _ in range(OPENED):
        with studio(path) as fresh, tab(browser, fresh) as seen:
            firsts.append(seen.opened(where, "eye.whole()"))
            worked += seen.worked
    yield timed(f"first rows{million}", firsts, worked=worked, note="; studio and browser's profile fresh each time")
    with studio(path) as shown, tab(browser, shown) as seen:
        seen.opened(where, "eye.whole()")
        page, box = seen.page, seen.page.get_by_label("Filter", exact=True)

        def filtered() -> float:
            env, low = f"env-{rng.randrange(10)}", rng.uniform(0.1, 0.9)
            box.fill(f'env == "{env}" and reward < {low:.6f} and stop_reason == "max_turns"')
            fits = f"eye.rows().every(row => +eye.cell(row, 'Reward') <= {low:.6f} + 5e-4"
            fits += " && eye.cell(row, 'Stop') === 'max_turns')"
            asked = f"new URL(location).searchParams.get('filter')?.includes('{low:.6f}')"
            return seen.pressed(lambda: box.press("Enter"), f"{asked} && eye.whole() && {fits}")

        def ordered(column: str) -> float:
            head = page.get_by_role("columnheader", name=column).get_by_role("button")
            values = f"eye.rows().slice(0, 20).map(row => +eye.cell(row, '{column}').replace(/[^0-9.]/g, ''))"
            falls = f"{values}.every((value, at, all) => at === 0 || value <= all[at - 1])"
            sorts = f"document.querySelector('[aria-sort=descending]')?.innerText.startsWith('{column}')"
            return seen.pressed(head.click, f"{sorts} && eye.whole() && {falls}")

        yield timed(f"filter by three fields{million}", [filtered() for _ in range(ASKED)], worked=seen.worked[-ASKED:])
        seen.opened(where, "eye.whole()")
        yield timed(
            f"sort by a column{million}",
            [ordered(name) for name in ("Reward", "Turns", "Duration")],
            worked=seen.worked[-3:],
        )
        jump = (
            "document.querySelector('[role=grid]').scrollTop = document.querySelector('[role=grid]').scrollHeight / 2"
        )
        began = float(page.evaluate(f"{jump}; performance.timeOrigin + performance.now()"))
        page.evaluate("new Promise(requestAnimationFrame)")
        first = seen.shown("eye.whole()") - began
        yield timed(f"first jump into the middle, just sorted{million}", [first])
        for order, name in (("-id", "newest first"), ("-reward", "sorted")):
            seen.opened(f"{where}?sort={order}", "eye.whole()")
            jumps = [rng.random() for _ in range(JUMPS)]
            found = page.evaluate(SCROLL, {"frames": GLIDE, "jumps": jumps})
            note = f"; {found['broken']} of {GLIDE} frames had an empty row while gliding; {name}"
            gaps = found["gaps"] or [0.0]
            yield timed(f"a row in sight is empty, gliding, {name}", [max(gaps)], bar=300, aim=100, note=note)
            yield timed(f"rows after a jump, {name}{million}", found["waits"])


def live(browser: Browser, path: Path) -> Iterator[Bar]:
    """From the return of the commit in this process to the frame that shows the row."""
    rng, times = Random(2), list[float]()
    with RunStore.create(path) as store, studio(path) as shown, tab(browser, shown) as seen:
        store.add([tiny(0, rng)], stage="eval", step=0, env="e")
        seen.opened(f"/run/{path.stem}/rollouts", "eye.whole() || eye.rows().length > 0")
        seen.page.locator(".live-live").wait_for()
        for number in range(1, STORED + 1):
            newest = f"eye.row(0) && eye.cell(eye.row(0), 'Id') == '{number + 1}'"
            seen.page.evaluate(f"void (window.next = eye.when(() => {newest}))")
            store.add([tiny(number, rng)], stage="eval", step=0, env="e")
            stored = 1000 * time.time()
            times.append(float(seen.page.evaluate("window.next")) - stored)
    yield timed("stored rollout on screen", times, bar=500, aim=200)


def large(browser: Browser, path: Path) -> Iterator[Bar]:
    """A rollout of TURNS turns and 10 MB, opened by its address in a fresh profile."""
    one_large(path)
    address, firsts, lasts = f"/run/{path.stem}/rollout/1", list[float](), list[float]()
    worked = list[float]()
    with studio(path) as shown:
        for _ in range(OPENED):
            with tab(browser, shown) as seen:
                firsts.append(
                    seen.opened(address, "document.querySelector('.turn .message .text')?.innerText.length > 900")
                )
            with tab(browser, shown) as seen:
                last = (
                    f"document.querySelector('[aria-label=\"Turn {TURNS}\"] .text')?.getBoundingClientRect().top < 900"
                )
                lasts.append(seen.opened(f"{address}?turn={TURNS - 1}", last))
    yield timed(f"a rollout of 10 MB, {TURNS} turns", firsts, worked=worked, bar=2000, aim=700)
    yield timed("its last turn, by the address", lasts, bar=2000, aim=700)


def hard(browser: Browser, path: Path) -> Iterator[Bar]:
    """How long the page answers nothing while it reads one of HARD_MARKDOWN, each in a fresh profile."""
    longest = dict[str, float]()
    with RunStore.create(path) as store:
        for index, text in enumerate(HARD_MARKDOWN.values()):
            task = Task(id=f"text-{index}")
            seat = Trajectory(turns=[Turn(observation=(user("Write."),), action=assistant(text))])
            store.add(
                [Group(task=task, rollouts=[Rollout(task=task, seed=0, trajectories=[seat])])], stage="eval", step=0
            )
    with studio(path) as shown:
        for number, name in enumerate(HARD_MARKDOWN, 1):
            with tab(browser, shown) as seen:
                address = f"/run/{path.stem}/rollout/{number}?read=markdown"
                seen.opened(
                    address, "document.querySelector('.message .text, .message .markdown')?.innerText.length > 0"
                )
                longest[name] = float(seen.page.evaluate(LONGEST_TASK))
    slowest = max(longest, key=lambda name: longest[name])
    yield timed("longest task, hard markdown", [longest[slowest]], bar=1500, aim=300, note=f"; {slowest}")


def bars() -> Iterator[Bar]:
    """All of them."""
    if not (PAGE / "index.html").is_file():
        yield Bar(name="page: the page is not built: make page", figure=None, bar=700, aim=350, unit="KB", note="")
        return
    with tempfile.TemporaryDirectory() as made, chromium() as browser:
        folder = Path(made)
        yield from live(browser, folder / "live.db")
        with studio(folder / "live.db") as shown:
            yield from first_load(browser, shown)
        yield from large(browser, folder / "large.db")
        yield from hard(browser, folder / "hard.db")
        fill(folder / "million.db")
        yield from table(browser, folder / "million.db")
