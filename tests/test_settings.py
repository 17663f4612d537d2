"""Every number of an algorithm, optimizer and run is a setting, reaches what reads it, and is refused elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from wanderlust.errors import UsageError
from wanderlust.training.algorithms.presets import configured_algorithm
from wanderlust.training.config import TrainConfig
from wanderlust.training.trainers.process_pool import shard, unshard


def test_bounds_of_the_ratio_reach_the_loss() -> None:
    loss = configured_algorithm(TrainConfig(algorithm="grpo", ratio_min=0.7, ratio_max=1.4)).loss
    assert (loss.ratio_min, loss.ratio_max, loss.clip) == (0.7, 1.4, "ppo")
    own = configured_algorithm(TrainConfig(algorithm="grpo")).loss
    assert configured_algorithm(TrainConfig(algorithm="grpo", ratio_max=1.5)).loss == replace(own, ratio_max=1.5)


def test_ppos_and_dpos_numbers_reach_them() -> None:
    config = TrainConfig(algorithm="ppo", discount=0.9, gae_lambda=0.8, critic_lr=0.01, critic_epochs=3)
    ppo = cast(Any, configured_algorithm(config))
    assert (ppo.discount, ppo.trace, ppo.lr, ppo.epochs) == (0.9, 0.8, 0.01, 3)
    assert cast(Any, configured_algorithm(TrainConfig(algorithm="dpo", dpo_beta=0.3))).beta == 0.3


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"algorithm": "grpo", "discount": 0.9}, "discount is not read by the algorithm grpo"),
        ({"algorithm": "ppo", "dpo_beta": 0.3}, "dpo_beta is not read by the algorithm ppo"),
        ({"algorithm": "reinforce", "ratio_max": 2.0}, "the algorithm reinforce has no bounds"),
        ({"algorithm": "grpo", "ratio_min": 1.5}, "ratio_min is 1.5, and must be below ratio_max, 1.2"),
    ],
)
def test_what_an_algorithm_does_not_read_is_one_line(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        configured_algorithm(TrainConfig(**settings))


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("top_p", 0.0, "above 0"),
        ("top_p", 1.5, "from 0 to 1"),
        ("shards", 0, "at least 1"),
        ("beta2", 1.5, "from 0 to 1"),
        ("lr_decay", "quadratic", "one of 'constant', 'linear', 'cosine'"),
        ("engine", "vlm", "one of 'local', 'fsdp', 'vllm', 'vllm\\+fsdp'"),
    ],
)
def test_a_wrong_number_is_one_line(name: str, value: Any, why: str) -> None:
    with pytest.raises(UsageError, match=rf"{name} is .*, and must be {why}"):
        TrainConfig(**{name: value})


def test_the_optimizer_has_its_schedule_and_decays() -> None:
    optimizer = TrainConfig(lr=1.0, lr_decay="cosine", beta1=0.5, beta2=0.6, steps=10, lr_warmup_steps=0).rl_optimizer
    assert (optimizer.betas, optimizer.decay) == ((0.5, 0.6), "cosine")
    assert TrainConfig(top_p=0.9).sampling.top_p == 0.9


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_a_batch_is_cut_into_as_many_pieces_as_there_are_shards(shards: int) -> None:
    numbered = list(range(5, 15))
    parts = shard(numbered, 5, shards)
    assert len(parts) == shards
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert unshard(parts, 5) == numbered
    config = TrainConfig(env="toys:Twice", shards=shards)
    assert TrainConfig.from_dict(config.as_dict()).shards == shards
