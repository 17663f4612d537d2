"""Foreign clients as agents of recorded episodes: each of their modes is played against a seat with exact tokens.

A mode is one way of one client to ask a model: whole or streamed, with parallel calls, structured output, and so on.
The seat's policy samples tokens (its texts are fixed). Checked is what the program got, what was recorded, and that a
recorded turn has just the ids that were read and sampled, in one growing sequence. Makes the environments of the
clients: `python -m benchmarks.clients --install`; plays the modes with these words in their names, or all:
`python -m benchmarks.clients [WORD ...]`.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peer import PLACE, ROOT, NotMeasured, Peer, last_line, made, python_of
from benchmarks.peers.python_clients import MODES  # it imports a client only when it plays one
from wanderlust.environment import Environment, Episode
from wanderlust.errors import EnvironmentFailure
from wanderlust.policies.base import SampledTokens, SamplingOptions
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.streaming_text import StopTexts
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.runner.engine import rollout
from wanderlust.serving.agent_api import AgentAPI
from wanderlust.serving.http import AgentServer
from wanderlust.training.tiny_model import fresh_tokenizer
from wanderlust.types import Rollout, Status, Task, Turn

ANSWER = '{"places": ["Rome", "Oslo"], "weather": "sunny"}'
"""The model's last text; structured modes parse it."""
CALLS = "Let me look.\n" + "\n".join(
    f'<tool_call>\n{{"name": "weather", "arguments": {{"city": "{city}"}}}}\n</tool_call>' for city in ("Rome", "Oslo")
)
FINAL_CALL = '<tool_call>\n{"name": "final_answer", "arguments": {"answer": ' + json.dumps(ANSWER) + "}}\n</tool_call>"
TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}{% if m.role == 'tool' %}"
    "<|im_start|>user\n<tool_response>\n{{ m.content }}\n</tool_response><|im_end|>\n"
    "{% elif m.tool_calls %}<|im_start|>assistant\n{{ m.content }}{% for c in m.tool_calls %}{{ '\\n' }}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}'
    "<|im_end|>\n{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PYTHON_CLIENTS = Peer(
    name="clients of model APIs",
    module="python_clients",
    pins=(
        "openai==3.54.0",
        "openai-agents==0.24.0",
        "anthropic==2.12.0",
        "google-genai==2.34.0",
        "langchain-openai==1.7.3",
        "langchain-anthropic==1.7.7",
        "langgraph==1.2.22",
        "haystack-ai==3.4.0",
        "pydantic-ai-slim[openai,anthropic,google]==2.68.0",
        "smolagents==1.26.0",
    ),
)
LITELLM = Peer(
    name="LiteLLM 1.106.2", module="litellm_clients", pins=("litellm==1.106.2", "openai==2.54.0", "mcp==2.3.0")
)
NODE_FOLDER = PLACE / "node_clients"
NODE_SOURCE = ROOT / "benchmarks" / "peers" / "node_clients"
MODE_SECONDS = 120.0
"""Patience with one mode: a client's first one imports it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMode:
    """One way of one client."""

    name: str
    runtime: str
    """Whose process plays it: `python`, `litellm` or `node`."""
    calls: bool = True
    """Whether the model calls `weather` twice at once, and once only."""
    ignored: frozenset[str] = frozenset()
    """Options that the client sends and no policy that samples tokens can honour."""


STRUCTURED = frozenset({"response_format"})
_SPECIAL: Mapping[str, Mapping[str, Any]] = {
    "openai chat, parse": {"calls": False, "ignored": STRUCTURED},
    "openai responses, parse": {"calls": False, "ignored": STRUCTURED},
    "anthropic messages, parse": {"calls": False, "ignored": STRUCTURED},
    "google-genai response_schema": {"calls": False, "ignored": STRUCTURED},
    "langchain-openai structured output": {"calls": False, "ignored": STRUCTURED},
    "pydantic-ai native output": {"calls": False, "ignored": STRUCTURED},
    "openai chat, logprobs": {"calls": False},
    "openai chat, n=3": {"calls": False},
    "openai chat, max_tokens": {"calls": False},
    "anthropic messages, stop_sequences": {"calls": False},
    "anthropic count_tokens and models": {"calls": False},
    "google-genai count_tokens, stop_sequences and candidates": {"calls": False},
    "smolagents ToolCallingAgent": {"calls": False, "ignored": frozenset({"tool_choice"})},
    "node openai chat, parse": {"calls": False, "ignored": STRUCTURED},
    "node openai responses, parse": {"calls": False, "ignored": STRUCTURED},
    "node ai-sdk generateObject": {"calls": False, "ignored": STRUCTURED},
    "node openai chat, stop, max_tokens, n": {"calls": False},
}


def client_modes() -> list[ClientMode]:
    """All modes, by the names in the programs that play them."""
    script = (NODE_SOURCE / "clients.mjs").read_text()
    in_node = [line.split('"')[1] for line in script.splitlines() if line.startswith('mode("')]
    named = [*((name, "litellm" if name.startswith("litellm") else "python") for name in MODES)]
    named += [(f"node {name}", "node") for name in in_node]
    return [ClientMode(name=name, runtime=runtime, **_SPECIAL.get(name, {})) for name, runtime in named]


class FixedTexts:
    """A sampler that writes CALLS, and ANSWER once it has read results or has no tools; it keeps what it did."""

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self.log: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    async def sample(
        self, prompt: Sequence[int], sampling: SamplingOptions, *, key: int, session: str = ""
    ) -> SampledTokens:
        """As `Sampler`."""
        read = self.tokenizer.decode(prompt)
        told = read.count("<tool_response>") >= 2 or '"weather"' not in read
        text = CALLS if not told else FINAL_CALL if '"final_answer"' in read else ANSWER
        ids = (*self.tokenizer.encode(text, add_special_tokens=False), self.tokenizer.eos_token_id)
        finish, stops = "stop", StopTexts(self.tokenizer.decode, sampling.stop)
        for end in range(1, len(ids) + 1):
            if stops.found(ids[:end]):
                ids = ids[:end]
                break
            if end == sampling.max_tokens and end < len(ids):
                ids, finish = ids[:end], "length"
                break
        self.log.append((tuple(prompt), ids))
        return SampledTokens(ids=ids, logprobs=tuple(-n / 8 for n in range(len(ids))), finish=finish)

    def release(self, session: str) -> None:
        """Nothing is kept."""


def token_policy() -> tuple[TokenPolicy, FixedTexts]:
    """A policy that samples the fixed texts, and its sampler."""
    tokenizer = fresh_tokenizer([CALLS, ANSWER])
    tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
    tokenizer.eos_token = tokenizer.bos_token = "<|im_end|>"
    tokenizer.chat_template = TEMPLATE
    sampler = FixedTexts(tokenizer)
    return TokenPolicy(sampler, Renderer(tokenizer), SamplingOptions(max_tokens=512)), sampler


def runtime_command(runtime: str) -> list[str]:
    """The command of the process that plays a runtime's modes. Raises NotMeasured where it is not installed."""
    if runtime == "node":
        if not (NODE_FOLDER / "ready").is_file():
            raise NotMeasured("the clients for node are not installed: make peers")
        shutil.copy(NODE_SOURCE / "clients.mjs", NODE_FOLDER / "clients.mjs")  # node looks for packages beside it
        return ["node", str(NODE_FOLDER / "clients.mjs")]
    peer = LITELLM if runtime == "litellm" else PYTHON_CLIENTS
    python = made(peer)
    if python is None:
        raise NotMeasured(f"{peer.name} are not installed: make peers")
    return [str(python), "-m", "benchmarks.peers.python_clients"]


def install_node_clients() -> Path:
    """Install the clients for node from their lock file, once. Raises NotMeasured."""
    lock = (NODE_SOURCE / "package-lock.json").read_text()
    ready = NODE_FOLDER / "ready"
    if ready.is_file() and ready.read_text() == lock:
        return NODE_FOLDER
    if shutil.which("npm") is None:
        raise NotMeasured("npm is not installed")
    NODE_FOLDER.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(NODE_SOURCE / name, NODE_FOLDER / name)
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(command, cwd=NODE_FOLDER, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise NotMeasured(f"npm: {last_line(done.stderr)}")
    ready.write_text(lock)
    return NODE_FOLDER


class ClientProcess:
    """A process that plays modes, one after the other."""

    def __init__(self, process: Process):
        self._process = process

    @classmethod
    @asynccontextmanager
    async def started(cls, runtime: str) -> AsyncIterator[ClientProcess]:
        """Start it, for the time of the block. Raises NotMeasured where it is not installed."""
        process = await asyncio.create_subprocess_exec(
            *runtime_command(runtime),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=2**20,
        )
        try:
            yield cls(process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def play(self, mode: str, url: str, key: str) -> str:
        """What the mode returns. Raises EnvironmentFailure with what the client raised."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"mode": mode, "url": url, "key": key}).encode() + b"\n")
        async with asyncio.timeout(MODE_SECONDS):
            while (line := await stdout.readline()).strip()[:1] != b"@":
                if not line:
                    raise EnvironmentFailure("the client's process ended")
        said = json.loads(line.strip()[1:])
        if "error" in said:
            raise EnvironmentFailure(said["error"])
        return str(said["answer"])


class ClientEnvironment(Environment):
    """A client plays the episode in one of its modes; reward 1 for the right answer."""

    def __init__(self, mode: ClientMode, process: ClientProcess, server: AgentServer):
        self.mode, self.process, self.server = mode, process, server

    async def run(self, episode: Episode) -> None:
        """Serve the seat, and let the client play it."""
        api = AgentAPI(episode.agents, ignored_options=self.mode.ignored)
        async with self.server.serving(api) as key:
            said = await self.process.play(self.mode.name.removeprefix("node "), self.server.url, key)
        episode.reward("right", float(json.loads(said) == json.loads(ANSWER)))


async def play_mode(mode: ClientMode, process: ClientProcess, server: AgentServer) -> str:
    """Play a mode's episode; what is wrong with it, empty where nothing is."""
    policy, sampler = token_policy()
    played = await rollout(ClientEnvironment(mode, process, server), Task(id=mode.name), policy)
    return fault_of(mode, played, sampler)


def fault_of(mode: ClientMode, played: Rollout, sampler: FixedTexts) -> str:
    """What is wrong with a played episode; empty where nothing is."""
    trajectory = played.trajectory
    if played.status is not Status.DONE or played.error is not None:
        return f"{played.stop_reason}: {played.error}"
    if trajectory.score is None or trajectory.score.reward != 1:
        return "the program did not return the model's answer"
    wrong = token_fault(trajectory.turns, sampler)
    if wrong or not mode.calls:
        return wrong
    called = [len(turn.action.tool_calls) for turn in trajectory.turns]
    if called != [2, 0]:
        return f"the turns have {called} calls, and not [2, 0]"
    heard = [m.content for m in trajectory.turns[1].observation if m.role == "tool"]
    if heard != ["Rome sunny", "Oslo sunny"]:
        return f"the model heard {heard}"
    resets = [turn.resets_context for turn in trajectory.turns]
    offsets = [turn.tokens.offset > 0 for turn in trajectory.turns if turn.tokens is not None]
    return "" if resets == [False, False] and offsets == [False, True] else "the turns are not one sequence of tokens"


def token_fault(turns: Sequence[Turn], sampler: FixedTexts) -> str:
    """Whether the recorded turns have just the ids that were read and sampled."""
    if len(turns) != len(sampler.log):
        return f"{len(turns)} turns are recorded and {len(sampler.log)} were sampled"
    whole: tuple[int, ...] = ()
    for turn, (prompt, sampled) in zip(turns, sampler.log, strict=True):
        if turn.tokens is None:
            return "a turn has no tokens"
        read = (*whole[: turn.tokens.offset], *turn.tokens.prompt)
        if (read, turn.tokens.completion) != (prompt, sampled):
            return "the recorded ids are not those that were read and sampled"
        whole = (*read, *sampled)
    return ""


async def play_all(modes: Sequence[ClientMode]) -> AsyncIterator[tuple[ClientMode, str]]:
    """Play modes, those of a runtime in one process; yields each with what is wrong, empty where nothing is."""
    async with AgentServer() as server:
        for runtime in ("python", "litellm", "node"):
            async with ClientProcess.started(runtime) as process:
                for mode in modes:
                    if mode.runtime == runtime:
                        yield mode, await play_mode(mode, process, server)


async def _print_all(wanted: Sequence[str]) -> None:
    modes = [mode for mode in client_modes() if not wanted or any(word in mode.name for word in wanted)]
    async for mode, fault in play_all(modes):
        print(f"{'ok   ' if not fault else 'FAULT'} {mode.name}  {fault}", flush=True)


def install() -> None:
    """Make the environments of all clients. Raises NotMeasured."""
    for place in (python_of(PYTHON_CLIENTS), python_of(LITELLM), install_node_clients()):
        print(place)


if __name__ == "__main__":
    if sys.argv[1:] == ["--install"]:
        install()
    else:
        asyncio.run(_print_all(sys.argv[1:]))
