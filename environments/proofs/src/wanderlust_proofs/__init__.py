"""Artefacts that carry their proof: a statement, what was made for it, a checker, and a validator of the statement."""

from __future__ import annotations

from wanderlust._lazy import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
