"""One rollout over HTTP: to read, whole, its tokens; and the group it belongs to.

The table of rollouts over HTTP.

One rollout as the page reads it, its long texts cut; the siblings of a group; where they part.

The token view: what was read and what was sampled in one turn, with how likely it was and what it was credited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wanderlust._lazy import load
from wanderlust.errors import Failure, UsageError, one_line
from wanderlust.store.queries import Glance, Order, condition, glances, neighbours
from wanderlust.store.reader import Row, RunReader
from wanderlust.store.run_folder import EVALUATION, checkpoints_of, repeat
from wanderlust.studio.responses import JSON, NotFound, answer, encoded, number, placed, text
from wanderlust.studio.run_index import settings_of
from wanderlust.studio.state import place, reader, studio
from wanderlust.types import Message, Rollout, Task, Trajectory, Turn

ROWS, SHORT = 1000, 200
"""Rows in one answer at most, and characters of a cell."""


def rollouts(request: Request) -> Response:
    """A page of the table, and how many rows there are in all."""
    where, order = condition(text(request, "filter")), Order.of(text(request, "sort") or "id")
    offset, limit = number(request, "offset", 0), number(request, "limit", 200, most=ROWS)
    stamp = place(request).now()
    with reader(request) as store:
        total, found = studio(request).orders.page(store, where, order, stamp=stamp, offset=offset, limit=limit)
        return answer({"total": total, "offset": offset, "rows": shown(store, found)})


def shown(store: RunReader, rows: list[Row]) -> list[dict[str, Any]]:
    """Rows with the answer beside the target."""
    seen = glances(store, [row.id for row in rows])
    return [row_of(row, seen.get(row.id)) for row in rows]


def row_of(row: Row, glance: Glance | None) -> dict[str, Any]:
    """One row as the page reads it."""
    answer, target = cells(glance)
    return {**asdict(row), "answer": answer, "target": target}


def cells(glance: Glance | None) -> tuple[str | None, str | None]:
    """Answer and target, each on one short line."""
    if glance is None:
        return None, None
    said = None if glance.answer is None else one_line(glance.answer, SHORT)
    return said, None if glance.target is None else one_line(str(glance.target), SHORT)


ROUTES_ROWS = (Route("/api/runs/{key}/rollouts", rollouts),)


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


SIBLINGS = 64
"""Rollouts of a group that are shown beside each other."""


def rollout(request: Request) -> Response:
    """One rollout, its long texts cut."""
    with reader(request) as store:
        _there(store, placed(request, "id"))
        return answer(opened(store, placed(request, "id"), settings_of(place(request).folder, EVALUATION)))


def group(request: Request) -> Response:
    """The siblings of one task."""
    where = str(request.path_params["stage"]), placed(request, "step"), placed(request, "group")
    with reader(request) as store:
        found = siblings(store, where, settings_of(place(request).folder, EVALUATION), most=SIBLINGS)
    if not found["rollouts"]:
        raise NotFound(f"there is no group {where[2]} in step {where[1]} of {where[0]!r}")
    return answer(found)


def whole_text(request: Request) -> Response:
    """A text that was cut."""
    with reader(request) as store:
        turn = turn_of(get(request, store), number(request, "seat", 0), number(request, "turn", 0))
    message = _message_rollouts(turn, text(request, "message", "-1"))
    said = message.reasoning or "" if text(request, "of") == "reasoning" else message.content
    return answer({"text": said})


def raw(request: Request) -> Response:
    """The whole record, to keep."""
    with reader(request) as store:
        played = get(request, store)
    name = f'attachment; filename="rollout-{placed(request, "id")}.json"'
    return Response(encoded(played), media_type=JSON, headers={"content-disposition": name})


def _there(store: RunReader, id: int) -> None:
    if not store.select("select 1 from rollouts where id = ?", id):
        raise NotFound(f"there is no rollout {id} in this run")


def get(request: Request, store: RunReader) -> Rollout:
    """The rollout that the path names. Raises NotFound."""
    _there(store, placed(request, "id"))
    return store.get(placed(request, "id"))


def turn_of(played: Rollout, seat: int, turn: int) -> Turn:
    """That turn. Raises NotFound."""
    if seat < len(played.trajectories) and turn < len(turns := played.trajectories[seat].turns):
        return turns[turn]
    raise NotFound(f"this rollout has no turn {turn} of seat {seat}")


def _message_rollouts(turn: Turn, index: str) -> Message:
    said: Sequence[Message] = turn.observation
    if index == "-1":
        return turn.action
    if not index.isdecimal() or len(index) > 9 or int(index) >= len(said):
        raise NotFound("this turn has no such message")
    return said[int(index)]


ROUTES = (
    Route("/api/runs/{key}/rollouts/{id}", rollout),
    Route("/api/runs/{key}/rollouts/{id}/text", whole_text),
    Route("/api/runs/{key}/rollouts/{id}/raw", raw),
    Route("/api/runs/{key}/groups/{stage}/{step}/{group}", group),
)


TOKENIZER = "tokenizer.json"
MOST = 200_000
"""Tokens of a turn that are shown; the last ones, where there are more."""


def tokens(request: Request) -> Response:
    """The tokens of a turn."""
    with reader(request) as store:
        played = get(request, store)
    seat, turn = number(request, "seat", 0), number(request, "turn", 0)
    turn_of(played, seat, turn)
    folder = place(request).folder
    return answer(told(played.trajectories[seat], turn, tokenizer_of(folder, settings_of(folder))))


def told(trajectory: Trajectory, turn: int, tokenizer: Path | None) -> dict[str, Any]:
    """Every token of the turn; where texts are missing, `why`."""
    kept = trajectory.turns[turn].tokens
    if kept is None:
        return {"tokens": [], "tokenizer": None, "why": "no tokens were recorded: the policy did not tell them"}
    ids = (*kept.prompt, *kept.completion)
    texts, why = _texts(tokenizer, ids)
    credit = _credit(trajectory, turn, len(kept.completion))
    read = len(kept.prompt)
    shown = [
        {
            "id": id,
            "text": texts[i],
            "logprob": kept.logprobs[i - read] if 0 <= i - read < len(kept.logprobs) else None,
            "sampled": i >= read,
            "advantage": credit[i - read] if i >= read else None,
        }
        for i, id in enumerate(ids)
    ]
    return {"tokens": shown[-MOST:], "tokenizer": None if tokenizer is None else str(tokenizer), "why": why}


def _credit(trajectory: Trajectory, turn: int, size: int) -> Sequence[float | None]:
    finer = trajectory.advantages
    if finer is not None and turn < len(finer) and len(finer[turn]) == size:
        return finer[turn]
    return [trajectory.advantage] * size


def _texts(tokenizer: Path | None, ids: Sequence[int]) -> tuple[Sequence[str | None], str | None]:
    """The text of each token, or nothing for all and why."""
    none = [None] * len(ids)
    if tokenizer is None:
        return none, "the run has no checkpoint here whose tokenizer could tell the texts"
    try:
        return load("wanderlust.studio.token_text:pieces", extra="train")(tokenizer, ids), None
    except (UsageError, Failure) as error:
        return none, one_line(str(error))


def tokenizer_of(folder: Path, settings: Mapping[str, Any]) -> Path | None:
    """The tokenizer of the run's checkpoints, or of those of its policy."""
    policy = settings.get("policy")
    places = [folder, *([Path(policy)] if isinstance(policy, str) and policy else [])]
    for at in places:
        for checkpoint in (at, *checkpoints_of(at)):
            if (checkpoint / TOKENIZER).is_file():
                return checkpoint / TOKENIZER
    return None


ROUTES_TOKENS = (Route("/api/runs/{key}/rollouts/{id}/tokens", tokens),)
