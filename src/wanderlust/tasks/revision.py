"""Asking for a better or a different answer: tasks that go on from a finished rollout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from wanderlust.environment import Environment, Revision
from wanderlust.errors import UsageError
from wanderlust.types import Message, Rollout, Status, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisedTurn:
    """A turn of a conversation as it stands after its revisions."""

    observation: tuple[Message, ...]
    """The new messages before the answer."""
    answer: Message
    depth: int = 0
    """Number of times that the answer was revised."""
    feedback: str = ""
    """What the environment said of it, where it ended the episode."""
    reward: float | None = None
    """Reward of the episode that it ended."""


History: TypeAlias = tuple[RevisedTurn, ...]


def resolve_revision(env: Environment) -> Revision:
    """How an environment asks for revisions. Raises UsageError when it cannot begin in the middle of a conversation."""
    if not env.prefixes or len(env.seats) != 1:
        raise UsageError(
            f"{type(env).__name__} cannot begin in the middle of a conversation: that takes one seat, and `prefixes = "
            "True` in a class whose tasks' prompts may be any prefix of one (as in `SingleTurnEnvironment`)"
        )
    return env.revision


def build_history(rollout: Rollout, before: History = (), *, is_revision: bool = False) -> History:
    """The conversation after a rollout that began with the turns `before`, the last of them being `is_revision`.

    Without any turn where there is nothing to go on from: the rollout failed, or its context was rewritten.
    """
    turns = rollout.trajectory.turns
    if rollout.status is Status.ERROR or not turns or not rollout.trajectory.is_one_conversation:
        return ()
    made = [RevisedTurn(observation=turn.observation, answer=turn.action) for turn in turns]
    if before:
        depth = before[-1].depth + 1 if is_revision else 0
        made[0] = replace(made[0], observation=before[-1].observation, depth=depth)
    feedback = rollout.state.get("feedback", "")
    score = rollout.trajectory.score
    made[-1] = replace(
        made[-1],
        feedback=feedback if isinstance(feedback, str) else "",
        reward=None if score is None else score.reward,
    )
    return (*before[:-1], *made)


def rewind_task(task: Task, history: History, *, id: str) -> Task:
    """The task from before the last answer of a conversation."""
    return replace(task, id=id, prompt=_before(history))


def revision_task(task: Task, history: History, revision: Revision, *, id: str, diverge: bool = False) -> Task:
    """The task of answering better, or otherwise, than at the end of a conversation."""
    last = history[-1]
    request = revision.request(last.feedback, diverge=diverge)
    return replace(task, id=id, prompt=(*_before(history), last.answer, request))


def _before(history: History) -> tuple[Message, ...]:
    earlier = [message for turn in history[:-1] for message in (*turn.observation, turn.answer)]
    return (*earlier, *history[-1].observation)
