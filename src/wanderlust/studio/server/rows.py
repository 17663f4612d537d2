"""The table of rollouts over HTTP."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wanderlust.core.text import one_line
from wanderlust.rollout.reader import Row, RunReader
from wanderlust.rollout.table import Glance, Order, condition, glances
from wanderlust.studio.server.answers import answer, number, text
from wanderlust.studio.server.state import place, reader, studio

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


ROUTES = (Route("/api/runs/{key}/rollouts", rollouts),)
