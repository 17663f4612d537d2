"""`wander train` is killed at random moments of a run, checkpoints included, and ends in the very same weights.

One kind of run is killed in the default tier, the others in `make proof`. WANDER_KILLS=20 for more of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from patience import PATIENCE
from tiers import proof_except
from wanderlust.store.store import RunStore

SCRIPT = Path(__file__).with_name("kill_run.py")
KILLS = int(os.environ.get("WANDER_KILLS", "2"))
TINY = ["--tasks-per-step", "4", "--group-size", "4", "--max-tokens", "1", "--lr", "0.01"]


RUNS = {
    "weights": ["toys:Twice"],
    "adapters": ["toys:Twice", "--lora", "2"],
    "bf16": ["toys:Twice", "--precision", "bf16", "--algorithm", "grpo"],
    "exit": ["toys:Again", "--curriculum", "exit,min_conversations=4,capacity=16", "--algorithm", "grpo-diverse"],
}


@pytest.mark.parametrize("name", proof_except(["weights"], RUNS, group="kills"))
def test_killed_again_and_again_it_ends_in_the_same_weights(name: str, tmp_path: Path) -> None:
    steps = KILLS + 8
    command = [sys.executable, "-W", "ignore", SCRIPT, tmp_path, KILLS, 1, *RUNS[name], "--steps", steps, *TINY]
    done = subprocess.run(
        list(map(str, command)),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=SCRIPT.parent,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found["ended"]) > 1
    assert all(one == found["ended"][0] for one in found["ended"])
    assert sum(found["kills"].values()) == KILLS
    with RunStore.read(tmp_path / "killed/rollouts.db") as store:
        assert sum(store.counts()["rl"].values()) == steps * 4 * 4
