"""Worlds of Gymnasium as text, with a finite set of actions."""

from __future__ import annotations

from wanderlust._lazy import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
