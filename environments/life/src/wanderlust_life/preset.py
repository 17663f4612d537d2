"""Settings with which a small model learns in a world: `wander train --preset life`."""

from wanderlust.training.config import TrainConfig

LIFE = TrainConfig(
    env="wanderlust_life.brief_life:BriefLife",
    policy="fresh",
    sft_episodes=12000,
    sft_steps=2400,
    sft_context_weight=0.03,
    algorithm="cispo-tree",
    steps=120,
    tasks_per_step=48,
    lr=1e-3,
    max_tokens=24,
    eval_every=60,
)
"""Six families of a life: to wait for as long as one was told, to tell whose answer it was, to do what is left."""
