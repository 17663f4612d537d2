"""Conversations to imitate, as the same samples that reinforcement learning uses."""

from __future__ import annotations

from wanderlust.core.messages import Message
from wanderlust.core.types import Trajectory
from wanderlust.policies.render import Renderer
from wanderlust.train.samples import Sample


def to_imitate(trajectory: Trajectory, renderer: Renderer, *, context: float = 0.0) -> Sample:
    """One sample of a conversation somebody else had, rendered turn by turn as the model would have sampled it.

    The mask covers the answers and their end-of-turn tokens, with advantage 1. With `context` above 0 it covers
    everything, what was read with that advantage: it teaches a fresh model to read. Turns that rewrite the context
    are not supported: ValueError.
    """
    sample = Sample()
    known: list[Message] = []
    for turn in trajectory.turns:
        if turn.replaces:
            raise ValueError("cannot imitate a trajectory whose context is rewritten")
        new = renderer.extend(known, turn.observation, closed=True) if known else renderer.start(turn.observation)
        if new is None:
            raise ValueError("cannot imitate several turns: the chat template rewrites earlier ones")
        answer = renderer.closed(turn.action)
        if context:
            sample.say(new, [0.0] * len(new), [context] * len(new))
        else:
            sample.read(new)
        sample.say(answer, [0.0] * len(answer), [1.0] * len(answer))
        known += [*turn.observation, turn.action]
    return sample
