"""Functions to write, judged by hidden unit tests in a sandbox: HumanEval, and problems of your own."""

from __future__ import annotations

from wanderlust._lazy import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
