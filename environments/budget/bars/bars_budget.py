"""Budgets that a small model from nothing learns to keep: sums with visible working, at lengths it never trained on.

It imitates a teacher that misses each stated budget by up to a half, and is then rewarded by LCPO. Questions and
budgets are those of the `eval` split, of which training has neither; one answer each at temperature 1. The same model
then answers questions under every budget of a curve. The smallest budget that costs at most a point of accuracy is
chosen on one half of them, and what it saves and costs is measured on the other half. Effort is learnt where every
further token pays a little less (`gathering.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from benchmarks.bar import Bar
from benchmarks.courses import Learnt, learnt, sampled, walls

from gathering import Gathering
from wanderlust.evals.splits import without_shared
from wanderlust.evals.statistics import difference_over_seeds
from wanderlust.rubrics.lengths import TASK_REWARD
from wanderlust.tasks.selection import choose_tasks
from wanderlust.training.config import TrainConfig
from wanderlust.types import Rollout, Task
from wanderlust_budget.token_budget import EFFORT_KEY, TokenBudget

SUMS = "env=reasoning-gym,dataset=chain_sum,size=4000,min_terms=2,max_terms=2,min_digits=2,max_digits=2"
BUDGETS = TrainConfig(
    env=f"wanderlust_budget.token_budget:TokenBudget,{SUMS},kind=exact,min_tokens=24,max_tokens=80",
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
    env="wanderlust_budget.token_budget:TokenBudget,env=gathering:Gathering,kind=effort,min_tokens=1,max_tokens=16",
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
CURVE = (28, 36, 44, 52, 60, 68, 76)
"""Budgets that training never stated; the last one is what the others are compared with."""
MAX_LOSS = 0.01
"""Accuracy that a budget may cost on the questions that it is chosen on."""
QUESTIONS = 400
CURVE_QUESTIONS = 1200
"""Of the test; the choice has as many others, less those that are asked in the test as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a model does under one budget."""

    right: dict[str, float]
    """By question."""
    tokens: float
    """Mean of an answer."""

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return fmean(self.right.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The budget of one seed, and what it comes to on questions that it was not chosen on."""

    curve: tuple[Kept, ...]
    """On the questions of the choice, one for each budget of CURVE."""
    budget: int
    small: Kept
    large: Kept
    """On the test questions, under the chosen and under the largest budget."""


def metric(rollouts: Sequence[Rollout], name: str) -> float:
    """Mean of a part or metric of the score."""
    scores = [one.trajectory.score for one in rollouts]
    return fmean({**score.parts, **score.metrics}[name] for score in scores if score is not None)


def played(checkpoint: Path, env: TokenBudget, max_tokens: int) -> list[Rollout]:
    """One rollout of each question."""
    return sampled(checkpoint, env, choose_tasks(env.tasks("eval"), QUESTIONS), max_tokens=max_tokens)


def halves(tasks: Iterable[Task]) -> tuple[list[Task], list[Task]]:
    """Questions of the choice, none of which is asked in the test, and those of the test."""
    both = choose_tasks(tasks, 2 * CURVE_QUESTIONS)
    return [*without_shared(both[::2], both[1::2])], both[::2]


def sums(min_tokens: int, max_tokens: int) -> TokenBudget:
    """The sums under budgets from one number to the other."""
    settings = dict(pair.split("=") for pair in SUMS.split(",")[2:])
    numbers = {name: int(value) for name, value in settings.items()}
    env = f"reasoning-gym,{SUMS.split(',')[1]}"
    return TokenBudget(env, kind="exact", min_tokens=min_tokens, max_tokens=max_tokens, **numbers)


def bars() -> Iterator[Bar]:
    """Error of the lengths, tokens saved, and the levels of effort."""
    choices: list[Choice] = []

    def error(checkpoint: Path) -> float:
        if checkpoint.name == "rl":
            choices.append(chosen(checkpoint))
        return metric(played(checkpoint, sums(24, 80), BUDGETS.max_tokens), "relative_error")

    runs = learnt(BUDGETS, error, workers=1)
    note = "seeds: " + ", ".join(f"{run.before:.1%} to {run.after:.1%}" for run in runs)
    worst = 100 * max(run.after for run in runs)
    what = "stated budgets, unseen lengths and questions"
    yield Bar(name=f"{what}: mean error, worst seed", figure=worst, bar=15, aim=8, unit="%", note=note)
    yield from saved(choices)
    yield from walls(f"{what}: wall time of a run", runs, bar=1800, aim=600)
    yield effort_bar()


def chosen(checkpoint: Path) -> Choice:
    """Choose a budget on one half of the questions, and answer the other half under it and under the largest one."""
    curve = tuple(kept(checkpoint, budget, test=False) for budget in CURVE)
    budget = smallest(curve)
    small, large = (kept(checkpoint, one, test=True) for one in (budget, CURVE[-1]))
    return Choice(curve=curve, budget=budget, small=small, large=large)


def smallest(curve: Sequence[Kept]) -> int:
    """The smallest budget that costs at most MAX_LOSS, as do all budgets above it; the curve has CURVE's order.

    A single low point between worse ones is chance, so the search ends at the first budget that costs more.
    """
    fits = [curve[-1].accuracy - one.accuracy <= MAX_LOSS for one in curve]
    first = len(fits) - next((n for n, fit in enumerate(reversed(fits)) if not fit), len(fits))
    return CURVE[first]


def kept(checkpoint: Path, budget: int, *, test: bool) -> Kept:
    """What the model does under one budget, on one half of the questions."""
    env = sums(budget, budget)
    rollouts = sampled(checkpoint, env, halves(env.tasks("eval"))[test], max_tokens=BUDGETS.max_tokens)
    right = {one.task.id: metric([one], TASK_REWARD) for one in rollouts}
    return Kept(right=right, tokens=metric(rollouts, "completion_tokens"))


def saved(choices: Sequence[Choice]) -> Iterator[Bar]:
    """Tokens saved and accuracy lost by the chosen budget in place of the largest one."""
    share = 100 * min(1 - one.small.tokens / one.large.tokens for one in choices)
    budgets = ", ".join(str(one.budget) for one in choices)
    tests = "; ".join(
        f"{one.large.tokens:.0f} to {one.small.tokens:.0f} tokens, {one.large.accuracy:.1%} to {one.small.accuracy:.1%}"
        " right"
        for one in choices
    )
    what = f"the smallest budget that costs at most a point on other questions, in place of {CURVE[-1]}"
    asked = f"{len(choices[0].small.right)} test questions"
    note = f"chosen by seed: {budgets} of {', '.join(map(str, CURVE))}; {asked}: {tests}"
    yield Bar(
        name=f"{what}: tokens saved, worst seed", figure=share, bar=30, aim=50, unit="%", better="higher", note=note
    )
    lost = difference_over_seeds(
        [one.large.right for one in choices], [one.small.right for one in choices], [*choices[0].small.right]
    )
    ends = "" if lost.low is None or lost.high is None else f"{100 * lost.low:.1f} to {100 * lost.high:.1f}"
    curves = "; ".join(", ".join(f"{100 * kept.accuracy:.1f}" for kept in one.curve) for one in choices)
    note = (
        f"mean of {len(choices)} seeds, 95% interval over questions and seeds {ends}; accuracy along the curve where it"
        f" was chosen, by seed: {curves}"
    )
    yield Bar(name=f"{what}: points of accuracy lost", figure=100 * lost.value, bar=1, aim=0, note=note)


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
