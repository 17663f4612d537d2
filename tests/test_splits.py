"""No ready-made environment has questions of one split in another: not exactly, and not by their values."""

from __future__ import annotations

from itertools import islice

import pytest

from wanderlust.environment import Environment
from wanderlust.errors import UsageError, WanderlustError
from wanderlust.evals.splits import shared_tasks
from wanderlust.tasks.registry import installed_environments, load_environment
from wanderlust.tasks.selection import iter_tasks
from wanderlust.types import Task, system, user

COMPARED = 1_500
WITHOUT = {
    "arc": "a folder of games, whose splits are folders",
    "are": "a folder of scenarios, which are a benchmark",
    "budget": "another environment's tasks",
    "gaia2": "a folder of scenarios, which are a benchmark",
    "harbor": "a folder of tasks",
    "instructed": "another environment's tasks",
    "learned-reward": "another environment's tasks",
    "own-mail": "somebody's mail; test_inbox_own_questions.py compares its threads",
}
"""Environments that are not compared, and why."""


def listed(env: Environment, split: str) -> list[Task]:
    try:
        return list(islice(iter_tasks(env, split), COMPARED))
    except UsageError:
        return []


@pytest.mark.parametrize("name", sorted({*installed_environments()} - {*WITHOUT}))
def test_splits_share_nothing(name: str) -> None:
    try:
        env = load_environment(installed_environments()[name])
    except WanderlustError as error:
        pytest.skip(str(error))
    try:
        train, held_out = listed(env, "train"), listed(env, "eval")
    except WanderlustError as error:
        pytest.skip(str(error))
    assert not list(map(str, shared_tasks(train, held_out)))


def test_search_asks_about_nobody_twice() -> None:
    env = load_environment(installed_environments()["search"])
    train, held_out = listed(env, "train"), listed(env, "eval")
    assert not {task.answer for task in train} & {task.answer for task in held_out}
    seen = {word for task in train for word in task.prompt[-1].content.split() if word[0].isupper()}
    names = {word for task in held_out for word in task.prompt[-1].content.split() if word[0].isupper()}
    assert seen & names <= {"In", "Who", "Ltd", "Ltd?"}


def question(text: str, answer: str, number: int = 0, **info: str) -> Task:
    return Task(id=f"{text}{number}", prompt=(system("Answer."), user(text)), answer=answer, info=info)


@pytest.mark.parametrize(
    ("train", "held_out", "how"),
    [
        (question("What is 2 + 3?", "5"), question("What is 2 + 3?", "5"), "task"),
        (question("What is 2 + 3?", "5"), question("What is  2 + 3?", "5", source="b"), "prompt"),
        (question("What is 2 + 3?", "5"), question("Add 2 and 3.", "5"), "values"),
        (question("What is 2 + 3?", "5"), question("What is 2 + 4?", "6"), None),
        (question("Where was Ann Lee born?", "Rome"), question("Say where Ann Lee was born.", "Rome"), "values"),
    ],
)
def test_each_kind_of_overlap_is_told(train: Task, held_out: Task, how: str | None) -> None:
    found = [one.how for one in shared_tasks([train], [held_out])]
    assert found == ([how] if how else [])


def test_starts_of_games_are_no_questions() -> None:
    assert not list(shared_tasks([Task(id="a", info={"deal": 1})], [Task(id="b", info={"deal": 1})]))


def test_where_ids_make_the_tasks_ids_are_compared() -> None:
    rules = (system("Live."),)
    train, held_out = ([Task(id=f"{split}-{n}", prompt=rules) for n in range(4)] for split in ("train", "eval"))
    assert not list(shared_tasks(train, held_out))
    (found,) = shared_tasks(train, [*held_out[1:], train[2]])
    assert (found.how, found.ids) == ("task", ("train-2",))
