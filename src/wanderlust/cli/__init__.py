"""The command `wander`: each module parses arguments, calls the public functions and prints."""

from __future__ import annotations

from wanderlust._lazy import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
