"""One degenerate policy: a name, what it does, and the words that it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from wanderlust.core.contracts import Tool
from wanderlust.core.messages import Message, assistant
from wanderlust.core.types import Completion
from wanderlust.evals.probe.view import View

Say: TypeAlias = Callable[[View], str | Message | None]
"""What a probe says; None where it has nothing to do, for example without tools."""

IGNORANT = "ignorant"
"""The kind of those that only show what chance earns."""


class NothingToDo(Exception):
    """The probe does not fit this environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A policy that deserves nothing.

    It is a `Policy` itself and keeps nothing between turns, so one object plays all episodes at once.
    """

    name: str
    what: str
    """What it does, in a few words."""
    say: Say
    kind: str = "words"
    """`words`, `judge`, `code`, `tools`, or IGNORANT."""

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """Say it. Raises NothingToDo where it has nothing to say."""
        said = self.say(View(messages, tools, Random(f"{key}/{len(messages)}")))
        if said is None:
            raise NothingToDo(self.name)
        return Completion(message=said if isinstance(said, Message) else assistant(said))


def always(text: str) -> Say:
    """The same words whatever is asked, bare."""
    return lambda _: text


def constant(answer: str) -> Say:
    """The same answer whatever is asked, in the form that is asked for."""
    return lambda view: view.dressed(answer)
