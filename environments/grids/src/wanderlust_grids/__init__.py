"""Grid games that the agent has to find out: rules, levels, players and the official games."""

from __future__ import annotations

from wanderlust._lazy import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
