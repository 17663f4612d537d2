"""A policy that replays the actions of a recorded rollout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from wanderlust.errors import PolicyFailure, UsageError, one_line
from wanderlust.types import Completion, Message, Rollout, Tool, Trajectory, Turn


class Recorded:
    """Replay the actions of a rollout, tokens included, in every seat that it has.

    With the same environment, task, seed and limits the replay is the same rollout. A conversation that differs
    from the recorded one, or continues after its end, is a PolicyFailure that names the message. An environment that
    ends earlier than recorded is not detected here: compare the rollouts.
    """

    def __init__(self, rollout: Rollout):
        if not rollout.trajectories:
            raise UsageError(f"the rollout of task {rollout.task.id!r} has no seat to replay")
        self._seats = {trajectory.seat: trajectory for trajectory in rollout.trajectories}
        self._replays: dict[str, _Replay] = {}

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The recorded action of this seat's next turn."""
        if key not in self._replays:
            name = key.rpartition("/")[2]
            if len(self._seats) > 1 and name not in self._seats:
                raise PolicyFailure(f"the recording has no seat {name!r}; there are {', '.join(self._seats)}")
            alone = next(iter(self._seats.values())) if len(self._seats) == 1 else None
            self._replays[key] = _Replay(alone or self._seats[name])
        turn = self._replays[key].next(messages)
        return Completion(message=turn.action, finish=turn.finish, tokens=turn.tokens, usage=turn.usage)

    def release(self, key: str) -> None:
        """Start from the first turn when `key` comes again."""
        self._replays.pop(key, None)


@dataclass(slots=True)
class _Replay:
    trajectory: Trajectory
    turns: int = 0
    context: list[Message] = field(default_factory=list)

    def next(self, messages: Sequence[Message]) -> Turn:
        seat, recorded = self.trajectory.seat, self.trajectory.turns
        if self.turns == len(recorded):
            raise PolicyFailure(f"the recording of seat {seat!r} ends after {len(recorded)} turns")
        turn = recorded[self.turns]
        if turn.resets_context:
            self.context.clear()
        self.context += turn.observation
        if self.context != list(messages):
            pairs = enumerate(zip(self.context, messages, strict=False), 1)
            changed = (
                f"message {number} was {one_line(repr(before))} and is {one_line(repr(now))}"
                for number, (before, now) in pairs
                if before != now
            )
            lengths = f"the conversation had {len(self.context)} messages and has {len(messages)}"
            raise PolicyFailure(f"turn {self.turns + 1} of seat {seat!r}: {next(changed, lengths)}")
        self.turns += 1
        self.context.append(turn.action)
        return turn
