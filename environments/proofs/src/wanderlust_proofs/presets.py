"""Settings with which a small model learns repairs and tasks of its own: `wander train --preset NAME`."""

from wanderlust.training.config import TrainConfig

REPAIRS = TrainConfig(
    env="wanderlust_proofs.repairs:Repairs",
    policy="fresh",
    sft_episodes=6000,
    sft_steps=2000,
    sft_batch=32,
    fresh_width=64,
    fresh_layers=2,
    fresh_positions=160,
    algorithm="cispo",
    steps=150,
    tasks_per_step=64,
    group_size=16,
    lr=1e-3,
    max_tokens=12,
    eval_every=50,
)
"""One-line repairs of functions of three numbers, from the results of unit tests alone."""

SELF_MADE = TrainConfig(
    env="wanderlust_proofs.self_made:SelfMadeTasks,size=12000",
    policy="fresh",
    sft_episodes=12000,
    sft_steps=2400,
    sft_batch=32,
    fresh_width=64,
    fresh_layers=2,
    fresh_positions=192,
    algorithm="cispo",
    curriculum="self-made,capacity=32",
    steps=60,
    tasks_per_step=16,
    group_size=8,
    lr=1e-3,
    max_tokens=32,
    eval_every=30,
)
"""Small programs and sums that the model sets for itself and solves, paid by how learnable they are."""
