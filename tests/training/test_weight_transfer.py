"""All weights over the network: the sender of a run, and the file that servers import, in processes of their own."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from aiohttp import web

from patience import PATIENCE
from wanderlust.errors import PolicyFailure, UsageError
from wanderlust.policies.server_side.wander_weights import ReceivingWorker
from wanderlust.policies.vllm import VLLM
from wanderlust.policies.vllm_servers import RECEIVER, VLLMOptions, VLLMServers
from wanderlust.policies.weight_sender import WeightSender
from wanderlust.training.config import TrainConfig
from wanderlust.training.engines import check_engine

TENSORS = [("embed", torch.arange(12.0).reshape(3, 4)), ("scalar", torch.tensor(2.5)), ("head", torch.randn(5, 2))]


class Worker(ReceivingWorker):
    """A server's worker that keeps what it reads."""

    def __init__(self, rank: int):
        self.rank, self.device = rank, torch.device("cpu")
        self.known: dict[str, list[Any]] = {}

    def reload_weights(self, weights_iterator: Any) -> None:
        self.known = {name: [str(tensor.dtype), tensor.tolist()] for name, tensor in weights_iterator}


def serve(port: Any, workers: int) -> None:
    """A server with vLLM's calls and this many workers, each in a thread of its own."""
    own, log = [Worker(rank) for rank in range(workers)], []

    async def calls(request: web.Request) -> web.Response:
        body = await request.json()
        log.append(body["method"])
        if body["method"] == "known":
            return web.json_response({"results": [[log, one.known] for one in own]})
        each = (asyncio.to_thread(getattr(one, body["method"]), **body.get("kwargs", {})) for one in own)
        return web.json_response({"results": await asyncio.gather(*each)})

    async def control(request: web.Request) -> web.Response:
        log.append(request.path)
        return web.json_response({})

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "policy"}]})

    async def go() -> None:
        app = web.Application()
        app.router.add_post("/collective_rpc", calls)
        app.router.add_get("/v1/models", models)
        for path in ("/pause", "/resume", "/reset_prefix_cache"):
            app.router.add_post(path, control)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(go())


@contextmanager
def server(workers: int = 1) -> Iterator[tuple[VLLM, Any]]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, workers), daemon=True)
    process.start()
    try:
        yield VLLM(f"http://127.0.0.1:{ours.recv()}/v1", "policy", timeout=PATIENCE), process
    finally:
        process.kill()
        process.join()


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[VLLM, VLLM]]:
    """A server with two workers, and one with one."""
    with server(workers=2) as (one, _), server() as (two, _):
        yield one, two


async def known(client: VLLM) -> list[Any]:
    return await client.call_workers("known")


def test_every_worker_of_every_server_has_the_sent_weights(pair: tuple[VLLM, VLLM]) -> None:
    async def go(one: VLLM, two: VLLM) -> None:
        servers = VLLMServers([one, two], sender=WeightSender("gloo", seconds=PATIENCE))
        await servers.wait_until_up()
        for version, shift in ((1, 0.0), (2, 0.5)):
            sent = [(name, tensor + shift) for name, tensor in TENSORS]
            await servers.publish(sent, version, "tensors")
            for log, has in (*await known(one), *await known(two)):
                assert has == {name: ["torch.float32", tensor.tolist()] for name, tensor in sent}
                assert log[-4:] == ["wander_receive", "/reset_prefix_cache", "/resume", "known"]
                assert log.count("wander_join") == 1  # the group lasts
        assert one.version == two.version == 2

    asyncio.run(go(*pair))


@pytest.mark.proof("cluster")
def test_a_server_that_comes_back_gets_the_newest_weights_alone_and_later_ones_with_the_others() -> None:
    async def go(one: VLLM, two: VLLM, process: Any, other: VLLM) -> None:
        servers = VLLMServers([one, two], sender=WeightSender("gloo", seconds=5))
        await servers.wait_until_up()
        await servers.publish(TENSORS, 1, "tensors")
        threading.Timer(0.0, process.kill).start()
        process.join()
        await servers.publish(TENSORS, 2, "tensors")
        assert servers.metrics()["servers_up"] == 0  # both had to read, and neither did to the end
        two.url = other.url
        watching = asyncio.create_task(servers.watch())
        while servers.metrics()["servers_up"] < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        watching.cancel()
        await servers.publish([(name, tensor + 1) for name, tensor in TENSORS], 3, "tensors")
        for client in (one, two):
            ((_, has),) = await known(client)
            assert has["scalar"] == ["torch.float32", 3.5]
            assert client.version == 3

    with server() as (one, _), server() as (two, process), server() as (other, _):
        asyncio.run(asyncio.wait_for(go(one, two, process, other), PATIENCE))


def test_a_server_that_is_started_anew_during_a_transfer_changes_the_next_one_only(
    pair: tuple[VLLM, VLLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go(one: VLLM) -> None:
        sender = WeightSender("gloo", seconds=PATIENCE)
        call = one.call_workers
        ((before, _),) = await known(one)

        async def forgetful(method: str, **arguments: Any) -> list[Any]:
            if method == "wander_receive":
                sender.forget()
            return await call(method, **arguments)

        monkeypatch.setattr(one, "call_workers", forgetful)
        for _ in range(2):
            await sender.send([one], TENSORS)
        ((log, has),) = await known(one)
        assert has["scalar"] == ["torch.float32", 2.5]
        assert log.count("wander_join") == before.count("wander_join") + 2

    asyncio.run(go(pair[1]))


def test_weights_are_rounded_where_servers_compute_in_half_precision(pair: tuple[VLLM, VLLM]) -> None:
    async def go(one: VLLM) -> None:
        await WeightSender("gloo", half=True, seconds=PATIENCE).send([one], TENSORS)
        ((_, has),) = await known(one)
        assert has["head"] == ["torch.bfloat16", TENSORS[2][1].bfloat16().tolist()]

    asyncio.run(go(pair[1]))


def test_a_server_without_the_receiver_is_one_line() -> None:
    async def go() -> None:
        async def refuse(_: web.Request) -> web.Response:
            return web.Response(status=500, text="no method\nwander_workers")

        app = web.Application()
        app.router.add_post("/collective_rpc", refuse)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        client = VLLM(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", "policy")
        with pytest.raises(PolicyFailure, match=r"wander_workers: HTTP 500: no method\\nwander_workers$"):
            await WeightSender("gloo", seconds=5).send([client], TENSORS)
        await runner.cleanup()

    asyncio.run(go())


def test_started_servers_import_the_receiver_and_nothing_else() -> None:
    options = VLLMOptions(receives=True)
    words = options.words(model=__file__, port=1)  # type: ignore[arg-type]
    assert words[words.index("--worker-extension-cls") + 1] == RECEIVER
    folder = options.environment("key")["PYTHONPATH"].split(":")[0]
    assert folder.endswith("wanderlust/policies/server_side")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"engine": "local", "weight_transfer": "gloo"}, "weight_transfer is not read by the engine local"),
        ({"engine": "vllm", "weight_transfer": "gloo", "lora": 8}, "adapters reach servers by a folder"),
        ({"engine": "vllm", "weight_transfer": "nccl"}, "from GPU to GPU"),
        (
            {"engine": "vllm", "weight_transfer": "gloo", "engine_url": "http://a/v1", "server_api": "sglang"},
            "servers of sglang read weights from a folder",
        ),
    ],
)
def test_what_cannot_be_sent_is_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=rf"^[^\n]*{why}[^\n]*$"):
        check_engine(TrainConfig(env="tic-tac-toe", policy="fresh", **settings))
