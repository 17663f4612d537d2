"""The studio as an ASGI application with the built front end, and its server on a port of this machine."""

from __future__ import annotations

import asyncio
import gc
import mimetypes
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
from wanderlust.runner.control import stopping_signal
from wanderlust.store.run_folder import RUNS_FOLDER
from wanderlust.studio import comparisons, event_stream, play_routes, rollouts, runs
from wanderlust.studio.auth import Guard
from wanderlust.studio.games import GameSessions
from wanderlust.studio.requests import StudioState, failure_response, json_response
from wanderlust.studio.run_index import NotFound, RunIndex
from wanderlust.studio.viewers import RoutedViewer, installed_viewers

PAGE_FOLDER = Path(__file__).parent / "page"
"""Output folder of `make page`."""
NOT_BUILT_MESSAGE = (
    "the studio's page is not built: run `make page` in the source checkout (needs Node 20.19 or later), "
    "or install a wheel"
)
ENCODINGS = (("br", ".br"), ("gzip", ".gz"))


def is_built(page: Path = PAGE_FOLDER) -> bool:
    """Whether the page is built."""
    return (page / "index.html").is_file()


def get_page(request: Request) -> Response:
    """Serve an asset where there is one of that name, else the page, which routes by itself."""
    path = request.path_params.get("path", "")
    if path.startswith("api/"):
        raise NotFound("there is no such thing to ask for")
    root: Path = request.app.state.page
    if not is_built(root):
        return PlainTextResponse(NOT_BUILT_MESSAGE + "\n", status_code=503)
    file = (root / path).resolve()
    if path and file.is_file() and file.is_relative_to(root.resolve()):
        return _file(request, file, lasting=path.startswith("assets/"))
    if path.startswith("assets/"):
        return json_response({"error": "no such file"}, status=404)
    return _file(request, root / "index.html", lasting=False)


def _file(request: Request, file: Path, *, lasting: bool) -> Response:
    """Serve the file, compressed where the browser takes it and the build has compressed it."""
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    headers = {"cache-control": "public, max-age=31536000, immutable" if lasting else "no-cache"}
    taken = request.headers.get("accept-encoding", "")
    for name, suffix in ENCODINGS:
        packed = file.with_name(file.name + suffix)
        if name in taken and packed.is_file():
            headers |= {"content-encoding": name, "vary": "accept-encoding"}
            return Response(packed.read_bytes(), media_type=kind, headers=headers)
    return Response(file.read_bytes(), media_type=kind, headers=headers)


PAGE_ROUTES = (Route("/{path:path}", get_page),)
OWN_ROUTES = (
    *runs.RUN_ROUTES,
    *rollouts.ROW_ROUTES,
    *rollouts.ROLLOUT_ROUTES,
    *rollouts.TOKEN_ROUTES,
    *play_routes.PLAY_ROUTES,
    *comparisons.COMPARE_ROUTES,
    *runs.CONTROL_ROUTES,
    *event_stream.STREAM_ROUTES,
)


def make_application(
    roots: Sequence[Path],
    *,
    token: str,
    hosts: tuple[str, ...] = (),
    page_folder: Path = PAGE_FOLDER,
    plays_folder: Path = RUNS_FOLDER,
) -> Starlette:
    """Make the studio over the runs at `roots`; every request needs the `token`. `page_folder` is the front end's.

    Games that are played here are stored in runs below `plays_folder`.
    """
    viewers = installed_viewers()
    more = [route for viewer in viewers if isinstance(viewer, RoutedViewer) for route in viewer.routes()]
    app = Starlette(
        routes=[*OWN_ROUTES, *more, *rollouts.PART_ROUTES, *PAGE_ROUTES],  # the last two take what is left
        middleware=[Middleware(Guard, token=token, hosts=hosts)],
        exception_handlers={
            WanderlustError: failure_response,
            OSError: lambda _, error: json_response({"error": f"cannot be read: {error}"}, status=409),
        },
    )
    app.state.page = page_folder
    app.state.studio = StudioState(
        index=RunIndex(roots), plays_folder=plays_folder, viewers=viewers, games=GameSessions(viewers=viewers)
    )
    return app


SHUTDOWN_SECONDS = 1
"""Seconds that requests under way get when the server stops; streams never end by themselves."""


class _UvicornServer(uvicorn.Server):
    """Leave signals to this process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def running_studio(
    roots: Sequence[Path],
    *,
    token: str,
    host: str = "127.0.0.1",
    port: int = 0,
    **folders: Path,
) -> AsyncIterator[str]:
    """Serve the studio for the time of the block; yields its address. A `port` of 0 is any free one.

    `folders` are those of `make_application`. Raises UsageError when it cannot listen there.
    """
    with _listening(host, port) as listening:
        app = make_application(roots, token=token, hosts=(host,), **folders)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        server = _UvicornServer(config)
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
            url_host = f"[{reachable}]" if ":" in reachable else reachable
            yield f"http://{url_host}:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task
            await asyncio.to_thread(app.state.studio.games.close)


async def serve_studio(
    roots: Sequence[Path], *, token: str, host: str, port: int, on_ready: Callable[[str], None]
) -> int:
    """Serve until SIGINT or SIGTERM, whose exit code is returned; a second one ends the process at once.

    `on_ready` is called with the address. What is imported by then stays, so the garbage collector looks at it no more,
    and the first request does not wait for a full collection.
    """
    gc.freeze()
    async with running_studio(roots, token=token, host=host, port=port) as url:
        on_ready(url)
        return await stopping_signal()


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
