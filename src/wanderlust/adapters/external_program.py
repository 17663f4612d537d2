"""An environment whose agent is a program of its own, in any language, that plays the episode in its own process.

In a `Box` the program is isolated: it runs in a sandbox of its own, and the only thing outside that it reaches is the
endpoint of its episode, by a socket in the sandbox's own network.

Not covered without a `Box`: the program is not isolated. It runs with this user's rights, its folder is private but
nothing keeps it there, it can use the network, and programs that run at once can read each other's keys.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import tempfile
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from wanderlust.environment import Environment, Episode
from wanderlust.errors import EnvironmentFailure, Failure, StopEpisode, one_line
from wanderlust.serving.agent_api import AgentAPI
from wanderlust.serving.http import (
    API_PREFIX,
    MAX_REQUEST_BYTES,
    AgentServer,
    ListeningApp,
    RequestHandler,
    endpoint_variables,
    error_response,
)
from wanderlust.tools.process import ProgramNotStarted, run_program
from wanderlust.tools.sandbox.base import (
    NOT_EXECUTABLE_STATUS,
    NOT_FOUND_STATUS,
    NotIsolatedWarning,
    ReachedLimit,
    Sandbox,
    run_bounded,
)
from wanderlust.tools.sandbox.box import Box
from wanderlust.types import Task

PROGRAM_GRACE_SECONDS = 5.0
"""Wall-clock seconds for a program to end by itself after a limit or a failure has ended its episode."""
_REACHED: Mapping[ReachedLimit, str] = {"": "", "time": "program_seconds", "output": "program_output"}
"""The stop reason of a program by the limit of the sandbox that it reached."""
_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ")

ProgramCommand = Sequence[str] | Callable[[Task], Sequence[str]]


class ProgramCrashed(EnvironmentFailure):
    """The program ended with another exit code than 0, or by a signal."""


class ProgramSilent(EnvironmentFailure):
    """The program ended without asking the model once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramExit:
    """The end of the program; `episode.state["program"]` has it as plain data, for rubrics."""

    exit: int
    """The exit code; minus the signal's number if one ended it."""
    stdout: str
    stderr: str

    @property
    def written(self) -> str:
        """Its standard error, or its standard output where that is empty."""
        return self.stderr.strip() or self.stdout.strip()


class Program(Environment):
    """Runs `command` as the agent: the SDKs of OpenAI, Anthropic and Google find the model by their usual variables.

    The task comes as one JSON line on its standard input (`id`, `prompt`, `info`; never the answer). Its folder is its
    own and removed afterwards: `/work` of the sandbox, or without a `sandbox` an empty folder of this machine. A
    subclass fills it with `prepare`; `judge`, `judge_in_sandbox` or a rubric score what the program leaves.

    A program that cannot start (ProgramNotStarted), exits with another code than 0 (ProgramCrashed) or never asks the
    model (ProgramSilent) is a failure that quotes its last line and has no score. One that takes too long is truncated
    (`program_seconds`), and one that floods its output in a sandbox is too (`program_output`); what it has left by then
    is judged. A failure of the policy or a limit sets the status of the rollout, whatever the program does next. Its
    children die with it.

    `episode.state` has `program`, its ProgramExit, and in a sandbox `door`, the requests that came and were refused,
    and `egress`, the servers that it reached and that it was refused; `isolated` is false where the sandbox is not.
    """

    def __init__(
        self,
        command: ProgramCommand,
        *,
        tasks: Iterable[Task] = (),
        seconds: float = 600.0,
        environment: Mapping[str, str] | None = None,
        server: AgentServer | None = None,
        ignored_options: Collection[str] = (),
        sandbox: Box | None = None,
    ):
        """`seconds` of wall clock per episode; `environment` is added to the few variables that a program has.

        Options of requests that no seat can honour, `max_tokens` and `stop` for two, are refused with status 400 unless
        they are `ignored_options`. Without a `sandbox` the program is not isolated; `server` is for such programs.
        """
        self._ignored_options = frozenset(ignored_options)
        self.command, self.seconds, self.sandbox = command, seconds, sandbox
        self._tasks, self._environment = tuple(tasks), dict(environment or {})
        self._server = server or AgentServer()
        self._unisolated = 0

    def tasks(self, split: str = "train") -> Iterable[Task]:
        """The same in every split."""
        return self._tasks

    async def run(self, episode: Episode) -> None:
        """Start the program, answer it, and judge what it leaves."""
        if self.sandbox is not None:
            async with self.sandbox.opened() as sandbox:
                await self.prepare(episode, sandbox)
                if (ended := await self.run_in(episode, sandbox)) is not None:
                    await self.judge_in_sandbox(episode, ended, sandbox)
            return
        front = AgentAPI(episode.agents, ignored_options=self._ignored_options)
        with tempfile.TemporaryDirectory(prefix="wanderlust-", ignore_cleanup_errors=True) as folder:
            async with self._server as server, server.serving(front) as key:
                inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
                own = {"HOME": folder, "TMPDIR": folder, **server.variables(key)}
                variables = inherited | self._environment | own
                with self._warning_of_neighbours():
                    async with run_program(self._argv(episode.task), _task_line(episode.task), variables) as program:
                        ending = asyncio.create_task(program.process.wait())
                        with episode.playing():
                            in_time = await _await_end(ending, front, seconds=self.seconds)
                            _end_play(episode, "" if in_time else "program_seconds")
                        code = await program.end()
            ended = ProgramExit(exit=code, stdout=program.stdout.text, stderr=program.stderr.text)
            if self._finished(episode, ended):
                await self.judge(episode, ended, folder)

    async def run_in(self, episode: Episode, sandbox: Sandbox) -> ProgramExit | None:
        """Play by the program in a sandbox that is open, for environments that fill and judge it themselves.

        Returns the program's end, after a limit too, or None where a failure of the policy ends the episode. Raises the
        failures that the class lists.
        """
        if not sandbox.isolated:
            episode.state["isolated"] = False
        front = AgentAPI(episode.agents, ignored_options=self._ignored_options)
        ended = await self._run_in_sandbox(episode, front, box=self.sandbox or Box(), sandbox=sandbox)
        return ended if self._finished(episode, ended) else None

    async def prepare(self, episode: Episode, sandbox: Sandbox) -> None:
        """Fill the sandbox's folder before the program starts; by default it is empty."""

    async def judge(self, episode: Episode, ended: ProgramExit, folder: str) -> None:
        """Give rewards for what the program printed or left in its folder; by default none.

        Of a sandbox, `folder` is a copy on this machine: its folders and regular files.
        """

    async def judge_in_sandbox(self, episode: Episode, ended: ProgramExit, sandbox: Sandbox) -> None:
        """Give rewards after commands in the sandbox, or in a fork of it; by default `judge` gets a copy."""
        if type(self).judge is not Program.judge:
            with tempfile.TemporaryDirectory(prefix="wanderlust-", ignore_cleanup_errors=True) as folder:
                await sandbox.get(Path(folder))
                await self.judge(episode, ended, folder)

    async def _run_in_sandbox(self, episode: Episode, front: AgentAPI, *, box: Box, sandbox: Sandbox) -> ProgramExit:
        async with (
            open_endpoint(await sandbox.listen(), front) as door,
            box.proxied(sandbox) as (proxy, variables),
        ):
            own = endpoint_variables(door.url, door.key)
            try:
                child = await sandbox.start(self._argv(episode.task), env={**variables, **self._environment, **own})
            except (OSError, ValueError) as error:
                raise ProgramNotStarted(f"cannot start {self._name(episode.task)}: {error}") from error
            line, output = _task_line(episode.task), sandbox.bounds.output
            ending = asyncio.create_task(run_bounded(child, stdin=line, seconds=self.seconds, output=output))
            try:
                with episode.playing():
                    await _await_end(ending, front, seconds=None)
                child.kill()
                result = await ending
                with episode.playing():
                    _end_play(episode, _REACHED[result.reached_limit])
            finally:
                ending.cancel()
                episode.state["door"] = door.record
                if proxy is not None:
                    episode.state["egress"] = proxy.record
        stdout, stderr = (stream.decode(errors="replace") for stream in (result.stdout, result.stderr))
        code = 128 - result.code if 128 < result.code < 128 + signal.NSIG else result.code
        ended = ProgramExit(exit=code, stdout=stdout, stderr=stderr)
        episode.state["program"] = asdict(ended)
        if result.code in (NOT_EXECUTABLE_STATUS, NOT_FOUND_STATUS) and not _turns(episode):
            raise ProgramNotStarted(f"cannot start {self._name(episode.task)}{_last(ended)}", output=ended.written)
        return ended

    def _finished(self, episode: Episode, ended: ProgramExit) -> bool:
        """Record the program's end; whether there is something to judge."""
        episode.state["program"] = asdict(ended)
        if any(isinstance(agent.interruption, Failure) for agent in episode.agents.values()):
            return False  # it ends the episode, and says more than the exit code of a program that got no answer
        name = self._name(episode.task)
        if ended.exit and not episode.play.cut:
            code = ended.exit
            why = f"ended with exit code {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"
            raise ProgramCrashed(f"{name} {why}{_last(ended)}", output=ended.written)
        if not _turns(episode) and not episode.play.cut:
            raise ProgramSilent(f"{name} ended without asking the model once{_last(ended)}", output=ended.written)
        return True

    def _argv(self, task: Task) -> Sequence[str]:
        return self.command(task) if callable(self.command) else self.command

    def _name(self, task: Task) -> str:
        return repr(os.path.basename(self._argv(task)[0]))

    @contextmanager
    def _warning_of_neighbours(self) -> Iterator[None]:
        """Warn where programs run at once without isolation."""
        self._unisolated += 1
        try:
            if self._unisolated > 1:
                why = "each can read the others' keys and play in their episodes: give Program a sandbox"
                warnings.warn(f"NOT ISOLATED: programs run at once, and {why}", NotIsolatedWarning, stacklevel=2)
            yield
        finally:
            self._unisolated -= 1


def _end_play(episode: Episode, reason: str) -> None:
    """Raise the limit that ended the program: one that a seat met, or the program's own of this name."""
    met = episode.ending(None) or (StopEpisode(reason) if reason else None)
    if isinstance(met, StopEpisode):
        raise met


async def _await_end(ending: asyncio.Task[Any], front: AgentAPI, *, seconds: float | None) -> bool:
    """Wait for a program to end, or for PROGRAM_GRACE_SECONDS after its episode is over; false after `seconds`."""
    over = asyncio.create_task(front.episode_over.wait())
    try:
        done, _ = await asyncio.wait({ending, over}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if done and ending not in done:
            await asyncio.wait({ending}, timeout=PROGRAM_GRACE_SECONDS)
        return bool(done)
    finally:
        over.cancel()


def _task_line(task: Task) -> bytes:
    """What the program gets on its standard input."""
    prompt = [{"role": message.role, "content": message.content} for message in task.prompt]
    return json.dumps({"id": task.id, "prompt": prompt, "info": dict(task.info)}).encode() + b"\n"


def _turns(episode: Episode) -> int:
    return sum(len(agent.trajectory.turns) for agent in episode.agents.values())


def _last(ended: ProgramExit) -> str:
    return f": {one_line(ended.written.splitlines()[-1])}" if ended.written else ""


MAX_DOOR_CONNECTIONS = 96
"""Connections of one episode at once; further ones are closed."""
MAX_DOOR_BYTES = 16 * MAX_REQUEST_BYTES
"""Bytes of the requests of one episode that are under way; one of unknown length counts as MAX_REQUEST_BYTES."""
DOOR_GRACE_SECONDS = 0.1
_REFUSALS = {
    400: "bad_request",
    401: "wrong_key",
    403: "episode_over",
    404: "no_such_path",
    413: "body_too_large",
    429: "too_many",
    502: "policy_failure",
}


@dataclass(slots=True, kw_only=True)
class Door:
    """An open door: where programs find it, the key that it takes, and what came to it."""

    url: str
    key: str = ""
    requests: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Requests that were answered by an error, by its name; `connections` were closed unread."""
    _bytes: int = 0

    @property
    def record(self) -> dict[str, Any]:
        """What came, as plain data."""
        return {"requests": self.requests, "refused": dict(self.refused)}

    async def count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request within the bounds, and count it."""
        self.requests += 1
        length = request.content_length
        size = min(MAX_REQUEST_BYTES, length) if length is not None else MAX_REQUEST_BYTES * request.body_exists
        if self._bytes + size > MAX_DOOR_BYTES:
            reply = error_response(429, "too many bytes of requests at once", code="busy", retryable=True)
            response: web.StreamResponse = web.Response(status=429, body=reply.body, headers=reply.headers)
        else:
            self._bytes += size
            try:
                response = await handler(request)
            finally:
                self._bytes -= size
        if response.status >= 400:
            self.refused[_REFUSALS.get(response.status, str(response.status))] += 1
        return response


class _Closed(asyncio.Protocol):
    """A connection that is closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


@asynccontextmanager
async def open_endpoint(listener: socket.socket, handler: RequestHandler) -> AsyncIterator[Door]:
    """Answer by `handler` on `listener`, which is closed at the end of the block."""
    agents = AgentServer()
    door = Door(url=f"http://127.0.0.1:{listener.getsockname()[1]}{API_PREFIX}")

    @web.middleware
    async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await door.count(request, handler)

    runner = web.AppRunner(
        agents.make_app(count), handler_cancellation=True, access_log=None, shutdown_timeout=DOOR_GRACE_SECONDS
    )
    await runner.setup()
    accept = runner.server
    assert accept is not None

    def bounded() -> asyncio.BaseProtocol:
        if len(accept.connections) < MAX_DOOR_CONNECTIONS:
            return accept()
        door.refused["connections"] += 1
        return _Closed()

    server = await asyncio.get_running_loop().create_server(bounded, sock=listener, backlog=MAX_DOOR_CONNECTIONS)
    try:
        async with agents.serving(handler) as door.key:
            yield door
    finally:
        await ListeningApp(server, runner).close()
