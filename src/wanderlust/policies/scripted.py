"""Policies without a model: from a script, from a recorded rollout, and made anew for every rollout."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from inspect import getsource, isawaitable
from random import Random
from typing import NamedTuple

from wanderlust.agent import release_conversation
from wanderlust.agent.conversation_graph import draw_name, seat_of_key
from wanderlust.errors import CONTEXT_STOP, ContextFull, PolicyFailure, StopEpisode, UsageError, one_line
from wanderlust.types import Completion, Message, Policy, Rollout, Tool, Trajectory, Turn, assistant


class RolloutKey(NamedTuple):
    """The seat of one rollout, as the engine's keys name it."""

    task: str
    seed: int
    sample_index: int
    seat: str


def parse_rollout_key(key: str) -> RolloutKey:
    """Split a key of the engine into its parts; the task's id may contain slashes."""
    task, seed, sibling, seat = seat_of_key(key).rsplit("/", 3)
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
        seat = seat_of_key(key)
        if seat not in self._policies:
            self._policies[seat] = self._make_policy(parse_rollout_key(key))
        return await self._policies[seat].complete(messages, tools, key=key)

    def release(self, key: str) -> None:
        """Drop this seat's policy, or what it keeps of one conversation."""
        seat = seat_of_key(key)
        policy = self._policies.pop(key, None) if seat == key else self._policies.get(seat)
        release_conversation(policy, key)


Script = Callable[[Sequence[Message], Random], str | Message | Awaitable[str | Message]]


class Scripted:
    """Answer by a function of the conversation and a generator, or by fixed lines.

    One object serves any number of concurrent episodes. Lines are indexed by the answers given under the seat's key:
    assistant messages that stood in its first prompt are examples, and no turns. Without a key every assistant message
    counts. After the last line the episode's policy fails. The generator is keyed by the seat's key and the turn: equal
    keys, equal draws.
    """

    def __init__(self, script: Script | Iterable[str | Message]):
        self._script = script if callable(script) else None
        self._lines: list[str | Message] = [] if callable(script) else list(script)
        self._examples: dict[str, int] = {}
        """By seat, the assistant messages of the first prompt."""

    @property
    def digest(self) -> str:
        """Of the lines, or of the function's name and text: another script has another one."""
        body = repr(self._lines)
        if self._script is not None:
            body = getattr(self._script, "__qualname__", type(self._script).__qualname__)
            with suppress(OSError, TypeError):  # typed at a prompt, or no function
                body += getsource(self._script)
        return sha256(body.encode(errors="backslashreplace")).hexdigest()[:16]

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """Answer by the script."""
        if self._script is not None:
            answer = self._script(messages, Random(draw_name(key, messages)))
        else:
            turn = sum(m.role == "assistant" for m in messages)
            if seat := seat_of_key(key):  # fewer than at the first turn: the environment has begun a new context
                examples = self._examples[seat] = min(turn, self._examples.get(seat, turn))
                turn -= examples
            if turn >= len(self._lines):
                raise IndexError(f"the script has {len(self._lines)} lines and was asked for one more")
            answer = self._lines[turn]
        if not isinstance(answer, str | Message) and isawaitable(answer):
            answer = await answer
        if not isinstance(answer, str | Message):
            raise PolicyFailure(f"the script gave a {type(answer).__name__}, and neither a text nor a Message")
        return Completion(message=answer if isinstance(answer, Message) else assistant(answer))

    def release(self, key: str) -> None:
        """Start from the first line when `key` comes again."""
        self._examples.pop(key, None)


POLICY_STOPS = (CONTEXT_STOP, "max_episode_cost")
"""Stop reasons that a replay cannot find by itself: they come from the model that was recorded, and from its prices."""


class Recorded:
    """Replay the actions of a rollout, tokens included, in every seat that it has.

    With the same environment, task, seed and limits the replay is the same rollout; one that ended as its context was
    full, or by its cost, ends there again. A conversation that differs
    from the recorded one, or continues after its end, is a PolicyFailure that names the message. An environment that
    ends earlier than recorded is not detected here: compare the rollouts.
    """

    def __init__(self, rollout: Rollout):
        if not rollout.trajectories:
            raise UsageError(f"the rollout of task {rollout.task.id!r} has no seat to replay")
        self._seats = {trajectory.seat: trajectory for trajectory in rollout.trajectories}
        self._replays: dict[str, _Replay] = {}
        self._stop = rollout.stop_reason if rollout.stop_reason in POLICY_STOPS else ""

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The recorded action of this seat's next turn."""
        seat = seat_of_key(key)
        if seat not in self._replays:
            name = seat.rpartition("/")[2]
            if len(self._seats) > 1 and name not in self._seats:
                raise PolicyFailure(f"the recording has no seat {name!r}; there are {', '.join(self._seats)}")
            alone = next(iter(self._seats.values())) if len(self._seats) == 1 else None
            self._replays[seat] = _Replay(alone or self._seats[name])
        replay = self._replays[seat]
        if self._stop and replay.is_over:
            raise ContextFull("as recorded") if self._stop == CONTEXT_STOP else StopEpisode(self._stop)
        turn = replay.next(messages)
        return Completion(message=turn.action, finish=turn.finish, tokens=turn.tokens, usage=turn.usage)

    def release(self, key: str) -> None:
        """Start from the first turn when `key` comes again."""
        self._replays.pop(key, None)


@dataclass(slots=True)
class _Replay:
    trajectory: Trajectory
    taken: set[int] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        """Whether all turns have been taken."""
        return len(self.taken) == len(self.trajectory.turns)

    def next(self, messages: Sequence[Message]) -> Turn:
        """The first turn that was not taken yet and had this context: conversations at once come in any order."""
        seat, recorded = self.trajectory.seat, self.trajectory.turns
        if self.is_over:
            raise PolicyFailure(f"the recording of seat {seat!r} ends after {len(recorded)} turns")
        left = [number for number in range(len(recorded)) if number not in self.taken]
        matching = (number for number in left if self.trajectory.conversation(number)[:-1] == list(messages))
        number = next(matching, None)
        if number is None:
            context = self.trajectory.conversation(left[0])[:-1]
            pairs = enumerate(zip(context, messages, strict=False), 1)
            changed = (
                f"message {number} was {one_line(repr(before))} and is {one_line(repr(now))}"
                for number, (before, now) in pairs
                if before != now
            )
            lengths = f"the conversation had {len(context)} messages and has {len(messages)}"
            raise PolicyFailure(f"turn {left[0] + 1} of seat {seat!r}: {next(changed, lengths)}")
        self.taken.add(number)
        return recorded[number]
