"""Servers that tests train on: our own, which has vLLM's calls for adapters, and SkyRL's Tinker server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks.peer import ROOT, SKYRL, made

from wanderlust.policies.local.pretrained import load_pretrained
from wanderlust.serving.http import AgentServer
from wanderlust.serving.local_models import adapter_loader, make_served_model
from wanderlust.serving.model_api import ModelAPI

KEY = "a key of the tests"


@contextmanager
def own_server(start: Path) -> Iterator[str]:
    """The address of our own server of the checkpoint, which has vLLM's calls for adapters."""
    ready, address, loop = threading.Event(), list[str](), asyncio.new_event_loop()
    done = asyncio.Event()

    async def serve() -> None:
        base = make_served_model("toy", *load_pretrained(start))
        api = ModelAPI(base, load_adapter=adapter_loader(base))
        async with AgentServer() as server, server.serving(api, KEY):
            address.append(server.url)
            ready.set()
            await done.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait(30)
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()
        loop.close()


@contextmanager
def skyrl_server(model: Path, folder: Path) -> Iterator[str]:
    """The address of SkyRL's Tinker server of the checkpoint `model`, on this machine's processors."""
    python = made(SKYRL)
    if python is None:
        pytest.skip("SkyRL's server is not installed: make peers")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-m", "benchmarks.peers.skyrl_server", model, str(port), folder]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        try:
            _await_health(f"http://127.0.0.1:{port}", server, folder / "log")
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(server.pid, signal.SIGKILL)  # its engine too; there is nothing to keep
            server.wait()


def _await_health(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    while True:
        try:
            with urllib.request.urlopen(f"{url}/api/v1/healthz") as answer:
                json.load(answer)
                return
        except (urllib.error.URLError, ConnectionError):
            assert server.poll() is None, log.read_text()[-2000:]
            time.sleep(0.2)  # another process's start-up tells nobody
