"""Questions over an inbox of thousands of mails, generated or one's own, for an agent that searches and reads."""

from __future__ import annotations

from wanderlust._lazy import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
