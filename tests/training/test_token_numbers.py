"""Per-token numbers of random trees of conversations, each against a plain forward pass over its own context."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import exp, fsum
from random import Random
from statistics import fmean, pstdev
from typing import Any

import pytest
import torch

from toys import fresh
from wanderlust.training import losses
from wanderlust.training.algorithms.base import AlgorithmContext, set_token_advantages
from wanderlust.training.algorithms.per_turn import turn_rewards
from wanderlust.training.algorithms.ppo import PPO
from wanderlust.training.algorithms.presets import ALGORITHMS
from wanderlust.training.batch.samples import credited_samples, to_samples
from wanderlust.training.gradient import GradientComputer
from wanderlust.training.group_source import assign_advantages, assign_batch_advantages, bind_algorithm, kl_to_reference
from wanderlust.training.losses import KL, kl_estimate
from wanderlust.training.models import Scorer
from wanderlust.types import Group, Rollout, Score, Task, Tokens, Trajectory, Turn, assistant, user

EXACT = 1e-6
"""Most that a number may be away from the plain one; log-probabilities are sums of some ten fp32 numbers."""


@dataclass(frozen=True)
class Tree:
    """A trajectory, and the whole context of each of its turns."""

    trajectory: Trajectory
    contexts: list[tuple[int, ...]]


def tree(rng: Random) -> Tree:
    """Turns that continue the last one, another one, one that was continued already, or nothing; as policies do it.

    A branch is written as a sequence of its own, or by its offset; a context may be rendered anew at any turn.
    """
    turns: list[Turn] = []
    contexts: list[tuple[int, ...]] = []
    for number in range(rng.randint(1, 6)):
        parent = rng.choice([None, *range(number), *[number - 1] * 3]) if number else None
        before = () if parent is None else (*contexts[parent], *_completion(turns[parent]))
        if len(before) > 14 or (before and rng.random() < 0.1):  # the template rewrote it
            before, new = (), _ids(rng, 1, 4)
        else:
            new = _ids(rng, 1, 3)
        whole = rng.random() < 0.3
        tokens = Tokens(
            prompt=(*before, *new) if whole else new,
            completion=_ids(rng, 1, 3),
            logprobs=(),
            offset=0 if whole else len(before),
            version=rng.randint(1, 3),
        )
        tokens = replace(tokens, logprobs=tuple(-rng.random() for _ in tokens.completion))
        turns.append(
            Turn(
                observation=(user("a"),),
                action=assistant("a"),
                tokens=tokens,
                resets_context=parent is None and number > 0,
                parent=parent if parent is not None and parent != number - 1 else None,
            )
        )
        contexts.append((*before, *new))
    paid = [rng.choice([0.0, 0.25]) for _ in range(rng.randint(0, len(turns)))]
    score = Score(reward=rng.choice([0.0, 0.5, 1.0]))
    return Tree(Trajectory(turns=turns, score=score, rewards=paid), contexts)


def _ids(rng: Random, least: int, most: int) -> tuple[int, ...]:
    return tuple(rng.randrange(6, 10) for _ in range(rng.randint(least, most)))


def _completion(turn: Turn) -> tuple[int, ...]:
    assert turn.tokens is not None
    return turn.tokens.completion


@cache
def model(seed: int) -> Any:
    return fresh(seed).eval()


@torch.no_grad()
def plain(trees: Sequence[Tree], read: Any) -> list[list[list[float]]]:
    """Per tree and turn what `read` says of each sampled token, from one padded pass over context and completion."""
    rows = [
        ((*context, *_completion(turn)), len(context))
        for one in trees
        for context, turn in zip(one.contexts, one.trajectory.turns, strict=True)
    ]
    width = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([[*ids, *[0] * (width - len(ids))] for ids, _ in rows])
    values = iter(read(ids))
    numbers = iter([next(values)[start - 1 : len(ids) - 1].tolist() for ids, start in rows])
    return [[next(numbers) for _ in one.contexts] for one in trees]


def plain_logprobs(trees: Sequence[Tree], seed: int) -> list[list[list[float]]]:
    def read(ids: torch.Tensor) -> torch.Tensor:
        logits = model(seed)(ids).logits[:, :-1].log_softmax(-1)
        return logits.gather(-1, ids[:, 1:, None])[..., 0]

    return plain(trees, read)


def flat(turns: Sequence[Sequence[float]]) -> list[float]:
    return [value for turn in turns for value in turn]


def close(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    return ours == pytest.approx(theirs, abs=EXACT, rel=EXACT)


def context(loaded: int = 1) -> AlgorithmContext:
    return AlgorithmContext(
        max_tokens=3, temperature=1.0, load_initial_model=lambda: fresh(loaded), load_teacher=lambda: fresh(loaded)
    )


def group_of(trees: Sequence[Tree]) -> Group:
    rollouts = [Rollout(task=Task(id="t"), seed=0, trajectories=[one.trajectory]) for one in trees]
    return Group(task=Task(id="t"), rollouts=rollouts, index=0)


COUNT = pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.proof("seeds"))])


@COUNT
def test_a_scorer_reads_every_token_in_its_own_context(count: int) -> None:
    trees = [tree(Random(f"scorer/{seed}")) for seed in range(count)]
    scored = Scorer(model(1)).logprobs([one.trajectory for one in trees])
    for one, ours, theirs in zip(trees, scored, plain_logprobs(trees, 1), strict=True):
        assert [len(turn) for turn in ours] == [len(_completion(turn)) for turn in one.trajectory.turns]
        assert close(flat(ours), flat(theirs))


@COUNT
def test_the_model_is_at_no_distance_from_itself(count: int) -> None:
    trees = [tree(Random(f"kl/{seed}")) for seed in range(count)]
    for one, own in zip(trees, plain_logprobs(trees, 1), strict=True):
        for number, logprobs in enumerate(own):
            turn = one.trajectory.turns[number]
            assert turn.tokens is not None
            one.trajectory.turns[number] = replace(turn, tokens=replace(turn.tokens, logprobs=tuple(logprobs)))
    scored = Scorer(model(1)).logprobs([one.trajectory for one in trees])
    for one, reference in zip(trees, scored, strict=True):
        one.trajectory.reference_logprobs = reference
        one.trajectory.advantage = 1.0
        for estimator in ("k1", "k2", "k3"):
            assert abs(kl_to_reference(one.trajectory, KL(weight=1.0, estimator=estimator, into="reward"))) < EXACT * 20
        for sample in to_samples(one.trajectory, kl=0.5):
            there = [place for place, weight in enumerate(sample.kl) if weight]
            assert there == [place for place, on in enumerate(sample.mask) if on]
            ours, theirs = (torch.tensor([row[n] for n in there]) for row in (sample.logprobs, sample.reference))
            assert close((ours - theirs).tolist(), [0.0] * len(there))
            assert kl_estimate(ours, theirs, "k3").abs().max() < EXACT


@COUNT
def test_dpo_and_distillation_read_the_plain_numbers(count: int) -> None:
    pull, distil = (bind_algorithm(ALGORITHMS[name], context()) for name in ("dpo", "distill"))
    for seed in range(0, count, 4):
        trees = [tree(Random(f"dpo/{seed + n}")) for n in range(4)]
        theirs = [flat(turns) for turns in plain_logprobs(trees, 1)]
        ours = [[p for turn in one.trajectory.turns if turn.tokens for p in turn.tokens.logprobs] for one in trees]
        asyncio.run(distil.assign_advantages(group_of(trees)))
        for one, own, other in zip(trees, ours, theirs, strict=True):
            assert close(flat(one.trajectory.advantages or ()), [t - o for t, o in zip(other, own, strict=True)])
            one.trajectory.advantages = None
        asyncio.run(pull.assign_advantages(group_of(trees)))
        chosen = [n for n, one in enumerate(trees) if one.trajectory.advantage]
        if chosen:
            won, lost = sorted(chosen, key=lambda n: -(trees[n].trajectory.advantage or 0.0))
            gain = [fsum(ours[n]) - fsum(theirs[n]) for n in (won, lost)]
            expected = 2 * 0.1 / (1 + exp(0.1 * (gain[0] - gain[1])))
            assert close([trees[n].trajectory.advantage or 0.0 for n in (won, lost)], [expected, -expected])


@COUNT
def test_ppo_expects_what_its_critic_says_of_each_token(count: int) -> None:
    """Generalized advantages in the order of the turns, written out token by token, from values of a plain pass."""
    method = PPO().bind(context())
    torch.manual_seed(0)
    torch.nn.init.normal_(method.critic().head.weight, std=0.1)
    method.critic().trunk.double()
    method.critic().head.double()
    method.critic().optimizer.param_groups[0]["lr"] = 0.0
    for seed in range(0, count, 8):
        trees = [tree(Random(f"ppo/{seed + n}")) for n in range(8)]
        critic = method.critic()
        values = plain(trees, lambda ids: critic.head(critic.trunk(ids).last_hidden_state)[:, :-1, 0])  # noqa: B023
        wanted = []
        for one, turns in zip(trees, values, strict=True):
            earned = turn_rewards(one.trajectory, one.trajectory.score.reward if one.trajectory.score else 0.0)
            rewards = [[*[0.0] * (len(turn) - 1), paid] for turn, paid in zip(turns, earned, strict=True)]
            ahead, after, row = 0.0, 0.0, []
            for reward, value in zip(reversed(flat(rewards)), reversed(flat(turns)), strict=True):
                ahead = reward + after - value + 0.95 * ahead
                after = value
                row.append(ahead)
            wanted.append(row[::-1])
        asyncio.run(assign_batch_advantages(method, [group_of(trees)]))
        mean, spread = fmean(flat(wanted)), pstdev(flat(wanted))
        for one, row in zip(trees, wanted, strict=True):
            assert close(flat(one.trajectory.advantages or ()), [(a - mean) / (spread + 1e-8) for a in row])


def test_what_the_critic_learns_is_the_return_of_the_same_token() -> None:
    """After many updates on one batch, the value of each token is what was still to come there."""
    method = replace(PPO(lr=3e-3, epochs=20, trace=1.0), context=context())
    trees = [tree(Random(f"critic/{seed}")) for seed in range(6)]
    critic = method.critic()
    critic.clip = 0.0
    for _ in range(30):
        asyncio.run(method.assign_batch_advantages([group_of(trees)]))
    values = plain(trees, lambda ids: critic.head(critic.trunk(ids).last_hidden_state)[:, :-1, 0])
    pairs = []
    for one, turns in zip(trees, values, strict=True):
        earned = turn_rewards(one.trajectory, one.trajectory.score.reward if one.trajectory.score else 0.0)
        pairs += [(value, sum(earned[n:])) for n, turn in enumerate(turns) for value in turn]
    centre = fmean(to_come for _, to_come in pairs)
    missed = fmean((value - to_come) ** 2 for value, to_come in pairs)
    assert missed < 0.5 * fmean((to_come - centre) ** 2 for _, to_come in pairs)


@COUNT
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_each_advantage_reaches_the_token_that_it_was_given_to(name: str, count: int) -> None:
    """What a step sums, advantage times log-probability under the model, agrees with the sum over plain passes."""
    method = bind_algorithm(ALGORITHMS[name], context(2))
    reader = GradientComputer(model(1), loss=losses.IMITATION_LOSS)
    for seed in range(0, count, 100):
        trees = [tree(Random(f"{name}/{seed + n}")) for n in range(100)]
        trees = [one for one in trees if one.trajectory.turns]
        groups = [group_of(trees[n : n + 4]) for n in range(0, len(trees), 4)]
        for index, group in enumerate(groups):
            group.index = index
        asyncio.run(assign_advantages(method, groups))
        asyncio.run(assign_batch_advantages(method, groups))
        samples = credited_samples(groups)
        ours = fsum(
            sample.copies * weight * logprob
            for sample, row in zip(samples, reader.compute_logprobs(samples), strict=True)
            for weight, logprob in zip(_weights(sample), row, strict=True)
        )
        theirs = fsum(
            weight * logprob
            for one, turns in zip(trees, plain_logprobs(trees, 1), strict=True)
            for weight, logprob in zip(_credit(one.trajectory), flat(turns), strict=True)
        )
        assert ours == pytest.approx(theirs, abs=1e-4, rel=EXACT * 10)


def _weights(sample: Any) -> list[float]:
    ce = [*sample.ce, *[0.0] * (len(sample.ids) - len(sample.ce))]
    return [a * on + c for a, on, c in zip(sample.advantages, sample.mask, ce, strict=True)]


def _credit(trajectory: Trajectory) -> list[float]:
    counts = [len(_completion(turn)) for turn in trajectory.turns]
    flat_credit = flat(trajectory.advantages) if trajectory.advantages is not None else None
    own = flat_credit if flat_credit is not None else [trajectory.advantage or 0.0] * sum(counts)
    return [value + trajectory.sft_weight for value in own]


def test_values_of_another_number_are_no_credit() -> None:
    one = tree(Random("count")).trajectory
    tokens = sum(len(_completion(turn)) for turn in one.turns)
    for wrong in (tokens - 1, tokens + 1):
        with pytest.raises(ValueError, match=f"{wrong} values for {tokens} sampled tokens"):
            set_token_advantages(one, [0.0] * wrong)
