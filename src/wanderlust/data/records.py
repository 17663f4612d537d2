"""Rollouts as plain JSON data: whole records, and conversations for supervised fine-tuning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from wanderlust.core.types import Rollout, Trajectory
from wanderlust.policies.wire import message_to_wire


def record(rollout: Rollout, **more: Any) -> dict[str, Any]:
    """Everything that a reader asks of a rollout, but its tokens; `more` comes first."""
    return {
        **more,
        "task": rollout.task.id,
        "seed": rollout.seed,
        "sibling": rollout.sibling,
        "status": str(rollout.status),
        "stop": rollout.stop,
        "error": rollout.error,
        "seconds": rollout.seconds,
        "answer": rollout.task.answer,
        "state": dict(rollout.state),
        "trajectories": [_seat(trajectory) for trajectory in rollout.trajectories],
    }


def _seat(trajectory: Trajectory) -> dict[str, Any]:
    score = trajectory.score
    return {
        "seat": trajectory.seat,
        "messages": [message_to_wire(message) for message in trajectory.messages],
        "score": asdict(score) if score is not None else None,
    }


def conversations(rollout: Rollout, *, lowest: float | None = None) -> Iterator[dict[str, Any]]:
    """A conversation per trainable seat that was scored, and at least `lowest`; failed rollouts have none.

    What the model saw last is what it is to learn from, so a context that was rewritten is exported as rewritten.
    """
    for trajectory in rollout.trajectories:
        score = trajectory.score
        if score is None or not trajectory.trainable or (lowest is not None and score.reward < lowest):
            continue
        messages = [message_to_wire(message) for message in trajectory.messages]
        yield {"messages": messages, "task": rollout.task.id, "seat": trajectory.seat, "reward": score.reward}
