"""A real pretrained model learns: SmolLM2-135M, a legal move of tic-tac-toe after two examples, adapters and GRPO.

Runs `wander train` itself, without any supervised step, one seed after the other; the model is fetched and converted
before the clock starts. Boards of the evaluation were never trained on.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.bar import Bar
from wanderlust.policies.local.smollm2 import fetch_smollm2

SEEDS = (0, 1, 2)
TIMEOUT = 14_400
"""Seconds for one command, on a machine busy with other work."""
WANDER = str(Path(sys.executable).with_name("wander"))
TRAIN = (
    *("train", "legal-move", "--policy", "smollm2", "--algorithm", "grpo", "--lora", "16", "--lr", "3e-4"),
    *("--steps", "16", "--tasks-per-step", "8", "--group-size", "8", "--max-tokens", "12"),
)
EVAL = ("eval", "legal-move", "--max-tokens", "12", "--json")


def wander(*words: str) -> dict[str, Any]:
    """What a command says with --json."""
    done = subprocess.run([WANDER, *words], check=True, timeout=TIMEOUT, capture_output=True, text=True)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def sampled(policy: str) -> float:
    """Share of legal moves at temperature 1, over the held-out boards."""
    return float(wander(*EVAL, "--policy", policy)["report"]["parts"]["legal"]["value"])


def bars() -> Iterator[Bar]:
    """The worst seed's share of legal moves, sampled and greedy, and the longest run."""
    fetch_smollm2()
    before = sampled("smollm2")
    drawn, greedy, walls = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for seed in SEEDS:
            out, began = f"{folder}/seed{seed}", time.perf_counter()
            report = wander(*TRAIN, "--seed", str(seed), "--out", out, "--json")
            walls.append(time.perf_counter() - began)
            greedy.append(float(report["curve"][-1]["parts"]["legal"]["value"]))
            drawn.append(sampled(out))
    seeds = f"seeds {', '.join(map(str, SEEDS))}"
    for how, shares, more in (("sampled", drawn, f"; {before:.2f} before"), ("greedy", greedy, "")):
        note = f"{seeds}: {', '.join(f'{share:.2f}' for share in shares)}{more}"
        what = f"SmolLM2-135M, legal moves on new boards, {how}"
        yield Bar(name=what, figure=min(shares), bar=0.95, aim=1.0, unit="", better="higher", note=note)
    note = f"{seeds}: {', '.join(f'{wall:.0f}' for wall in walls)} s, loading and both examinations included"
    yield Bar(name="SmolLM2-135M, wall time of such a run", figure=max(walls), bar=300, aim=120, unit="s", note=note)
