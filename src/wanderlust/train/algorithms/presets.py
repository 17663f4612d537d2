"""Algorithms by the names the field gives them."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Protocol

from wanderlust.core.errors import UsageError
from wanderlust.core.types import Group
from wanderlust.train import losses
from wanderlust.train.advantage import centered, leave_one_out, plain, standardized
from wanderlust.train.algorithms.group_relative import GroupRelative
from wanderlust.train.algorithms.prefix_tree import PrefixTree
from wanderlust.train.losses import PolicyLoss


class Algorithm(Protocol):
    """Annotates a Group with credit; the trainer knows no algorithm's name."""

    @property
    def loss(self) -> PolicyLoss:
        """The loss that goes with the credit."""
        ...

    async def annotate(self, group: Group) -> None:
        """Write advantages on the group's trajectories."""
        ...


PRESETS: Mapping[str, Algorithm] = {
    "reinforce": GroupRelative(advantage=plain, loss=losses.REINFORCE),
    "rloo": GroupRelative(advantage=leave_one_out, loss=losses.IMPORTANCE),
    "ppo": GroupRelative(advantage=standardized, loss=losses.PPO),
    "grpo": GroupRelative(advantage=standardized, loss=losses.GRPO),
    "dr-grpo": GroupRelative(advantage=centered, loss=losses.DR_GRPO),
    "dapo": GroupRelative(advantage=standardized, loss=losses.DAPO),
    "cispo": GroupRelative(advantage=standardized, loss=losses.CISPO),
    "cispo-tree": PrefixTree(loss=losses.CISPO),
}


def algorithm(name: str) -> Algorithm:
    """The algorithm of that name. Raises UsageError, naming the nearest valid ones."""
    if name not in PRESETS:
        near = get_close_matches(name, PRESETS, n=3) or sorted(PRESETS)
        raise UsageError(f"unknown algorithm {name!r}; there are {', '.join(near)}")
    return PRESETS[name]
