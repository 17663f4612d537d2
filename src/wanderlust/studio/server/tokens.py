"""The token view: what was read and what was sampled in one turn, with how likely it was and what it was credited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wanderlust.core.errors import Failure, UsageError
from wanderlust.core.extras import load
from wanderlust.core.text import one_line
from wanderlust.core.types import Trajectory
from wanderlust.recipes.folder import checkpoints_of
from wanderlust.studio.server.answers import answer, number
from wanderlust.studio.server.facts import settings_of
from wanderlust.studio.server.rollouts import get, turn_of
from wanderlust.studio.server.state import place, reader

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
        return load("wanderlust.studio.server.words:pieces", extra="train")(tokenizer, ids), None
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


ROUTES = (Route("/api/runs/{key}/rollouts/{id}/tokens", tokens),)
