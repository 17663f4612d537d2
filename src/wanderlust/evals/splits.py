"""What the splits of an environment share: the same tasks, the same prompts, the same questions in other words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from wanderlust.types import Task

MIN_SLOTS = 2
"""Values of a prompt from which on two prompts with equal values and answers count as the same question."""
DISTINCT_SHARE = 0.75
"""Share of different prompts, answers and infos in a split from which on they are what tells its tasks apart."""
_SLOT = re.compile(r"\d+(?:\.\d+)?|(?<=[\w,;:\"'] )[A-Z][\w'-]+|\"[^\"\n]{1,60}\"")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTasks:
    """Tasks of one split that another one has as well."""

    how: str
    """`task` (prompt, answer and info are equal), `prompt`, or `values`: the same values and the same answer."""
    ids: tuple[str, ...]
    count: int
    """Tasks of the second split that were compared."""

    def __str__(self) -> str:
        what = {"task": "are also", "prompt": "have a prompt of", "values": "have the values and the answer of a task"}
        return f"{len(self.ids)} of {self.count} tasks {what[self.how]} in train: {', '.join(self.ids[:3])}"


def shared_tasks(train: Sequence[Task], held_out: Sequence[Task]) -> Iterator[SharedTasks]:
    """What `held_out` shares with `train`, the strictest kind of equality only.

    Tasks without prompt and answer are starting points of a game, and not compared. Prompts count as tasks only where
    they alone make the question: not where `info` or the answer differ and prompts are few.
    """
    asked = [task for task in held_out if task.prompt or task.answer is not None]
    bodies, own = {_body(task) for task in train}, {_body(task) for task in asked}
    if len(own) < DISTINCT_SHARE * len(asked):  # ids make the tasks: seeds of worlds, numbers of games
        ids = {task.id for task in train}
        same = [task.id for task in asked if task.id in ids]
    else:
        same = [task.id for task in asked if _body(task) in bodies]
    if same:
        yield SharedTasks(how="task", ids=tuple(same), count=len(held_out))
        return
    prompts = {_prompt(task) for task in train}
    if len({_prompt(task) for task in asked}) > len(asked) / 2:
        same = [task.id for task in asked if task.prompt and _prompt(task) in prompts]
        if same:
            yield SharedTasks(how="prompt", ids=tuple(same), count=len(held_out))
            return
    values = {_values(task) for task in train} - {None}
    same = [task.id for task in asked if _values(task) in values]
    if same:
        yield SharedTasks(how="values", ids=tuple(same), count=len(held_out))


def without_shared(train: Sequence[Task], held_out: Sequence[Task]) -> list[Task]:
    """The tasks of `held_out` that `train` does not have, by any of the comparisons."""
    left = list(held_out)
    while shared := next(shared_tasks(train, left), None):
        left = [task for task in left if task.id not in shared.ids]
    return left


def _body(task: Task) -> bytes | str:
    try:
        return msgspec.msgpack.encode((task.prompt, task.answer, task.info))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return repr((task.prompt, task.answer, task.info))


def _prompt(task: Task) -> str:
    return " ".join(" ".join(message.content for message in task.prompt).split()).lower()


def _values(task: Task) -> tuple[str, ...] | None:
    """The values of the last message, sorted, and the answer; None where they are too few to make a question."""
    if task.answer is None or not task.prompt:
        return None
    slots = _SLOT.findall(task.prompt[-1].content)
    return (*sorted(slots), str(task.answer)) if len(slots) >= MIN_SLOTS else None
