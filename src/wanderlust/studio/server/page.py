"""The built front end: one page and its assets, as they were compressed when it was built."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from wanderlust.studio.server.answers import NotFound, answer

PAGE = Path(__file__).parent.parent / "page"
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


ROUTES = (Route("/{path:path}", page),)
