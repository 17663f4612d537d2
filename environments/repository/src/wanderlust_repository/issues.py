"""What an agent is told of a fault: by a template from the failing tests, or written by a policy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from wanderlust.errors import PolicyFailure
from wanderlust.types import Policy, user
from wanderlust_repository.task_file import RepositoryTask

IssueWriter = Callable[[RepositoryTask, Mapping[str, str]], Awaitable[str]]
"""Writes what an agent is told, from a task and the messages of its failing tests."""
TESTS_SHOWN = 5
MAX_ISSUE_CHARS = 4_000
ISSUE_REQUEST = """\
Write the report of a user who met this fault in the Python package {package}: a title, what they did, what they saw,
what they expected. Do not name the line, and do not say how it is repaired. At most 150 words.

The fault, as a change of {path} (the user does not know it):
- {old}
+ {new}

Tests that fail because of it:
{tests}
"""


def list_failures(task: RepositoryTask, messages: Mapping[str, str]) -> str:
    """The first failing tests with the lines of their errors."""
    lines = [f"- {name}" + (f": {messages[name]}" if messages.get(name) else "") for name in task.fails[:TESTS_SHOWN]]
    more = len(task.fails) - TESTS_SHOWN
    return "\n".join([*lines, *([f"- and {more} more"] if more > 0 else [])])


def template_issue(task: RepositoryTask, messages: Mapping[str, str]) -> str:
    """The issue by a template: the failing tests and their errors; for a removed function also its name."""
    tests, count = list_failures(task, messages), len(task.fails)
    noun = "test fails" if count == 1 else "tests fail"
    if task.edit.removes_function:
        where = f"`{task.edit.function}` in `{task.edit.path}` is not implemented"
        return f"{where}: its body is missing. Write it, as its documentation and its callers want it.\n\n{tests}"
    return f"{task.package} has a fault. {count} {noun} that should pass:\n\n{tests}"


def issue_by(policy: Policy) -> IssueWriter:
    """Issues written by a policy, which sees the fault and the failing tests. Raises PolicyFailure for no text."""

    async def write(task: RepositoryTask, messages: Mapping[str, str]) -> str:
        request = ISSUE_REQUEST.format(
            package=task.package,
            path=task.edit.path,
            old=task.edit.old,
            new=task.edit.new,
            tests=list_failures(task, messages),
        )
        answer = await policy.complete([user(request)], key=f"issue/{task.id}/0/0/agent")
        text = answer.message.content.strip()[:MAX_ISSUE_CHARS]
        if not text:
            raise PolicyFailure(f"the policy wrote no issue for {task.id}")
        return text

    return write
