"""Settings with which a small model learns sums, `wander train --preset arithmetic`, and those of Compute as Teacher.

The figures of the first stand in docs/benchmarks.md; `python -m benchmarks --only arithmetic` measures them again.
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

COMPUTE_AS_TEACHER = TrainConfig(
    label_estimator="synthesis",
    label_reward="match",
    algorithm="grpo",
    kl=1e-3,
    kl_into="reward",
    kl_estimator="k1",
    tasks_per_step=256,
    group_size=8,
    steps=1000,
    lr=5e-7,
    lr_decay="constant",
    lr_warmup_steps=0,
    max_tokens=1536,
    ema_decay=0.0,
)
"""Answers that can be compared, as published on MATH-500 (arXiv 2509.14234, tables 1 to 3); for any environment.

What the paper does not tell is as elsewhere: bounds of the ratio, AdamW's decays, one update a step. Its estimator of
the KL divergence is taken to be that of verl, which it names.
"""

COMPUTE_AS_TEACHER_RUBRIC = COMPUTE_AS_TEACHER.replace(label_reward="rubric", algorithm="grpo-750", max_tokens=1024)
"""Prose by rubrics, as published on HealthBench: an answer of more than 750 tokens loses 1."""
