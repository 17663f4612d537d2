"""`wander serve-env`: an environment as a server, for trainers elsewhere.

`wander serve`: a model of ours for every program that speaks OpenAI's API.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from wanderlust._lazy import needs_extra
from wanderlust.adapters.openenv import EnvironmentServer
from wanderlust.cli.long_commands import set_library_environment, stoppable
from wanderlust.cli.options import EnvironmentName, HardwareOptions, JsonFlag, PortNumber, PositiveInt
from wanderlust.cli.output import print_note, show_result
from wanderlust.errors import UsageError
from wanderlust.policies.base import API_KEY_VARIABLE, DEFAULT_HARDWARE, SamplingOptions
from wanderlust.policies.checkpoints import load_for_inference, resolve_checkpoint
from wanderlust.runner.control import stopping_signal
from wanderlust.serving import AgentServer
from wanderlust.tasks.registry import resolve_environment

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
    json: JsonFlag = False,
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
    max_sessions:
        Episodes at once.
    """
    set_library_environment()
    given_token = os.environ.get(TOKEN_VARIABLE)
    token = given_token or secrets.token_urlsafe(24)
    server = EnvironmentServer(resolve_environment(env).env, token=token, split=split, sessions=max_sessions)

    async def serve_until_stopped() -> None:
        async with server.listening(host=host, port=port) as url:
            shown = None if given_token else token
            show_result({"url": url, "token": shown}, url, *([f"token {shown}"] if shown else []), json=json)
            await asyncio.Event().wait()

    asyncio.run(serve_until_stopped())


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
        model_and_tokenizer = load_for_inference(folder, hardware)
        with needs_extra("train"):
            from wanderlust.serving import ModelAPI
            from wanderlust.serving.local_models import adapter_loader, make_served_model
        served = make_served_model(name or folder.name, *model_and_tokenizer, concurrency=concurrency)
        front = ModelAPI(
            served, SamplingOptions(max_tokens=max_tokens), load_adapter=adapter_loader(served) if adapters else None
        )
    server = AgentServer(host=listening.host, port=listening.port, grace=SHUTDOWN_GRACE_SECONDS)
    return asyncio.run(_serve_until_signal(server, front, announcement=(served.name, key, json)))


async def _serve_until_signal(server: AgentServer, front: Any, *, announcement: tuple[str, str, bool]) -> int:
    """Answer until a signal comes; returns the exit code that stands for it."""
    name, key, as_json = announcement
    stopped = stopping_signal()
    async with server, server.serving(front, key) as opened:
        key_line = "" if key else opened
        body = {"url": server.url, "model": name, "api_key": key_line or None}
        lines = [f"Serving {name} at {server.url}", *([f"API key: {key_line}"] if key_line else [])]
        show_result(body, *lines, json=as_json)
        code = await stopped
        print_note("stopping; requests under way are finished (Ctrl-C again ends at once)")
    return code
