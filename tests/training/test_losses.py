"""Losses and advantages against numbers worked out by hand and by finite differences."""

import asyncio
import math
from dataclasses import replace
from statistics import stdev

import pytest
import torch

from wanderlust.training import losses
from wanderlust.training.algorithms.grpo import (
    GroupRelative,
    has_signal,
    leave_one_out,
    mean_baseline,
    raw_reward,
    standardized,
)
from wanderlust.training.algorithms.presets import ALGORITHMS, algorithm
from wanderlust.training.batch.samples import credited_samples
from wanderlust.training.losses import PolicyLoss, token_losses
from wanderlust.types import Group, Rollout, Score, Task, Tokens, Trajectory, Turn, assistant

COLUMNS = {
    "ppo": losses.PPO_LOSS,
    "dapo": losses.DAPO_LOSS,
    "cispo": losses.CISPO_LOSS,
    "masked": losses.MASKED_LOSS,
    "importance": losses.IMPORTANCE_LOSS,
    "reinforce": losses.REINFORCE_LOSS,
}
# p_old, p_new, A: weight w in  grad L = -w grad log p, one token, per column
TABLE = [
    (0.5, 0.55, 1, (1.1, 1.1, 1.1, 1.1, 1.1, 1)),
    (0.5, 0.8, 1, (0, 0, 1.6, 1.6, 1.6, 1)),
    (0.5, 0.8, -1, (-1.6, -1.6, -1.6, -1.6, -1.6, -1)),
    (0.5, 0.35, 1, (0.7, 0.7, 0.7, 0.7, 0.7, 1)),
    (0.5, 0.35, -1, (0, 0, -0.7, -0.7, -0.7, -1)),
    (0.5, 0.25, -1, (0, 0, -0.5, -0.5, -0.5, -1)),
    (0.5, 0.05, 1, (0.1, 0.1, 0.1, 0, 0.1, 1)),
    (0.001, 0.02, 1, (0, 0, 5, 0, 20, 1)),
    (0.001, 0.02, -1, (-20, -20, -5, 0, -20, -1)),
    (0.05, 0.9, 1, (0, 0, 5, 0, 18, 1)),
]
CASES = [
    pytest.param(old, new, a, loss, weights[i], id=f"{name} {old}->{new} A={a}")
    for old, new, a, weights in TABLE
    for i, (name, loss) in enumerate(COLUMNS.items())
]


def weight_by_autograd(old: float, new: float, a: float, loss: PolicyLoss) -> float:
    logp = torch.tensor([math.log(new)], dtype=torch.float64, requires_grad=True)
    value, _ = token_losses(
        logp, torch.tensor([math.log(old)], dtype=torch.float64), torch.tensor([float(a)]), loss=loss
    )
    value.sum().backward()
    assert logp.grad is not None
    return -float(logp.grad)


@pytest.mark.parametrize(("old", "new", "a", "loss", "weight"), CASES)
def test_gradient_weight_of_one_token(old: float, new: float, a: float, loss: PolicyLoss, weight: float) -> None:
    assert weight_by_autograd(old, new, a, loss) == pytest.approx(weight, abs=1e-6)


@pytest.mark.parametrize(
    "loss", [losses.PPO_LOSS, losses.DAPO_LOSS, losses.IMPORTANCE_LOSS, losses.REINFORCE_LOSS, losses.MASKED_LOSS]
)
def test_autograd_agrees_with_finite_differences(loss: PolicyLoss) -> None:
    old = torch.log(torch.tensor([0.5, 0.3, 0.2, 0.6], dtype=torch.float64))
    logp = torch.log(torch.tensor([0.55, 0.31, 0.15, 0.61], dtype=torch.float64)).requires_grad_()
    a = torch.tensor([1.0, -1.0, 0.5, -2.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: token_losses(x, old, a, loss=loss)[0], (logp,))


def test_all_losses_agree_on_policy() -> None:
    weights = {name: weight_by_autograd(0.4, 0.4, 1.5, loss) for name, loss in COLUMNS.items()}
    assert all(w == pytest.approx(1.5) for w in weights.values()), weights


REWARDS = [1.0, 0.0, 0.5, 0.5]


def test_advantages() -> None:
    assert mean_baseline(REWARDS) == [0.5, -0.5, 0.0, 0.0]
    assert standardized(REWARDS) == pytest.approx([a / (stdev(REWARDS) + 1e-4) for a in (0.5, -0.5, 0, 0)])
    assert leave_one_out(REWARDS) == pytest.approx([a * 4 / 3 for a in mean_baseline(REWARDS)])
    assert raw_reward(REWARDS) == REWARDS
    with pytest.raises(ValueError, match="two rollouts"):
        leave_one_out([1.0])


def group(*rewards: float | None) -> Group:
    played = []
    for reward in rewards:
        score = None if reward is None else Score(reward=reward)
        played.append(Rollout(task=Task(id="t"), seed=0, trajectories=[Trajectory(score=score)]))
    return Group(task=Task(id="t"), rollouts=played)


@pytest.mark.parametrize("name", sorted(n for n, a in ALGORITHMS.items() if isinstance(a, GroupRelative)))
def test_annotate_credits_scored_siblings_only(name: str) -> None:
    mixed = group(1.0, None, 0.0)
    asyncio.run(algorithm(name).assign_advantages(mixed))
    won, failed, lost = (r.trajectory.advantage for r in mixed.rollouts)
    assert failed is None
    assert won is not None
    assert lost is not None
    assert won > lost
    assert has_signal(mixed)


def test_groups_that_agree_teach_nothing() -> None:
    agreed = group(0.7, 0.7, 0.7)
    asyncio.run(algorithm("cispo").assign_advantages(agreed))
    assert [r.trajectory.advantage for r in agreed.rollouts] == [0.0, 0.0, 0.0]
    assert not has_signal(agreed)
    assert not has_signal(group(None, None))


def said(reward: float | None, *turns: tuple[tuple[int, ...], tuple[int, ...]]) -> Rollout:
    """A rollout whose turns read and say these ids."""
    made = [
        Turn(
            observation=(),
            action=assistant(""),
            tokens=Tokens(prompt=read, completion=spoken, logprobs=(-1.0,) * len(spoken)),
        )
        for read, spoken in turns
    ]
    score = None if reward is None else Score(reward=reward)
    return Rollout(task=Task(id="t"), seed=0, trajectories=[Trajectory(turns=made, score=score)])


def test_the_prefix_tree_credits_a_token_by_the_siblings_that_had_come_that_far() -> None:
    parted = [
        said(1.0, ((9,), (1, 2)), ((8,), (3,))),
        said(0.0, ((9,), (1, 2)), ((8,), (4,))),
        said(0.5, ((9,), (1, 2)), ((7,), (3,))),
        said(0.0, ((9,), (5, 2))),
        said(None, ((9,), (1, 2))),
    ]
    asyncio.run(algorithm("cispo-tree").assign_advantages(Group(task=Task(id="t"), rollouts=parted)))
    scale = 1 / (stdev([1.0, 0.0, 0.5, 0.0]) + 0.1)
    first, second, third, fourth, failed = (r.trajectory for r in parted)
    # all four share the start (mean 0.375), three of them say 1 (mean 0.5); then no three are together any more
    for trajectory, reward in ((first, 1.0), (second, 0.0), (third, 0.5)):
        start, later = scale * (reward - 0.375), scale * (reward - 0.5)
        assert trajectory.advantages == [pytest.approx([start, later]), [0.0]]
    assert fourth.advantages == [pytest.approx([scale * (0 - 0.375), 0.0])]
    assert failed.advantages is None


def test_the_prefix_tree_is_the_centered_advantage_for_one_token_answers() -> None:
    bandit = [said(r, ((9,), (i,))) for i, r in enumerate(REWARDS)]
    asyncio.run(algorithm("cispo-tree").assign_advantages(Group(task=Task(id="t"), rollouts=bandit)))
    assert [r.trajectory.advantage for r in bandit] == pytest.approx(
        [a / (stdev(REWARDS) + 0.1) for a in mean_baseline(REWARDS)]
    )


def test_explorers_are_credited_when_they_beat_all_the_others_and_shift_nobodys_baseline() -> None:
    own = [said(r, ((9,), (1,))) for r in (0.0, 0.0, 0.5)]
    lucky, unlucky = said(1.0, ((9,), (4,)), ((8,), (3,))), said(0.5, ((9,), (5,)))
    for explorer in (lucky, unlucky):
        explorer.trajectory.turns[0] = replace(explorer.trajectory.turns[0], finish="not_sampled")
    group = Group(task=Task(id="t"), rollouts=[*own, lucky, unlucky])
    asyncio.run(algorithm("cispo-tree").assign_advantages(group))
    scale, mean = 1 / (stdev([0, 0, 0.5, 1, 0.5]) + 0.1), 0.5 / 3
    assert [r.trajectory.advantages for r in own] == [[[pytest.approx(scale * (r - mean))]] for r in (0.0, 0.0, 0.5)]
    assert lucky.trajectory.advantages == [[pytest.approx(scale * (1 - 0.5))], [0.0]]
    assert unlucky.trajectory.advantages == [[0.0]]
    (sample,) = [s for s in credited_samples([group]) if s.off_policy_until and s.ids]
    assert sample.ids == [9, 4]
