"""Take the pictures of the studio in docs/images: `python docs/take_pictures.py [RUNS]`, two to five minutes.

The runs are those of docs/quickstart.md and a few of the simulated life, made in RUNS (default: a temporary folder);
those that are there already are used as they are. Needs the page (`make page`) and Chromium (`make browser`).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlencode

from playwright.sync_api import Browser, Page, sync_playwright

DOCS = Path(__file__).resolve().parent
IMAGES = DOCS / "images"
WANDER = (sys.executable, "-m", "wanderlust.cli.main")
GAME = "game.py:HigherLower"
RUNS = {
    "trained": f"train {GAME} --policy fresh --sft-episodes 1000 --sft-steps 150 --steps 60 --lr 1e-3 --max-tokens 4",
    "teacher": f"eval {GAME} --policy teacher --samples 4",
    "start": f"eval {GAME} --policy runs/trained/checkpoints/start --samples 4 --max-tokens 4",
    "rl": f"eval {GAME} --policy runs/trained/checkpoints/rl --samples 4 --max-tokens 4",
    "life": "eval life --policy oracle -n 12",
}
"""The command of each run, without its folder."""
PAUSE_MS = 2500
"""For the page to load and its charts to be drawn; the studio's stream of events never falls silent."""
STEP = 20
"""The step of training that is looked at."""


def make_runs(folder: Path) -> None:
    """Make the runs that are missing in `folder`/runs."""
    page = (DOCS / "quickstart.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (folder / "game.py").write_text(next(block for block in blocks if "class HigherLower" in block))
    for name, command in RUNS.items():
        if not (folder / "runs" / name / "report.json").is_file():
            subprocess.run([*WANDER, *command.split(), "--out", f"runs/{name}"], cwd=folder, check=True)


@contextmanager
def studio(folder: Path) -> Iterator[str]:
    """The address of a studio over the runs, with its token."""
    command = [*WANDER, "studio", "runs", "--port", "0", "--no-open", "--json"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = ""
        while (line := process.stdout.readline()) and line != "}\n":
            said += line
        try:
            yield str(json.loads(f"{said}}}")["url"])
        finally:
            process.terminate()


def begin_game(page: Page) -> None:
    """Begin a game of tic-tac-toe, and take two turns."""
    page.get_by_role("button", name="Begin", exact=True).click()
    board = page.get_by_role("group", name="Board")
    for place in (4, 0):
        board.get_by_role("button", name=re.compile("free$")).nth(place).click()
        page.get_by_text("your turn").wait_for()


def take(browser: Browser, address: str, folder: Path) -> None:
    """Take all pictures."""
    base, _, token = address.partition("/?token=")
    low = quote("parts.found < 1 and turns == 4 and step > 40")
    world = urlencode({"view": "world", "n": 12, "app": "Emails"})
    shots: list[tuple[str, str, dict[str, object], Callable[[Page], None] | None]] = [
        ("studio", "/run/trained", {"height": 1000, "width": 1280}, None),
        ("studio-runs", "/", {}, None),
        ("studio-run", f"/run/trained?stage=rl&step={STEP}", {"height": 1320}, None),
        ("studio-rollouts", f"/run/trained/rollouts?filter={low}&sort=advantage", {"dark": True}, None),
        ("studio-group", f"/run/trained/group/rl/{STEP}/0", {}, None),
        ("studio-rollout", "/run/life/rollout/2", {}, None),
        ("studio-tokens", f"/run/trained/rollout/{token_rollout(folder)}?view=tokens", {}, None),
        ("studio-compare", "/compare?a=start&b=rl", {}, None),
        ("studio-world", f"/run/life/rollout/2?{world}", {"height": 1240}, None),
        ("studio-play", "/play?env=tictactoe&split=eval&task=tictactoe-eval-random-0", {}, begin_game),
    ]
    for name, path, look, act in shots:
        size = {"width": look.get("width", 1440), "height": look.get("height", 900)}
        context = browser.new_context(viewport=size, color_scheme="dark" if look.get("dark") else "light")
        page = context.new_page()
        page.goto(f"{base}/?token={token}")
        page.goto(base + path)
        page.wait_for_timeout(PAUSE_MS)
        if act is not None:
            act(page)
            page.wait_for_timeout(PAUSE_MS)
        page.screenshot(path=IMAGES / f"{name}.png")
        print(name, size)
        context.close()


def token_rollout(folder: Path) -> int:
    """The id of a rollout of the step that is looked at."""
    from wanderlust import load_run

    run = load_run(folder / "runs/trained")
    return next(run.rollouts(f'stage == "rl" and step == {STEP} and turns > 2').rows(limit=1)).id


def main() -> None:
    """Make the runs, open the studio, take the pictures."""
    with tempfile.TemporaryDirectory() as made, sync_playwright() as driver:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        make_runs(folder)
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        with studio(folder) as address:
            take(browser, address, folder)
        browser.close()


if __name__ == "__main__":
    main()
