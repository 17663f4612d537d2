"""Harbor task folders as an environment: those with a plain image in the sandbox, the others in a container.

Not covered: verifiers that need a network. As in Harbor, the verifier runs in the folder that the agent leaves, so its
verdict is as safe as the task's own tests.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from wanderlust.environment import Episode, Limits
from wanderlust.errors import EnvironmentFailure, UsageError, one_line
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Rubric
from wanderlust.tools.function import ToolSource, open_toolsets
from wanderlust.tools.sandbox import LocalSandbox, Sandbox, SandboxBounds, SandboxTools, WritableContainer
from wanderlust.tools.sandbox.base import MEBI
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Policy, Task, ToolCall, assistant, user
from wanderlust_repository.harbor_images import make_image
from wanderlust_repository.harbor_tasks import (
    REWARD_FILES,
    HarborTask,
    NeedsContainer,
    SandboxPlan,
    plan_sandbox,
    read_harbor_task,
    read_reward,
)
from wanderlust_repository.package import as_archive
from wanderlust_repository.site_folder import install_requirements
from wanderlust_repository.suite import SUITE_BOUNDS

SITE_PLACE = "/work/site"


def verified(state: Mapping[str, float]) -> float:
    """The reward that the task's verifier has written."""
    return state["harbor_reward"]


class Harbor(ToolEnvironment):
    """Harbor task folders, played with a shell in the sandbox and judged by their own tests/test.sh."""

    limits = Limits(max_turns=50)
    rubric = Rubric(verified)
    prefixes = False

    read_task = staticmethod(read_harbor_task)
    """Read one task folder. Raises UsageError of one line where it is malformed."""

    def __init__(self, folder: str, *, engine: str = ""):
        """`folder` is one task folder, or a folder of such.

        `engine` (podman or docker) plays the tasks whose image needs a container. It makes their images from their
        Dockerfiles when they are first played, with the network that it has; ready-made images must be there already.

        Raises UsageError of one line for the first malformed folder, and for a container without an engine.
        """
        super().__init__()
        if engine and shutil.which(engine) is None:
            raise UsageError(f"engine={engine}: there is no such program; podman or docker makes containers")
        top = Path(folder)
        places = [top] if (top / "task.toml").exists() else sorted(p.parent for p in top.glob("*/task.toml"))
        if not places:
            raise UsageError(f"{folder} has no task.toml, and no folder in it has one")
        found = [read_harbor_task(place) for place in places]
        self._engine = engine
        self._by_id = {task.name: (task, self._plan(task)) for task in found}
        self._sites: dict[tuple[str, ...], dict[str, bytes]] = {}

    def _plan(self, task: HarborTask) -> SandboxPlan | None:
        """What the sandbox does in the image's place; None where a container plays the task."""
        try:
            return plan_sandbox(task)
        except NeedsContainer as error:
            if not self._engine:
                raise UsageError(f"{error}: give engine=podman or engine=docker") from error
            return None

    def tasks(self, split: str = "train") -> list[Task]:
        """All tasks, the same in every split: hold out what you need to."""
        return [
            Task(
                id=name,
                prompt=(user(task.instruction),),
                info={"differences": list(plan.differences) if plan else [], "container": plan is None},
            )
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
        place = await self._open(task, plan, bounds)
        try:
            await (self._lay_out(place.sandbox, plan) if plan else make_folders(place, task))
            episode.play.closing_seconds += task.verifier_seconds
            with episode.play.limited(task.agent_seconds, "agent_seconds"):
                sources: list[ToolSource] = [_Shell(place).bash]
                async with open_toolsets(sources, episode) as tools:
                    await self.converse(episode, tools)
            episode.state["harbor_reward"] = await verify_task(place, task)
        finally:
            await place.sandbox.close()

    async def _open(self, task: HarborTask, plan: SandboxPlan | None, bounds: SandboxBounds) -> TaskPlace:
        """This machine's sandbox, or a container of the task's image, which is made where it is missing."""
        if plan:
            variables = {**plan.variables, "PYTHONPATH": SITE_PLACE}
            return TaskPlace(await LocalSandbox.open(bounds, places=plan.places, env=variables), plan.workdir)
        image = await asyncio.to_thread(make_image, task, self._engine)
        container = await WritableContainer.open(image.name, bounds, engine=self._engine)
        container.user = image.user
        return TaskPlace(container, image.workdir, task.variables)

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


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """Where a task is played."""

    sandbox: LocalSandbox | WritableContainer
    workdir: str
    variables: Mapping[str, str] = field(default_factory=dict)
    """Those that the sandbox has not anyway."""


@contextmanager
def as_root(sandbox: Sandbox) -> Iterator[None]:
    """Commands of a container run as its root meanwhile; the sandbox of this machine has none."""
    if not isinstance(sandbox, WritableContainer):
        yield
        return
    before, sandbox.user = sandbox.user, "0:0"
    try:
        yield
    finally:
        sandbox.user = before


async def make_folders(place: TaskPlace, task: HarborTask) -> None:
    """Make the folders of agent and verifier in a container."""
    made = f"/logs/verifier /logs/agent /tests /solution {shlex.quote(place.workdir)}"
    with as_root(place.sandbox):
        ran = await place.sandbox.run(f"mkdir -p {made} && chmod 777 /logs /logs/* /solution")
    if ran.code:
        raise EnvironmentFailure(f"{task.name}: the container has no folders: {one_line(ran.text)}")


async def verify_task(place: TaskPlace, task: HarborTask) -> float:
    """Run tests/test.sh over a fork of what the agent left. Raises EnvironmentFailure where it writes no reward."""
    fork = await place.sandbox.fork()
    try:
        with as_root(fork):
            return await _reward(fork, place, task)
    finally:
        await fork.close()


async def _reward(sandbox: Sandbox, place: TaskPlace, task: HarborTask) -> float:
    await sandbox.run(["sh", "-c", "rm -rf /tests/* /logs/verifier/*; mkdir -p /logs/verifier"])
    await _put(sandbox, {f"/tests/{name}": data for name, data in task.tests.items()})
    words = [f"{name}={value}" for name, value in {**place.variables, **task.verifier_variables}.items()]
    command = ["env", "-C", place.workdir, *words, "bash", "/tests/test.sh"]
    ran = await sandbox.run(command, timeout=task.verifier_seconds)
    for name in REWARD_FILES:
        found = await sandbox.run(["head", "-c", "65536", name])
        if not found.code:
            try:
                return read_reward(name, found.stdout)
            except UsageError as error:
                raise EnvironmentFailure(f"{task.name}: {error}") from error
    last = one_line(ran.text.strip().rpartition("\n")[2]) or ran.reached_limit or f"exit status {ran.code}"
    raise EnvironmentFailure(f"{task.name}: tests/test.sh wrote no reward: {last}")


class _Shell:
    """A shell in the task's folder."""

    def __init__(self, place: TaskPlace):
        self._tools = SandboxTools(place.sandbox)
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in place.variables.items())
        self._before = f"{exports}cd {shlex.quote(place.workdir)}\n"

    async def bash(self, command: str) -> str:
        """Run a command in bash, in the task's folder; files stay, variables and processes do not.

        Args:
            command: The command line or script.
        """
        return await self._tools.bash(f"{self._before}{command}")


async def _put(sandbox: Sandbox, files: Mapping[str, bytes]) -> None:
    """Write files at absolute paths of the sandbox."""
    archive = as_archive({path.lstrip("/"): data for path, data in files.items()})
    words = ["tar", "-C", "/", "-xf", "-", "--no-same-owner", "--no-overwrite-dir", "--touch"]
    ran = await sandbox.run(words, stdin=archive)
    if ran.code:
        raise EnvironmentFailure(f"files could not be put into the sandbox: {one_line(ran.text)}")
