"""Short Metamath proofs of statements that a small model never saw: how many are accepted, before and after RL.

It imitates a teacher who seldom looks ahead. The reward is the checker of proofs alone. The bars are about held-out
statements, one answer each at temperature 1; what the likeliest answers earn stands beside them. Every accepted proof
is checked again from what was stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from benchmarks.bar import Bar
from benchmarks.courses import gained, interval, learnt, played, reward, sampled, told, walls
from wanderlust.artefacts.checkers import verify_file
from wanderlust.artefacts.contract import artefact_of
from wanderlust.environments.brief_proofs import BriefProofs
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.policies.local.pretrained import load_pretrained
from wanderlust.training.config import TrainConfig
from wanderlust.types import Rollout

TASKS = 400
SHORT_PROOFS = TrainConfig(
    env="wanderlust.environments.brief_proofs:BriefProofs",
    policy="fresh",
    sft_episodes=6000,
    sft_steps=800,
    sft_batch=32,
    sft_lr=0.003,
    sft_context_weight=0,
    fresh_width=64,
    fresh_layers=2,
    fresh_positions=64,
    algorithm="cispo",
    steps=150,
    tasks_per_step=64,
    group_size=16,
    lr=1e-3,
    max_tokens=24,
    eval_every=50,
)
"""Settings of a run: SFT on the careless teacher, then RL. Record 0070 has what shorter runs gave."""


def checked_again(rollouts: list[Rollout]) -> tuple[int, int]:
    """How many stored artefacts are valid when they are checked again, and how many there are."""
    made = [artefact_of(one.state["artefact"], one.task.id) for one in rollouts if one.state["artefact"]]
    verified = [verify_file(one) for one in made]
    return sum(one.verdict.valid and not one.findings for one in verified), len(verified)


def bars() -> Iterator[Bar]:
    """Proofs gained by reinforcement, the longest run, and the artefacts that are still valid."""
    env = BriefProofs(eval_size=TASKS)
    tasks = env.tasks("eval")
    likeliest, valid, stored = list[float](), 0, 0

    def figure(checkpoint: Path) -> float:
        nonlocal valid, stored
        greedy = SamplingOptions(max_tokens=SHORT_PROOFS.max_tokens, temperature=0.0)
        policy = LocalPolicy.of(*load_pretrained(checkpoint), greedy)
        likeliest.append(fmean(map(reward, played(env, tasks, policy))))
        drawn = sampled(checkpoint, env, tasks, max_tokens=SHORT_PROOFS.max_tokens)
        right, count = checked_again(drawn)
        valid, stored = valid + right, stored + count
        return fmean(map(reward, drawn))

    runs = learnt(SHORT_PROOFS, figure)
    what = f"short proofs of {len(tasks)} held-out statements"
    yield Bar(
        name=f"{what}: accepted, worst seed",
        figure=min(run.after for run in runs),
        bar=0.5,
        aim=0.9,
        better="higher",
        note=told(runs),
    )
    yield from gained(what, runs, bar=0.15, aim=0.4)
    mean, half = interval([after - before for before, after in zip(likeliest[::2], likeliest[1::2], strict=True)])
    pairs = zip(likeliest[::2], likeliest[1::2], strict=True)
    note = f"95% interval {mean - half:.2f} to {mean + half:.2f}; seeds: " + ", ".join(
        f"{before:.2f} to {after:.2f}" for before, after in pairs
    )
    yield Bar(name=f"{what}: gained, likeliest answers", figure=mean, bar=0.15, aim=0.4, better="higher", note=note)
    yield Bar(
        name="stored artefacts that are invalid when they are checked again",
        figure=stored - valid,
        bar=0.0,
        aim=0.0,
        note=f"{stored:,} artefacts of all seeds",
    )
    yield from walls(f"{what}: wall time of a run", runs, bar=900, aim=300)
