"""Training data from any environment: sources, teachers, filters, copies, and what each stage did."""

from __future__ import annotations

from wanderlust._lazy import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
