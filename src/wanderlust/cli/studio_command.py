"""`wander studio`: runs in the browser."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from wanderlust._lazy import needs_extra
from wanderlust.cli.long_commands import stoppable
from wanderlust.cli.options import JsonFlag, PortNumber
from wanderlust.cli.output import print_note, show_result
from wanderlust.errors import UsageError
from wanderlust.store.run_folder import RUNS_FOLDER

RunRoots = Annotated[list[Path] | None, Parameter(help="Runs, or folders of runs. Default: runs.")]
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")


def studio_command(
    runs: RunRoots = None,
    /,
    *,
    port: PortNumber = 8765,
    open: Annotated[bool, Parameter(negative="--no-open")] = True,
    host: str = "127.0.0.1",
    export: Path | None = None,
    json: JsonFlag = False,
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
    roots = runs or [RUNS_FOLDER]
    missing = [str(root) for root in roots if not root.exists()]
    if runs and missing:
        raise UsageError(f"there is nothing at {', '.join(missing)}")
    if runs is None and not RUNS_FOLDER.is_dir():
        print_note(f"there is no folder {RUNS_FOLDER} here yet: runs are shown when they begin, or name others")
    if export is not None:
        return _export_static(roots, export, json=json)
    with needs_extra("studio"):
        from wanderlust.studio.application import NOT_BUILT_MESSAGE, is_built, serve_studio
        from wanderlust.studio.auth import lasting_token
    token = lasting_token(port)

    def on_ready(url: str) -> None:
        address = f"{url}/?token={token}"
        built = is_built()
        show_result({"url": address, "built": built}, f"The studio is at {address}", "Ctrl-C ends it.", json=json)
        sys.stdout.flush()  # whoever reads this through a pipe waits for the address
        if not built:
            print_note(NOT_BUILT_MESSAGE)
        elif open and not (
            (sys.platform != "linux" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))
            and webbrowser.open(address)
        ):
            print_note("no browser could be opened: open the address yourself")

    if host not in LOOPBACK_HOSTS:
        print_note(
            f"listening on {host}: whoever has the address with its token sees the runs, and nothing is encrypted"
        )
    return asyncio.run(serve_studio(roots, token=token, host=host, port=port, on_ready=on_ready))


def _export_static(roots: Sequence[Path], out: Path, *, json: bool) -> int:
    with needs_extra("studio"):
        from wanderlust.studio.application import PAGE_FOLDER
        from wanderlust.studio.static_export import export_site
    with stoppable(lambda: f"stopped; {out} is not whole") as progress:
        written = export_site(roots, out, page=PAGE_FOLDER, progress=progress)
    shown_by = f"python -m http.server --directory {shlex.quote(str(out))}"
    line = f"{written} rollouts and the page are in {out}. Any file server shows them: {shown_by}"
    show_result({"folder": str(out), "rollouts": written}, line, json=json)
    return 0
