"""A run in a folder that nobody may write, not even root: looked at as any other."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from patience import PATIENCE
from studio_runs import evaluated
from wanderlust.store.store import RunStore

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is missing: make sandbox")


@contextmanager
def studio(folder: Path) -> Iterator[tuple[str, str]]:
    """Host and token of a studio to which the whole disk is for reading only."""
    walls = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--die-with-parent"]
    words = ["-m", "wanderlust.cli.main", "studio", str(folder), "--port", "0", "--no-open", "--json"]
    with subprocess.Popen([*walls, sys.executable, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = "".join(iter(process.stdout.readline, "}\n"))
        place = urlsplit(json.loads(said + "}")["url"])
        yield place.netloc, place.query.partition("=")[2]
        process.terminate()


def asked(shown: tuple[str, str], path: str) -> Any:
    connection = http.client.HTTPConnection(shown[0], timeout=PATIENCE)
    connection.request("GET", path, headers={"Authorization": f"Bearer {shown[1]}"})
    with connection.getresponse() as answer:
        body = json.loads(answer.read())
    connection.close()
    return body


@pytest.mark.parametrize("beside", ["nothing", "an empty log", "a log"])
def test_a_run_is_shown_from_a_folder_that_may_not_be_written(beside: str, tmp_path: Path) -> None:
    run = evaluated(tmp_path / "kept", "random", tasks=4)
    files = {file.name for file in run.iterdir()}
    assert not files & {"rollouts.db-wal", "rollouts.db-shm"}
    if beside != "nothing":
        (run / "rollouts.db-wal").write_bytes(b"" if beside == "an empty log" else b"x" * 5000)
    with studio(run) as shown:
        info = asked(shown, "/api/runs/kept")
        if beside == "a log":
            assert "copy it" in info["problem"]
            return
        assert (info["problem"], info["rollouts"], info["running"]) == (None, 8, False)
        assert asked(shown, "/api/runs/kept/rollouts")["total"] == 8
        assert asked(shown, "/api/runs/kept/rollouts/1")["row"]["id"] == 1


def test_a_run_that_somebody_writes_is_followed_there(tmp_path: Path) -> None:
    run = evaluated(tmp_path / "kept", "random", tasks=4)
    with RunStore.open(run / "rollouts.db") as store, studio(run) as shown:
        before = asked(shown, "/api/runs/kept/events")["events"]
        store.add_event("control", {"do": "nothing"})
        assert len(asked(shown, "/api/runs/kept/events")["events"]) == len(before) + 1
