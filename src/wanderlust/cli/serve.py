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

from wanderlust._lazy import import_object
from wanderlust.adapters.openenv import EnvironmentServer
from wanderlust.cli.options import EnvironmentName, HardwareOptions, JsonFlag, PositiveInt
from wanderlust.cli.output import print_json, print_note, print_result
from wanderlust.cli.progress import set_library_environment, stoppable
from wanderlust.errors import UsageError
from wanderlust.policies.base import DEFAULT_HARDWARE, SamplingOptions
from wanderlust.policies.resolve import API_KEY_VARIABLE, RUNS_FOLDER, load_for_inference, resolve_checkpoint
from wanderlust.runner.control import SIGNALS
from wanderlust.serving.http import AgentServer
from wanderlust.tasks.registry import resolve_environment

PortNumber = Annotated[int, Parameter(validator=Number(gte=0, lte=65535))]
TOKEN_VARIABLE = "WANDER_ENV_TOKEN"
"""Environment variable with the token that clients show; without it one is drawn."""


def serve_env_command(
    env: EnvironmentName,
    /,
    *,
    port: PortNumber = 8000,
    host: str = "127.0.0.1",
    split: str = "train",
    max_sessions: PositiveInt = 64,
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
    set_library_environment()
    given_token = os.environ.get(TOKEN_VARIABLE)
    token = given_token or secrets.token_urlsafe(24)
    server = EnvironmentServer(resolve_environment(env).env, token=token, split=split, sessions=max_sessions)
    asyncio.run(_serve(server, token="" if given_token else token, host=host, port=port))


async def _serve(server: EnvironmentServer, *, token: str, host: str, port: int) -> None:
    async with server.listening(host=host, port=port) as url:
        print_result(None, url, *([f"token {token}"] if token else []))
        await asyncio.Event().wait()


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
    serve = import_object("wanderlust.studio.application:serve_studio", extra="studio")
    token = secrets.token_urlsafe(24)

    def on_ready(url: str) -> None:
        address = f"{url}/?token={token}"
        built = import_object("wanderlust.studio.application:is_built")()
        if json:
            print_json({"url": address, "built": built})
        else:
            print_result(None, f"The studio is at {address}", "Ctrl-C ends it.")
        sys.stdout.flush()  # whoever reads this through a pipe waits for the address
        if not built:
            print_note(import_object("wanderlust.studio.application:NOT_BUILT_MESSAGE"))
        elif open and not (
            (sys.platform != "linux" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))
            and webbrowser.open(address)
        ):
            print_note("no browser could be opened: open the address yourself")

    if host not in LOOPBACK_HOSTS:
        print_note(
            f"listening on {host}: whoever has the address with its token sees the runs, and nothing is encrypted"
        )
    code: int = asyncio.run(serve(roots, token=token, host=host, port=port, on_ready=on_ready))
    return code


def _export_static(roots: Sequence[Path], out: Path, *, json: bool) -> int:
    write = import_object("wanderlust.studio.static_export:export_site", extra="studio")
    page = import_object("wanderlust.studio.application:PAGE_FOLDER", extra="studio")
    with stoppable(lambda: f"stopped; {out} is not whole") as progress:
        written = write(roots, out, page=page, progress=progress)
    if json:
        print_json({"folder": str(out), "rollouts": written})
    else:
        shown_by = f"python -m http.server --directory {shlex.quote(str(out))}"
        print_result(None, f"{written} rollouts and the page are in {out}. Any file server shows them: {shown_by}")
    return 0


SHUTDOWN_GRACE_SECONDS = 5.0
"""For requests under way when the server is stopped; a second signal ends it at once."""
ModelName = Annotated[str, Parameter(help="A run or checkpoint folder, or smollm2.")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions:
    """Address and API key of the server."""

    host: str = "127.0.0.1"
    """Address to listen on. There is no encryption: others than this machine's own are for networks you trust."""
    port: PortNumber = 8000
    """0 takes a free one."""
    api_key: str | None = None
    """Name of the environment variable that holds the key. Default: WANDER_API_KEY, if it is set, else a new key."""


DEFAULT_LISTEN_OPTIONS = ListenOptions()


def serve_command(
    model: ModelName,
    /,
    *,
    name: str | None = None,
    listening: ListenOptions = DEFAULT_LISTEN_OPTIONS,
    hardware: HardwareOptions = DEFAULT_HARDWARE,
    max_tokens: PositiveInt = 256,
    concurrency: PositiveInt = 64,
    adapters: bool = False,
    json: JsonFlag = False,
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
    variable = listening.api_key
    if variable is not None and not os.environ.get(variable):
        raise UsageError(f"the environment variable {variable} is not set: it is to hold the API key")
    key = os.environ.get(variable or API_KEY_VARIABLE, "").strip()
    with stoppable(lambda: "stopped"):
        folder = resolve_checkpoint(model)
        served = _load_served_model(name or folder.name, *load_for_inference(folder, hardware), concurrency=concurrency)
        front = import_object("wanderlust.serving.model_api:ModelAPI", extra="train")(
            served,
            SamplingOptions(max_tokens=max_tokens),
            load_adapter=import_object(_ADAPT, extra="train")(served) if adapters else None,
        )
    server = AgentServer(host=listening.host, port=listening.port, grace=SHUTDOWN_GRACE_SECONDS)
    return asyncio.run(_serve_until_signal(server, front, announcement=(served.name, key, json)))


_ADAPT = "wanderlust.serving.local_models:adapter_loader"


def _load_served_model(name: str, model: Any, tokenizer: Any, *, concurrency: int) -> Any:
    return import_object("wanderlust.serving.local_models:make_served_model", extra="train")(
        name, model, tokenizer, concurrency=concurrency
    )


async def _serve_until_signal(server: AgentServer, front: Any, *, announcement: tuple[str, str, bool]) -> int:
    """Answer until a signal comes; returns the exit code that stands for it."""
    name, key, as_json = announcement
    stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, _set_result, stopped, number)
    async with server, server.serving(front, key) as opened:
        key_line = "" if key else opened
        if as_json:
            print_json({"url": server.url, "model": name, "api_key": key_line or None})
        else:
            print_result(None, f"Serving {name} at {server.url}", *([f"API key: {key_line}"] if key_line else []))
        code = 128 + await stopped
        print_note("stopping; requests under way are finished (Ctrl-C again ends at once)")
    return code


def _set_result(stopped: asyncio.Future[int], number: int) -> None:
    if not stopped.done():
        stopped.set_result(number)
        for handled in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(handled)
            signal.signal(handled, signal.SIG_DFL)
