"""An environment whose agent is a program of its own, in any language, that plays the episode in its own process.

Not covered: the program is not isolated. It runs with this user's rights, its folder is private but nothing keeps it
there, and it can use the network. Give it to a sandbox where it runs what the model writes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from wanderlust.environment import Environment, Episode
from wanderlust.errors import EnvironmentFailure, Failure, StopEpisode, one_line
from wanderlust.serving.agent_api import AgentAPI
from wanderlust.serving.http import AgentServer
from wanderlust.tools.process import RunningProgram, run_program
from wanderlust.types import Task

PROGRAM_GRACE_SECONDS = 5.0
"""Wall-clock seconds for a program to end by itself after a limit or a failure has ended its episode."""
_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ")

ProgramCommand = Sequence[str] | Callable[[Task], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramExit:
    """The end of the program; `episode.state["program"]` has it as plain data, for rubrics."""

    exit: int
    """The exit code; minus the signal's number if one ended it."""
    stdout: str
    stderr: str


class Program(Environment):
    """Runs `command` as the agent: it finds the model under OPENAI_BASE_URL with OPENAI_API_KEY, and nothing else.

    The task comes as one JSON line on its standard input (`id`, `prompt`, `info`; never the answer); its folder is
    empty, its own, and removed afterwards. `judge` or a rubric score the result.

    A program that cannot start, exits with another code than 0 or never asks the model is an EnvironmentFailure that
    quotes its last line; one that takes too long is truncated (`program_seconds`). A failure of the policy or a limit
    sets the status of the rollout, whatever the program does next. Its children die with it.
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
    ):
        """`seconds` of wall clock per episode; `environment` is added to the few variables that a program inherits.

        Options of requests that no seat can honour, `max_tokens` and `stop` for two, are refused with status 400 unless
        they are `ignored_options`.
        """
        self._ignored_options = frozenset(ignored_options)
        self.command, self.seconds = command, seconds
        self._tasks, self._environment = tuple(tasks), dict(environment or {})
        self._server = server or AgentServer()

    def tasks(self, split: str = "train") -> Iterable[Task]:
        """The same in every split."""
        return self._tasks

    async def run(self, episode: Episode) -> None:
        """Start the program, answer it, and judge what it leaves."""
        front = AgentAPI(episode.agents, ignored_options=self._ignored_options)
        seats, task = episode.agents.values(), episode.task
        prompt = [{"role": message.role, "content": message.content} for message in task.prompt]
        line = {"id": task.id, "prompt": prompt, "info": dict(task.info)}
        with tempfile.TemporaryDirectory(prefix="wanderlust-", ignore_cleanup_errors=True) as folder:
            async with self._server as server, server.serving(front) as key:
                inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
                own = {"HOME": folder, "TMPDIR": folder, **server.variables(key)}
                variables = inherited | self._environment | own
                async with run_program(self._argv(task), json.dumps(line).encode() + b"\n", variables) as program:
                    await self._wait(program, front)
                    code = await program.end()
                ended = ProgramExit(exit=code, stdout=program.stdout.text, stderr=program.stderr.text)
            episode.state["program"] = asdict(ended)
            if any(isinstance(agent.interruption, Failure) for agent in seats):
                return  # it ends the episode, and says more than the exit code of a program that got no answer
            if ended.exit and not front.episode_over.is_set():
                why = f"ended with exit code {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"
                raise EnvironmentFailure(f"{self._name(episode)} {why}{_last(ended)}")
            if not any(agent.trajectory.turns for agent in seats):
                raise EnvironmentFailure(f"{self._name(episode)} ended without asking the model once{_last(ended)}")
            await self.judge(episode, ended, folder)

    async def judge(self, episode: Episode, ended: ProgramExit, folder: str) -> None:
        """Give rewards for what the program printed or left in its folder; by default none."""

    def _argv(self, task: Task) -> Sequence[str]:
        return self.command(task) if callable(self.command) else self.command

    def _name(self, episode: Episode) -> str:
        return repr(os.path.basename(self._argv(episode.task)[0]))

    async def _wait(self, program: RunningProgram, front: AgentAPI) -> None:
        ending, over = asyncio.create_task(program.process.wait()), asyncio.create_task(front.episode_over.wait())
        try:
            done, _ = await asyncio.wait({ending, over}, timeout=self.seconds, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                raise StopEpisode("program_seconds")
            if ending not in done:
                await asyncio.wait({ending}, timeout=PROGRAM_GRACE_SECONDS)
        finally:
            ending.cancel()
            over.cancel()


def _last(ended: ProgramExit) -> str:
    lines = ended.stderr.strip() or ended.stdout.strip()
    return f": {one_line(lines.splitlines()[-1])}" if lines else ""
