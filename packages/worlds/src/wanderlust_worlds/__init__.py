"""Simulated worlds: apps with a clock, events and a log; scenarios, their verification, and environments."""

from __future__ import annotations

from wanderlust._lazy import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
