"""One rollout as the page reads it, its long texts cut; the siblings of a group; where they part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from wanderlust.core.messages import Message
from wanderlust.core.types import Rollout, Task, Trajectory, Turn
from wanderlust.rollout.reader import Row, RunReader
from wanderlust.rollout.table import Glance, neighbours
from wanderlust.studio.server.answers import encoded
from wanderlust.studio.server.rows import row_of
from wanderlust.studio.showing import repeat

TEXT, SIBLING_TEXT, STATE = 20_000, 4_000, 50_000
"""Characters of a message, in a rollout and in a group, and bytes of an entry of the state, before they are cut."""
WHOLE, LEAST = 1_500_000, 1_000
"""Characters that a rollout's messages may have together before they are cut shorter, but not shorter than that:
whoever opens five hundred long turns reads one of them first."""


def opened(store: RunReader, id: int, settings: Mapping[str, Any], *, most: int = 0) -> dict[str, Any]:
    """The rollout `id`, but its tokens, with `most` characters of each message; 0: as many as are quick to read.

    Raises StoreError.
    """
    played, (row,) = store.get(id), store.rollouts({"id": id})
    most = most or _quick(played)
    before, after = neighbours(store, id)
    return {
        "row": row_of(row, _glance(played)),
        "task": _task(played.task, most),
        "status": str(played.status),
        "stop": played.stop,
        "error": played.error,
        "state": {name: _bounded(value) for name, value in played.state.items()},
        "again": repeat(played, row, settings),
        "previous": before,
        "next": after,
        "trajectories": [_seat(trajectory, most) for trajectory in played.trajectories],
        "world": "log" in played.state,
    }


def _quick(played: Rollout) -> int:
    """Characters of a message that keep the whole within WHOLE."""
    turns = [turn for trajectory in played.trajectories for turn in trajectory.turns]
    sizes = [len(message.content) for turn in turns for message in (*turn.observation, turn.action)]
    return TEXT if sum(sizes) <= WHOLE else max(LEAST, min(TEXT, WHOLE // len(sizes)))


def _glance(played: Rollout) -> Glance:
    turns = [turn for trajectory in played.trajectories for turn in trajectory.turns[-1:]]
    return Glance(answer=turns[-1].action.content if turns else None, target=played.task.answer)


def _task(task: Task, most: int) -> dict[str, Any]:
    return {
        "id": task.id,
        "prompt": [_message(message, most) for message in task.prompt],
        "answer": _bounded(task.answer),
        "info": {name: _bounded(value) for name, value in task.info.items()},
    }


def _bounded(value: Any) -> Any:
    size = len(encoded(value))
    return value if size <= STATE else {"cut": size}


def _seat(trajectory: Trajectory, most: int) -> dict[str, Any]:
    return {
        "seat": trajectory.seat,
        "trainable": trajectory.trainable,
        "advantage": trajectory.advantage,
        "score": None if trajectory.score is None else asdict(trajectory.score),
        "rewards": trajectory.rewards,
        "turns": [_turn(turn, most) for turn in trajectory.turns],
    }


def _turn(turn: Turn, most: int) -> dict[str, Any]:
    tokens = turn.tokens
    return {
        "observation": [_message(message, most) for message in turn.observation],
        "action": _message(turn.action, most),
        "replaces": turn.replaces,
        "finish": turn.finish,
        "usage": turn.usage,
        "tokens": None
        if tokens is None
        else {
            "prompt": len(tokens.prompt),
            "completion": len(tokens.completion),
            "offset": tokens.offset,
            "version": tokens.version,
        },
    }


def _message(message: Message, most: int) -> dict[str, Any]:
    body: dict[str, Any] = {"role": message.role, "content": message.content[:most]}
    if len(message.content) > most:
        body["cut"] = len(message.content)
    if message.reasoning:
        body["reasoning"] = message.reasoning[:most]
        if len(message.reasoning) > most:
            body["reasoning_cut"] = len(message.reasoning)
    if message.tool_calls:
        body["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments[:most]} for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        body["tool_call_id"] = message.tool_call_id
    return body


def partings(rollouts: Sequence[Rollout]) -> list[dict[str, int] | None]:
    """Per rollout, the turn and character of the first seat's words where it leaves the first sibling; None for that
    one, and for those that say the same throughout."""
    said = [_said(rollout) for rollout in rollouts]
    return [None if i == 0 else _parting(said[0], words) for i, words in enumerate(said)]


def _said(rollout: Rollout) -> list[str]:
    turns = rollout.trajectories[0].turns if rollout.trajectories else []
    return [
        turn.action.content + "".join(f"\n{call.name}({call.arguments})" for call in turn.action.tool_calls)
        for turn in turns
    ]


def _parting(first: list[str], other: list[str]) -> dict[str, int] | None:
    for turn, (one, two) in enumerate(zip(first, other, strict=False)):
        if one != two:
            character = next(
                (i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two))
            )
            return {"turn": turn, "character": character}
    shorter = min(len(first), len(other))
    return None if len(first) == len(other) else {"turn": shorter, "character": 0}


def siblings(
    store: RunReader, place: tuple[str, int, int], settings: Mapping[str, Any], *, most: int
) -> dict[str, Any]:
    """The rollouts of one group beside each other, at most so many."""
    stage, step, group = place
    where = {"stage": stage, "step": step, "group": group}
    rows: list[Row] = store.rollouts(where, order="sibling", limit=most)
    played = [store.get(row.id) for row in rows]
    return {
        "task": _task(played[0].task, SIBLING_TEXT) if played else None,
        "rollouts": [opened(store, row.id, settings, most=SIBLING_TEXT) for row in rows],
        "diverge": partings(played),
    }
