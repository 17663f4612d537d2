"""Simulated worlds: the names of `wanderlust_worlds`, which the extra `worlds` brings."""

from typing import TYPE_CHECKING

from wanderlust._lazy import lazy_face

if TYPE_CHECKING:
    from wanderlust_worlds import *  # noqa: F403

__getattr__, __dir__ = lazy_face("wanderlust_worlds", extra="worlds")
