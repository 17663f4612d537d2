"""Models and seats for other programs: OpenAI-compatible servers and clients, other trainers, tools in plain text."""

from __future__ import annotations

from wanderlust._lazy import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
