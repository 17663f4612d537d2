"""Algorithms by the names the field gives them. docs/algorithms.md says when to take which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any, cast

from wanderlust.errors import UsageError
from wanderlust.training import losses
from wanderlust.training.algorithms.base import Algorithm
from wanderlust.training.algorithms.diversity import DiversityBonus, Improvement
from wanderlust.training.algorithms.dpo import Preference
from wanderlust.training.algorithms.grpo import (
    GroupRelative,
    OverlongPenalty,
    leave_one_out,
    mean_baseline,
    raw_reward,
    standardized,
)
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
    "grpo-750": GroupRelative(
        advantage=standardized, loss=losses.GRPO_LOSS, overlong=OverlongPenalty(max_tokens=751, margin=1 / 751)
    ),
    "grpo-diverse": DiversityBonus(advantage=standardized),
    "grpo-improve": Improvement(advantage=standardized),
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
    method = _with_settings(method, config)
    loss = _with_bounds(method.loss, config)
    if config.kl_target and not config.kl:
        raise UsageError("kl_target adapts the weight of the KL divergence: set kl, the weight to begin with")
    if config.kl:
        kl = KL(weight=config.kl, estimator=config.kl_estimator, into=config.kl_into, target=config.kl_target)
        loss = replace(loss, kl=kl)
    if config.entropy:
        loss = replace(loss, entropy=config.entropy)
    if config.precision != "fp32":
        loss = with_importance_correction(loss)
    return with_loss(method, loss) if loss != method.loss else method


PPO_SETTINGS = {"discount": "discount", "gae_lambda": "trace", "critic_lr": "lr", "critic_epochs": "epochs"}
DPO_SETTINGS = {"dpo_beta": "beta"}
"""Settings that one algorithm reads, and its own names of them."""


def _with_settings(method: Algorithm, config: TrainConfig) -> Algorithm:
    """The algorithm with the settings that only it reads. Raises UsageError for those of another one."""
    for kind, settings in ((PPO, PPO_SETTINGS), (Preference, DPO_SETTINGS)):
        defaults = {field.name: field.default for field in fields(TrainConfig)}
        changed = {name: getattr(config, name) for name in settings if getattr(config, name) != defaults[name]}
        if changed and not isinstance(method, kind):
            raise UsageError(f"{next(iter(changed))} is not read by the algorithm {config.algorithm}: leave it out")
        if changed:
            method = replace(cast(Any, method), **{settings[name]: value for name, value in changed.items()})
    return method


def _with_bounds(loss: PolicyLoss, config: TrainConfig) -> PolicyLoss:
    """The loss with the configuration's bounds of the ratio. Raises UsageError for a loss that has none."""
    bounds = {name: getattr(config, name) for name in ("ratio_min", "ratio_max") if getattr(config, name) >= 0}
    if bounds and loss.clip not in CLIPPED:
        raise UsageError(f"the algorithm {config.algorithm} has no bounds of the ratio: leave {next(iter(bounds))} out")
    loss = replace(loss, **bounds)
    if bounds and loss.ratio_min >= loss.ratio_max:
        raise UsageError(f"ratio_min is {loss.ratio_min:g}, and must be below ratio_max, {loss.ratio_max:g}")
    return loss


CLIPPED = frozenset({"ppo", "cispo", "masked"})
"""Clips that read the bounds."""
