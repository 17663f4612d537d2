"""`wander serve`: a model of ours for every program that speaks OpenAI's API."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from wanderlust.core.errors import UsageError
from wanderlust.core.extras import load
from wanderlust.policies.hardware import PLAIN
from wanderlust.policies.sampling import Sampling
from wanderlust.policies.server import Server
from wanderlust.studio.arguments import Computing, Json, Positive
from wanderlust.studio.interrupt import SIGNALS
from wanderlust.studio.output import note, result, result_json
from wanderlust.studio.resolve import API_KEY, find_checkpoint, loaded
from wanderlust.studio.session import stoppable

GRACE_SECONDS = 5.0
"""For requests under way when the server is stopped; a second signal ends it at once."""
Models = Annotated[str, Parameter(help="A run or checkpoint folder, or smollm2.")]
Port = Annotated[int, Parameter(validator=Number(gte=0, lte=65535))]


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
        front = load("wanderlust.policies.models:Models", extra="train")(
            served, Sampling(max_tokens=max_tokens), adapt=load(_ADAPT, extra="train")(served) if adapters else None
        )
    server = Server(host=listening.host, port=listening.port, grace=GRACE_SECONDS)
    return asyncio.run(_run(server, front, told=(served.name, key, json)))


_ADAPT = "wanderlust.studio.serving_models:adapting"


def _key(variable: str | None) -> str:
    """The key that the environment names, "" where a new one is to be made."""
    if variable is not None and not os.environ.get(variable):
        raise UsageError(f"the environment variable {variable} is not set: it is to hold the API key")
    return os.environ.get(variable or API_KEY, "").strip()


def _served(name: str, model: Any, tokenizer: Any, *, concurrency: int) -> Any:
    return load("wanderlust.studio.serving_models:served", extra="train")(
        name, model, tokenizer, concurrency=concurrency
    )


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
