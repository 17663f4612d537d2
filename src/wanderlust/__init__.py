"""Wanderlust: reinforcement-learning environments of language-model agents.

Write an environment once, evaluate any model in it, look at every rollout, and train a model on it. Everything public
is importable from here or from `wanderlust.algorithms`, `.cli`, `.data`, `.errors`, `.rubrics`, `.serving`, `.testing`
and `.worlds`; all other modules are private and may change in any release. Names are imported when they are first
used, so that this import takes milliseconds and only training and local models need PyTorch.
"""

from __future__ import annotations

from wanderlust._lazy import lazy_names

__version__ = "0.1.0"

__all__, __getattr__, __dir__ = lazy_names(__name__)
