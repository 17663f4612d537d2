"""Programs as agents: what they are given, what they leave, and whose fault it is when they fail."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import pytest

from patience import FOREVER
from wanderlust.adapters import external_program
from wanderlust.adapters.external_program import Program
from wanderlust.environment import Limits
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout, rollouts
from wanderlust.store.records import pack
from wanderlust.tools.process import MAX_OUTPUT_BYTES
from wanderlust.tools.sandbox import NotIsolatedWarning
from wanderlust.types import Status, Task, assistant, user

ASK = """
import json, os, sys, urllib.request
task = json.loads(sys.stdin.readline())
def ask(*messages, model="m"):
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": m} for m in messages]}).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
"""
TASK = Task(id="t", prompt=(user("say it"),), answer="hidden", info={"n": 3})


class Said(Program):
    """Worth a point when the program printed what the model said."""

    async def judge(self, episode, ended, folder):
        episode.reward("said", float(ended.stdout.strip() == "echo: say it"))


def echo(messages, rng):
    return assistant(f"echo: {messages[-1].content}")


def play(code, *, policy=None, limits=None, kind=Said, **options):
    env = kind([sys.executable, "-c", ASK + code], **options)
    return asyncio.run(rollout(env, TASK, policy or Scripted(echo), limits=limits))


def test_a_program_is_given_its_task_and_the_model_and_is_judged():
    played = play("assert 'hidden' not in str(task); print(ask(task['prompt'][0]['content']))")
    assert (played.status, played.error, played.trajectory.score.reward) == (Status.DONE, None, 1)
    assert played.state["program"] == {"exit": 0, "stdout": "echo: say it\n", "stderr": ""}
    assert pack(played)


def test_a_command_may_depend_on_the_task_and_the_environment_is_nearly_empty(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "x")
    code = ASK + "ask('x'); print(sorted(os.environ), sys.argv[1], os.listdir())"
    env = Program(lambda task: [sys.executable, "-c", code, task.id], environment={"MINE": "1"})
    played = asyncio.run(rollout(env, TASK, Scripted(echo)))
    told = played.state["program"]["stdout"]
    assert "MINE" in told
    assert "SECRET" not in told
    assert told.endswith(" t []\n")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("ask('x'); sys.exit('no idea')", "ended with exit code 1: no idea"),
        ("ask('x'); raise KeyError('k')", "ended with exit code 1: KeyError: 'k'"),
        ("ask('x'); os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
        ("print('bye')", "ended without asking the model once: bye"),
    ],
)
def test_a_failing_program_is_the_environments_fault(code, told):
    played = play(code)
    silent = "without asking" in told
    assert (played.stop_reason, played.trajectory.score) == ("ProgramSilent" if silent else "ProgramCrashed", None)
    assert told in played.error
    assert "\n" not in played.error


@pytest.mark.parametrize("command", [["no-such-program"], ["/"], ["a\0b"]])
def test_a_program_that_cannot_start_is_named(command):
    played = asyncio.run(rollout(Program(command), TASK, Scripted(echo)))
    assert played.stop_reason == "ProgramNotStarted"
    assert played.error.startswith("cannot start '")


def test_a_failing_policy_is_the_policys_fault_whatever_the_program_does():
    def boom(messages, rng):
        raise RuntimeError("boom")

    swallow = "\ntry:\n    ask('x')\nexcept Exception: pass\nprint('echo: say it')"
    for code in ("ask('x')", swallow):
        played = play(code, policy=Scripted(boom))
        assert (played.stop_reason, played.error, played.trajectory.score) == (
            "PolicyFailure",
            "RuntimeError: boom",
            None,
        )


def test_a_limit_ends_a_program_that_never_gives_up(monkeypatch):
    monkeypatch.setattr(external_program, "PROGRAM_GRACE_SECONDS", 0.2)
    code = "\nwhile True:\n    try:\n        ask('x')\n    except Exception: pass"
    played = play(code, limits=Limits(max_turns=3))
    assert (played.status, played.stop_reason, len(played.trajectory.turns)) == (Status.TRUNCATED, "max_turns", 3)


def test_a_program_that_takes_too_long_is_truncated_with_its_children():
    code = "import subprocess\nprint(ask('x'))\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(6000)'])"
    played = play(code, seconds=2.0)
    assert (played.status, played.stop_reason) == (Status.TRUNCATED, "program_seconds")
    assert len(played.trajectory.turns) == 1


def test_a_child_that_holds_the_output_open_is_not_waited_for():
    code = "import subprocess\nprint(ask(task['prompt'][0]['content']))\nsubprocess.Popen(['sleep', '6000'])"
    assert play(code).trajectory.score.reward == 1


def test_outputs_are_bounded_and_a_deaf_program_is_fed():
    flood = "ask('x'); sys.stdout.write('a' * 10**7 + 'end'); sys.stderr.buffer.write(b'\\xff' * 10**6)"
    state = play(flood, kind=Program).state["program"]
    assert len(state["stdout"]) == MAX_OUTPUT_BYTES
    assert state["stdout"].endswith("aend")
    assert len(state["stderr"]) == MAX_OUTPUT_BYTES
    long = Task(id="t", prompt=(user("x" * 10**6),))
    deaf = Program([sys.executable, "-c", ASK.replace("task = ", "0 and ") + "ask('x')"])
    assert asyncio.run(rollout(deaf, long, Scripted(echo))).error is None


def test_many_programs_share_one_server_and_each_has_its_own_episode():
    env = Said([sys.executable, "-c", ASK + "print(ask(task['id']), os.environ['OPENAI_BASE_URL'])"])

    async def go():
        tasks = [Task(id=str(n)) for n in range(8)]
        async with rollouts(env, tasks, Scripted(echo), concurrency=8) as groups:
            return [group.rollouts[0] async for group in groups]

    with pytest.warns(NotIsolatedWarning, match="read the others' keys"):
        played = asyncio.run(go())
    assert [r.error for r in played] == [None] * 8
    outs = [r.state["program"]["stdout"].split() for r in played]
    assert sorted(out[1] for out in outs) == [str(n) for n in range(8)]
    assert all(r.trajectory.turns[0].observation == (user(r.task.id),) for r in played)
    assert len({out[2] for out in outs}) == 1


def test_seats_are_models():
    class Pair(Program):
        seats = ("main", "helper")

    code = ASK + "ask('a', model='main'); ask('b', model='helper'); ask('c', model='helper')"
    played = asyncio.run(rollout(Pair([sys.executable, "-c", code]), TASK, Scripted(echo)))
    assert played.error is None
    assert [(t.seat, len(t.turns)) for t in played.trajectories] == [("main", 1), ("helper", 2)]


def test_a_cancelled_episode_leaves_no_process():
    env = Program([sys.executable, "-c", ASK + "ask(str(os.getpid())); import time; time.sleep(6000)"])

    async def go():
        asked = asyncio.get_running_loop().create_future()

        class Tells:
            async def complete(self, messages, tools=(), *, key=""):
                asked.set_result(int(messages[-1].content))
                await asyncio.sleep(FOREVER)

        playing = asyncio.create_task(rollout(env, TASK, Tells()))
        number = await asked
        os.kill(number, 0)
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)

    asyncio.run(go())


def test_the_task_is_one_line_of_json():
    played = asyncio.run(
        rollout(Program([sys.executable, "-c", ASK + "ask('x'); print(json.dumps(task))"]), TASK, Scripted(echo))
    )
    told = json.loads(played.state["program"]["stdout"])
    assert told == {"id": "t", "prompt": [{"role": "user", "content": "say it"}], "info": {"n": 3}}
