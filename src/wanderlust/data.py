"""Training data from any environment: the names of `wanderlust_data`, which the extra `data` brings."""

from typing import TYPE_CHECKING

from wanderlust._lazy import lazy_face

if TYPE_CHECKING:
    from wanderlust_data import *  # noqa: F403

__getattr__, __dir__ = lazy_face("wanderlust_data", extra="data")
