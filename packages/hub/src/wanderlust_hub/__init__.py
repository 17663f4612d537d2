"""Hubs: an index of environments as files, in a folder or on any web server.

A hub is checked by reading it. Searching, showing and verifying import no code of a published package.
"""

from __future__ import annotations

from wanderlust._lazy import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
