"""`wander studio`: runs in the browser."""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from wanderlust.core.errors import UsageError
from wanderlust.core.extras import load
from wanderlust.studio.arguments import Json
from wanderlust.studio.output import note, result, result_json
from wanderlust.studio.resolve import RUNS
from wanderlust.studio.session import stoppable

Port = Annotated[int, Parameter(validator=Number(gte=0, lte=65535))]
Roots = Annotated[list[Path] | None, Parameter(help="Runs, or folders of runs. Default: runs.")]
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def studio(
    runs: Roots = None,
    /,
    *,
    port: Port = 8765,
    open: Annotated[bool, Parameter(negative="--no-open")] = True,
    host: str = "127.0.0.1",
    export: Path | None = None,
    json: Json = False,
) -> int:
    """See runs in the browser: every rollout, training as it goes on, groups, worlds, comparisons. Until Ctrl-C.

    Parameters
    ----------
    port:
        0 takes a free one.
    open:
        Open the browser.
    host:
        Address to listen on. There is no encryption: others than this machine's own are for networks you trust.
    export:
        New folder: write the page and the runs there for any file server, instead of serving them.
    """
    roots = runs or [RUNS]
    missing = [str(root) for root in roots if not root.exists()]
    if runs and missing:
        raise UsageError(f"there is nothing at {', '.join(missing)}")
    if runs is None and not RUNS.is_dir():
        note(f"there is no folder {RUNS} here yet: runs are shown when they begin, or name others")
    if export is not None:
        return _export(roots, export, json=json)
    serve = load("wanderlust.studio.server.serving:serve", extra="studio")
    token = secrets.token_urlsafe(24)

    def told(url: str) -> None:
        _tell(f"{url}/?token={token}", show=open, json=json)

    if host not in LOOPBACK:
        note(f"listening on {host}: whoever has the address with its token sees the runs, and nothing is encrypted")
    code: int = asyncio.run(serve(roots, token=token, host=host, port=port, told=told))
    return code


def _export(roots: Sequence[Path], out: Path, *, json: bool) -> int:
    write = load("wanderlust.studio.server.export:export", extra="studio")
    page = load("wanderlust.studio.server.page:PAGE", extra="studio")
    with stoppable(lambda: f"stopped; {out} is not whole") as progress:
        written = write(roots, out, page=page, teller=progress)
    if json:
        result_json({"folder": str(out), "rollouts": written})
    else:
        shown_by = f"python -m http.server --directory {shlex.quote(str(out))}"
        result(None, f"{written} rollouts and the page are in {out}. Any file server shows them: {shown_by}")
    return 0


def _graphical() -> bool:
    """Whether a browser would have a window: one in this terminal would take it over."""
    return sys.platform != "linux" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def _tell(address: str, *, show: bool, json: bool) -> None:
    """Say where the studio is, and open a browser there."""
    built = load("wanderlust.studio.server.page:is_built")()
    if json:
        result_json({"url": address, "built": built})
    else:
        result(None, f"The studio is at {address}", "Ctrl-C ends it.")
    sys.stdout.flush()  # whoever reads this through a pipe waits for the address
    if not built:
        note(load("wanderlust.studio.server.page:UNBUILT"))
    elif show and not (_graphical() and webbrowser.open(address)):
        note("no browser could be opened: open the address yourself")
