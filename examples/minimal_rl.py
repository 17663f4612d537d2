"""Reinforcement learning on one screen: task, rollout, trajectory, score, advantage, sample, batch, update.

A small model with random weights learns to answer a letter with the next one: `python examples/minimal_rl.py`.
`wanderlust.train` takes the same eight steps, and adds what is left out here: SFT, evaluation, checkpoints and resume,
several processes, stale rollouts, other algorithms, monitors.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import torch

from wanderlust import Environment, Episode, LocalPolicy, SamplingOptions, Task, rollouts, user
from wanderlust.training.algorithms.grpo import standardized
from wanderlust.training.batch.collate import Batch, BatchTotals, collate
from wanderlust.training.batch.samples import build_samples
from wanderlust.training.losses import CISPO_LOSS, token_losses
from wanderlust.training.tiny_model import ModelShape, fresh_model, fresh_tokenizer

LETTERS = "abcde"


class NextLetter(Environment):
    """One turn: a letter is shown, and the next one is the right answer."""

    async def run(self, episode: Episode) -> None:
        """Play one episode and reward it."""
        answer = await episode.agent.act(user(episode.task.id))
        episode.reward("right", float(answer.content == episode.task.answer))

    def tasks(self, split: str = "train") -> list[Task]:
        """A task for each letter but the last."""
        return [Task(id=letter, answer=after) for letter, after in pairwise(LETTERS)]


async def learn(steps: int = 100, *, group_size: int = 64, seed: int = 0) -> list[float]:
    """Train a fresh model; returns the mean reward of each step's rollouts. Equal arguments, equal rewards."""
    env, tokenizer = NextLetter(), fresh_tokenizer([LETTERS])
    model = fresh_model(tokenizer, ModelShape(width=32, layers=1, heads=2, inner=64, positions=16), seed=seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    curve: list[float] = []
    for step in range(steps):
        policy = LocalPolicy.of(model, tokenizer, SamplingOptions(max_tokens=1), seed=seed)

        tasks = env.tasks()
        async with rollouts(env, tasks, policy, group_size=group_size, seed=step) as stream:
            groups = sorted([group async for group in stream], key=lambda group: group.index)
        trajectories = [[rollout.trajectory for rollout in group.rollouts] for group in groups]
        scores = [[one.score.reward if one.score else 0.0 for one in group] for group in trajectories]
        for group, rewards in zip(trajectories, scores, strict=True):
            for trajectory, advantage in zip(group, standardized(rewards), strict=True):
                trajectory.advantage = advantage
        samples = build_samples(groups, CISPO_LOSS)
        if any(sample.ids for sample in samples):  # else no group had both better and worse rollouts
            batch = collate(samples, CISPO_LOSS)
            update(model, optimizer, batch, divisor=BatchTotals.of(samples, CISPO_LOSS).rl)

        curve.append(sum(map(sum, scores)) / sum(map(len, scores)))
    return curve


def update(model: Any, optimizer: torch.optim.Optimizer, batch: Batch, *, divisor: float) -> None:
    """One step along the gradient of the mean loss over all sampled tokens, of which N have an advantage."""
    tokens = batch.model_input  # ids [B, T]; positions [N] into B x T
    logits = model(input_ids=tokens.ids, use_cache=False).logits.flatten(0, 1)[tokens.positions]  # [N, V]
    logprobs = torch.log_softmax(logits, -1).gather(1, batch.targets[:, None])[:, 0]  # [N]
    losses, _ = token_losses(logprobs, batch.sampler_logprobs, batch.advantages, loss=CISPO_LOSS)  # [N]
    optimizer.zero_grad()
    (losses.sum() / divisor).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


if __name__ == "__main__":
    for step, reward in enumerate(asyncio.run(learn())):
        print(f"step {step:2}  reward {reward:.2f}  {'#' * round(40 * reward)}")
