"""Which tasks of a split are played."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from wanderlust.core.errors import UsageError
from wanderlust.core.types import Task

MOST = 10_000
"""A split with more tasks counts as endless."""


def choose(tasks: Iterable[Task], count: int | None = None) -> list[Task]:
    """All tasks, or `count` of them spread evenly over the split; of an endless one, the first `count`.

    Raises UsageError when all tasks of an endless split are asked for.
    """
    listed = list(islice(tasks, MOST + 1))
    if len(listed) > MOST:
        if count is None:
            raise UsageError(f"the split has more than {MOST} tasks: say how many to play")
        return listed[:count] if count <= MOST else list(islice(tasks, count))
    if count is None or count >= len(listed):
        return listed
    return [listed[i * len(listed) // count] for i in range(count)]
