"""Simulated lives: people and their records, families of scenarios over them, and players."""

from __future__ import annotations

from wanderlust._lazy import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
