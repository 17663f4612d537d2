"""`wander serve-env`: an environment as a server, for trainers elsewhere."""

from __future__ import annotations

import asyncio
import os
import secrets

from wanderlust.environments.openenv import EnvironmentServer
from wanderlust.studio.arguments import Environments, Positive
from wanderlust.studio.output import result
from wanderlust.studio.resolve import find_environment
from wanderlust.studio.session import hush

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
