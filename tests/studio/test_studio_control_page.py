"""Pause, resume and stop by the page: a real evaluation and a real training run, each in a process of its own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from browsing import chromium, window
from patience import PATIENCE, wait_until
from project_files import ROOT
from studio_runs import fresh
from studios import served
from wanderlust.store.reader import RunReader
from wanderlust.studio.application import PAGE_FOLDER
from worlds import WANDER, found, wander

pytestmark = [
    pytest.mark.skipif(not (PAGE_FOLDER / "index.html").is_file(), reason="the page is not built: make page"),
    pytest.mark.xdist_group("browser"),
]

EVAL = ("eval", "world:World", "--policy", "me", "--concurrency", "2", "--out", "kept")
TRAIN = (
    "train",
    "studio_runs:Echo",
    "--tasks-per-step",
    "2",
    "--group-size",
    "2",
    "--lr",
    "0.001",
    "--max-tokens",
    "1",
)
ALONE = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@contextmanager
def at_work(words: tuple[str, ...], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, once something is stored."""
    pipe = subprocess.PIPE
    command = [*WANDER, *words]
    with subprocess.Popen(command, cwd=folder, env=ALONE, stdout=pipe, stderr=subprocess.STDOUT, text=True) as run:
        try:
            wait(lambda: stored(folder) > 0, run)
            yield run
        finally:
            run.kill()


def stored(folder: Path) -> int:
    """Rollouts and measured figures in the run."""
    path = folder / "kept/rollouts.db"
    if not path.exists():
        return 0
    with RunReader(path) as store:
        ((count,),) = store.select("select (select count(*) from rollouts) + (select count(*) from metrics)")
        return int(count)


def wait(until: Callable[[], object], run: subprocess.Popen[str]) -> None:
    def came() -> object:
        assert run.poll() is None, run.stdout and run.stdout.read()
        return until()

    wait_until(came)


def settled(folder: Path) -> int:
    """What is stored when what was under way has finished: nothing more for a while in which much would come."""
    before, since = stored(folder), time.monotonic()
    while time.monotonic() - since < 1.5:
        if (now := stored(folder)) != before:
            before, since = now, time.monotonic()
    return before


def controlled(page: Page, folder: Path, run: subprocess.Popen[str]) -> None:
    """Paused, gone on with, and stopped, as the page's own buttons say."""
    state = page.locator(".head .pill").first
    expect(state).to_have_text("running")
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(state).to_have_text("paused")
    rest = settled(folder)
    assert run.poll() is None
    assert stored(folder) == rest
    (folder / "seconds").write_text("3")  # an evaluation's answers: it goes on for longer than a busy page takes
    page.get_by_role("button", name="Resume", exact=True).click()
    expect(state).to_have_text("running")
    wait(lambda: stored(folder) > rest, run)
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Really stop?", exact=True).click()
    expect(state).to_have_text("stopped")
    expect(page.get_by_role("button", name=re.compile("Pause|Resume|Stop"))).to_have_count(0)
    assert run.wait(PATIENCE) == 130
    assert run.stdout is not None
    assert "resume with: wander" in run.stdout.read()
    expect(page.get_by_role("button", name="Copy command").first).to_have_attribute("title", re.compile("^wander "))


def test_an_evaluation_obeys_the_page_and_the_same_command_goes_on(browser: Browser, tmp_path: Path) -> None:
    folder = found(tmp_path, seconds=0.2)
    with at_work(EVAL, folder) as run, served(folder / "kept") as studio, window(browser, studio) as seen:
        controlled(seen.go("/run/kept"), folder, run)
        assert seen.complaints == []
    half = stored(folder)
    (folder / "seconds").write_text("0")
    assert wander(*EVAL, cwd=folder).returncode == 0
    assert half < stored(folder) == 60


def test_a_training_run_obeys_the_page_and_can_be_gone_on_with(browser: Browser, tmp_path: Path) -> None:
    words = (*TRAIN, "--policy", str(fresh(tmp_path / "fresh")), "--steps", "2000", "--workers", "1", "--out", "kept")
    with at_work(words, tmp_path) as run, served(tmp_path / "kept") as studio, window(browser, studio) as seen:
        controlled(seen.go("/run/kept"), tmp_path, run)
        assert seen.complaints == []
        assert "wander train --resume" in str(studio.get("runs/kept")["command"])


def test_a_finished_training_run_says_how_to_begin_it_again(tmp_path: Path) -> None:
    words = [*TRAIN, "--policy", str(fresh(tmp_path / "fresh")), "--steps", "1"]
    beside = ["--workers", "1", "--out", "kept"]
    subprocess.run(
        [*WANDER, *words, *beside], cwd=tmp_path, env=ALONE, check=True, capture_output=True, timeout=PATIENCE
    )
    with served(tmp_path / "kept") as studio:
        said = shlex.split(studio.get("runs/kept")["command"])
    assert said[:3] == ["wander", "train", "studio_runs:Echo"]
    assert said[-2:] == ["--out", str(tmp_path / "kept-again")]
    assert sorted(said[1:-2]) == sorted(words)
