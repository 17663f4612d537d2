"""Budgets that a small model from nothing learns to keep: sums with visible working, at lengths it never trained on.

It imitates a teacher that misses each stated budget by up to a half, and is then rewarded by LCPO. Questions and
budgets are those of the `eval` split, of which training has neither; one answer each at temperature 1. The same model
then answers the same questions under a small and under a large budget. Effort is learnt where every further token
pays a little less (`gathering.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from benchmarks.bar import Bar
from benchmarks.courses import Learnt, interval, learnt, sampled, walls
from benchmarks.gathering import Gathering
from wanderlust.environments.token_budget import EFFORT_KEY, TokenBudget
from wanderlust.rubrics.lengths import TASK_REWARD
from wanderlust.tasks.selection import choose_tasks
from wanderlust.training.config import TrainConfig
from wanderlust.types import Rollout

SUMS = "env=reasoning-gym,dataset=chain_sum,size=4000,min_terms=2,max_terms=2,min_digits=2,max_digits=2"
BUDGETS = TrainConfig(
    env=f"wanderlust.environments.token_budget:TokenBudget,{SUMS},kind=exact,min_tokens=24,max_tokens=80",
    policy="fresh",
    sft_episodes=3000,
    sft_steps=700,
    sft_batch=32,
    fresh_width=64,
    fresh_layers=2,
    fresh_positions=256,
    algorithm="cispo",
    steps=200,
    tasks_per_step=16,
    group_size=16,
    lr=1e-3,
    max_tokens=120,
    eval_every=100,
)
EFFORT = replace(
    BUDGETS,
    env="wanderlust.environments.token_budget:TokenBudget,env=benchmarks.gathering:Gathering,kind=effort,min_tokens=1,"
    "max_tokens=16",
    sft_episodes=1500,
    sft_steps=300,
    fresh_width=48,
    fresh_positions=64,
    steps=80,
    tasks_per_step=24,
    group_size=8,
    max_tokens=16,
    eval_every=40,
)
SMALL, LARGE = 28, 76
"""Two budgets that training never stated."""
QUESTIONS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Accuracy and mean tokens under one budget."""

    right: float
    tokens: float


def metric(rollouts: Sequence[Rollout], name: str) -> float:
    """Mean of a part or metric of the score."""
    scores = [one.trajectory.score for one in rollouts]
    return fmean({**score.parts, **score.metrics}[name] for score in scores if score is not None)


def played(checkpoint: Path, env: TokenBudget, max_tokens: int) -> list[Rollout]:
    """One rollout of each question."""
    return sampled(checkpoint, env, choose_tasks(env.tasks("eval"), QUESTIONS), max_tokens=max_tokens)


def sums(min_tokens: int, max_tokens: int) -> TokenBudget:
    """The sums under budgets from one number to the other."""
    settings = dict(pair.split("=") for pair in SUMS.split(",")[2:])
    numbers = {name: int(value) for name, value in settings.items()}
    env = f"reasoning-gym,{SUMS.split(',')[1]}"
    return TokenBudget(env, min_tokens=min_tokens, max_tokens=max_tokens, **numbers)


def bars() -> Iterator[Bar]:
    """Error of the lengths, tokens saved, and the levels of effort."""
    pairs: list[tuple[Kept, Kept]] = []

    def error(checkpoint: Path) -> float:
        if checkpoint.name == "rl":
            pairs.append((kept(checkpoint, SMALL), kept(checkpoint, LARGE)))
        return metric(played(checkpoint, sums(24, 80), BUDGETS.max_tokens), "relative_error")

    runs = learnt(BUDGETS, error, workers=1)
    note = "seeds: " + ", ".join(f"{run.before:.1%} to {run.after:.1%}" for run in runs)
    worst = 100 * max(run.after for run in runs)
    what = "stated budgets, unseen lengths and questions"
    yield Bar(name=f"{what}: mean error, worst seed", figure=worst, bar=15, aim=8, unit="%", note=note)
    yield from saved(pairs)
    yield from walls(f"{what}: wall time of a run", runs, bar=1800, aim=600)
    yield effort_bar()


def kept(checkpoint: Path, budget: int) -> Kept:
    """What the model does under one budget."""
    rollouts = played(checkpoint, sums(budget, budget), BUDGETS.max_tokens)
    return Kept(right=metric(rollouts, TASK_REWARD), tokens=metric(rollouts, "completion_tokens"))


def saved(pairs: Sequence[tuple[Kept, Kept]]) -> Iterator[Bar]:
    """Tokens saved and accuracy lost by the small budget in place of the large one."""
    share = 100 * min(1 - small.tokens / large.tokens for small, large in pairs)
    lost, half = interval([100 * (large.right - small.right) for small, large in pairs])
    note = "seeds: " + ", ".join(
        f"{large.tokens:.0f} to {small.tokens:.0f} tokens, {large.right:.1%} to {small.right:.1%} right"
        for small, large in pairs
    )
    what = f"a budget of {SMALL} in place of {LARGE}"
    yield Bar(
        name=f"{what}: tokens saved, worst seed", figure=share, bar=30, aim=50, unit="%", better="higher", note=note
    )
    note = f"mean of {len(pairs)} seeds, 95% interval {lost - half:.1f} to {lost + half:.1f}"
    yield Bar(name=f"{what}: points of accuracy lost", figure=lost, bar=1, aim=0, note=note)


def effort_bar() -> Bar:
    """How many times the tokens of low effort high effort takes, after training, in the worst seed."""
    tokens: list[dict[str, float]] = []
    env = TokenBudget(Gathering(), kind="effort", min_tokens=1, max_tokens=16)

    def ratio(checkpoint: Path) -> float:
        rollouts = played(checkpoint, env, EFFORT.max_tokens)
        by_level = {
            level: metric([one for one in rollouts if one.task.info[EFFORT_KEY] == level], "completion_tokens")
            for level in ("low", "medium", "high")
        }
        tokens.append(by_level)
        return by_level["high"] / by_level["low"]

    runs: Sequence[Learnt] = learnt(EFFORT, ratio, workers=1)
    after = "; ".join(", ".join(f"{level} {spent:.1f}" for level, spent in one.items()) for one in tokens[1::2])
    return Bar(
        name="effort: tokens at high over low, worst seed",
        figure=min(run.after for run in runs),
        bar=1.5,
        aim=2,
        better="higher",
        note=f"before: {', '.join(f'{run.before:.2f}' for run in runs)}; tokens after, by seed: {after}",
    )
