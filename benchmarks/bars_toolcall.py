"""A real pretrained model learns to call tools: SmolLM2-135M, two examples, adapters; a warm-up, then reinforcement.

Runs `wander train --preset tool-call` itself, one seed after the other; the model is fetched and converted before the
clock starts. Three policies answer the same held-out tasks, greedily: the model as it is, after imitating the oracle,
and after reinforcement. No value of these tasks is in training, nor are the tools of half of them.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from benchmarks.bar import Bar
from benchmarks.bars_pretrained import wander
from wanderlust.policies.local.smollm2 import fetch_smollm2
from wanderlust.training.presets import TOOL_CALL

Shares: TypeAlias = Mapping[str, Mapping[str, float]]
"""Of all tasks, and of each kind: value, low and high."""

SEEDS = (0, 1, 2)
TRAIN = ("train", "--preset", "tool-call", "--workers", "1", "--json")
EVAL = ("eval", "tool-call,size=50", "--greedy", "--json", "--concurrency", "32")
"""More at once would be read in one pass that a busy machine takes too long for."""
LIMITS = ("--max-tokens", str(TOOL_CALL.max_tokens))


def spent() -> float:
    """Processor seconds of all processes that have ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def shares(told: Mapping[str, Any]) -> Shares:
    """Of an evaluation's answers, the share of strict ones with its interval: of all, and of each kind of task."""
    reports = {"all": told["report"], **told["by"]["kind"]}
    return {name: report["parts"]["strict"] for name, report in reports.items()}


def examined(policy: str) -> Shares:
    """The shares of a policy."""
    return shares(wander(*EVAL, *LIMITS, "--policy", policy))


def said(found: Shares) -> str:
    """The shares, the one of all with its interval."""
    whole, *kinds = ((name, one["value"], one["low"], one["high"]) for name, one in found.items())
    return f"{whole[1]:.2f} [{whole[2]:.2f}, {whole[3]:.2f}] ({', '.join(f'{one[0]} {one[1]:.2f}' for one in kinds)})"


def bars() -> Iterator[Bar]:
    """The worst seed's share of strict calls after reinforcement, and the dearest run."""
    fetch_smollm2()
    base = said(examined("smollm2"))
    runs = list[tuple[Shares, Shares, float]]()
    with tempfile.TemporaryDirectory() as folder:
        for seed in SEEDS:
            out, began = f"{folder}/seed{seed}", spent()
            wander(*TRAIN, "--seed", str(seed), "--out", out)
            minutes = (spent() - began) / 60
            runs.append((examined(f"{out}/checkpoints/start"), examined(f"{out}/checkpoints/rl"), minutes))
    yield from judge(base, runs)


def judge(base: str, runs: list[tuple[Shares, Shares, float]]) -> Iterator[Bar]:
    """The bars of some seeds' shares after the warm-up and after reinforcement, and of their processor minutes."""
    told = "; ".join(f"{said(warm)} to {said(after)}" for warm, after, _ in runs)
    yield Bar(
        name="SmolLM2-135M, strict tool calls, greedy, worst seed",
        figure=min(after["all"]["value"] for _, after, _ in runs),
        bar=0.6,
        aim=0.95,
        better="higher",
        note=f"{base} before; warm-up to RL, by seed: {told}",
    )
    minutes = [one for *_, one in runs]
    note = f"by seed {', '.join(f'{one:.1f}' for one in minutes)}; warm-up, loading and examinations included"
    what = "SmolLM2-135M, processor time of such a run"
    yield Bar(name=what, figure=max(minutes), bar=60, aim=30, unit="min", note=note)
