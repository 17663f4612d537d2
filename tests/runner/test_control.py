"""Pause, resume and stop from outside: a real evaluation and a real training run, which end in the same bits."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from test_recipe_train import checkpoint, config, finished

from studios import served
from wanderlust.errors import UsageError
from wanderlust.runner.control import SOCKET_NAME, ControlCommand, send_command, serve_control
from wanderlust.runner.progress import NullLogger
from wanderlust.store.store import RunStore
from wanderlust.training.checkpoint import Run
from wanderlust.training.train import run_training
from worlds import WANDER, found, plays, wander

__all__ = ["checkpoint"]
EVAL = ("eval", "world:World", "--policy", "me", "--concurrency", "4", "--out", "kept")


@contextmanager
def at_work(folder: Path, *, after: int) -> Iterator[subprocess.Popen[str]]:
    """The evaluation in a process of its own, when so many episodes have begun."""
    pipe = subprocess.PIPE
    with subprocess.Popen([*WANDER, *EVAL], cwd=folder, stderr=pipe, stdout=pipe, text=True) as run:
        assert run.stderr is not None
        begun = 0
        while begun < after:
            line = run.stderr.readline()
            assert line, "ended early"
            begun += line.startswith("plays ")
        try:
            yield run
        finally:
            run.kill()


def rewards(folder: Path) -> list[Any]:
    with RunStore.read(folder / "kept/rollouts.db") as store:
        rows = sorted(store.rollouts(), key=lambda row: row.group)
        return [(row.task, row.seed, row.reward, store.get(row.id).state) for row in rows]


def asked(folder: Path) -> list[tuple[str, str]]:
    with RunStore.read(folder / "kept/rollouts.db") as store:
        return [(event.body["do"], event.body["by"]) for event in store.events() if event.kind == "control"]


def test_an_evaluation_pauses_goes_on_and_ends_in_the_same_bits(tmp_path: Path) -> None:
    (whole := tmp_path / "whole").mkdir()
    assert wander(*EVAL, cwd=found(whole)).returncode == 0
    (folder := tmp_path / "folder").mkdir()
    with at_work(found(folder, seconds=0.2), after=4) as run, served(folder) as client:
        kept = folder / "kept"
        assert send_command(kept, "pause", by="test").state == "paused"
        paused = wander("ctl", "kept", "pause", cwd=folder)  # once more changes nothing
        assert (paused.returncode, paused.stderr) == (0, "")
        assert "kept is paused" in paused.stdout
        assert stat.S_IMODE((kept / SOCKET_NAME).stat().st_mode) == 0o600
        (info,) = client.get("runs")["runs"]
        assert (info["running"], info["paused"], info["controllable"]) == (True, True, True)
        reached = json.loads(wander("ctl", "kept", "status", "--json", cwd=folder).stdout)
        assert (reached["state"], reached["process"]) == ("paused", run.pid)
        (folder / "seconds").write_text("0")
        resumed = client.ask("/api/runs/kept/control", method="POST", body={"do": "resume"})
        assert (resumed.status, resumed.json["paused"]) == (200, False)
        assert run.stderr is not None
        said = run.stderr.read()
        assert run.wait() == 0, said
    assert rewards(folder) == rewards(whole)
    assert asked(folder) == [("pause", "test"), ("resume", "studio")]
    assert not (kept / SOCKET_NAME).exists()


@pytest.mark.parametrize("paused", [False, True])
def test_stopping_is_one_interrupt_and_the_same_command_goes_on(paused: bool, tmp_path: Path) -> None:
    folder = found(tmp_path, seconds=0.1)
    with at_work(folder, after=12) as run:  # the third four begin when the first four are kept
        if paused:
            assert send_command(folder / "kept", "pause", by="test").state == "paused"
        assert send_command(folder / "kept", "stop", by="test").state == "stopping"
        assert run.wait() == 130
        assert run.stderr is not None
        assert "resume with: wander eval world:World --policy me --out kept" in run.stderr.read()
    assert asked(folder)[-1] == ("stop", "test")
    with pytest.raises(UsageError, match="no active process for this run"):
        send_command(folder / "kept", "status", by="test")
    (folder / "seconds").write_text("0")
    again = wander(*EVAL, cwd=folder)
    assert again.returncode == 0, again.stderr
    assert 0 < len(plays(again.stderr)) < 60
    assert len(rewards(folder)) == 60


def test_a_paused_run_can_be_killed(tmp_path: Path) -> None:
    folder = found(tmp_path, seconds=0.05)
    with at_work(folder, after=8) as run:
        send_command(folder / "kept", "pause", by="test")
        run.kill()
        run.wait()
    refused = wander("ctl", "kept", "resume", cwd=folder)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "wander: kept: no active process for this run\n"
    (folder / "seconds").write_text("0")
    assert wander(*EVAL, cwd=folder).returncode == 0  # the socket that was left behind is no obstacle
    assert len(rewards(folder)) == 60


class Pausing:
    """A watch that has the run paused at a step, and somebody else resume it."""

    def __init__(self, folder: Path, at: int):
        self.folder, self.at, self.helpers = folder, at, list[Thread]()

    def log_step(self, stage: str, step: int, *, of: int, metrics: object) -> None:
        if (stage, step) == ("rl", self.at):
            send_command(self.folder, "pause", by="test")
            self.helpers.append(Thread(target=self.resume))
            self.helpers[-1].start()

    def resume(self) -> None:
        assert send_command(self.folder, "status", by="test").state == "paused"
        send_command(self.folder, "resume", by="test")


def test_training_pauses_and_ends_in_the_same_weights(checkpoint: Path, tmp_path: Path) -> None:
    settings = config(checkpoint, steps=4, eval_every=4)
    whole = Run.begin(tmp_path / "whole", settings)
    run_training(settings, whole, logger=NullLogger(), workers=1)
    whole.store.close()
    run, said = Run.begin(tmp_path / "paused", settings), list[str]()
    watch = Pausing(tmp_path / "paused", at=2)
    with serve_control(run.store.path, said.append):
        run_training(settings, run, logger=watch, workers=1)
    events = [event.body["do"] for event in run.store.events()]
    run.store.close()
    for helper in watch.helpers:
        helper.join()
    assert (events, len(said)) == (["pause", "resume"], 2)
    (curve, weights), (other, others) = finished(tmp_path / "whole"), finished(tmp_path / "paused")
    assert curve == other
    assert torch.equal(weights, others)


def test_what_is_no_request_gets_an_answer_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / ("long" * 40) / "rollouts.db"  # longer than the address of a socket may be
    path.parent.mkdir()
    with RunStore.create(path) as store, serve_control(path, print):
        deeds: list[Any] = ["explode", 7, None, {"a": 1}]
        for deed in deeds:
            with pytest.raises(Exception, match="there are pause, resume, stop and status"):
                send_command(path.parent, deed, by="test")
        wish: ControlCommand = "pause"
        assert send_command(path.parent, wish, by="test").process == os.getpid()
        assert [event.body["do"] for event in store.events()] == ["pause"]


def test_a_block_ends_where_its_address_is_gone_or_taken(tmp_path: Path) -> None:
    for gone in (shutil.rmtree, lambda folder: (folder / SOCKET_NAME).rename(folder / "elsewhere")):
        path = tmp_path / "run/rollouts.db"
        path.parent.mkdir()

        def block(path: Path = path, gone: Any = gone) -> None:
            with serve_control(path, print):
                gone(path.parent)

        thread = Thread(target=block, daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        shutil.rmtree(path.parent, ignore_errors=True)


def test_clients_that_say_nothing_end_nothing_and_a_run_is_interrupted_once(tmp_path: Path) -> None:
    path, interrupts = tmp_path / "rollouts.db", list[int]()
    before = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        with RunStore.create(path), serve_control(path, print):
            with socket.socket(socket.AF_UNIX) as silent:
                folder = os.open(tmp_path, os.O_RDONLY)
                silent.connect(f"/proc/self/fd/{folder}/{SOCKET_NAME}")
                os.close(folder)
            assert send_command(tmp_path, "stop", by="test").state == "stopping"
            assert send_command(tmp_path, "status", by="test").state == "stopping"
    finally:
        signal.signal(signal.SIGINT, before)
    assert interrupts == [signal.SIGINT]
