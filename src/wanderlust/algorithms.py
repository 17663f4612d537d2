"""Algorithms, losses, curricula, trainers and offline training, by name or as objects (needs the extra `train`)."""

from __future__ import annotations

from wanderlust._lazy import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, extras={"wanderlust_optimize": "gepa"})
