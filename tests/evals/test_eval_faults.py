"""What can be wrong with an environment, a rubric or a key: one clear line each, and the other rollouts go on."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from patience import FOREVER, PATIENCE
from wanderlust import Mixture, check
from wanderlust.agent import Activity, track
from wanderlust.environment import Environment, Limits
from wanderlust.errors import PolicyFailure, StopEpisode, UsageError
from wanderlust.evals.evaluate import evaluate, evaluate_sync
from wanderlust.evals.evaluation import play_jobs
from wanderlust.policies.base import TokenPrices
from wanderlust.policies.scripted import Scripted
from wanderlust.runner import watchdog
from wanderlust.runner.engine import RolloutSettings, rollout_jobs
from wanderlust.runner.watchdog import describe_waiting, watch_event_loop
from wanderlust.store.store import RunStore
from wanderlust.tasks.selection import find_faulty_tasks
from wanderlust.tools.function import tool
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Group, Rollout, Score, Task, ToolCall, assistant, user
from worlds import WANDER, found, wander

TASKS = [Task(id=f"t{n}") for n in range(6)]


class Asks(Environment):
    async def run(self, episode):
        await episode.agent.act(user("?"))
        episode.reward("said", 1.0)


def judged(reward: object):
    class Rubric:
        async def score(self, rollout, trajectory):
            if rollout.task.id != "t3":
                return Score(reward=1.0)
            return reward() if callable(reward) else reward

    return Rubric()


def fail():
    raise ZeroDivisionError("oh")


def judge_fails():
    raise PolicyFailure("the judge is away", transient=False)


@pytest.mark.parametrize(
    ("reward", "why"),
    [
        (Score(reward=float("nan")), "the reward is nan, which is no finite number"),
        (Score(reward=1.0, parts={"style": float("inf")}), "style is inf, which is no finite number"),
        (Score(reward=1.0, parts={"style": "good"}), "style is 'good', which is no finite number"),
        ("fine", "the rubric returned 'str' instead of a Score"),
        (fail, "ZeroDivisionError: oh"),
        (judge_fails, "PolicyFailure: the judge is away"),
    ],
)
def test_a_reward_that_is_none_fails_its_own_rollout_and_is_named(reward, why):
    told = asyncio.run(evaluate(Asks(), Scripted(["x"]), tasks=TASKS, rubric=judged(reward)))
    assert (told.played, told.scored, told.reward.value) == (6, 5, 1.0)
    assert {name: e.first for name, e in told.errors.items()} == {"RubricFailure": why}


def test_a_verdict_that_never_comes_is_a_failure():
    class Slow:
        async def score(self, rollout, trajectory):
            await asyncio.sleep(0 if rollout.task.id != "t3" else 60)
            return Score(reward=1.0)

    limits = Limits(timeout=0.2)
    told = asyncio.run(evaluate(Asks(), Scripted(["x"]), tasks=TASKS, rubric=Slow(), limits=limits))
    assert told.errors["RubricFailure"].first == "no verdict within 0.2 s"
    assert told.scored == 5


def test_tasks_that_cannot_be_played_are_named():
    bad = [Task(id="a"), Task(id="a"), Task(id="b", info={"f": fail}), Task(id="a", answer=1)]
    assert find_faulty_tasks(bad).keys() == {2, 3}
    assert find_faulty_tasks(bad)[2].startswith("task 'b' is not plain data")
    assert "'a'" in find_faulty_tasks(bad)[3]


def test_given_tasks_that_are_none_are_one_line():
    with pytest.raises(UsageError, match=r"^tasks gave a dict, and not a wanderlust\.Task$"):
        asyncio.run(evaluate(Asks(), Scripted(["x"]), tasks=[{"id": "a"}]))


SAYS = Scripted(["x"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"env": Asks}, "Asks is a class, and no environment"),
        ({"policy": Scripted}, "Scripted is no policy"),
        ({"policy": lambda messages, rng: "x"}, "a function is no policy"),
        ({"policy": None}, "a NoneType is no policy"),
        ({"policy": {}}, "nobody plays the seat 'agent'"),
        ({"policy": {"agent": SAYS, "b": SAYS}}, "no seat 'b' in Asks"),
        ({"seats": {"agent": Scripted}}, "Scripted is no policy"),
        ({"rubric": lambda completion: 1.0}, "the rubric is a function"),
        ({"samples": 0}, "samples is 0"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"max_cost": float("nan"), "prices": TokenPrices(input=1.0, output=1.0)}, "max_cost is nan"),
        ({"pass_threshold": float("nan")}, "the pass threshold is nan"),
    ],
)
def test_arguments_that_cannot_be_are_one_line(given, said):
    with pytest.raises(UsageError, match=f"^{said}"):
        evaluate_sync(**{"env": Asks(), "policy": SAYS, "tasks": TASKS, "progress": False} | given)


def test_a_bound_that_is_no_number_and_a_check_of_nothing_are_refused():
    with pytest.raises(UsageError, match="timeout is nan"):
        Limits(timeout=float("nan"))
    with pytest.raises(UsageError, match="n is 0"):
        check(Asks(), n=0)
    with pytest.raises(UsageError, match="weights above 0"):
        Mixture({Asks(): float("nan")})


def test_what_is_not_plain_data_is_kept_as_a_failure_and_the_rest_as_it_is(tmp_path):
    class Leaves(Asks):
        async def run(self, episode):
            await super().run(episode)
            episode.state["left"] = object() if episode.task.id == "t3" else 1

    with RunStore.create(tmp_path / "run.db") as store:
        keep = store.sink(stage="eval", step=0, env="x")
        told = asyncio.run(evaluate(Leaves(), Scripted(["x"]), tasks=TASKS, observers=[keep]))
        assert store.counts() == {"eval": {"done": 5, "error": 1}}
    assert (told.scored, told.failed) == (5, 1)
    assert "'t3' is not plain data" in told.errors["EnvironmentFailure"].first


def test_an_environment_that_never_ends_runs_into_its_time_and_holds_nobody_up():
    class Endless(Asks):
        async def run(self, episode):
            while episode.task.id == "t3":
                try:
                    await episode.agent.act(user("again"))
                except StopEpisode:
                    continue
            await super().run(episode)

    limits = Limits(max_turns=2, timeout=2.0)
    told = asyncio.run(evaluate(Endless(), Scripted(lambda m, r: "x"), tasks=TASKS, limits=limits))
    assert told.stops["timeout"] == 1
    assert told.stops["done"] == 5


class Holds(Asks):
    async def run(self, episode):
        if episode.task.id == "t3":
            time.sleep(FOREVER)  # noqa: ASYNC251 (that is the fault)
        await super().run(episode)


@tool
async def lookup(word: str) -> str:
    """Look a word up.

    Args:
        word: The word.
    """
    while True:
        time.sleep(0.01)  # noqa: ASYNC251 (that is the fault)


class HoldingTool(ToolEnvironment):
    tools = (lookup,)


def freely(env, policy):
    """Play with the guard at short notice; what was said, and the rollouts by task."""
    said: list[str] = []
    played: dict[str, Rollout] = {}

    def note(groups: list[Group]) -> None:
        played.update({group.task.id: group.rollouts[0] for group in groups})

    async def go():
        with watch_event_loop(said.append, notice=1.0, limit=3.0):
            await play_jobs(RolloutSettings(env=env, policy=policy), rollout_jobs(TASKS), observers=[note])

    asyncio.run(go())
    return said, played


def test_an_environment_that_holds_the_loop_is_named_and_interrupted():
    said, played = freely(Holds(), Scripted(["x"]))
    (line,) = said
    assert "Holds.run (test_eval_faults.py:" in line
    assert played["t3"].stop_reason == "EnvironmentFailure"
    assert "held the event loop" in played["t3"].error
    assert [played[t.id].stop_reason for t in TASKS if t.id != "t3"] == ["done"] * 5


def test_a_tool_that_holds_the_loop_is_named_and_interrupted():
    def script(messages, rng):
        call = ToolCall(id="1", name="lookup", arguments='{"word": "x"}')
        return assistant("", call) if len(messages) == 0 else "over"

    said, played = freely(HoldingTool(), Scripted(script))
    assert any("lookup (test_eval_faults.py:" in line for line in said)
    result = played["t3"].trajectory.messages[1]
    assert result.content.startswith("error: ")
    assert "held the event loop" in result.content
    assert {one.stop_reason for one in played.values()} == {"done"}


def test_who_waits_is_told_for_what():
    one, two = Activity(task="a", since=0.0), Activity(task="b", since=100.0)
    one.steps[1], one.steps[2] = "the policy", "tool search"
    assert describe_waiting({one, two}, 212.0) == "waiting for 2 rollouts, oldest 212 s, in tool search (task a)"
    assert describe_waiting({two}, 212.0) == "waiting for 1 rollout, oldest 112 s, in the environment (task b)"
    with track("nothing that anybody looks at"):
        pass


def test_every_episode_says_what_it_waits_for():
    seen = []

    class Looks:
        async def complete(self, messages, tools=(), *, key=""):
            seen.extend(sorted((a.task, a.current_step) for a in play.active))
            raise PolicyFailure("enough")

    play = RolloutSettings(env=Asks(), policy=Looks())
    asyncio.run(play_jobs(play, rollout_jobs(TASKS[:1]), observers=[]))
    assert seen == [("t0", "the policy")]
    assert play.active == set()


def test_bad_tasks_do_not_stop_the_command(tmp_path: Path) -> None:
    folder = found(tmp_path)
    world = (folder / "world.py").read_text()
    one = 'Task(id=f"t{n if n != 9 else 8}", answer=n, info={"f": print} if n == 5 else {})'
    (folder / "odd.py").write_text(world.replace('Task(id=f"t{n}", answer=n)', one))
    for _ in range(2):  # and they are found again when it goes on
        done = wander("eval", "odd:World", "--policy", "me", "--out", "kept", cwd=folder)
        assert done.returncode == 1
        assert "58 of 60" in done.stdout
        assert "wander: task 't5' is not plain data" in done.stderr
        assert "wander: two different tasks have the id 't8'" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_key_that_is_missing_is_said(tmp_path: Path) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "no key"}}, status=401)

    async def go(*words: str) -> tuple[int | None, str]:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", refuse)
        async with TestServer(app) as server:
            command = (*WANDER, "eval", "tictactoe", "--policy", str(server.make_url("/v1")), "--model", "m", *words)
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(*command, "-n", "3", cwd=tmp_path, stdout=pipe, stderr=pipe)
            _, err = await asyncio.wait_for(process.communicate(), PATIENCE)
            return process.returncode, err.decode()

    code, err = asyncio.run(go())
    assert code == 1
    assert "set WANDER_API_KEY" in err
    code, err = asyncio.run(go("--api-key", "NO_SUCH_KEY"))
    assert code == 2
    assert err.splitlines() == [
        "wander: the environment variable NO_SUCH_KEY is not set: it is to hold the endpoint's key"
    ]


def test_an_endpoint_gets_as_many_calls_at_once_as_rollouts_are_wanted(tmp_path: Path) -> None:
    async def go() -> tuple[int | None, str]:
        together = asyncio.Barrier(100)

        async def answered(request: web.Request) -> web.Response:
            await together.wait()
            return web.json_response({"choices": [{"message": {"content": "0"}, "finish_reason": "stop"}]})

        app = web.Application()
        app.router.add_post("/v1/chat/completions", answered)
        async with TestServer(app) as server:
            words = ("eval", "calculator", "--policy", str(server.make_url("/v1")), "--model", "m", "--json")
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(
                *WANDER, *words, "--concurrency", "100", cwd=tmp_path, stdout=pipe, stderr=pipe
            )
            out, err = await asyncio.wait_for(process.communicate(), PATIENCE)
            return process.returncode, out.decode() or err.decode()

    code, out = asyncio.run(go())
    assert code == 0, out
    assert json.loads(out)["report"]["scored"] == 100


def test_a_local_models_long_pass_is_no_culprit() -> None:
    """Whatever runs below `policies/local` may hold the loop: it is the work that all wait for."""
    code = "import sys\ndef look(guard):\n    guard.inspect_frame(0, sys._getframe())\n"
    model, other = dict[str, Any](), dict[str, Any]()
    exec(compile(code, watchdog._MODEL + "/slow.py", "exec"), model)
    exec(compile(code, "/somebody/slow.py", "exec"), other)
    said: list[str] = []

    async def held(look: Any, *, after: Any = None) -> None:
        """Look from code that has held the loop for a hundred seconds, and once more from the code `after` it."""
        guard = watchdog._Guard(said.append, 10.0, float("inf"), asyncio.get_running_loop())
        other["look"](guard)  # now the guard knows the callback
        guard.since -= 100.0
        look(guard)
        if after is not None:
            after(guard)

    asyncio.run(held(model["look"], after=other["look"]))
    assert said == []
    asyncio.run(held(other["look"]))
    assert [line.split("(")[0] for line in said] == ["event loop blocked: look "]
