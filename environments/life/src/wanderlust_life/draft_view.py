"""Drafted stories in the studio: those of a folder, each as it would be played, and what people decide about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wanderlust.errors import StoreError, UsageError
from wanderlust.studio.requests import json_response, request_body, studio_state
from wanderlust.studio.run_index import NotFound
from wanderlust_life.described import StoryError, read_story
from wanderlust_life.drafts import DRAFTS_FILE, Decision, ReviewedDraft, review_draft, reviewed_drafts

DEPTH = 2
"""How many folders below a root drafts are looked for."""
MAX_TEXT = 100_000
"""Characters of a comment or a story that is sent here."""


def draft_folders(roots: Sequence[Path]) -> dict[str, Path]:
    """The folders of drafts at the roots and below them, by a key that depends on the place alone."""
    found = sorted(
        {place.resolve() for root in roots for place in _below(root, DEPTH) if (place / DRAFTS_FILE).is_file()}
    )
    return {f"{place.name}-{sha256(str(place).encode()).hexdigest()[:6]}": place for place in found}


def _below(place: Path, depth: int) -> Iterator[Path]:
    yield place
    if depth and place.is_dir():
        try:
            inside = [one for one in place.iterdir() if one.is_dir() and not one.is_symlink()]
        except OSError:
            return
        for one in inside:
            yield from _below(one, depth - 1)


def _folder(request: Request) -> Path:
    known = draft_folders(studio_state(request).index.roots)
    key = request.path_params["folder"]
    if key not in known:
        raise NotFound(f"there are no drafts {key!r}")
    return known[key]


def draft_as_dict(one: ReviewedDraft) -> dict[str, object]:
    """A draft as plain data, with its story where the text is one."""
    try:
        story = msgspec.to_builtins(read_story(one.text)) if one.text else None
    except StoryError:
        story = None
    return {**msgspec.to_builtins(one), "decision": one.decision, "story": story}


def get_folders(request: Request) -> Response:
    """The folders, with how many of their drafts are in which state."""
    rows: list[dict[str, object]] = []
    for key, place in draft_folders(studio_state(request).index.roots).items():
        try:
            drafts = reviewed_drafts(place)
        except (StoreError, UsageError) as error:
            rows.append({"key": key, "name": place.name, "problem": str(error)})
            continue
        counts = {state: sum(one.decision == state for one in drafts) for state in ("open", "accepted", "rejected")}
        rows.append({"key": key, "name": place.name, "drafts": len(drafts), **counts})
    return json_response({"folders": rows})


def get_drafts(request: Request) -> Response:
    """All drafts of a folder."""
    return json_response({"drafts": [draft_as_dict(one) for one in reviewed_drafts(_folder(request))]})


async def post_review(request: Request) -> Response:
    """Note a decision, and answer with the draft as it stands now."""
    body = await request_body(request)
    decision: Any = body.get("do")
    comment, text = body.get("comment", ""), body.get("text", "")
    if decision not in get_args(Decision):
        raise UsageError(f"`do` must be one of {', '.join(get_args(Decision))}")
    if not isinstance(comment, str) or not isinstance(text, str) or len(comment) + len(text) > MAX_TEXT:
        raise UsageError(f"comment and text must be texts of at most {MAX_TEXT:,} characters")
    plain = [one.encode(errors="replace").decode() for one in (comment, text)]  # a browser sends half characters too

    def review() -> Response:
        name = request.path_params["name"]
        return json_response(
            draft_as_dict(review_draft(_folder(request), name, decision, comment=plain[0], text=plain[1]))
        )

    return await run_in_threadpool(review)


class DraftViewer:
    """Drafts of stories as the studio's part `drafts`; they are no rollouts."""

    part = "drafts"

    def routes(self) -> Sequence[Route]:
        """Folders, drafts and decisions."""
        return (
            Route("/api/drafts", get_folders),
            Route("/api/drafts/{folder}", get_drafts),
            Route("/api/drafts/{folder}/{name}", post_review, methods=["POST"]),
        )
