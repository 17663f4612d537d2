"""Agents in boxes: what they are given and leave, what each fault is called, and that none is a score of 0."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.boxes import ASK, MEDIUM, TASK, Said, echo, in_box
from tests.sandboxes import bearing, everybody, token

from patience import PATIENCE
from wanderlust.adapters import external_program
from wanderlust.adapters.external_program import Program
from wanderlust.environment import Environment, Limits
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout, rollouts
from wanderlust.serving.http import endpoint_variables
from wanderlust.store.records import pack
from wanderlust.tools.sandbox import NotIsolatedWarning, users
from wanderlust.tools.sandbox.box import Box
from wanderlust.tools.sandbox.bubblewrap import find_python
from wanderlust.types import Status, Task

SAY = "print(ask('say it'))\n"


def test_an_agent_in_a_box_plays_and_is_judged():
    played = in_box("assert 'hidden' not in str(task); print(os.getcwd(), sorted(os.listdir())); " + SAY)
    assert (played.status, played.error, played.trajectory.score.reward) == (Status.DONE, None, 1)
    assert played.state["program"] == {"exit": 0, "stdout": "/work []\necho: say it\n", "stderr": ""}
    assert played.state["door"] == {"requests": 1, "refused": {}}
    assert pack(played)


def test_it_has_no_variable_but_those_that_it_needs():
    played = in_box("print(sorted(os.environ)); " + SAY, environment={"MINE": "1"})
    names = {"HOME", "LANG", "MINE", "PATH", "PWD", "TERM", "USER", "LC_CTYPE", *endpoint_variables("", "")}
    assert set(json.loads(played.state["program"]["stdout"].split("\n")[0].replace("'", '"'))) <= names


class Repairs(Program):
    """A folder is laid into the box; commands in it and a copy of it are looked at afterwards."""

    source = None

    async def prepare(self, episode, sandbox):
        await sandbox.put(self.source, "project")

    async def judge_in_sandbox(self, episode, ended, sandbox):
        fork = await sandbox.fork()
        try:
            result = await fork.run("cat project/deep/file; rm project/deep/file")
            episode.reward("repaired", float(result.stdout == b"after\n"))
        finally:
            await fork.close()
        await super().judge_in_sandbox(episode, ended, sandbox)

    async def judge(self, episode, ended, folder):
        copied = await asyncio.to_thread(Path(folder, "project/deep/file").read_text)
        episode.reward("copied", float(copied == "after\n"))


def test_a_folder_is_laid_in_and_judged_in_the_box_and_in_a_copy(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_text("before\n")

    class Here(Repairs):
        source = tmp_path

    work = (
        "path = '/work/project/deep/file'\nassert open(path).read() == 'before\\n'\nopen(path, 'w').write('after\\n')\n"
    )
    played = in_box(work + SAY, kind=Here)
    assert (played.error, played.trajectory.score.parts) == (None, {"repaired": 1.0, "copied": 1.0})
    assert (tmp_path / "deep" / "file").read_text() == "before\n"


class Counted(Environment):
    """An environment of its own that opens the sandbox, lets a program play in it, and looks at what it left."""

    program = Program([str(find_python()), "-c", ASK + "open('left', 'w').write(ask('x'))"])

    async def run(self, episode):
        async with Box(bounds=MEDIUM).opened() as sandbox:
            ended = await self.program.run_in(episode, sandbox)
            assert ended is not None
            assert ended.exit == 0
            fork = await sandbox.fork()
            episode.reward("left", float(await fork.read("left") == b"echo: x"))
            await fork.close()


def test_another_environment_lets_a_program_play_in_its_sandbox():
    played = asyncio.run(rollout(Counted(), TASK, Scripted(echo)))
    assert (played.error, played.trajectory.score.reward) == (None, 1)
    assert played.state["door"]["requests"] == 1


def test_readable_paths_are_seen_at_their_own_places(tmp_path):
    everybody(tmp_path)
    (tmp_path / "tool").write_text("#!/bin/sh\necho from the tool\n")
    (tmp_path / "tool").chmod(0o755)
    played = in_box(
        f"print(subprocess.run(['{tmp_path}/tool'], capture_output=True).stdout); " + SAY,
        box=Box(bounds=MEDIUM, readable=(tmp_path,)),
    )
    assert played.state["program"]["stdout"].startswith("b'from the tool\\n'")


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
def test_a_program_in_node_plays():
    code = """
const task = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const headers = {authorization: 'Bearer ' + process.env.OPENAI_API_KEY, 'content-type': 'application/json'};
const body = JSON.stringify({model: 'm', messages: task.prompt});
fetch(process.env.OPENAI_BASE_URL + '/chat/completions', {method: 'POST', headers, body})
  .then(answer => answer.json()).then(data => console.log(data.choices[0].message.content));
"""
    # Without a control group each process has a bounded address space, of which the handler reserves ten GB.
    env = Said(["node", "--disable-wasm-trap-handler", "-e", code], sandbox=Box(bounds=replace(MEDIUM, memory=1 << 30)))
    played = asyncio.run(rollout(env, TASK, Scripted(echo)))
    assert (played.error, played.trajectory.score.reward) == (None, 1)


def test_many_boxes_have_each_an_endpoint_and_where_root_is_a_user_of_their_own(monkeypatch):
    seen = []
    reserve = users.reserve_user

    def noted():
        user = reserve()
        seen.append(user.uid)
        return user

    monkeypatch.setattr("wanderlust.tools.sandbox.overlay.reserve_user", noted)
    env = Said([str(find_python()), "-c", ASK + "print(ask(task['id']))"], sandbox=Box(bounds=MEDIUM))

    async def go():
        async with rollouts(env, [Task(id=str(n)) for n in range(6)], Scripted(echo), concurrency=6) as groups:
            return [group.rollouts[0] async for group in groups]

    played = asyncio.run(go())
    assert [r.error for r in played] == [None] * 6
    assert sorted(r.state["program"]["stdout"] for r in played) == [f"echo: {n}\n" for n in range(6)]
    assert len(set(seen)) == (6 if users.is_root() else 1)


def test_without_isolation_the_box_says_so_and_plays(monkeypatch, tmp_path):
    for tool in ("prlimit", "setpriv", "cp", "chown"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    monkeypatch.setenv("PATH", str(tmp_path))
    required = in_box(SAY)
    assert (required.stop_reason, required.trajectory.score) == ("SandboxFailure", None)
    assert "bubblewrap" in required.error
    with pytest.warns(NotIsolatedWarning, match="NOT ISOLATED"):
        played = in_box(SAY, box=Box(bounds=MEDIUM, isolation="preferred"))
    assert (played.error, played.trajectory.score.reward) == (None, 1)
    assert played.state["isolated"] is False


def test_a_box_with_an_egress_that_is_no_target_is_refused_at_once():
    with pytest.raises(UsageError, match="egress goes to 'host:port'"):
        Box(egress=("pypi.org",))


HTTP_1_0 = """
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "say it"}]}).encode()
head = f"POST /v1/chat/completions HTTP/1.0\\r\\nAuthorization: Bearer {KEY}\\r\\n"
head += f"Content-Length: {len(body)}\\r\\n\\r\\n"
print(json.loads(raw(head.encode() + body).split(b"\\r\\n\\r\\n")[1])["choices"][0]["message"]["content"])
"""


def test_an_agent_that_speaks_http_1_0_is_served():
    played = in_box(HTTP_1_0)
    assert (played.error, played.trajectory.score.reward) == (None, 1)


@pytest.mark.parametrize(
    ("source", "reason", "told"),
    [
        ("pass", "ProgramSilent", "ended without asking the model once"),
        (SAY + "sys.exit('no idea')", "ProgramCrashed", "ended with exit code 1: no idea"),
        (SAY + "os.kill(os.getpid(), 9)", "ProgramCrashed", "was ended by SIGKILL"),
        (SAY + "bytearray(10 ** 12)", "ProgramCrashed", "MemoryError"),
    ],
    ids=["silent", "exit", "signal", "memory"],
)
def test_a_program_that_fails_has_a_name_and_no_score(source, reason, told):
    played = in_box(source)
    assert (played.stop_reason, played.trajectory.score) == (reason, None)
    assert told in played.error
    assert "\n" not in played.error


@pytest.mark.parametrize("command", [["no-such-program"], ["/work"], ["a\0b"], ["echo", "x" * 10_000_000]])
def test_a_program_that_cannot_start_in_a_box_is_named(command):
    played = asyncio.run(rollout(Program(command, sandbox=Box(bounds=MEDIUM)), TASK, Scripted(echo)))
    assert (played.stop_reason, played.trajectory.score) == ("ProgramNotStarted", None)
    assert played.error.startswith("cannot start '")
    assert "\n" not in played.error


def test_an_agent_that_asks_for_ever_is_cut_at_the_limit(monkeypatch):
    monkeypatch.setattr(external_program, "PROGRAM_GRACE_SECONDS", 0.2)
    source = "while True:\n    try: ask('x')\n    except Exception: pass"
    played = in_box(source, limits=Limits(max_turns=3))
    assert (played.status, played.stop_reason, len(played.trajectory.turns)) == (Status.TRUNCATED, "max_turns", 3)
    assert played.state["door"]["refused"]["episode_over"] > 0


def test_an_agent_that_asks_for_ever_without_a_limit_is_cut_by_its_time():
    played = in_box("while True: ask('x')", seconds=2.0, limits=Limits(max_turns=10**6))
    assert (played.status, played.stop_reason) == (Status.TRUNCATED, "program_seconds")
    assert len(played.trajectory.turns) > 3


def test_an_agent_that_takes_too_long_is_cut_with_its_children():
    word = token()
    played = in_box(SAY + f"subprocess.run(['sh', '-c', 'sleep 60; : {word}'])", seconds=2.0)
    assert (played.status, played.stop_reason) == (Status.TRUNCATED, "program_seconds")
    assert played.state["program"]["exit"] == -9
    assert bearing(word) == []


def test_an_agent_that_floods_its_output_is_cut():
    played = in_box(SAY + "while True: sys.stdout.write('x' * 100_000)", seconds=30.0)
    assert (played.status, played.stop_reason) == (Status.TRUNCATED, "program_output")
    assert len(played.state["program"]["stdout"]) <= MEDIUM.output + 100


def test_a_body_of_100_megabytes_is_refused_by_name():
    refusal = """
try:
    post(bytes(100_000_000))
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""
    played = in_box(refusal + SAY)
    assert (played.error, played.trajectory.score.reward) == (None, 1)
    assert played.state["door"]["refused"] == {"body_too_large": 1}
    assert played.state["program"]["stdout"].startswith("413 ")


def test_a_forged_key_is_refused_by_name_and_a_program_that_dies_of_it_crashed():
    played = in_box("ask('x', key='wander-forged')")
    assert (played.stop_reason, played.trajectory.score) == ("ProgramCrashed", None)
    assert "401" in played.error
    assert played.state["door"]["refused"] == {"wrong_key": 1}
    assert played.trajectory.turns == []


def test_a_failing_policy_is_the_policys_fault_in_a_box_too():
    def boom(messages, rng):
        raise RuntimeError("boom")

    for source in (SAY, "try: ask('x')\nexcept Exception: pass"):
        played = in_box(source, policy=Scripted(boom))
        assert (played.stop_reason, played.trajectory.score) == ("PolicyFailure", None)


def test_a_cancelled_episode_leaves_nothing_in_the_box_alive():
    word = token()
    env = Program([str(find_python()), "-c", ASK + f"ask('x'); '{word}'"], sandbox=Box(bounds=MEDIUM))

    async def go():
        asked = asyncio.Event()

        class Waits:
            async def complete(self, messages, tools=(), *, key=""):
                asked.set()
                await asyncio.sleep(60)

        playing = asyncio.create_task(rollout(env, TASK, Waits()))
        await asyncio.wait_for(asked.wait(), PATIENCE)
        assert bearing(word)
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)

    asyncio.run(go())
    assert bearing(word) == []
