"""A real pretrained model learns to call tools: SmolLM2-135M, two examples, adapters, credit per token.

Runs `wander train` itself, without any supervised step, one seed after the other; the model is fetched and converted
before the clock starts. No value of the examination is in training, nor are the tools of half its tasks.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.bar import Bar
from benchmarks.bars_pretrained import wander
from wanderlust.train.pretrained import smollm2

SEEDS = (0, 1, 2)
LIMITS = ("--max-tokens", "56")
TRAIN = (
    *("train", "tool-call,size=15", "--policy", "smollm2", "--algorithm", "cispo-tree", "--lora", "16", "--lr", "5e-4"),
    *("--steps", "50", "--groups", "4", "--group-size", "10", *LIMITS),
)
EVAL = ("eval", "tool-call", "--json", "--concurrency", "32", *LIMITS)
"""More at once would be read in one pass that a busy machine takes too long for."""


def spent() -> float:
    """Processor seconds of all processes that have ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def shares(told: Mapping[str, Any]) -> dict[str, float]:
    """Of an evaluation's answers, the share of strict ones: of all, and of each kind of task."""
    reports = {"all": told["report"], **told["by"]["kind"]}
    return {name: float(report["parts"]["strict"]["value"]) for name, report in reports.items()}


def examined(policy: str, *how: str) -> dict[str, float]:
    """The shares of a policy."""
    return shares(wander(*EVAL, "--policy", policy, *how))


def bars() -> Iterator[Bar]:
    """The worst seed's share of strict calls, sampled and greedy, and the dearest run."""
    smollm2()
    ways: dict[str, tuple[str, ...]] = {"sampled": (), "greedy": ("--greedy",)}
    before = {name: examined("smollm2", *how)["all"] for name, how in ways.items()}
    after: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    minutes = list[float]()
    with tempfile.TemporaryDirectory() as folder:
        for seed in SEEDS:
            out, began = f"{folder}/seed{seed}", spent()
            wander(*TRAIN, "--seed", str(seed), "--out", out, "--json")
            minutes.append((spent() - began) / 60)
            for name, how in ways.items():
                after[name].append(examined(out, *how))
    seeds = f"seeds {', '.join(map(str, SEEDS))}"
    for name, found in after.items():
        told = "; ".join(f"{kind} {', '.join(f'{one[kind]:.2f}' for one in found)}" for kind in found[0])
        what, note = f"SmolLM2-135M, strict tool calls, {name}", f"{seeds}: {told}; {before[name]:.2f} before"
        worst = min(one["all"] for one in found)
        yield Bar(name=what, figure=worst, bar=0.6, aim=0.95, unit="", better="higher", note=note)
    note = f"{seeds}: {', '.join(f'{one:.0f}' for one in minutes)}; all processes, loading and examinations included"
    what = "SmolLM2-135M, processor time of such a run"
    yield Bar(name=what, figure=max(minutes), bar=60, aim=30, unit="min", note=note)
