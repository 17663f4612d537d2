"""A studio that really serves, and a client that really asks, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

from wanderlust.studio.server.serving import serving

TOKEN = "the-token-of-the-tests"


class Client:
    """Asks a studio as its page does."""

    def __init__(self, http: aiohttp.ClientSession, url: str):
        self._http, self._url = http, url

    async def ask(self, path: str, body: Any = None, *, method: str = "") -> Any:
        """The answer's JSON; an answer that is no success has its `status` in it."""
        how = method or ("GET" if body is None else "POST")
        async with self._http.request(how, f"{self._url}{path}", json=body) as response:
            found = await response.json()
            return found if response.status == 200 else {**found, "status": response.status}


def with_studio(roots: list[Path], plays: Path, use: Callable[[Client], Awaitable[Any]]) -> Any:
    """Whatever `use` returns, of a studio over `roots` that keeps games below `plays`."""

    async def run() -> Any:
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with serving(roots, token=TOKEN, plays=plays) as url, aiohttp.ClientSession(headers=headers) as http:
            return await use(Client(http, url))

    return asyncio.run(run())
