"""Any environment under a token budget that the policy is told, or at a level of effort."""

from __future__ import annotations

from wanderlust._lazy import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
