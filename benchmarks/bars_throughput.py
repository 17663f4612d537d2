"""Throughput of the local policy and of its training, against plain `transformers` and a plain loop.

One model (the demo's, taught to play by imitation), one process, one thread, the same games and the same samples on
both sides, in turns: ours, theirs, ours, theirs, after two rounds that are not counted; a figure is the median ratio of
a pair. Time is the processor's, because neither side ever waits: other work on the machine hardly matters.

- Rollouts: 256 live games of tic-tac-toe at temperature 1. Theirs (`plain.play`) go in lock step; `generate` reads
  the whole conversations anew each turn. A token counts once, when it is first read or sampled.
- Update: gradient, clipping and AdamW over the samples of 256 games. Before, both must find the same gradient.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from statistics import median
from typing import Any

import torch

from benchmarks import plain
from benchmarks.bar import Bar
from wanderlust.environments.tictactoe import TicTacToe, tictactoe_teacher, worth_learning
from wanderlust.environments.tictactoe.prompts import BOARD_VIEWS, COMPACT_WORDING, view_trajectory
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.runner.engine import rollouts
from wanderlust.training import losses
from wanderlust.training.algorithms.presets import algorithm
from wanderlust.training.batch.samples import Sample, credited_samples, imitation_samples, to_samples
from wanderlust.training.config import OptimizerConfig
from wanderlust.training.gradient import GradientComputer, combine
from wanderlust.training.optimizer import Optimizer, set_weights, weights_of
from wanderlust.training.presets import DEMO, QUICK_DEMO
from wanderlust.training.tiny_model import fresh_model, fresh_tokenizer
from wanderlust.training.warmup import fresh_shape
from wanderlust.types import Group, Task

EPISODES, GROUP_SIZE = 256, 8
WARM, PAIRS = 2, 5
TEACHER_GAMES, IMITATE_STEPS, IMITATE_BATCH = 200, 400, 16
SAMPLING = SamplingOptions(max_tokens=DEMO.max_tokens)
RELATIVE, ABSOLUTE = 1e-3, 1e-6
"""How near the two gradients must be."""


@dataclass(frozen=True, slots=True)
class Played:
    """What one round of games came to."""

    seconds: float
    games: int
    turns: int
    tokens: int
    """New context tokens and sampled tokens, each counted once."""
    sampled: int


def tasks_of(count: int) -> list[Task]:
    return list(islice(TicTacToe().tasks("train"), count))


async def collect(policy: Any, tasks: Sequence[Task], *, group_size: int = 1, seed: int = 0) -> list[Group]:
    playing = rollouts(TicTacToe(), tasks, policy, group_size=group_size, concurrency=EPISODES, seed=seed)
    async with playing as groups:
        return sorted([group async for group in groups], key=lambda g: g.index)


def taught() -> tuple[Any, Any]:
    """The demo's model and tokenizer after a short imitation of the teacher: most of its moves are legal."""
    games = [g.rollouts[0] for g in asyncio.run(collect(tictactoe_teacher(), tasks_of(TEACHER_GAMES)))]
    tokenizer = fresh_tokenizer(message.content for game in games for message in game.trajectory.messages)
    model = fresh_model(tokenizer, fresh_shape(QUICK_DEMO), seed=0)
    renderer = LocalPolicy.of(model, tokenizer).renderer
    samples = [
        sample
        for game in games
        if worth_learning(game)
        for view in BOARD_VIEWS
        for sample in imitation_samples(
            view_trajectory(game, view, COMPACT_WORDING), renderer, context=DEMO.sft_context_weight
        )
    ]
    imitate, rng = GradientComputer(model, loss=losses.IMITATION_LOSS), Random("imitate")
    config = OptimizerConfig(steps=IMITATE_STEPS, lr=3e-3, method="muon", warmup=10, betas=(0.9, 0.98))
    optimizer = Optimizer(model, config)
    for _ in range(IMITATE_STEPS):
        optimizer.step(combine([imitate.gradient(rng.sample(samples, IMITATE_BATCH))]))
    return model, tokenizer


def seconds(work: Callable[[], Any]) -> float:
    """Processor seconds of this process."""
    started = time.process_time()
    work()
    return time.process_time() - started


def ours(policy: LocalPolicy, tasks: Sequence[Task], *, group_size: int, seed: int) -> Played:
    """Our rollouts, scored and all."""
    groups: list[Group] = []
    taken = seconds(lambda: groups.extend(asyncio.run(collect(policy, tasks, group_size=group_size, seed=seed))))
    said = [[t.tokens for t in r.trajectory.turns if t.tokens is not None] for g in groups for r in g.rollouts]
    sampled = sum(len(tokens.completion) for game in said for tokens in game)
    read = sum(len(tokens.prompt) for game in said for tokens in game)
    return Played(taken, len(said), sum(map(len, said)), read + sampled, sampled)


def theirs(model: Any, tokenizer: Any, tasks: Sequence[Task], *, seed: int) -> Played:
    """The same games in lock step."""
    games: list[plain.Game] = []

    def run() -> None:
        games.extend(plain.Game.of(TicTacToe(), task, seed) for task in tasks)
        plain.play(games, model, tokenizer, max_tokens=DEMO.max_tokens)

    taken = seconds(run)
    sampled, turns = sum(game.sampled for game in games), sum(game.turns for game in games)
    return Played(taken, len(games), turns, sum(game.context for game in games), sampled)


def rollouts_bar(name: str, model: Any, tokenizer: Any, *, group_size: int) -> Bar:
    """256 games on both sides, as groups of `group_size`."""
    policy, tasks = LocalPolicy.of(model, tokenizer, SAMPLING), tasks_of(EPISODES // group_size)
    copies = [task for task in tasks for _ in range(group_size)]
    pairs = [
        (ours(policy, tasks, group_size=group_size, seed=seed), theirs(model, tokenizer, copies, seed=seed))
        for seed in range(WARM + PAIRS)
    ][WARM:]
    figure = median((a.tokens / a.seconds) / (b.tokens / b.seconds) for a, b in pairs)
    notes = [_rates(side) for side in zip(*pairs, strict=True)]
    return Bar(name=name, figure=figure, bar=3.0, aim=5.0, unit="x", better="higher", note=" against ".join(notes))


def _rates(played: Sequence[Played]) -> str:
    rate = median(p.tokens / p.seconds for p in played)
    sampled = median(p.sampled / p.seconds for p in played)
    games = median(p.games / p.seconds for p in played)
    turns = sum(p.turns for p in played) / sum(p.games for p in played)
    return f"{rate:,.0f} tokens/s ({sampled:,.0f} sampled, {games:.0f} games/s of {turns:.1f} turns)"


def update_bar(model: Any, tokenizer: Any) -> Bar:
    """The same update on both sides, over every sample of 256 games."""
    groups = asyncio.run(credited(LocalPolicy.of(model, tokenizer, SAMPLING)))
    samples = [sample for g in groups for r in g.rollouts for sample in to_samples(r.trajectory)]
    merged, tokens = credited_samples(groups), sum(len(sample.ids) for sample in samples)
    differentiator = GradientComputer(model, loss=losses.CISPO_LOSS)
    gap = same_gradient(model, differentiator, samples, pad=tokenizer.pad_token_id)
    weights, config = weights_of(model), OptimizerConfig(steps=100, lr=1e-4, decay="constant")
    optimizer = Optimizer(model, config)
    peer = torch.optim.AdamW(model.parameters(), lr=config.lr, betas=config.betas, weight_decay=config.weight_decay)

    def timed(work: Callable[[], Any]) -> float:
        set_weights(model, weights)
        return seconds(work)

    rounds = [
        (
            timed(lambda: optimizer.step(combine([differentiator.gradient(samples)]))),
            timed(lambda: plain.update(model, peer, samples, pad=tokenizer.pad_token_id)),
            timed(lambda: optimizer.step(combine([differentiator.gradient(merged)]))),
        )
        for _ in range(WARM + PAIRS)
    ][WARM:]
    set_weights(model, weights)
    a, b, c = (tokens / median(side) for side in zip(*rounds, strict=True))
    note = (
        f"{a:,.0f} against {b:,.0f} tokens/s; {c:,.0f} as a run does it: {len(merged)} live of {len(samples)} samples"
    )
    figure = median(theirs / ours for ours, theirs, _ in rounds)
    note += f"; gradients {gap:.0e} apart"
    return Bar(
        name="update against a plain loop", figure=figure, bar=1.0, aim=1.3, unit="x", better="higher", note=note
    )


async def credited(policy: LocalPolicy) -> list[Group]:
    """256 games in groups, with their advantages."""
    groups = await collect(policy, tasks_of(EPISODES // GROUP_SIZE), group_size=GROUP_SIZE)
    for group in groups:
        await algorithm("cispo").assign_advantages(group)
    return groups


def same_gradient(model: Any, differentiator: GradientComputer, samples: Sequence[Sample], *, pad: int) -> float:
    """Length of the difference of the two gradients as a share of theirs; ValueError unless they are the same."""
    mine = combine([differentiator.gradient(samples)]).values
    model.zero_grad()
    plain.backward(model, samples, pad=pad)
    other = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
    model.zero_grad()
    if not torch.allclose(mine, other, rtol=RELATIVE, atol=ABSOLUTE):
        raise ValueError(f"the gradients differ by up to {float((mine - other).abs().max()):.1e}")
    return float((mine - other).norm() / other.norm())


def bars() -> Iterator[Bar]:
    """Rollouts of siblings and of strangers, and an update."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, tokenizer = taught()
    yield rollouts_bar(f"rollouts, 32 groups of {GROUP_SIZE}", model, tokenizer, group_size=GROUP_SIZE)
    yield rollouts_bar(f"rollouts, {EPISODES} different games", model, tokenizer, group_size=1)
    yield update_bar(model, tokenizer)
    torch.set_num_threads(threads)
