"""What a model plays in Kuhn poker: read from its logits, and the same as it does."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from wanderlust.environments.kuhn import CARDS, KuhnPoker, choices, exploitability, strategy
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.runner.engine import rollouts
from wanderlust.runner.progress import NullLogger
from wanderlust.training.config import TrainConfig
from wanderlust.training.warmup import fresh_model_after_sft

PLACES = [(), ("check",), ("bet",), ("check", "bet")]
ENV = KuhnPoker()


@pytest.fixture(scope="module")
def beginner() -> tuple[Any, Any]:
    config = TrainConfig(
        env=ENV, policy="fresh", sft_episodes=100, sft_steps=120, fresh_width=32, sft_context_weight=0.0
    )
    return fresh_model_after_sft(config, logger=NullLogger())


def test_moves_have_probabilities(beginner: tuple[Any, Any]) -> None:
    plays = strategy(*beginner)
    for card in CARDS:
        for place in PLACES:
            odds = [plays(card, place, move) for move in choices(place)]
            assert min(odds) >= 0
            assert 0.7 < sum(odds) <= 1 + 1e-5
    assert exploitability(plays) > 0


def test_it_plays_what_was_read(beginner: tuple[Any, Any]) -> None:
    plays, policy, games = strategy(*beginner), LocalPolicy.of(*beginner, SamplingOptions(max_tokens=8), seed=0), 200

    async def opened() -> Counter[tuple[str, str]]:
        async with rollouts(ENV, ENV.tasks(), policy, group_size=games // 2) as stream:
            done = [game async for group in stream for game in group.rollouts]
        return Counter((game.task.info["cards"][0], *game.state["history"][:1]) for game in done)

    counted = asyncio.run(opened())
    for card in CARDS:
        for move in choices(()):
            share = plays(card, (), move)
            assert abs(counted[card, move] / games - share) < 4 * (share * (1 - share) / games) ** 0.5 + 0.01
