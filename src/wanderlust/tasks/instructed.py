"""Any environment with another system text: what `wander optimize` writes, or a text of one's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wanderlust.environment import Environment, WrappedEnvironment
from wanderlust.errors import UsageError
from wanderlust.tasks.registry import environment_within
from wanderlust.types import Message, Policy, Task, system


class Instructed(WrappedEnvironment):
    """Any environment with another system text: `instructed,file=best.txt,env=NAME`.

    `Instructed("reasoning-gym", file="best.txt", dataset="chain_sum")`: settings that are not its own go to the
    environment. The text takes the place of the prompt's first system message, or comes first where there is none.
    Tasks without a prompt cannot be instructed.
    """

    def __init__(self, env: Environment | str, *, file: str = "", text: str = "", **settings: Any):
        """Raises UsageError unless one of `file` and `text` is given, and for a file that cannot be read."""
        self.env = environment_within(env, settings)
        if bool(file) == bool(text):
            raise UsageError("a system text is wanted: file=FILE")
        self.text = text or read_instruction(file)

    def tasks(self, split: str = "train") -> Iterable[Task]:
        """The environment's tasks with the text."""
        given = self.env.tasks(split)
        instructed = (self.instructed(task) for task in given)
        return list(instructed) if isinstance(given, Sequence) else instructed

    def instructed(self, task: Task) -> Task:
        """A task of the environment with the text. Raises UsageError for one without a prompt."""
        if not task.prompt:
            raise UsageError(f"the task {task.id} has no prompt: the environment writes its own as it goes on")
        return replace(task, prompt=with_instruction(task.prompt, self.text))

    async def exact(self, policy: Policy, *, name: str) -> list[dict[str, Any]] | None:
        """Raises UsageError: the environment's figures are those of a policy that has not read the text."""
        raise UsageError("exact figures are those without the system text: leave --exact out, or the text")

    def duel(self) -> Environment | None:
        """The environment's, with the text in its tasks."""
        game = self.env.duel()
        return game and Instructed(game, text=self.text)


def read_instruction(file: str | Path) -> str:
    """The text of a file. Raises UsageError when it is empty or cannot be read."""
    try:
        text = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from error
    if not text:
        raise UsageError(f"{file} is empty: a system text is wanted")
    return text


def with_instruction(prompt: Sequence[Message], text: str) -> tuple[Message, ...]:
    """The prompt with `text` as its system text."""
    at = next((n for n, message in enumerate(prompt) if message.role == "system"), None)
    if at is None:
        return (system(text), *prompt)
    return (*prompt[:at], replace(prompt[at], content=text), *prompt[at + 1 :])
