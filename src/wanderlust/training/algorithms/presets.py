"""Algorithms by the names the field gives them. docs/algorithms.md says when to take which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, cast

from wanderlust.errors import UsageError
from wanderlust.training import losses
from wanderlust.training.advantages import leave_one_out, mean_baseline, raw_reward, standardized
from wanderlust.training.algorithms.base import Algorithm
from wanderlust.training.algorithms.diversity import DiversityBonus
from wanderlust.training.algorithms.dpo import Preference
from wanderlust.training.algorithms.grpo import GroupRelative, OverlongPenalty
from wanderlust.training.algorithms.imitation import BestOfNImitation, Distillation, TeacherImitation
from wanderlust.training.algorithms.per_turn import PerTurn
from wanderlust.training.algorithms.ppo import PPO
from wanderlust.training.algorithms.prefix_tree import PrefixTree
from wanderlust.training.algorithms.reinforce_pp import BatchNormalised
from wanderlust.training.algorithms.self_play import SelfPlay
from wanderlust.training.config import TrainConfig
from wanderlust.training.losses import KL, PolicyLoss, with_importance_correction

MAX_REFILLS = 3

ALGORITHMS: Mapping[str, Algorithm] = {
    "reinforce": GroupRelative(advantage=raw_reward, loss=losses.REINFORCE_LOSS),
    "rloo": GroupRelative(advantage=leave_one_out, loss=losses.IMPORTANCE_LOSS),
    "reinforce++": BatchNormalised(advantage=raw_reward),
    "reinforce++-baseline": BatchNormalised(advantage=mean_baseline),
    "ppo": PPO(),
    "grpo": GroupRelative(advantage=standardized, loss=losses.GRPO_LOSS),
    "grpo-diverse": DiversityBonus(advantage=standardized),
    "dr-grpo": GroupRelative(advantage=mean_baseline, loss=losses.DR_GRPO_LOSS),
    "dapo": GroupRelative(
        advantage=standardized, loss=losses.DAPO_LOSS, overlong=OverlongPenalty(), max_refills=MAX_REFILLS
    ),
    "cispo": GroupRelative(advantage=standardized, loss=losses.CISPO_LOSS),
    "cispo-tree": PrefixTree(loss=losses.CISPO_LOSS),
    "cispo-turns": PerTurn(loss=losses.CISPO_LOSS),
    "gspo": GroupRelative(advantage=standardized, loss=losses.GSPO_LOSS),
    "masked": GroupRelative(advantage=mean_baseline, loss=losses.MASKED_LOSS),
    "grpo-tis": GroupRelative(advantage=standardized, loss=replace(losses.GRPO_LOSS, correction=losses.TIS)),
    "grpo-mis": GroupRelative(advantage=standardized, loss=replace(losses.GRPO_LOSS, correction=losses.MIS)),
    "self-play": SelfPlay(),
    "dpo": Preference(),
    "best-of-n": BestOfNImitation(),
    "sft": TeacherImitation(),
    "distill-off-policy": TeacherImitation(best=False),
    "distill": Distillation(),
}


def with_loss(method: Algorithm, loss: PolicyLoss) -> Algorithm:
    """The same credit with another loss."""
    changed: Algorithm = replace(cast(Any, method), loss=loss)
    return changed


def algorithm(name: str) -> Algorithm:
    """The algorithm of that name. Raises UsageError, naming the nearest valid ones."""
    if name not in ALGORITHMS:
        near, names = get_close_matches(name, ALGORITHMS, n=3), ", ".join(sorted(ALGORITHMS))
        guess = f"did you mean {' or '.join(near)}? ({len(ALGORITHMS)} in all: {names})"
        raise UsageError(f"unknown algorithm {name!r}; {guess if near else f'there are {names}'}")
    return ALGORITHMS[name]


def configured_algorithm(config: TrainConfig) -> Algorithm:
    """The algorithm of a configuration, with its KL divergence, entropy bonus and precision.

    Raises UsageError when they do not go together.
    """
    method = algorithm(config.algorithm) if isinstance(config.algorithm, str) else config.algorithm
    loss = method.loss
    if config.kl:
        loss = replace(loss, kl=KL(weight=config.kl, estimator=config.kl_estimator, into=config.kl_into))
    if config.entropy:
        loss = replace(loss, entropy=config.entropy)
    if config.precision != "fp32":
        loss = with_importance_correction(loss)
    return with_loss(method, loss) if loss != method.loss else method
