"""The studio behind a port of this machine."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import uvicorn

from wanderlust.core.errors import UsageError
from wanderlust.studio.interrupt import SIGNALS
from wanderlust.studio.resolve import RUNS
from wanderlust.studio.server.app import application
from wanderlust.studio.server.page import PAGE

LATEST_GOODBYE = 1
"""Seconds that requests under way get when the server stops; streams never end by themselves."""


class _Embedded(uvicorn.Server):
    """Leaves the process's signals alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(
    roots: Sequence[Path], *, token: str, host: str = "127.0.0.1", port: int = 0, built: Path = PAGE, plays: Path = RUNS
) -> AsyncIterator[str]:
    """The studio's address, for the time of the block. A `port` of 0 is any free one.

    Raises UsageError when it cannot listen there.
    """
    with _listening(host, port) as listening:
        app = application(roots, token=token, hosts=(host,), built=built, plays=plays)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", ws="none", timeout_graceful_shutdown=LATEST_GOODBYE
        )
        server = _Embedded(config)
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield f"http://{_shown(host)}:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task
            await asyncio.to_thread(app.state.studio.games.close)


async def serve(roots: Sequence[Path], *, token: str, host: str, port: int, told: Callable[[str], None]) -> int:
    """Serve until a signal comes; `told` hears the address. Returns the exit code that stands for the signal."""
    async with serving(roots, token=token, host=host, port=port) as url:
        told(url)
        return await _until_stopped()


async def _until_stopped() -> int:
    """Wait for SIGINT or SIGTERM; the exit code that stands for it. A second one ends the process at once."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()

    def stop(number: int) -> None:
        for handled in SIGNALS:
            loop.remove_signal_handler(handled)
            signal.signal(handled, signal.SIG_DFL)
        stopped.set_result(128 + number)

    for number in SIGNALS:
        loop.add_signal_handler(number, stop, number)
    return await stopped


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}: name another one with --port") from error
    with listening:
        listening.listen(128)
        yield listening


def _shown(host: str) -> str:
    if host in ("0.0.0.0", "::"):
        return "127.0.0.1" if host == "0.0.0.0" else "[::1]"
    return f"[{host}]" if ":" in host else host
