"""The eight steps on one screen: they learn, they are short, and they use no more of the library than they show."""

from __future__ import annotations

import asyncio
from pathlib import Path

import torch
from examples import minimal_rl

WORDS = ("tasks", "rollouts", "trajectories", "scores", "advantage", "samples", "batch", "update")


def test_it_learns() -> None:
    torch.set_num_threads(1)
    curve = asyncio.run(minimal_rl.learn(100, seed=0))
    assert max(curve[:5]) < 0.1
    assert min(curve[-5:]) > 0.9


def test_equal_seeds_give_equal_rewards() -> None:
    one, again, other = (asyncio.run(minimal_rl.learn(25, group_size=32, seed=seed)) for seed in (0, 0, 1))
    assert one == again
    assert one != other


def test_it_shows_the_eight_words_in_their_order_on_one_screen() -> None:
    text = Path(minimal_rl.__file__).read_text()
    loop = text[text.index("for step in range(steps)") :]
    assert len(text.splitlines()) <= 90
    places = [loop.index(word) for word in WORDS]
    assert places == sorted(places)
    assert "cli" not in text
