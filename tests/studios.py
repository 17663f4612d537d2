"""The studio's real server on a port of its own, and a plain client that asks it."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import quote, urlsplit

from patience import PATIENCE
from wanderlust.studio.application import running_studio

TOKEN = "a-token-of-the-tests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Client:
    """Asks one server; every request brings the token unless it says otherwise."""

    url: str

    def ask(self, path: str, *, method: str = "GET", body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        given = {"Authorization": f"Bearer {TOKEN}"} if headers is None else headers
        place = urlsplit(self.url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port or 0, timeout=PATIENCE)
        sent = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, sent, given)
        got = connection.getresponse()
        answer = Answer(status=got.status, headers={k.lower(): v for k, v in got.getheaders()}, body=got.read())
        connection.close()
        return answer

    def get(self, path: str, **query: object) -> Any:
        """The JSON of an answer that must be 200."""
        words = "&".join(f"{name}={quote(str(value))}" for name, value in query.items())
        found = self.ask(f"/api/{path}" + (f"?{words}" if words else ""))
        assert found.status == 200, found.body
        return found.json

    def said(self, path: str, body: Any = None, *, method: str = "") -> Any:
        """The JSON of any answer; one that is no success has its `status` in it."""
        found = self.ask(path, method=method or ("GET" if body is None else "POST"), body=body)
        return found.json if found.status == 200 else {**found.json, "status": found.status}

    @contextmanager
    def listening(self, query: str = "") -> Iterator[Iterator[tuple[str, Any]]]:
        """The events of a stream as they come."""
        place = urlsplit(self.url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port or 0, timeout=PATIENCE)
        connection.request("GET", f"/api/stream{query}", headers={"Authorization": f"Bearer {TOKEN}"})
        try:
            yield _events(connection.getresponse())
        finally:
            connection.close()


def _events(stream: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    name = ""
    while line := stream.readline():
        word, _, rest = line.decode().rstrip("\n").partition(": ")
        if word == "event":
            name = rest
        elif word == "data":
            yield name, json.loads(rest)


@contextmanager
def served(*roots: Path, token: str = TOKEN, **settings: Any) -> Iterator[Client]:
    """A server over those runs, in a thread of its own."""
    ready, over, urls = Event(), Event(), list[str]()

    async def run() -> None:
        async with running_studio(roots, token=token, **settings) as url:
            urls.append(url)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield Client(urls[0])
    finally:
        over.set()
        thread.join()
