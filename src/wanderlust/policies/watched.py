"""A policy that is watched: what it reads and writes is shown while it plays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wanderlust.agent import release_conversation
from wanderlust.errors import printable
from wanderlust.types import Completion, Message, Policy, SupportsStreaming, Tool


class Watched:
    """Answers as `policy` does, with the same draws, and says what is new in each turn.

    `say` gets texts without an end of line. Text is shown as it is written where the policy is SupportsStreaming.
    Control characters of environments and models are not printed.
    """

    def __init__(self, policy: Policy, say: Callable[[str], object], *, seat: str = "agent"):
        self.policy, self._say, self._seat = policy, say, seat
        self._shown: dict[str, list[Message]] = {}

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The policy's answer."""
        shown = self._shown.get(key, [])
        known = len(shown) if list(messages[: len(shown)]) == shown else 0
        for message in messages[known:]:
            self._say(f"\n[{message.role}]\n{printable(message.content)}\n")
        self._say(f"\n[{self._seat}]\n")
        written = ""
        if isinstance(self.policy, SupportsStreaming):

            def write(text: str) -> None:
                nonlocal written
                written += text
                self._say(printable(text))

            done = await self.policy.complete_streaming(write, messages, tools, key=key)
        else:
            done = await self.policy.complete(messages, tools, key=key)
        self._say(printable(done.message.content.removeprefix(written)) + "\n")
        for call in done.message.tool_calls:
            self._say(f"{printable(call.name)}({printable(call.arguments)})\n")
        self._shown[key] = [*messages, done.message]
        return done

    def release(self, key: str) -> None:
        """Forget what was shown of the conversation `key`."""
        self._shown.pop(key, None)
        release_conversation(self.policy, key)
