"""`wander eval --ray-workers`: an evaluation by workers, and one whose workers are not there."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from wanderlust.store.store import RunStore

pytestmark = pytest.mark.xdist_group("ray")


def test_an_evaluation_by_workers_is_that_of_one_process(tmp_path):
    def report(*more):
        command = [sys.executable, "-m", "wanderlust.cli.main", "eval", "tictactoe", "--policy", "random", "-n", "6"]
        told = subprocess.run(
            [*command, "--samples", "2", "--json", *more], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert told.returncode == 0, told.stderr
        body = json.loads(told.stdout)
        return body["tasks"], [body["report"][name] for name in ("rewards", "passes", "parts", "metrics")]

    assert report("--ray-workers", "2", "--out", tmp_path / "there") == report()
    with RunStore.read(tmp_path / "there/rollouts.db") as store:
        assert store.counts() == {"eval": {"done": 12}}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--ray-address", "127.0.0.1:1"], "--ray-address needs --ray-workers N"),
        (["--ray-workers", "1", "--ray-address", "127.0.0.1:1"], "no Ray at 127.0.0.1:1"),
    ],
)
def test_an_evaluation_without_its_workers_is_one_line(words, line, tmp_path):
    command = [sys.executable, "-m", "wanderlust.cli.main", "eval", "tictactoe", "--policy", "random", *words]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert line in told.stderr.splitlines()[-1]
