"""Exploring starts: some siblings begin with an answer that the policy itself might never try."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias

from wanderlust.core.contracts import Tool
from wanderlust.core.messages import Message, assistant
from wanderlust.core.types import Completion
from wanderlust.policies.tokens import TokenPolicy

Suggest: TypeAlias = Callable[[Sequence[Message], Random, int], str | None]
"""The answer that the nth explorer of a group tries in this conversation; None leaves it to the policy."""


class Explorer:
    """A policy whose siblings from number `first` on open their episode with a suggested answer.

    The explorers of a group share the draws of their suggestions, so that each can try another one. All later
    answers are the policy's own. An on-policy gradient cannot find an action whose probability has become nearly 0;
    a sibling that takes it can show what it is worth.
    """

    def __init__(self, policy: TokenPolicy, suggest: Suggest, *, first: int):
        self.policy, self.suggest, self.first = policy, suggest, first

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The suggestion in an explorer's first turn, else the policy's answer."""
        if key and not self.policy.knows(key):
            group, sibling, seat = key.rsplit("/", 2)  # task/seed/sibling/seat
            nth = int(sibling) - self.first
            answer = self.suggest(messages, Random(f"explore/{group}/{seat}"), nth) if nth >= 0 else None
            if answer is not None:
                return self.policy.say(messages, assistant(answer), key=key)
        return await self.policy.complete(messages, tools, key=key)

    def release(self, key: str) -> None:
        """Forget the conversation."""
        self.policy.release(key)
