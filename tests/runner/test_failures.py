"""A failure says where it was raised, what the program behind it wrote last, and what to do, in every exit."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wanderlust.adapters.external_program import Program
from wanderlust.cli.main import main
from wanderlust.environment import Environment, SingleTurnEnvironment
from wanderlust.errors import Failure, FailureDetails, PolicyFailure, ToolFailure, boundary
from wanderlust.evals.evaluate import evaluate
from wanderlust.evals.evaluation import rescore_groups
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Rubric
from wanderlust.runner.engine import rollout
from wanderlust.runner.failures import ADVICE, MAX_OUTPUT_LINES, failure_details
from wanderlust.store.reader import RunReader
from wanderlust.store.records import pack, unpack
from wanderlust.store.run import load_run
from wanderlust.studio.rollouts import rollout_record
from wanderlust.tools.mcp_toolset import McpServer
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Group, Rollout, Status, Task, ToolCall, assistant, user

HERE = Path(__file__).name
TASKS = [Task(id=f"t{n}", prompt=(user("?"),), info={"n": n}) for n in range(4)]


class Broken(Environment):
    """Fails at one of two places, by the task."""

    def tasks(self, split: str = "eval") -> list[Task]:
        return TASKS

    async def run(self, episode: Any) -> None:
        await episode.agent.act(user("?"))
        if episode.task.info["n"] == 3:
            raise ValueError("three")
        self.look(episode.task)

    def look(self, task: Task) -> None:
        task.info["missing"]


def line_of(text: str) -> int:
    """The line of this file that holds the text alone."""
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip() == text)


LOOKING, RAISING = 'task.info["missing"]', 'raise ValueError("three")'
LOOKED = f"{HERE}:{line_of(LOOKING)} in look"
THREE = f"{HERE}:{line_of(RAISING)} in run"


def played(env: Environment, policy: Any = None, task: Task = TASKS[0]) -> Rollout:
    return asyncio.run(rollout(env, task, policy or Scripted(["x"])))


def test_a_failure_has_the_users_own_frames_alone() -> None:
    failed = played(Broken())
    assert failed.failure is not None
    assert failed.failure.place.endswith(LOOKED)
    first, _, last, code = failed.failure.traceback.splitlines()
    assert f"{HERE}:{line_of('self.look(episode.task)')} in run" in first
    assert last.endswith(LOOKED)
    assert code.strip() == 'task.info["missing"]'
    assert "errors.py" not in failed.failure.traceback
    assert failed.failure.advice in ADVICE.values()


def right(completion: str) -> float:
    """Divides by nothing."""
    return len(completion) / 0


def fine(completion: str) -> float:
    return 1.0


def test_a_reward_that_raises_is_named_and_so_is_a_new_one() -> None:
    env = SingleTurnEnvironment(TASKS, rubric=Rubric(right))
    failed = played(env)
    assert failed.failure is not None
    assert failed.failure.place.endswith(f"{HERE}:{line_of('return len(completion) / 0')} in right")

    async def again(rubric: Rubric) -> Rollout:
        groups = [Group(task=TASKS[0], rollouts=[failed])]
        (group,) = [group async for group in rescore_groups(groups, rubric)]
        return group.rollouts[0]

    assert asyncio.run(again(Rubric(right))).failure == failed.failure
    mended = asyncio.run(again(Rubric(fine)))
    assert (mended.status, mended.failure) == (Status.DONE, None)


def test_the_innermost_cause_with_own_frames_counts() -> None:
    async def call() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(inner())

    async def inner() -> None:
        int(str(None))

    with pytest.raises(Failure) as failed, boundary(PolicyFailure):
        asyncio.run(call())
    details = failure_details(failed.value, PolicyFailure)
    assert details.place.endswith(f"{HERE}:{line_of('int(str(None))')} in inner")
    assert details.advice == ADVICE[PolicyFailure]


def test_a_failure_through_no_file_of_the_user_has_no_place() -> None:
    assert failure_details(ToolFailure("gone"), ToolFailure).place == ""


def test_the_last_lines_are_kept_and_long_ones_are_marked() -> None:
    written = "\n".join([*(f"line {n}" for n in range(50)), "x" * 5_000])
    details = failure_details(ToolFailure("gone", output=written), ToolFailure)
    lines = details.output.splitlines()
    assert lines[:2] == ["line 31", "line 32"]
    assert len(lines) == MAX_OUTPUT_LINES
    assert lines[-1].endswith("x…")


SERVER = """
import asyncio, os, sys
from wanderlust.tools.mcp_server import serve_stdio


def look() -> str:
    for n in range(30):
        print(f"about to end {n}", file=sys.stderr, flush=True)
    os._exit(3)


asyncio.run(serve_stdio(look))
"""


def test_a_servers_last_lines_are_kept(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    server = McpServer(sys.executable, str(tmp_path / "server.py"))
    env = ToolEnvironment(TASKS, tools=[server])
    failed = played(env, Scripted([assistant("", ToolCall(id="c", name="look", arguments="{}")), "done"]))
    assert (failed.status, failed.stop_reason) == (Status.ERROR, "ToolFailure")
    assert "about to end 29" in (failed.error or "")
    assert failed.failure is not None
    assert failed.failure.output.splitlines()[-MAX_OUTPUT_LINES:] == [f"about to end {n}" for n in range(10, 30)]
    assert failed.failure.advice == ADVICE[ToolFailure]


def test_a_programs_last_lines_are_kept() -> None:
    code = "import sys; [print('word', n, file=sys.stderr) for n in range(30)]; sys.exit(3)"
    failed = played(Program([sys.executable, "-c", code], tasks=TASKS))
    assert failed.stop_reason == "ProgramCrashed"
    assert failed.failure is not None
    assert failed.failure.output.splitlines() == [f"word {n}" for n in range(10, 30)]


def test_old_records_open_and_new_ones_keep_the_failure() -> None:
    failed = played(Broken())
    assert unpack(pack(failed), None).failure == failed.failure
    old = msgspec.msgpack.decode(pack(failed))
    del old["failure"]
    assert unpack(msgspec.msgpack.encode(old), None).failure is None


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("failures") / "run"
    asyncio.run(evaluate(Broken(), Scripted(["x"]), out=folder, progress=False))
    return folder


def test_show_and_the_page_have_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with load_run(run) as opened:
        first = next(iter(opened.rollouts))
    with pytest.raises(SystemExit):
        main(["show", str(run), "1"])
    shown = capsys.readouterr().out
    assert isinstance(first.failure, FailureDetails)
    assert f"At:\n  {first.failure.traceback.splitlines()[0]}\n" in shown
    assert f"What to do:\n  {first.failure.advice}\n" in shown
    with RunReader(run / "rollouts.db") as reader:
        assert rollout_record(reader, 1, {})["failure"] == asdict(first.failure)


def test_a_report_groups_failures_by_place(run: Path) -> None:
    report = asyncio.run(evaluate(Broken(), Scripted(["x"]), progress=False))
    (errors,) = report.errors.values()
    assert [(place.rpartition("/")[2], count) for place, count in errors.places.items()] == [(LOOKED, 3), (THREE, 1)]
    table = str(report)
    assert table.index(LOOKED) < table.index(THREE)
    stored = json.loads((run / "report.json").read_text())
    assert list(stored["errors"]["EnvironmentFailure"]["places"].values()) == [3, 1]
