"""`wander studio` as people call it: the address, what is in its way, and the export that needs no server."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import HTTPCookieProcessor, build_opener, urlopen

import pytest
from test_studio import learnt

from studios import served
from wanderlust.store.run_folder import STORE_FILE
from wanderlust.studio.static_export import export_site
from worlds import WANDER, wander


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return learnt(tmp_path_factory.mktemp("here") / "runs/learnt").parent.parent


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """As the build leaves it."""
    folder = tmp_path / "page"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text('<!doctype html><base href="/" data-studio="live" /><title>x</title>')
    (folder / "assets/a.js").write_text("1")
    (folder / "assets/a.js.br").write_bytes(b"packed")
    return folder


def test_it_prints_an_address_that_opens_and_ends_with_an_interrupt(run: Path) -> None:
    command, pipe = [*WANDER, "studio", "--port", "0", "--json"], subprocess.PIPE
    headless = {
        name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    }
    with subprocess.Popen(command, cwd=run, stdout=pipe, stderr=pipe, text=True, env=headless) as studio:
        assert studio.stdout is not None
        said = ""
        while (line := studio.stdout.readline()) and line != "}\n":
            said += line
        said += line
        url, _, token = json.loads(said)["url"].partition("/?token=")
        assert url.startswith("http://127.0.0.1:")
        try:
            with build_opener(HTTPCookieProcessor()).open(f"{url}/api/runs?token={token}") as opened:
                assert opened.url == f"{url}/api/runs"
        finally:
            studio.send_signal(signal.SIGINT)
        assert studio.wait() == 130
        assert studio.stderr is not None
        (line,) = studio.stderr.read().splitlines()
        assert "no browser could be opened" in line or "the studio's page is not built" in line


def test_what_is_in_the_way_is_one_line(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(run / "state"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = wander("studio", "--port", port, "--no-open", cwd=run)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"wander: cannot listen on 127.0.0.1:{port}: Address already in use: name another")
    nowhere = wander("studio", "nowhere", "--no-open", cwd=run)
    assert (nowhere.returncode, nowhere.stderr) == (2, "wander: there is nothing at nowhere\n")
    (tmp_path / "there").touch()
    full = wander("studio", "--export", tmp_path, cwd=run)
    assert (full.returncode, full.stdout) == (2, "")
    assert "exists already" in full.stderr


class Heard:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, int, int]] = []
        self.told: list[str] = []

    def log_step(self, stage: str, step: int, *, of: int, metrics: Any) -> None:
        self.shown.append((stage, step, of))

    def log_line(self, line: str) -> None:
        self.told.append(line)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Python's own file server, which writes nothing."""

    def log_message(self, format: str, *words: Any) -> None: ...


@contextmanager
def files(folder: Path) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_an_export_says_what_the_server_says(run: Path, page: Path, tmp_path: Path) -> None:
    heard = Heard()
    assert export_site([run / "runs"], tmp_path / "out", page=page, progress=heard) == 6
    assert heard.shown[-1] == ("export learnt", 6, 6)
    assert not heard.told

    def of(path: str) -> Any:
        with urlopen(f"{url}/{path}") as found:
            return json.loads(found.read())

    with files(tmp_path / "out") as url, served(run / "runs") as live:
        with urlopen(f"{url}/") as found:
            assert b'<base href="./" data-studio="static" />' in found.read()
        (info,) = live.get("runs")["runs"]
        assert of("data/runs.json") == {"runs": [{**info, "path": "learnt"}]}
        assert of("data/learnt/run.json") == {**live.get("runs/learnt"), "path": "learnt"}
        assert of("data/learnt/metrics.rl.json") == live.get("runs/learnt/metrics", stage="rl")
        assert of("data/learnt/metrics..json") == live.get("runs/learnt/metrics")
        assert of("data/learnt/events.json") == live.get("runs/learnt/events")
        table = of("data/learnt/rows.json")
        rows = [dict(zip(table["names"], values, strict=True)) for values in zip(*table["columns"], strict=True)]
        asked = live.get("runs/learnt/rollouts")["rows"]
        scores = {name: values for name, values in zip(table["names"], table["columns"], strict=True) if "." in name}
        assert [{name: row[name] for name in row if name not in scores} for row in rows] == asked
        for name, values in scores.items():  # what the page filters by
            kind, _, part = name.partition(".")
            ids = [row["id"] for row in asked]
            stored = [
                live.get(f"runs/learnt/rollouts/{one}")["trajectories"][0]["score"][kind].get(part) for one in ids
            ]
            assert values == stored
        assert "parts.right" in scores
        opened, shown = of("data/learnt/rollouts/2.json"), live.get("runs/learnt/rollouts/2")
        texts = live.get("runs/learnt/rollouts/2/text", turn=1)["text"]
        assert opened["trajectories"][0]["turns"][1]["action"]["content"] == texts
        assert {**opened, "trajectories": 0} == {**shown, "trajectories": 0}
        tokens = of("data/learnt/rollouts/2.tokens.0.0.json")
        assert tokens["tokens"] == live.get("runs/learnt/rollouts/2/tokens")["tokens"]
        assert str(run) not in json.dumps(tokens)
    assert (tmp_path / "out/assets/a.js").read_text() == "1"
    assert not (tmp_path / "out/assets/a.js.br").exists()


def test_an_export_leaves_out_what_is_damaged_and_says_so(run: Path, page: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(run / "runs", tmp_path / "runs")) / "learnt" / STORE_FILE
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("update rollouts set payload = x'00' where id = 3")
    db.close()
    (tmp_path / "runs/empty").mkdir()
    (tmp_path / "runs/empty" / STORE_FILE).touch()
    heard = Heard()
    assert export_site([tmp_path / "runs"], tmp_path / "out", page=page, progress=heard) == 6
    assert [line.partition(":")[0] for line in heard.told] == ["empty", "learnt"]
    assert "rollout 3: a record is damaged" in heard.told[1]
    assert not (tmp_path / "out/data/learnt/rollouts/3.json").exists()
    assert (tmp_path / "out/data/learnt/rollouts/4.json").exists()
