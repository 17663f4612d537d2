"""`wander serve-env`: an environment as a server, for trainers elsewhere.

`wander studio`: runs in the browser.

`wander serve`: a model of ours for every program that speaks OpenAI's API.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import signal
import sys
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from wanderlust._lazy import load
from wanderlust.adapters.openenv import EnvironmentServer
from wanderlust.cli.options import Computing, Environments, Json, Positive
from wanderlust.cli.output import note, result, result_json
from wanderlust.cli.progress import hush, stoppable
from wanderlust.errors import UsageError
from wanderlust.policies.base import PLAIN, Sampling
from wanderlust.policies.resolve import API_KEY, RUNS, find_checkpoint, loaded
from wanderlust.runner.control import SIGNALS
from wanderlust.serving.http import Server
from wanderlust.tasks.registry import find_environment

TOKEN = "WANDER_ENV_TOKEN"
"""Environment variable with the token that clients show; without it one is drawn."""


def serve_environment(
    env: Environments,
    /,
    *,
    port: int = 8000,
    host: str = "127.0.0.1",
    split: str = "train",
    sessions: Positive = 64,
) -> None:
    """Serve an environment over OpenEnv's WebSocket protocol until Ctrl-C.

    Clients show the token of WANDER_ENV_TOKEN, or the one that is printed, as Authorization: Bearer. There is no
    encryption, so put a proxy in front before you listen on anything but this machine.

    Parameters
    ----------
    port:
        0 takes a free one.
    host:
        Address to listen on.
    split:
        Whose tasks are played unless a client names another.
    sessions:
        Episodes at once.
    """
    hush()
    given = os.environ.get(TOKEN)
    token = given or secrets.token_urlsafe(24)
    server = EnvironmentServer(find_environment(env).env, token=token, split=split, sessions=sessions)
    asyncio.run(_serve(server, token="" if given else token, host=host, port=port))


async def _serve(server: EnvironmentServer, *, token: str, host: str, port: int) -> None:
    async with server.listening(host=host, port=port) as url:
        result(None, url, *([f"token {token}"] if token else []))
        await asyncio.Event().wait()


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
    serve = load("wanderlust.studio.app:serve", extra="studio")
    token = secrets.token_urlsafe(24)

    def told(url: str) -> None:
        _tell(f"{url}/?token={token}", show=open, json=json)

    if host not in LOOPBACK:
        note(f"listening on {host}: whoever has the address with its token sees the runs, and nothing is encrypted")
    code: int = asyncio.run(serve(roots, token=token, host=host, port=port, told=told))
    return code


def _export(roots: Sequence[Path], out: Path, *, json: bool) -> int:
    write = load("wanderlust.studio.static_export:export", extra="studio")
    page = load("wanderlust.studio.app:PAGE", extra="studio")
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
    built = load("wanderlust.studio.app:is_built")()
    if json:
        result_json({"url": address, "built": built})
    else:
        result(None, f"The studio is at {address}", "Ctrl-C ends it.")
    sys.stdout.flush()  # whoever reads this through a pipe waits for the address
    if not built:
        note(load("wanderlust.studio.app:UNBUILT"))
    elif show and not (_graphical() and webbrowser.open(address)):
        note("no browser could be opened: open the address yourself")


GRACE_SECONDS = 5.0
"""For requests under way when the server is stopped; a second signal ends it at once."""
Models = Annotated[str, Parameter(help="A run or checkpoint folder, or smollm2.")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Where the server is, and who may ask it."""

    host: str = "127.0.0.1"
    """Address to listen on. There is no encryption: others than this machine's own are for networks you trust."""
    port: Port = 8000
    """0 takes a free one."""
    api_key: str | None = None
    """Name of the environment variable that holds the key. Default: WANDER_API_KEY, if it is set, else a new key."""


LISTENING = Listening()


def serve(
    model: Models,
    /,
    *,
    name: str | None = None,
    listening: Listening = LISTENING,
    hardware: Computing = PLAIN,
    max_tokens: Positive = 256,
    concurrency: Positive = 64,
    adapters: bool = False,
    json: Json = False,
) -> int:
    """Serve a model over HTTP: /v1/chat/completions, /v1/completions, /v1/models and /health, until Ctrl-C.

    Whoever asks needs the API key, which is printed unless it comes from an environment variable.

    Parameters
    ----------
    name:
        What clients call the model. Default: the folder's name.
    max_tokens:
        Bound of one answer, where a request names none.
    concurrency:
        Answers that are sampled at once; others wait.
    adapters:
        Load and unload LoRA adapters over HTTP, as vLLM does: who has the key may name folders of this machine.
    """
    key = _key(listening.api_key)
    with stoppable(lambda: "stopped"):
        folder = find_checkpoint(model)
        served = _served(name or folder.name, *loaded(folder, hardware), concurrency=concurrency)
        front = load("wanderlust.serving.model_api:Models", extra="train")(
            served, Sampling(max_tokens=max_tokens), adapt=load(_ADAPT, extra="train")(served) if adapters else None
        )
    server = Server(host=listening.host, port=listening.port, grace=GRACE_SECONDS)
    return asyncio.run(_run(server, front, told=(served.name, key, json)))


_ADAPT = "wanderlust.serving.http:adapting"


def _key(variable: str | None) -> str:
    """The key that the environment names, "" where a new one is to be made."""
    if variable is not None and not os.environ.get(variable):
        raise UsageError(f"the environment variable {variable} is not set: it is to hold the API key")
    return os.environ.get(variable or API_KEY, "").strip()


def _served(name: str, model: Any, tokenizer: Any, *, concurrency: int) -> Any:
    return load("wanderlust.serving.http:served", extra="train")(name, model, tokenizer, concurrency=concurrency)


async def _run(server: Server, front: Any, *, told: tuple[str, str, bool]) -> int:
    """Answer until a signal comes; returns the exit code that stands for it."""
    name, key, as_json = told
    stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, _stop, stopped, number)
    async with server, server.serving(front, key) as opened:
        shown = "" if key else opened
        if as_json:
            result_json({"url": server.url, "model": name, "api_key": shown or None})
        else:
            result(None, f"Serving {name} at {server.url}", *([f"API key: {shown}"] if shown else []))
        code = 128 + await stopped
        note("stopping; requests under way are finished (Ctrl-C again ends at once)")
    return code


def _stop(stopped: asyncio.Future[int], number: int) -> None:
    if not stopped.done():
        stopped.set_result(number)
        for handled in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(handled)
            signal.signal(handled, signal.SIG_DFL)
