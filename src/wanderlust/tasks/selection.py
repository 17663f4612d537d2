"""Which tasks of a split are played, and which of them cannot be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from wanderlust.environment import Environment
from wanderlust.errors import EnvironmentFailure, UsageError, boundary
from wanderlust.types import Task

MAX_LISTED_TASKS = 10_000
"""A split with more tasks counts as endless."""


def iter_tasks(env: Environment, split: str) -> Iterator[Task]:
    """The tasks of a split, one after the other.

    Raises EnvironmentFailure when the environment's own code fails, and UsageError for what is no task.
    """
    where = f"{type(env).__name__}.tasks({split!r})"
    try:
        with boundary(EnvironmentFailure):
            for task in env.tasks(split):
                yield checked_task(task, where)
    except EnvironmentFailure as failure:
        raise EnvironmentFailure(f"{where}: {failure}") from failure


def checked_task(task: object, where: str) -> Task:
    """The same task. Raises UsageError, which says from `where` it comes, for what is no task."""
    if not isinstance(task, Task):
        raise UsageError(f"{where} gave a {type(task).__name__}, and not a wanderlust.Task")
    if not isinstance(task.id, str):
        raise UsageError(f"{where} gave a task whose id is {task.id!r}, and not a text")
    return task


def choose_tasks(tasks: Iterable[Task], count: int | None = None) -> list[Task]:
    """All tasks, or `count` of them spread evenly over the split; of an endless one, the first `count`.

    Raises UsageError when all tasks of an endless split are asked for.
    """
    tasks = iter(tasks)
    listed = list(islice(tasks, MAX_LISTED_TASKS + 1))
    if len(listed) > MAX_LISTED_TASKS:
        if count is None:
            raise UsageError(f"the split has more than {MAX_LISTED_TASKS} tasks: say how many to play")
        return listed[:count] if count <= MAX_LISTED_TASKS else [*listed, *islice(tasks, count - len(listed))]
    if count is None or count >= len(listed):
        return listed
    return [listed[i * len(listed) // count] for i in range(count)]


def find_faulty_tasks(tasks: Sequence[Task]) -> dict[int, str]:
    """Why a task cannot be played, by position: it is not plain data, or another one before it has its id.

    A task may come twice when it is the same task.
    """
    out: dict[int, str] = {}
    body_by_id: dict[str, bytes] = {}
    for position, task in enumerate(tasks):
        try:
            body = msgspec.msgpack.encode(task)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            out[position] = f"task {task.id!r} is not plain data: {error}"
            continue
        if body_by_id.setdefault(task.id, body) != body:
            out[position] = f"two different tasks have the id {task.id!r}: only the first is played"
    return out
