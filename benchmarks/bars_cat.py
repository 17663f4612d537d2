"""Compute as Teacher with a real small model: SmolLM2-135M names the first letter of words that it was never shown.

At inference: what eight samples of a word know together, against the mean sample, by `wander eval --aggregate`. In
training: GRPO whose only reward is agreement with the majority of the siblings; no label is read, and the truth is
measured before and after on words that were not trained on, at temperature 1 as in training.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.bar import Bar
from benchmarks.courses import SEEDS, interval
from wanderlust.policies.local.smollm2 import fetch_smollm2

TIMEOUT = 14_400
"""Seconds for one command, on a machine busy with other work."""
WANDER = (sys.executable, "-m", "wanderlust.cli.main")
ENV = "benchmarks.first_letter:FirstLetter"
ANSWERS = ("--max-tokens", "8", "--json")
TRAIN = (
    *("train", f"{ENV},exam=false", "--policy", "smollm2", "--label-estimator", "majority", "--algorithm", "grpo"),
    *("--lora", "16", "--lr", "3e-4", "--steps", "8", "--tasks-per-step", "6", "--group-size", "8", "--workers", "1"),
)
SYNTHESES: dict[str, tuple[str, ...]] = {"question hidden": (), "question shown": ("--synthesizer-sees-question",)}


def wander(*words: str) -> dict[str, Any]:
    """What a command says with --json; 1 is a fair end where some tasks have no estimate."""
    done = subprocess.run([*WANDER, *words], check=False, timeout=TIMEOUT, capture_output=True, text=True)
    if done.returncode > 1:
        raise RuntimeError(done.stderr)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def together(folder: str, name: str, *options: str) -> dict[str, Any]:
    """One estimate of the same rollouts, which are played once and kept. RuntimeError where no task has one."""
    command = ("eval", ENV, "--policy", "smollm2", "--samples", "8", "--aggregate", name, *options, "--out", folder)
    found: dict[str, Any] = wander(*command, *ANSWERS)["estimate"]
    if found["gain"] is None:
        raise RuntimeError(f"{name} has no estimate of any task: {found}")
    return found


def alone(policy: str) -> float:
    """Truth of two samples of every held-out word."""
    told = wander("eval", ENV, "--policy", policy, "--samples", "2", *ANSWERS)
    return float(told["report"]["rewards"]["agent"]["value"])


def trained(seed: int, out: str) -> float:
    """Truth after training without labels."""
    wander(*TRAIN, "--seed", str(seed), "--out", out, *ANSWERS)
    return alone(out)


def told(name: str, estimate: dict[str, Any]) -> str:
    """One estimate's gain, in words."""
    gain, share = estimate["gain"], estimate["gain"]["value"] / estimate["mean"]["value"]
    return f"{name} {gain['value']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}], {share:+.0%}"


def at_inference(folder: str) -> Iterator[Bar]:
    """The lower end of what each estimate gains over the mean sample."""
    found = {name: together(folder, name) for name in ("majority", "likeliest")}
    mean = found["majority"]["mean"]["value"]
    over = f"over {mean:.3f}, {found['majority']['groups']} words: "
    note = over + "; ".join(told(*one) for one in found.items())
    what, low = "CaT, majority of 8 over the mean sample, lower end", found["majority"]["gain"]["low"]
    yield Bar(name=what, figure=low, bar=0.001, aim=0.27 * mean, better="higher", note=note)
    for shown, options in SYNTHESES.items():
        one = together(folder, "synthesis", *options)
        note = f"{over}{told('synthesis', one)}; {one['groups']} of {one['groups'] + one['failed']} words have one"
        what, low = f"CaT, synthesis of 8, {shown}, lower end", one["gain"]["low"]
        yield Bar(name=what, figure=low, bar=0.001, aim=0.27 * mean, better="higher", note=note)


def bars() -> Iterator[Bar]:
    """Inference, then training from every seed."""
    fetch_smollm2()
    with tempfile.TemporaryDirectory() as folder:
        yield from at_inference(f"{folder}/kept")
        before = alone("smollm2")
        after = [trained(seed, str(Path(folder) / f"seed{seed}")) for seed in SEEDS]
    mean, half = interval([value - before for value in after])
    seeds = ", ".join(f"{value:.3f}" for value in after)
    note = (
        f"from {before:.3f} to {seeds} (seeds {SEEDS}); gain {mean:+.3f}, 95% {mean - half:+.3f} to {mean + half:+.3f}"
    )
    what = "CaT, trained without labels: hidden truth, lower end"
    yield Bar(name=what, figure=mean - half, bar=0.001, aim=0.33 * before, better="higher", note=note)
