"""Settings with which a small model learns sums: `wander train --preset arithmetic`.

The figures stand in docs/benchmarks.md; `python -m benchmarks --only arithmetic` measures them again.
"""

from __future__ import annotations

from wanderlust.training.config import TrainConfig

ARITHMETIC = TrainConfig(
    env="wanderlust_reasoning.environment:ReasoningGym,dataset=chain_sum,size=5000,min_terms=2,max_terms=2,min_digits=2,"
    "max_digits=3",
    policy="fresh",
    sft_episodes=4000,
    sft_steps=900,
    sft_batch=32,
    fresh_width=64,
    fresh_layers=2,
    fresh_positions=256,
    algorithm="cispo",
    steps=60,
    tasks_per_step=16,
    group_size=8,
    lr=5e-4,
    max_tokens=48,
    eval_every=20,
)
"""Sums and differences of numbers below a thousand, worked out in columns: to carry."""
