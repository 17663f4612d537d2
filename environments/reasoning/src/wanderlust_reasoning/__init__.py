"""The data sets of reasoning-gym, and a recipe that trains a reasoner on many of them at once."""

from __future__ import annotations

from wanderlust._lazy import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
