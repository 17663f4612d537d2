"""One stream of server-sent events for each tab, with changes of the runs.

A store is read only when its `data_version` shows a commit, which takes microseconds to ask.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from wanderlust.errors import StoreError
from wanderlust.store.reader import RunReader
from wanderlust.studio.requests import encode_json, studio_state
from wanderlust.studio.run_index import RunIndex, RunInfo, RunLocation

POLL_SECONDS, LIST_SECONDS, HEARTBEAT_SECONDS = 0.05, 1.0, 15.0
"""Seconds between two polls of the shown run, two polls of all runs, and two heartbeats."""


async def get_stream(request: Request) -> Response:
    """Stream changes of all runs, and of the one in `run` with less delay; it may begin later."""
    catalogue, key = studio_state(request).index, request.query_params.get("run", "")
    if key and key not in catalogue.locations:
        await run_in_threadpool(catalogue.refresh)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(_events(catalogue, key), media_type="text/event-stream", headers=headers)


async def _events(catalogue: RunIndex, key: str) -> AsyncIterator[bytes]:
    """Yield events until the browser disconnects."""
    last_infos: dict[str, RunInfo] = {}
    follower: StoreFollower | None = None
    listed = beat = float("-inf")
    try:
        while True:
            now = time.monotonic()
            if now - beat >= HEARTBEAT_SECONDS:
                beat = now
                yield b": here\n\n"
            if follower is None and key in catalogue.locations:
                follower = StoreFollower(catalogue.locations[key])
            if follower is not None and (news := follower.news()) is not None:
                yield encode_event(*news)
            if now - listed >= LIST_SECONDS:
                changed = [
                    info for info in await run_in_threadpool(catalogue.refresh) if last_infos.get(info.key) != info
                ]
                took = time.monotonic() - now
                listed = now + 20 * took  # looking takes a twentieth of the time at most
                if changed:
                    last_infos |= {info.key: info for info in changed}
                    yield encode_event("runs", {"runs": [asdict(info) for info in changed]})
            await asyncio.sleep(POLL_SECONDS)
    finally:
        if follower is not None:
            follower.close()


def encode_event(name: str, body: Any) -> bytes:
    """Encode one event; JSON has no line breaks of its own."""
    return b"event: " + name.encode() + b"\ndata: " + encode_json(body) + b"\n\n"


@dataclass(slots=True)
class StoreFollower:
    """Follows one store."""

    location: RunLocation
    reader: RunReader | None = None
    inode: int = 0
    version: int = -1
    rollouts: int = 0
    last: int = 0
    counted: float = float("-inf")
    cost: float = 0.0
    last_body: dict[str, Any] = field(default_factory=dict)
    missing: bool = False

    def close(self) -> None:
        """Close the file."""
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def news(self) -> tuple[str, dict[str, Any]] | None:
        """The change since the last call; None without one."""
        try:
            inode = self.location.store.stat().st_ino
        except OSError:
            self.close()
            was, self.missing = self.missing, True
            return None if was else ("gone", {"key": self.location.key})
        self.missing = False
        with suppress(StoreError):  # the list says what is wrong with it
            if self.reader is None or inode != self.inode:
                self.close()
                self.inode, self.version = inode, -1
                self.reader = RunReader(self.location.store, timeout=0.0)
            ((version,),) = self.reader.select("pragma data_version")
            if version == self.version:
                return None
            body = self._body(self.reader)
            self.version = version
            if body != self.last_body:
                self.last_body = body
                return "run", body
        return None

    def _body(self, store: RunReader) -> dict[str, Any]:
        newest = store.select("select id, stage, step from rollouts order by id desc limit 1")
        last, stage, step = newest[0] if newest else (0, "", 0)
        began = time.monotonic()
        if last < self.last or began - self.counted >= 1.0 + 20 * self.cost:
            ((self.rollouts,),) = store.select("select count(*) from rollouts")
            self.counted, self.cost = began, time.monotonic() - began
        else:
            ((more,),) = store.select("select count(*) from rollouts where id > ?", self.last)
            self.rollouts += more
        self.last = last
        metrics: dict[str, dict[str, list[Any]]] = {}
        for (measured,) in store.select("select distinct stage from metrics"):
            ((at,),) = store.select("select max(step) from metrics where stage = ?", measured)
            sql = "select name, value from metrics where stage = ? and step = ?"
            metrics[measured] = {name: [at, value] for name, value in store.select(sql, measured, at)}
        ((newest_event,),) = store.select("select coalesce(max(id), 0) from events")
        return {
            "key": self.location.key,
            "rollouts": self.rollouts,
            "last_id": last,
            "stage": stage,
            "step": step,
            "metrics": metrics,
            "event": newest_event,
        }


STREAM_ROUTES = (Route("/api/stream", get_stream),)
