"""Algorithms by the names the field gives them. docs/algorithms.md says when to take which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, cast

from wanderlust.errors import UsageError
from wanderlust.training import losses
from wanderlust.training.algorithms.base import Algorithm, centered, leave_one_out, plain, standardized
from wanderlust.training.algorithms.diversity import Diverse
from wanderlust.training.algorithms.dpo import Preference
from wanderlust.training.algorithms.grpo import GroupRelative, Overlong
from wanderlust.training.algorithms.imitation import Distillation, Imitate, ImitateTeacher
from wanderlust.training.algorithms.per_turn import PerTurn
from wanderlust.training.algorithms.ppo import PPO
from wanderlust.training.algorithms.prefix_tree import PrefixTree
from wanderlust.training.algorithms.reinforce_pp import BatchNormalised
from wanderlust.training.algorithms.self_play import SelfPlay
from wanderlust.training.losses import PolicyLoss

REFILLS = 3

PRESETS: Mapping[str, Algorithm] = {
    "reinforce": GroupRelative(advantage=plain, loss=losses.REINFORCE),
    "rloo": GroupRelative(advantage=leave_one_out, loss=losses.IMPORTANCE),
    "reinforce++": BatchNormalised(advantage=plain),
    "reinforce++-baseline": BatchNormalised(advantage=centered),
    "ppo": PPO(),
    "grpo": GroupRelative(advantage=standardized, loss=losses.GRPO),
    "grpo-diverse": Diverse(advantage=standardized),
    "dr-grpo": GroupRelative(advantage=centered, loss=losses.DR_GRPO),
    "dapo": GroupRelative(advantage=standardized, loss=losses.DAPO, overlong=Overlong(), refills=REFILLS),
    "cispo": GroupRelative(advantage=standardized, loss=losses.CISPO),
    "cispo-tree": PrefixTree(loss=losses.CISPO),
    "cispo-turns": PerTurn(loss=losses.CISPO),
    "gspo": GroupRelative(advantage=standardized, loss=losses.GSPO),
    "masked": GroupRelative(advantage=centered, loss=losses.MASKED),
    "grpo-tis": GroupRelative(advantage=standardized, loss=replace(losses.GRPO, correction=losses.TIS)),
    "grpo-mis": GroupRelative(advantage=standardized, loss=replace(losses.GRPO, correction=losses.MIS)),
    "self-play": SelfPlay(),
    "dpo": Preference(),
    "best-of-n": Imitate(),
    "sft": ImitateTeacher(),
    "distill-off-policy": ImitateTeacher(best=False),
    "distill": Distillation(),
}


def with_loss(method: Algorithm, loss: PolicyLoss) -> Algorithm:
    """The same credit with another loss."""
    changed: Algorithm = replace(cast(Any, method), loss=loss)
    return changed


def algorithm(name: str) -> Algorithm:
    """The algorithm of that name. Raises UsageError, naming the nearest valid ones."""
    if name not in PRESETS:
        near = get_close_matches(name, PRESETS, n=3) or sorted(PRESETS)
        raise UsageError(f"unknown algorithm {name!r}; there are {', '.join(near)}")
    return PRESETS[name]
