"""Environments that a small model learns, and the settings it does that with: `wander train --preset NAME`.

Every preset is a run of `train`: SFT on a teacher's episodes first, then RL. The figures of each stand
in docs/benchmarks.md; `python -m benchmarks --only NAME` measures them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from wanderlust import plugins
from wanderlust.errors import UsageError, nearest_names
from wanderlust.training.config import TrainConfig

PRESETS = "wanderlust.presets"
"""Entry points of presets: a `TrainConfig`, or a `PresetCommand`."""


class PresetCommand(Protocol):
    """A preset that is more than one run of `train`."""

    def __call__(
        self, policy: str | None, given: Mapping[str, Any], *, out: Path | None, workers: int | None, json: bool
    ) -> None:
        """`wander train --preset NAME`: make its runs, or go on with them, and print the outcome.

        `given` are the fields of `TrainConfig` that were named as options. Raises UsageError for what it does not take.
        """
        ...


def load_preset(name: str) -> TrainConfig | PresetCommand:
    """Load a preset of an installed package by name.

    Args:
        name: As after `wander train --preset`.

    Returns:
        The configuration of its run; of a preset of several runs, the function behind its command.

    Raises:
        UsageError: when there is none of that name, with the nearest ones, or its package gives none.

    Example:
        >>> load_preset("wordle").algorithm
        'cispo-turns'
    """
    points = plugins.declared(PRESETS)
    if name not in points:
        guess = plugins.how_to_install(PRESETS, name) or nearest_names(name, [*points], kind="presets")
        raise UsageError(f"there is no preset {name!r}; {guess}")
    preset: TrainConfig | PresetCommand = plugins.load(points[name])
    if not isinstance(preset, TrainConfig) and not callable(preset):
        raise UsageError(f"{points[name].value} is no TrainConfig and no function, but a {type(preset).__name__}")
    return preset


WORDLE = TrainConfig(
    env="wanderlust.environments.wordle:BriefWordle,words=300,hard=true",
    policy="fresh",
    sft_episodes=10000,
    sft_steps=1200,
    sft_batch=64,
    sft_lr=0.01,
    fresh_width=128,
    fresh_layers=1,
    sft_context_weight=0,
    algorithm="cispo-turns",
    steps=60,
    tasks_per_step=16,
    group_size=16,
    lr=7e-4,
    max_tokens=4,
)
"""Wordle over 300 words: to guess what fits all that was told."""

KUHN = TrainConfig(
    env="wanderlust.environments.kuhn:KuhnPoker",
    policy="fresh",
    sft_episodes=400,
    sft_steps=150,
    fresh_width=48,
    sft_context_weight=0,
    algorithm="rloo",
    steps=120,
    tasks_per_step=6,
    group_size=32,
    lr=3e-4,
    max_tokens=4,
    entropy=0.05,
)
"""Poker by self-play, each deal once a step; a seat is compared with rollouts of the same cards and seat."""

TOOL_CALL = TrainConfig(
    env="wanderlust.environments.tool_call:ToolCallEnvironment,size=15",
    policy="smollm2",
    sft_episodes=2000,
    sft_steps=60,
    sft_batch=8,
    sft_lr=0.001,
    algorithm="grpo",
    steps=10,
    tasks_per_step=6,
    group_size=6,
    lr=1e-4,
    max_tokens=56,
    lora=16,
)
"""A pretrained model: strict calls of tools that it has never seen, after a short warm-up on the oracle's."""

DEMO = TrainConfig(
    env="tictactoe,high=1.0,views=true",
    policy="fresh",
    sft_episodes=200,
    sft_steps=350,
    sft_batch=16,
    sft_lr=3e-3,
    fresh_width=128,
    fresh_positions=512,
    algorithm="cispo-tree",
    ratio_min=0.25,
    exploring_starts=2,
    curriculum="tictactoe-starts,ramp=125",
    steps=250,
    tasks_per_step=48,
    updates_per_step=2,
    max_tokens=12,
    lr=7e-4,
    optimizer="muon",
    lr_warmup_steps=10,
    lr_end=0.05,
    eval_every=50,
    eval_tasks=0,
    result_tasks=300,
    result_samples=1,
)
"""Tic-tac-toe, `wander demo`: a teacher's games, then games from positions met before (docs/decisions/0006).

A least weight of a credited token (`ratio_min`) lets a good move be learnt that the policy would hardly have made; a
model of twice the default width learns in half of the steps, and a step takes little longer.
"""

QUICK_DEMO = DEMO.replace(
    fresh_width=64,
    sft_steps=300,
    curriculum="tictactoe-starts,ramp=12",
    steps=12,
    tasks_per_step=32,
    eval_every=12,
    ema_decay=0.8,
)
"""The same in under a minute: something is learnt."""
