"""The settings that `brief-inbox` is learnt with: `wander train --preset inbox`."""

from __future__ import annotations

from wanderlust.training.config import TrainConfig

INBOX = TrainConfig(
    env="wanderlust_inbox.brief:BriefInbox,hallucination=0.1,turns=0.05",
    policy="fresh",
    sft_episodes=12000,
    sft_steps=2400,
    sft_batch=16,
    fresh_width=96,
    fresh_layers=3,
    algorithm="dr-grpo",
    steps=400,
    tasks_per_step=32,
    group_size=16,
    lr=1e-3,
    max_tokens=16,
    eval_every=150,
    eval_tasks=150,
)
"""A mail agent: which word to search for, whom a mail names, what a later mail replaces, and when no mail has it."""
