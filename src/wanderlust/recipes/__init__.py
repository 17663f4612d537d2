"""Whole experiments as Python functions; `minimal_rl` shows one RL run on one screen."""
