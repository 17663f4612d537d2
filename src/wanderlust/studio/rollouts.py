"""Rollouts over HTTP: their table, one rollout with long texts cut, the samples of a group, the tokens of a turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wanderlust._lazy import needs_extra
from wanderlust.errors import EnvironmentFailure, Failure, PolicyFailure, UsageError, boundary, one_line
from wanderlust.store.queries import Preview, RowOrder, load_previews, neighbours, parse_row_filter
from wanderlust.store.reader import RolloutRow, RunReader
from wanderlust.store.run_folder import EVALUATION_RECIPE, checkpoints_of, replay_command
from wanderlust.studio.play_session import message_record
from wanderlust.studio.requests import (
    JSON_TYPE,
    encode_json,
    json_response,
    load_shown,
    path_number,
    query_number,
    query_text,
    requested_reader,
    requested_run,
    studio_state,
)
from wanderlust.studio.run_index import NotFound, environment_column, settings_of, shown_environment
from wanderlust.studio.viewers import Viewer, find_viewer, shown_parts
from wanderlust.types import Rollout, Task, Trajectory, Turn

MAX_ROWS, MAX_CELL_CHARS = 1000, 200
"""Most rows in one answer, and longest cell."""


def get_rollout_rows(request: Request) -> Response:
    """A page of the table, and the number of all rows."""
    order = RowOrder.of(query_text(request, "sort") or "id")
    offset, limit = query_number(request, "offset", 0), query_number(request, "limit", 200, maximum=MAX_ROWS)
    stamp = requested_run(request).current_stamp()
    with requested_reader(request) as store:
        where = parse_row_filter(
            query_text(request, "filter"), environment=environment_column(store), scores=store.score_names()
        )
        total, page_rows = studio_state(request).sorted_pages.page(
            store, where, order, stamp=stamp, offset=offset, limit=limit
        )
        return json_response({"total": total, "offset": offset, "rows": row_records(store, page_rows)})


def row_records(store: RunReader, rows: list[RolloutRow]) -> list[dict[str, Any]]:
    """Rows as JSON data, with answer and target."""
    seen = load_previews(store, [row.id for row in rows])
    return [row_record(row, seen.get(row.id)) for row in rows]


def row_record(row: RolloutRow, glance: Preview | None) -> dict[str, Any]:
    """One row as JSON data."""
    answer, target = answer_and_target(glance)
    return {**asdict(row), "env": shown_environment(row.env), "answer": answer, "target": target}


def answer_and_target(glance: Preview | None) -> tuple[str | None, str | None]:
    """Answer and target, each on one short line."""
    if glance is None:
        return None, None
    short_answer = None if glance.answer is None else one_line(glance.answer, MAX_CELL_CHARS)
    return short_answer, None if glance.target is None else one_line(str(glance.target), MAX_CELL_CHARS)


ROW_ROUTES = (Route("/api/runs/{key}/rollouts", get_rollout_rows),)


MAX_MESSAGE_CHARS_SHOWN, MAX_SIBLING_CHARS, MAX_STATE_CHARS = 20_000, 4_000, 50_000
"""Longest message, in a rollout and in a group, and most bytes of an entry of the state, before they are cut."""
MAX_RECORD_CHARS, MIN_MESSAGE_CHARS = 1_500_000, 1_000
"""Characters of a rollout's messages together from which on each is cut shorter, though not below the second number."""


def rollout_record(
    store: RunReader, id: int, settings: Mapping[str, Any], *, viewers: Sequence[Viewer] = (), max_chars: int = 0
) -> dict[str, Any]:
    """The rollout `id` without its tokens, with `max_chars` characters of each message; 0: within MAX_RECORD_CHARS.

    Raises StoreError.
    """
    played, (row,) = store.get(id), store.rollouts({"id": id})
    max_chars = max_chars or _chars_per_message(played)
    before, after = neighbours(store, id)
    last_turns = [turn for trajectory in played.trajectories for turn in trajectory.turns[-1:]]
    answer = last_turns[-1].action.content if last_turns else None
    seats = [
        {
            "seat": trajectory.seat,
            "trainable": trajectory.trainable,
            "advantage": trajectory.advantage,
            "score": None if trajectory.score is None else asdict(trajectory.score),
            "rewards": trajectory.rewards,
            "turns": [
                _turn(turn, max_chars) | {"parent": trajectory.parent(number)}
                for number, turn in enumerate(trajectory.turns)
            ],
        }
        for trajectory in played.trajectories
    ]
    return {
        **shown_parts(viewers, played),
        "row": row_record(row, Preview(answer=answer, target=played.task.answer)),
        "task": _task(played.task, max_chars),
        "status": str(played.status),
        "stop_reason": played.stop_reason,
        "error": played.error,
        "failure": None if played.failure is None else asdict(played.failure),
        "state": {name: _bounded(value) for name, value in played.state.items()},
        "again": replay_command(played, row, settings),
        "previous": before,
        "next": after,
        "trajectories": seats,
    }


def _chars_per_message(played: Rollout) -> int:
    """Characters per message that keep all messages within MAX_RECORD_CHARS."""
    turns = [turn for trajectory in played.trajectories for turn in trajectory.turns]
    sizes = [len(message.content) for turn in turns for message in (*turn.observation, turn.action)]
    if sum(sizes) <= MAX_RECORD_CHARS:
        return MAX_MESSAGE_CHARS_SHOWN
    return max(MIN_MESSAGE_CHARS, min(MAX_MESSAGE_CHARS_SHOWN, MAX_RECORD_CHARS // len(sizes)))


def _task(task: Task, most: int) -> dict[str, Any]:
    return {
        "id": task.id,
        "prompt": [message_record(message, most) for message in task.prompt],
        "answer": _bounded(task.answer),
        "info": {name: _bounded(value) for name, value in task.info.items()},
    }


def _bounded(value: Any) -> Any:
    size = len(encode_json(value))
    return value if size <= MAX_STATE_CHARS else {"cut": size}


def _turn(turn: Turn, most: int) -> dict[str, Any]:
    tokens = turn.tokens
    return {
        "observation": [message_record(message, most) for message in turn.observation],
        "action": message_record(turn.action, most),
        "replaces": turn.resets_context,
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


def first_differences(rollouts: Sequence[Rollout]) -> list[dict[str, int] | None]:
    """Per rollout, the turn and character where the text of the first seat that learns differs from the first
    rollout's; None for that one, and for those without a difference."""
    texts: list[list[str]] = []
    for rollout in rollouts:
        seats = [t for t in rollout.trajectories if t.trainable] or rollout.trajectories
        actions = [turn.action for turn in seats[0].turns] if seats else []
        texts.append([a.content + "".join(f"\n{c.name}({c.arguments})" for c in a.tool_calls) for a in actions])
    return [None if i == 0 else _first_difference(texts[0], words) for i, words in enumerate(texts)]


def _first_difference(first: list[str], other: list[str]) -> dict[str, int] | None:
    for turn, (one, two) in enumerate(zip(first, other, strict=False)):
        if one != two:
            places = (i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
            return {"turn": turn, "character": next(places, min(len(one), len(two)))}
    shorter = min(len(first), len(other))
    return None if len(first) == len(other) else {"turn": shorter, "character": 0}


def sibling_records(
    store: RunReader,
    group_key: tuple[str, int, int],
    settings: Mapping[str, Any],
    *,
    viewers: Sequence[Viewer],
    max_rollouts: int,
) -> dict[str, Any]:
    """The rollouts of one group, at most `max_rollouts` of the `total`."""
    stage, step, group = group_key
    where = {"stage": stage, "step": step, "group": group}
    rows: list[RolloutRow] = store.rollouts(where, order="sample_index", limit=max_rollouts)
    played = [store.get(row.id) for row in rows]
    counting = "select count(*) from rollouts where stage = ? and step = ? and grp = ?"
    return {
        "total": store.select(counting, stage, step, group)[0][0],
        "task": _task(played[0].task, MAX_SIBLING_CHARS) if played else None,
        "rollouts": [
            rollout_record(store, row.id, settings, viewers=viewers, max_chars=MAX_SIBLING_CHARS) for row in rows
        ],
        "diverge": first_differences(played),
    }


MAX_SIBLINGS = 64
"""Most rollouts of a group that are shown together."""


def get_rollout(request: Request) -> Response:
    """One rollout, its long texts cut."""
    with requested_reader(request) as store:
        _check_exists(store, path_number(request, "id"))
        settings = settings_of(requested_run(request).folder, EVALUATION_RECIPE)
        viewers = studio_state(request).viewers
        return json_response(rollout_record(store, path_number(request, "id"), settings, viewers=viewers))


def get_part(request: Request) -> Response:
    """What a viewer shows of a rollout."""
    part = str(request.path_params["part"])
    viewers = studio_state(request).viewers
    if all(viewer.part != part for viewer in viewers):
        raise NotFound(f"there is no viewer of the part {one_line(part, 40)!r}")
    shown = load_shown(requested_run(request), path_number(request, "id"))
    viewer = find_viewer(viewers, part, shown.rollout)
    if viewer is None:
        raise NotFound(f"the part {part!r} shows no rollouts")
    with boundary(EnvironmentFailure):
        return json_response(viewer.view(shown))


def get_group(request: Request) -> Response:
    """The samples of one group."""
    where = str(request.path_params["stage"]), path_number(request, "step"), path_number(request, "group")
    with requested_reader(request) as store:
        settings = settings_of(requested_run(request).folder, EVALUATION_RECIPE)
        records = sibling_records(
            store, where, settings, viewers=studio_state(request).viewers, max_rollouts=MAX_SIBLINGS
        )
    if not records["rollouts"]:
        raise NotFound(f"there is no group {where[2]} in step {where[1]} of {where[0]!r}")
    return json_response(records)


def get_text(request: Request) -> Response:
    """The whole of a text that was cut."""
    with requested_reader(request) as store:
        turn = requested_turn(
            requested_rollout(request, store), query_number(request, "seat", 0), query_number(request, "turn", 0)
        )
    index = query_text(request, "message", "-1")
    if index == "-1":
        message = turn.action
    elif index.isdecimal() and len(index) <= 9 and int(index) < len(turn.observation):
        message = turn.observation[int(index)]
    else:
        raise NotFound("this turn has no such message")
    full_text = message.reasoning or "" if query_text(request, "of") == "reasoning" else message.content
    return json_response({"text": full_text})


def get_record(request: Request) -> Response:
    """The whole record, as a file to download."""
    with requested_reader(request) as store:
        played = requested_rollout(request, store)
    name = f'attachment; filename="rollout-{path_number(request, "id")}.json"'
    return Response(encode_json(played), media_type=JSON_TYPE, headers={"content-disposition": name})


def _check_exists(store: RunReader, id: int) -> None:
    if not store.select("select 1 from rollouts where id = ?", id):
        raise NotFound(f"there is no rollout {id} in this run")


def requested_rollout(request: Request, store: RunReader) -> Rollout:
    """The rollout that the path names. Raises NotFound."""
    _check_exists(store, path_number(request, "id"))
    return store.get(path_number(request, "id"))


def requested_turn(played: Rollout, seat: int, turn: int) -> Turn:
    """A turn of the rollout, by seat and index. Raises NotFound."""
    if seat < len(played.trajectories) and turn < len(turns := played.trajectories[seat].turns):
        return turns[turn]
    raise NotFound(f"this rollout has no turn {turn} of seat {seat}")


ROLLOUT_ROUTES = (
    Route("/api/runs/{key}/rollouts/{id}", get_rollout),
    Route("/api/runs/{key}/rollouts/{id}/text", get_text),
    Route("/api/runs/{key}/rollouts/{id}/raw", get_record),
    Route("/api/runs/{key}/groups/{stage}/{step}/{group}", get_group),
)


TOKENIZER_FILE = "tokenizer.json"
REPLACEMENT_CHARACTER, MAX_TOKENS_PER_CHARACTER = "\ufffd", 4
"""Text of an incomplete character, and the most tokens of one character."""
MAX_TOKENS_SHOWN = 200_000
"""Tokens of a turn that are shown; the last ones, where there are more."""


def get_tokens(request: Request) -> Response:
    """The tokens of a turn."""
    with requested_reader(request) as store:
        played = requested_rollout(request, store)
    seat, turn = query_number(request, "seat", 0), query_number(request, "turn", 0)
    requested_turn(played, seat, turn)
    folder = requested_run(request).folder
    return json_response(token_records(played.trajectories[seat], turn, tokenizer_file(folder, settings_of(folder))))


def token_records(trajectory: Trajectory, turn: int, tokenizer: Path | None) -> dict[str, Any]:
    """Every token of the turn; `why` is the reason of missing texts."""
    turn_tokens = trajectory.turns[turn].tokens
    if turn_tokens is None:
        return {"tokens": [], "tokenizer": None, "why": "no tokens were recorded: the policy did not tell them"}
    ids = (*turn_tokens.prompt, *turn_tokens.completion)
    texts: Sequence[str | None] = [None] * len(ids)
    why: str | None = "the run has no checkpoint here whose tokenizer could tell the texts"
    if tokenizer is not None:
        try:
            texts, why = token_texts(tokenizer, ids), None
        except (UsageError, Failure) as error:
            why = one_line(str(error))
    credit: Sequence[float | None] = [trajectory.advantage] * len(turn_tokens.completion)
    finer = trajectory.advantages
    if finer is not None and turn < len(finer) and len(finer[turn]) == len(credit):
        credit = finer[turn]
    read = len(turn_tokens.prompt)
    records = [
        {
            "id": id,
            "text": texts[i],
            "logprob": turn_tokens.logprobs[i - read] if 0 <= i - read < len(turn_tokens.logprobs) else None,
            "sampled": i >= read,
            "advantage": credit[i - read] if i >= read else None,
        }
        for i, id in enumerate(ids)
    ]
    return {
        "tokens": records[-MAX_TOKENS_SHOWN:],
        "tokenizer": None if tokenizer is None else str(tokenizer),
        "why": why,
    }


def token_texts(path: Path, ids: Sequence[int]) -> list[str | None]:
    """The text of each token; of the tokens of one character, the first has it and the others are empty.

    None stands for an id that the tokenizer does not know. Raises PolicyFailure where the file is no tokenizer.
    """
    with needs_extra("train"):
        from tokenizers import Tokenizer
    with boundary(PolicyFailure):
        tokenizer = Tokenizer.from_file(str(path))
    out: list[str | None] = []
    while len(out) < len(ids):
        place = len(out)
        for size in range(1, MAX_TOKENS_PER_CHARACTER + 1):
            text = _text(tokenizer, ids[place : place + size])
            if REPLACEMENT_CHARACTER not in (text or ""):
                break
        else:
            size, text = 1, REPLACEMENT_CHARACTER
        size = min(size, len(ids) - place)
        out += [text, *[""] * (size - 1)]
    return out


@lru_cache(maxsize=4)
def _text(tokenizer: Any, ids: Sequence[int]) -> str | None:
    named: list[str | None] = [tokenizer.id_to_token(id) for id in ids]
    if None in named:
        return None
    if tokenizer.decoder is None:
        return "".join(name or "" for name in named)
    return str(tokenizer.decode(list(ids), skip_special_tokens=False))


def tokenizer_file(folder: Path, settings: Mapping[str, Any]) -> Path | None:
    """The tokenizer of the run's checkpoints, or of those of its policy."""
    policy = settings.get("policy")
    places = [folder, *([Path(policy)] if isinstance(policy, str) and policy else [])]
    for at in places:
        for checkpoint in (at, *checkpoints_of(at)):
            if (checkpoint / TOKENIZER_FILE).is_file():
                return checkpoint / TOKENIZER_FILE
    return None


TOKEN_ROUTES = (Route("/api/runs/{key}/rollouts/{id}/tokens", get_tokens),)
PART_ROUTES = (Route("/api/runs/{key}/rollouts/{id}/{part}", get_part),)
"""Takes every path of a rollout that no other route does."""
