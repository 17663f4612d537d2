"""Harbor task folders as an environment: those with a plain image in the sandbox, without containers or a network.

Not covered: images that need more than a plain base (see `plan_sandbox`) and verifiers that need a network. As in
Harbor, the verifier runs in the folder that the agent leaves, so its verdict is as safe as the task's own tests.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from wanderlust.environment import Episode, Limits
from wanderlust.errors import EnvironmentFailure, StopEpisode, UsageError, one_line
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Rubric
from wanderlust.tasks.harbor import REWARD_FILES, HarborTask, SandboxPlan, plan_sandbox, read_harbor_task, read_reward
from wanderlust.tasks.repository.package import as_archive
from wanderlust.tasks.repository.site_folder import install_requirements
from wanderlust.tasks.repository.suite import SUITE_BOUNDS
from wanderlust.tools.function import ToolSource, open_toolsets
from wanderlust.tools.sandbox import LocalSandbox, Sandbox, SandboxTools
from wanderlust.tools.sandbox.base import MEBI
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Policy, Task, ToolCall, assistant, user

SITE_PLACE = "/work/site"


def verified(state: Mapping[str, float]) -> float:
    """The reward that the task's verifier has written."""
    return state["harbor_reward"]


class Harbor(ToolEnvironment):
    """Harbor task folders, played with a shell in the sandbox and judged by their own tests/test.sh."""

    limits = Limits(max_turns=50)
    rubric = Rubric(verified)
    prefixes = False

    def __init__(self, folder: str):
        """`folder` is one task folder, or a folder of such. Raises UsageError of one line for the first malformed."""
        super().__init__()
        top = Path(folder)
        places = [top] if (top / "task.toml").exists() else sorted(p.parent for p in top.glob("*/task.toml"))
        if not places:
            raise UsageError(f"{folder} has no task.toml, and no folder in it has one")
        found = [read_harbor_task(place) for place in places]
        self._by_id = {task.name: (task, plan_sandbox(task)) for task in found}
        self._sites: dict[tuple[str, ...], dict[str, bytes]] = {}

    def tasks(self, split: str = "train") -> list[Task]:
        """All tasks, the same in every split: hold out what you need to."""
        return [
            Task(id=name, prompt=(user(task.instruction),), info={"differences": list(plan.differences)})
            for name, (task, plan) in self._by_id.items()
        ]

    def oracle(self, task: Task) -> Policy | None:
        """A policy that runs the task's own solution; None where it has none."""
        mined = self._by_id[task.id][0]
        if "solve.sh" not in mined.solution:
            return None
        archive = b64encode(as_archive(mined.solution)).decode()
        unpack = f"base64 -d <<'END' | tar -x --no-same-owner --no-overwrite-dir -C /solution\n{archive}\nEND"
        words = " ".join(shlex.quote(f"{name}={value}") for name, value in mined.solution_variables.items())
        command = json.dumps({"command": f"{unpack}\nenv {words} bash /solution/solve.sh"})
        return Scripted([assistant("", ToolCall(id="solve", name="bash", arguments=command)), "Done."])

    async def run(self, episode: Episode) -> None:
        """Lay out what the image would have, let the agent work, and run the verifier."""
        episode.state["tool_calls"] = {}
        task, plan = self._by_id[episode.task.id]
        memory, storage = (task.memory_mb or 2048) * MEBI, (task.storage_mb or 1024) * MEBI
        bounds = replace(
            SUITE_BOUNDS,
            memory=memory,
            disk=min(storage, 4096 * MEBI),
            seconds=max(task.agent_seconds, task.verifier_seconds),
            output=64 << 10,
        )
        variables = {**plan.variables, "PYTHONPATH": SITE_PLACE}
        sandbox = await LocalSandbox.open(bounds, places=plan.places, env=variables)
        try:
            await self._lay_out(sandbox, plan)
            try:
                async with asyncio.timeout(task.agent_seconds):
                    own = _Shell(sandbox, plan)
                    sources: list[ToolSource] = [own.bash]
                    async with open_toolsets(sources, episode) as tools:
                        await self.converse(episode, tools)
            except TimeoutError as error:
                episode.state["harbor_reward"] = await self._verify(sandbox, task, plan)
                raise StopEpisode("agent_seconds") from error
            except StopEpisode:
                episode.state["harbor_reward"] = await self._verify(sandbox, task, plan)
                raise
            episode.state["harbor_reward"] = await self._verify(sandbox, task, plan)
        finally:
            await sandbox.close()

    async def _lay_out(self, sandbox: Sandbox, plan: SandboxPlan) -> None:
        if plan.requirements and plan.requirements not in self._sites:
            self._sites[plan.requirements] = await asyncio.to_thread(install_requirements, plan.requirements)
        site = self._sites.get(plan.requirements, {})
        await _put(sandbox, {**{f"{SITE_PLACE}/{name}": data for name, data in site.items()}, **plan.files})
        await sandbox.run(["mkdir", "-p", plan.workdir, "/logs/verifier", "/logs/agent"])
        for folder, command in plan.commands:
            ran = await sandbox.run(["sh", "-c", f"mkdir -p {folder} && cd {folder} && {command}"])
            if ran.code:
                raise EnvironmentFailure(f"RUN {one_line(command, 60)}: {one_line(ran.text) or ran.code}")

    async def _verify(self, sandbox: LocalSandbox, task: HarborTask, plan: SandboxPlan) -> float:
        """Run tests/test.sh over a fork of what the agent left. Raises EnvironmentFailure where it writes no reward."""
        fork = await sandbox.fork()
        try:
            await fork.run(["sh", "-c", "rm -rf /tests/* /logs/verifier/*; mkdir -p /logs/verifier"])
            await _put(fork, {f"/tests/{name}": data for name, data in task.tests.items()})
            words = [f"{name}={value}" for name, value in task.verifier_variables.items()]
            command = ["env", "-C", plan.workdir, *words, "bash", "/tests/test.sh"]
            ran = await fork.run(command, timeout=task.verifier_seconds)
            for name in REWARD_FILES:
                found = await fork.run(["head", "-c", "65536", name])
                if not found.code:
                    try:
                        return read_reward(name, found.stdout)
                    except UsageError as error:
                        raise EnvironmentFailure(f"{task.name}: {error}") from error
            last = one_line(ran.text.strip().rpartition("\n")[2]) or ran.reached_limit or f"exit status {ran.code}"
            raise EnvironmentFailure(f"{task.name}: tests/test.sh wrote no reward: {last}")
        finally:
            await fork.close()


class _Shell:
    """A shell in the task's folder."""

    def __init__(self, sandbox: Sandbox, plan: SandboxPlan):
        self._tools, self._plan = SandboxTools(sandbox), plan

    async def bash(self, command: str) -> str:
        """Run a command in bash, in the task's folder; files stay, variables and processes do not.

        Args:
            command: The command line or script.
        """
        return await self._tools.bash(f"cd {self._plan.workdir}\n{command}")


async def _put(sandbox: Sandbox, files: Mapping[str, bytes]) -> None:
    """Write files at absolute paths of the sandbox."""
    archive = as_archive({path.lstrip("/"): data for path, data in files.items()})
    words = ["tar", "-C", "/", "-xf", "-", "--no-same-owner", "--no-overwrite-dir", "--touch"]
    ran = await sandbox.run(words, stdin=archive)
    if ran.code:
        raise EnvironmentFailure(f"files could not be put into the sandbox: {one_line(ran.text)}")
