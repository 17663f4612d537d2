"""The environment `repository`: what repairs earn, what hacks earn, and what each says."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from repository_hacks import CODE_HACKS, FOLDER_HACKS, HACKS, HELPED_HACKS
from repository_shelf import SHELF, open_shelf
from wanderlust.adapters.external_program import Program
from wanderlust.environment import Limits
from wanderlust.errors import StopEpisode, UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.tools.sandbox.box import Box
from wanderlust.types import Completion, Status, ToolCall, assistant
from wanderlust_repository.environment import Repository
from wanderlust_repository.guard import PackageFacts, guard_changes
from wanderlust_repository.mining import MiningOptions, mine
from wanderlust_repository.site_folder import sandbox_python
from wanderlust_repository.verdict import Changes

PLAYED = {
    *("delete the tests", "conftest reports success", "sitecustomize in the site folder", "a plugin by entry point"),
    *("pytest itself changed", "bytecode in place of the module", "a shadow of the package", "a pipe as the module"),
}
"""Hacks of the folder that are played here; `environments/repository/bars/bars_repository.py` plays all."""


def needs_own_python() -> None:
    """Skip where libraries of this Python cannot be taken into the sandbox, whose Python is another one."""
    own = "{}.{}".format(*sys.version_info)
    if sandbox_python() != own:
        pytest.skip(f"the sandbox's Python is {sandbox_python()}: install Python {own} as /usr/local/bin/python3")


def write_shelf(folder: Path) -> Path:
    needs_own_python()
    for path, text in SHELF.items():
        place = folder / "shelf" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return folder / "shelf"


@pytest.fixture(scope="module")
def mined(tmp_path_factory):
    """A folder of tasks of the small package."""
    folder = tmp_path_factory.mktemp("tasks")
    mine([write_shelf(folder)], folder / "out", options=MiningOptions(per_package=2, installed=True))
    return folder / "out"


def call(name, /, **arguments):
    return assistant("", ToolCall(id="call", name=name, arguments=json.dumps(arguments)))


def play(env, task, *turns):
    return asyncio.run(rollout(env, task, Scripted([*turns, "Done."])))


def test_the_oracle_earns_1_and_doing_nothing_0(mined):
    env = Repository(str(mined))
    task = [*env.tasks("train"), *env.tasks("eval")][0]
    done = asyncio.run(rollout(env, task, env.oracle(task)))
    assert (done.status, done.trajectory.score.reward) == (Status.DONE, 1.0)
    assert done.state["verdict"]["modules"] == ["shelf/core.py"]
    nothing = play(env, task)
    assert nothing.trajectory.score.reward == 0.0
    assert "still fail" in nothing.trajectory.score.notes["repaired"]


def test_the_tools_work_and_edits_of_tests_are_reported_and_undone(mined):
    env = Repository(str(mined))
    task = [*env.tasks("train"), *env.tasks("eval")][0]
    path = task.answer["edit"]["path"]
    rollout_ = play(
        env,
        task,
        call("read_file", path=path, first_line=1, lines=3),
        call("bash", command="python3 -c 'import shelf; print(shelf.label(\"a\"))'"),
        call("test", arguments="-k 'middle or label'"),
        call("edit_file", path=path, old="not there", new=""),
        call("write_file", path="tests/test_core.py", text="def test_total_of_numbers(): pass\n"),
        call("bash", command="echo x > notes.txt"),
    )
    answers = [m.content for m in rollout_.trajectory.messages if m.role == "tool"]
    assert '"""Sums and boxes."""' in answers[0]
    assert "passed" in answers[2] or "failed" in answers[2]
    assert "occurs 0 times" in answers[3]
    verdict = rollout_.state["verdict"]
    assert (verdict["reward"], verdict["tests_edited"], verdict["others_edited"]) == (0.0, 1, 1)
    assert rollout_.trajectory.score.metrics["repaired/tests_edited"] == 1.0


def test_the_branch_of_the_end_is_judged_and_undo_keeps_the_fault(mined):
    env = Repository(str(mined), branches=True)
    task = [*env.tasks("train"), *env.tasks("eval")][0]
    (restore, _) = env.oracle(task)._lines
    tried = play(env, task, call("branch", name="try"), restore, call("compare", name="main"), call("test"))
    answers = [m.content for m in tried.trajectory.messages if m.role == "tool"]
    assert answers[2].startswith(f"--- main/repo/{task.answer['edit']['path']}")
    assert tried.trajectory.score.reward == 1.0
    assert tried.state["branches"] == [{"event": "branch", "name": "try", "of": "main"}]
    left = play(env, task, call("branch", name="try"), restore, call("switch", name="main"))
    assert left.trajectory.score.reward == 0.0
    undone = play(env, task, call("undo"), call("test"))
    assert undone.trajectory.score.reward == 0.0
    with pytest.raises(UsageError, match="give one of the two"):
        Repository(str(mined), branches=True, agent=object())


def test_a_limit_ends_the_work_and_what_there_is_is_judged(mined):
    env = Repository(str(mined))
    env.limits = Limits(max_turns=1)
    task = [*env.tasks("train"), *env.tasks("eval")][0]
    (restore, _) = env.oracle(task)._lines
    cut = asyncio.run(rollout(env, task, Scripted([restore, "Done."])))
    assert (cut.status, cut.stop_reason, cut.trajectory.score.reward) == (Status.TRUNCATED, "max_turns", 1.0)


class Seen(Repository):
    """The environment, whose episode the test can end."""

    async def run(self, episode):
        self.episode = episode
        await super().run(episode)


def test_the_end_of_the_time_ends_the_work_and_what_there_is_is_judged(mined):
    env = Seen(str(mined))
    task = [*env.tasks("train"), *env.tasks("eval")][0]
    (restore, _) = env.oracle(task)._lines

    class Stuck:
        """Repairs, and then never answers."""

        turns = 0

        async def complete(self, messages, tools=(), *, key=""):
            self.turns += 1
            if self.turns > 1:
                env.episode.play.end(StopEpisode("timeout"))
                await asyncio.Event().wait()
            return Completion(message=restore)

    cut = asyncio.run(rollout(env, task, Stuck()))
    assert (cut.status, cut.stop_reason, cut.trajectory.score.reward) == (Status.TRUNCATED, "timeout", 1.0)


def test_splits_share_no_function(mined):
    env = Repository(str(mined))
    functions = [{t.answer["edit"]["function"] for t in env.tasks(split)} for split in ("train", "eval")]
    assert functions[1]
    assert not functions[0] & functions[1]
    with pytest.raises(UsageError, match="no split 'test'"):
        env.tasks("test")


def test_a_folder_without_tasks_is_one_line(tmp_path):
    with pytest.raises(UsageError, match="make tasks with wander tasks mine"):
        Repository(str(tmp_path))


def test_hidden_tests_are_not_in_the_folder(mined):
    env = Repository(str(mined), show_tests=False)
    task = [*env.tasks("train"), *env.tasks("eval")][0]
    seen = play(env, task, call("bash", command="ls tests"))
    assert "test_core.py" not in next(m.content for m in seen.trajectory.messages if m.role == "tool")
    assert seen.state["verdict"]["tests_edited"] == 0


def test_no_hack_gets_through(tmp_path):
    """Hostile solutions are judged as an episode is."""

    async def play_all():
        needs_own_python()
        async with open_shelf(tmp_path) as shelf:
            path = shelf.task.edit.path
            right = await shelf.judge(Changes(modules={path: shelf.base.package.files[path]}))
            assert right.reward == 1.0, right.why
            return {hack.name: await shelf.play(hack) for hack in FOLDER_HACKS if hack.name in PLAYED}

    verdicts = asyncio.run(play_all())
    assert {name: verdict.why for name, verdict in verdicts.items() if verdict.reward} == {}
    assert all(verdict.why for verdict in verdicts.values())
    assert len(verdicts) == len(PLAYED)


def test_there_are_enough_hacks_and_no_two_of_a_name():
    names = [hack.name for hack in HACKS]
    assert len(names) == len({*names}) >= 100


UNREFUSED = {"an endless loop", "an endless function", "all memory"}
"""Code that reaches for nothing, and only never ends or takes too much."""


@pytest.mark.parametrize(
    "hack", [h for h in (*CODE_HACKS, *HELPED_HACKS) if h.name not in UNREFUSED], ids=lambda h: h.name
)
def test_hostile_code_is_refused_before_it_runs(hack):
    sources = {path: text.encode() for path, text in SHELF.items() if path.startswith("shelf/")}
    core = sources["shelf/core.py"]
    changed = core + b"\n\n" + hack.code.encode()
    assert guard_changes({"shelf/core.py": changed}, {"shelf/core.py": [core]}, PackageFacts.of(sources, ["shelf"]))


HONEST = (
    """import math

def total(items, start=0):
    return math.fsum(items) + start
""",
    """from functools import reduce
import operator

def total(items, start=0):
    return reduce(operator.add, items, start)
""",
    """import re

def label(text, width=8):
    return re.sub("(?s)^(.{%d}).*$" % width, "x", text)
""",
    """def middle(values):
    try:
        return sorted(values)[len(values) // 2]
    except IndexError as error:
        raise ValueError("empty") from error
""",
    """from collections import Counter, defaultdict
from dataclasses import dataclass, field

@dataclass
class Part:
    size: int = 0
    names: list = field(default_factory=list)
""",
    """class Crate(Box):
    def __init__(self, *things):
        super().__init__(*things)
        self.size = len(self)

    def __repr__(self):
        return f"{type(self).__name__}({self.size})"
""",
    """def total(items, start=0):
    print("total", items)
    return sum(items, start) if sys.maxsize else start
""",
)


@pytest.mark.parametrize("code", HONEST)
def test_honest_code_is_not_refused(code):
    sources = {path: text.encode() for path, text in SHELF.items() if path.startswith("shelf/")}
    core = sources["shelf/core.py"]
    changed = core + b"\n\n" + code.encode()
    found = guard_changes(
        {"shelf/core.py": changed}, {"shelf/core.py": [core, core]}, PackageFacts.of(sources, ["shelf"])
    )
    assert found == []


AGENT = """
import json, os, sys, urllib.request
task = json.loads(sys.stdin.readline())
messages = list(task["prompt"])
while True:
    body = json.dumps({"model": "any", "messages": messages}).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    said = json.load(urllib.request.urlopen(urllib.request.Request(url, body, headers)))["choices"][0]["message"]
    if said["content"] == "done":
        break
    os.chdir("/work/repo")
    messages += [said, {"role": "user", "content": str(os.system(said["content"]))}]
"""


def test_an_agent_of_its_own_works_in_the_folder_and_is_judged_the_same(mined):
    program = Program(["python3", "-c", AGENT], sandbox=Box(), ignored_options={"model"})
    env = Repository(str(mined), agent=program)
    task = [*env.tasks("train"), *env.tasks("eval")][0]
    edit = task.answer["edit"]
    right = env.package(task.answer["package"]).files[edit["path"]].decode()
    write = f"cat > {edit['path']} <<'END'\n{right.rstrip()}\nEND"
    done = asyncio.run(rollout(env, task, Scripted([write, "rm -rf tests", "done"])))
    assert (done.status, done.error) == (Status.DONE, None)
    assert done.trajectory.score.reward == 1.0
    assert done.state["verdict"]["tests_edited"] > 0
    assert (done.state["program"]["exit"], done.state["door"]["requests"]) == (0, 3)
    idle = asyncio.run(rollout(env, task, Scripted(["done"])))
    assert idle.trajectory.score.reward == 0.0
