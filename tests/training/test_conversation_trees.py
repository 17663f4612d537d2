"""An agent whose conversation goes back to an earlier turn: a tree in the trace, and exactly that in training."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from wanderlust.agent import Agent
from wanderlust.environment import Environment, Episode
from wanderlust.errors import UsageError
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.testing import replay_rollout
from wanderlust.training import losses
from wanderlust.training.batch.samples import Sample, to_samples
from wanderlust.training.gradient import GradientComputer
from wanderlust.training.tiny_model import ModelShape, fresh_model, fresh_tokenizer
from wanderlust.types import Task, Trajectory, user

CREDIT = (0.5, -1.0, 2.0, 0.25, -0.75)
"""Of each turn, so that a turn trained on twice, or in another place, shows."""


class Tries(Environment):
    """Three tries after one opening; the first two are taken back."""

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id="tries")]

    async def run(self, episode: Episode) -> None:
        agent = episode.agent
        await agent.act(user("begin " * 12))
        await agent.act(user("part 0"))
        agent.go_back(0)
        await agent.act(user("part 1"))
        await agent.act(user("more"))
        agent.go_back(0)
        await agent.act(user("part 2"))


def local() -> LocalPolicy:
    tokenizer = fresh_tokenizer(["begin part 012 in short more", "said it"] * 20)
    model = fresh_model(tokenizer, ModelShape(positions=256), seed=1)
    return LocalPolicy.of(model, tokenizer, SamplingOptions(max_tokens=5), seed=3)


def turns_alone(trajectory: Trajectory) -> Iterator[Sample]:
    """Each turn as a sequence of its own, in the context in which it was sampled."""
    whole: list[list[int]] = []
    for number, turn in enumerate(trajectory.turns):
        tokens, parent = turn.tokens, trajectory.parent(number)
        assert tokens is not None
        sample = Sample()
        sample.append_context([*(whole[parent] if parent is not None and tokens.offset else []), *tokens.prompt])
        sample.append_completion(tokens.completion, tokens.logprobs, [CREDIT[number]] * len(tokens.completion))
        whole.append(list(sample.ids))
        yield sample


def test_a_tree_has_the_gradient_of_its_turns_one_by_one():
    policy = local()
    played = asyncio.run(rollout(Tries(), Tries().tasks()[0], policy))
    trajectory = played.trajectory
    assert [trajectory.parent(turn) for turn in range(5)] == [None, 0, 0, 2, 0]
    assert trajectory.ends == [1, 3, 4]
    credit = [[value] * len(t.tokens.completion) for value, t in zip(CREDIT, trajectory.turns, strict=True) if t.tokens]
    samples = to_samples(replace(trajectory, advantages=credit))
    alone = [*turns_alone(trajectory)]
    assert (len(samples), len(alone)) == (3, 5)
    assert sum(sum(sample.mask) for sample in samples) == sum(sum(sample.mask) for sample in alone)
    for loss in (losses.CISPO_LOSS, replace(losses.GRPO_LOSS, normaliser="tokens")):
        rows = GradientComputer(policy.engine.model, loss=loss, fast=False).gradient(alone)
        assert rows.values.norm() > 0
        for fast in (False, True):
            tree = GradientComputer(policy.engine.model, loss=loss, fast=fast).gradient(samples)
            assert tree.denominator == rows.denominator
            torch.testing.assert_close(tree.values, rows.values, rtol=1e-3, atol=1e-5)


def test_the_new_conversation_knows_nothing_of_what_was_taken_back():
    seen: list[list[str]] = []

    def answer(messages, rng):
        seen.append([message.content.strip() for message in messages])
        return str(len(seen))

    played = asyncio.run(rollout(Tries(), Tries().tasks()[0], Scripted(answer)))
    opening = [("begin " * 12).strip(), "1"]
    first = [*opening, "part 1"]
    assert seen[1:] == [[*opening, "part 0"], first, [*first, "3", "more"], [*opening, "part 2"]]
    asyncio.run(replay_rollout(Tries(), played))


def test_there_must_be_a_turn_to_go_back_to():
    with pytest.raises(UsageError, match="no turn 0 to go back to: the seat took 0"):
        Agent(Scripted(["a"])).go_back(0)
