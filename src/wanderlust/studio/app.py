"""The studio as an ASGI application.

The built front end: one page and its assets, as they were compressed when it was built.

The studio behind a port of this machine.
"""

from __future__ import annotations

import asyncio
import mimetypes
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from wanderlust.errors import UsageError, WanderlustError
from wanderlust.policies.resolve import RUNS
from wanderlust.runner.control import SIGNALS
from wanderlust.studio import event_stream, play, rollouts, runs, worlds
from wanderlust.studio import rollouts as rows
from wanderlust.studio import rollouts as tokens
from wanderlust.studio import runs as comparing
from wanderlust.studio import runs as control
from wanderlust.studio.auth import Guard
from wanderlust.studio.responses import NotFound, answer, failed
from wanderlust.studio.run_index import Catalogue
from wanderlust.studio.state import Studio

PAGE = Path(__file__).parent / "page"
"""Where `make page` puts what it builds."""
UNBUILT = "the studio's page is not built: run `make page` in the source checkout (needs Node 20), or install a wheel"
ENCODINGS = (("br", ".br"), ("gzip", ".gz"))


def is_built(page: Path = PAGE) -> bool:
    """Whether there is a page to show."""
    return (page / "index.html").is_file()


def page(request: Request) -> Response:
    """An asset where there is one of that name, else the page, which finds out itself what to show."""
    path = request.path_params.get("path", "")
    if path.startswith("api/"):
        raise NotFound("there is no such thing to ask for")
    root: Path = request.app.state.page
    if not is_built(root):
        return PlainTextResponse(UNBUILT + "\n", status_code=503)
    file = (root / path).resolve()
    if path and file.is_file() and file.is_relative_to(root.resolve()):
        return _file(request, file, lasting=path.startswith("assets/"))
    if path.startswith("assets/"):
        return answer({"error": "no such file"}, status=404)
    return _file(request, root / "index.html", lasting=False)


def _file(request: Request, file: Path, *, lasting: bool) -> Response:
    """The file, packed if it lies there packed and the browser takes it so."""
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    headers = {"cache-control": "public, max-age=31536000, immutable" if lasting else "no-cache"}
    taken = request.headers.get("accept-encoding", "")
    for name, suffix in ENCODINGS:
        packed = file.with_name(file.name + suffix)
        if name in taken and packed.is_file():
            headers |= {"content-encoding": name, "vary": "accept-encoding"}
            return Response(packed.read_bytes(), media_type=kind, headers=headers)
    return Response(file.read_bytes(), media_type=kind, headers=headers)


ROUTES_PAGE = (Route("/{path:path}", page),)


ROUTES = (
    *runs.ROUTES_RUNS,
    *rows.ROUTES_ROWS,
    *rollouts.ROUTES,
    *tokens.ROUTES_TOKENS,
    *worlds.ROUTES,
    *play.ROUTES,
    *comparing.ROUTES,
    *control.ROUTES_CONTROL,
    *event_stream.ROUTES,
    *ROUTES_PAGE,  # takes whatever is left
)


def application(
    roots: Sequence[Path], *, token: str, hosts: tuple[str, ...] = (), built: Path = PAGE, plays: Path = RUNS
) -> Starlette:
    """The studio over the runs at `roots`; every request needs the `token`. `built` is the front end's folder.

    Games that are played here are kept in runs below `plays`.
    """
    app = Starlette(
        routes=list(ROUTES),
        middleware=[Middleware(Guard, token=token, hosts=hosts)],
        exception_handlers={WanderlustError: failed, OSError: _unreadable},
    )
    app.state.studio, app.state.page = Studio(catalogue=Catalogue(roots), plays=plays), built
    return app


def _unreadable(request: Request, error: Exception) -> Response:
    return answer({"error": f"cannot be read: {error}"}, status=409)


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
