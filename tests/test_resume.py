"""An evaluation that is stopped goes on where it was: real processes, real signals, a real limit on file size."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from patience import PATIENCE
from wanderlust.store.store import RunStore
from worlds import WANDER, found, plays, wander

EVAL = ("eval", "world:World", "--policy", "me", "--concurrency", "4", "--out", "kept")


def stored(folder: Path) -> dict[str, int]:
    with RunStore.read(folder / "kept/rollouts.db") as store:
        return store.counts().get("eval", {})


def stop_after(count: int, number: signal.Signals, folder: Path) -> tuple[int, list[str], str]:
    """Play until so many episodes have begun, then send the signal; exit code, tasks begun, stderr."""
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen([*WANDER, *EVAL], cwd=folder, stderr=pipe, stdout=nowhere, text=True) as run:
        assert run.stderr is not None
        said = ""
        while len(plays(said)) < count:
            line = run.stderr.readline()
            assert line, f"ended early: {said}"
            said += line
        run.send_signal(number)
        said += run.stderr.read()
    return run.returncode, plays(said), said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_same_command_goes_on_and_failures_are_played_again(number: signal.Signals, tmp_path: Path) -> None:
    folder = found(tmp_path, seconds=0.05, mended=False)
    code, begun, said = stop_after(24, number, folder)
    if number == signal.SIGINT:
        assert code == 130
        assert "resume with: wander eval world:World --policy me --out kept" in said
        assert "Traceback" not in said
    kept = stored(folder)
    assert len(begun) - 4 - 4 <= sum(kept.values()) <= len(begun)  # but for those in flight, and just finished

    (folder / "seconds").write_text("0")
    second = wander(*EVAL, "--json", cwd=folder)
    assert second.returncode == 1, second.stderr
    assert len(plays(second.stderr)) == 60 - kept.get("done", 0)
    assert "1 of 60 rollouts failed" in second.stderr
    assert "the bridge is down" in second.stderr
    report = json.loads(second.stdout)["report"]
    assert (report["played"], report["scored"], report["coverage"]) == (60, 59, 59 / 60)

    (folder / "mended").touch()
    third = wander(*EVAL, "--json", cwd=folder)
    assert (third.returncode, plays(third.stderr)) == (0, ["t7"])
    again = wander(*EVAL, "--json", cwd=folder)
    assert (again.returncode, plays(again.stderr)) == (0, [])
    assert json.loads(again.stdout)["tasks"] == json.loads(third.stdout)["tasks"]
    assert json.loads(again.stdout)["report"]["rewards"]["agent"]["value"] == 0.5


def test_a_full_disk_is_one_line_and_loses_nothing_that_was_kept(tmp_path: Path) -> None:
    folder = found(tmp_path)
    report = ("--pass-threshold", "0.25", "--per-task")
    command = ["bash", "-c", 'ulimit -f 600; exec "$@"', "-", *WANDER, *EVAL, *report]  # KiB per file
    full = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert full.returncode == 1
    *_, hint, line = [line for line in full.stderr.splitlines() if line.startswith("wander: ")]
    assert "resume with: wander eval world:World" in hint
    assert "--pass-threshold 0.25" in hint
    assert "--per-task" in hint
    assert "rollouts.db" in line
    assert "Traceback" not in full.stderr
    kept = stored(folder).get("done", 0)
    assert 0 < kept < 60
    rest = wander(*EVAL, "--json", cwd=folder)
    assert rest.returncode == 0, rest.stderr
    assert len(plays(rest.stderr)) == 60 - kept
    assert json.loads(rest.stdout)["report"]["scored"] == 60


def test_another_evaluation_is_not_mixed_in(tmp_path: Path) -> None:
    folder = found(tmp_path)
    assert wander(*EVAL, "-n", "6", cwd=folder).returncode == 0
    for words, part in ((["-n", "7"], "tasks was 6 and is 7"), (["-n", "6", "--seed", "1"], "seed was 0 and is 1")):
        refused = wander(*EVAL, *words, cwd=folder)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert part in refused.stderr
    slower = [word if word != "4" else "1" for word in EVAL]
    assert wander(*slower, "-n", "6", cwd=folder).returncode == 0
    (folder / "mine").mkdir()
    (folder / "mine/notes").touch()
    assert "exists already" in wander(*EVAL[:-1], "mine", cwd=folder).stderr
    assert os.listdir(folder / "mine") == ["notes"]


RANKED = """
from wanderlust.rubrics.rubric import Rubric
from world import World


def siblings(group):
    return [float(len(group.rollouts))] * len(group.rollouts)


class Ranked(World):
    rubric = Rubric(siblings)
"""


def test_siblings_that_are_compared_are_kept_together_and_played_again_together(tmp_path: Path) -> None:
    folder = found(tmp_path, seconds=0.02)
    (folder / "ranked.py").write_text(RANKED)
    ranked = ("eval", "ranked:Ranked", "--policy", "me", "--samples", "3", "--concurrency", "4", "--out", "kept")
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen([*WANDER, *ranked], cwd=folder, stderr=pipe, stdout=nowhere, text=True) as run:
        assert run.stderr is not None
        said = ""
        while len(plays(said)) < 50:
            said += run.stderr.readline()
        run.kill()
    first = stored(folder)["done"]
    assert 0 < first < 180
    assert first % 3 == 0

    again = wander(*ranked, "--json", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert len(plays(again.stderr)) == 180 - first
    reward = json.loads(again.stdout)["report"]["rewards"]["agent"]
    assert reward["value"] == 3.0
