"""What tests train on: every engine, our own server, which has vLLM's calls for adapters, SkyRL's Tinker server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from benchmarks import peer

from patience import PATIENCE
from toys import TOKENIZER, Twice, fresh
from wanderlust.policies.base import API_KEY_VARIABLE
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.serving.http import AgentServer
from wanderlust.serving.local_models import adapter_loader, make_served_model
from wanderlust.serving.model_api import ModelAPI
from wanderlust.training.config import TrainConfig

KEY = "a key of the tests"
TINKER_KEY_VARIABLE, TELEMETRY_VARIABLE = "TINKER_API_KEY", "TINKER_TELEMETRY"
ADAPTER = {"lora": 8}
"""Our own server takes adapters only."""
ENGINES: dict[str, dict[str, Any]] = {
    "local": {},
    "local-stale": {"max_staleness": 1, "algorithm": "grpo-tis"},
    "fsdp": {"engine": "fsdp", "processes": 2},
    "vllm": {"engine": "vllm", **ADAPTER},
    "vllm-stale": {"engine": "vllm", "max_staleness": 2, "algorithm": "grpo-tis", **ADAPTER},
    "vllm+fsdp": {"engine": "vllm+fsdp", "processes": 2, **ADAPTER},
    "tinker": {
        "engine": "tinker",
        "engine_service": "skyrl-jax",
        "ema_decay": 0.0,
        "kl_into": "reward",
        "lr": 1e-2,
        **ADAPTER,
    },
}


class Places:
    """A checkpoint, and the servers of it, each started when an engine first asks for it."""

    def __init__(self, folder: Path, servers: ExitStack):
        self.folder, self.servers = folder, servers
        self.start = folder / "fresh"
        save_pretrained(self.start, fresh(0), TOKENIZER)

    @cached_property
    def url(self) -> str:
        """Of our own server."""
        return self.servers.enter_context(own_server(self.start))

    @cached_property
    def tinker_url(self) -> str:
        """Of SkyRL's server; skips the test where it is not installed."""
        pytest.importorskip("tinker", reason="the client is not installed: pip install 'wanderlust[tinker]'")
        return self.servers.enter_context(skyrl_server(self.start, self.folder))

    def settings(self, engine: str, **changes: Any) -> TrainConfig:
        """A run by one of ENGINES."""
        of_engine = dict(ENGINES[engine])
        if "vllm" in engine:
            of_engine["engine_url"] = self.url
        if engine == "tinker":
            of_engine["engine_url"] = self.tinker_url
        config = TrainConfig(
            env=Twice(),
            policy=str(self.start),
            steps=20,
            tasks_per_step=8,
            lr=2e-2,
            max_tokens=1,
            eval_every=20,
            algorithm="grpo",
            implementation="transformers",
            result_samples=2,
        )
        return replace(config, **{**of_engine, **changes})


@contextmanager
def open_places(folder: Path) -> Iterator[Places]:
    """Places in this folder, and the keys of their servers in the environment."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as servers:
        patch.setenv(API_KEY_VARIABLE, KEY)
        patch.setenv(TINKER_KEY_VARIABLE, "tml-local")
        patch.setenv(TELEMETRY_VARIABLE, "0")
        yield Places(folder, servers)


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
    ready.wait(PATIENCE)
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()
        loop.close()


@contextmanager
def skyrl_server(model: Path, folder: Path) -> Iterator[str]:
    """The address of SkyRL's Tinker server of the checkpoint `model`; skips the test where it is not installed."""
    if peer.made(peer.SKYRL) is None:
        pytest.skip("SkyRL's server is not installed: make peers")
    with peer.skyrl_server(model, folder) as address:
        yield address
