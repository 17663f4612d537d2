"""Policies without a model, for tests, teachers and oracles: one from a script, one made anew for every rollout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import NamedTuple

from wanderlust.types import Completion, Message, Policy, Tool, assistant


class RolloutKey(NamedTuple):
    """The seat of one rollout, as the engine's keys name it."""

    task: str
    seed: int
    sample_index: int
    seat: str


def parse_rollout_key(key: str) -> RolloutKey:
    """Split a key of the engine into its parts; the task's id may contain slashes."""
    task, seed, sibling, seat = key.rsplit("/", 3)
    return RolloutKey(task, int(seed), int(sibling), seat)


class PerRolloutPolicy:
    """Make a policy by `make_policy` at the first turn of each rollout's seat, and drop it when the rollout is over.

    An exception of `make_policy` is that rollout's failure.
    """

    def __init__(self, make_policy: Callable[[RolloutKey], Policy]):
        self._make_policy = make_policy
        self._policies: dict[str, Policy] = {}

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The answer of this seat's own policy."""
        if key not in self._policies:
            self._policies[key] = self._make_policy(parse_rollout_key(key))
        return await self._policies[key].complete(messages, tools, key=key)

    def release(self, key: str) -> None:
        """Drop this seat's policy."""
        policy = self._policies.pop(key, None)
        release = getattr(policy, "release", None)
        if release is not None:
            release(key)


Script = Callable[[Sequence[Message], Random], str | Message]


class Scripted:
    """Answer by a function of the conversation and a generator, or by fixed lines.

    Lines are indexed by the turn, so one object serves every concurrent episode; after the last line the
    episode's policy fails. The generator is keyed by the seat's key and the turn: equal keys, equal draws.
    """

    def __init__(self, script: Script | Iterable[str | Message]):
        lines = [] if callable(script) else list(script)

        def next_line(messages: Sequence[Message], _: Random) -> str | Message:
            turn = sum(m.role == "assistant" for m in messages)
            if turn >= len(lines):
                raise IndexError(f"the script has {len(lines)} lines and was asked for one more")
            return lines[turn]

        self._script: Script = script if callable(script) else next_line

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """Answer by the script."""
        answer = self._script(messages, Random(f"{key}/{len(messages)}"))
        return Completion(message=answer if isinstance(answer, Message) else assistant(answer))
