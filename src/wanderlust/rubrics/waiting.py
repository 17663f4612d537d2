"""Waiting for several answers at once, with errors in an order that timing does not change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

from wanderlust.core.errors import RubricFailure, WanderlustError, boundary

T = TypeVar("T")


async def settled(waiting: Iterable[Awaitable[T]]) -> list[T | WanderlustError]:
    """What each came to, in their order: its value, or the error that it ended with. Cancelling cancels all."""
    values = list(waiting)
    if len(values) == 1:
        return [await _settle(values[0])]  # a task of its own would cost several times what rubrics do otherwise
    return await asyncio.gather(*map(_settle, values))


async def _settle(value: Awaitable[T]) -> T | WanderlustError:
    try:
        with boundary(RubricFailure):
            return await value
    except WanderlustError as error:
        return error
