"""Policies with no model behind them: for tests, teachers and oracles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random

from wanderlust.core.contracts import Tool
from wanderlust.core.messages import Message, assistant
from wanderlust.core.types import Completion

Script = Callable[[Sequence[Message], Random], str | Message]


class Scripted:
    """Answers with a function of the conversation and a generator, or with fixed lines.

    Lines are indexed by the turn, so one object serves every concurrent episode; after the last line the
    episode's policy fails. The generator is keyed by the seat's key and the turn: equal keys, equal draws.
    """

    def __init__(self, script: Script | Iterable[str | Message]):
        self._script: Script = script if callable(script) else _lines(list(script))

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """Answer by the script."""
        said = self._script(messages, Random(f"{key}/{len(messages)}"))
        return Completion(message=said if isinstance(said, Message) else assistant(said))


def _lines(lines: list[str | Message]) -> Script:
    def line(messages: Sequence[Message], _: Random) -> str | Message:
        turn = sum(m.role == "assistant" for m in messages)
        if turn >= len(lines):
            raise IndexError(f"the script has {len(lines)} lines and was asked for one more")
        return lines[turn]

    return line
