"""The world of a stored rollout over real HTTP: its past, its apps at any moment, and branches from there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from studios import Client, served
from wanderlust.environments.tictactoe import TicTacToe
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.store.run_folder import CONFIG_FILE, EVALUATION_RECIPE, EVALUATION_STAGE, STORE_FILE
from wanderlust.store.store import RunStore
from wanderlust.types import Group, Message, Policy, Rollout, Task, ToolCall, assistant
from wanderlust_life.assistant_life import AssistantLife, AssistantLifeTeam
from wanderlust_worlds.apps.mail import Mail
from wanderlust_worlds.apps.user_interface import System, UserInterface
from wanderlust_worlds.engine.log import log_bytes
from wanderlust_worlds.engine.replay import Replay, replay_log
from wanderlust_worlds.engine.scenario import Scenario, capture
from wanderlust_worlds.exchange.are_scenarios import AreScenarios
from wanderlust_worlds.exchange.write import export_scenario
from wanderlust_worlds.studio.world_view import WorldView
from wanderlust_worlds.wrap.assistant import idle_policy
from wanderlust_worlds.wrap.world_environment import fixed_thinking_time, log_of

LIFE = AssistantLife(thinking=fixed_thinking_time(7))
PLAN = "plan-b/eval-0/1"


def with_studio(root: Path, *, plays: Path, use: Callable[[Client], Any]) -> Any:
    """What `use` returns, of a studio over `root` that keeps games below `plays`."""
    with served(root, plays_folder=plays) as client:
        return use(client)


def task_of(name: str) -> Task:
    return next(task for task in islice(LIFE.tasks("eval"), 200) if task.id == name)


def played(name: str = PLAN, policy: Policy | None = None) -> Rollout:
    task = task_of(name)
    return asyncio.run(rollout(LIFE, task, policy or LIFE.oracle(task)))


def applied(states: dict[str, Any], changes: list[dict[str, Any]]) -> dict[str, Any]:
    """What the page does with an entry's changes."""
    for one in changes:
        where = states[one["app"]]
        *above, last = one["path"]
        for key in above:
            where = where[key]
        if one["kind"] == "removed":
            del where[last]
        elif isinstance(where, list) and last == len(where):
            where.append(one["after"])
        else:
            where[last] = one["after"]
    return states


def run_with(folder: Path, *rollouts: Rollout, env: str = "life") -> Path:
    folder.mkdir(parents=True)
    (folder / CONFIG_FILE).write_text(
        json.dumps({"recipe": EVALUATION_RECIPE, "config": {"env": env, "policy": "oracle"}})
    )
    with RunStore.create(folder / STORE_FILE) as store:
        groups = [Group(task=one.task, rollouts=[one], index=n) for n, one in enumerate(rollouts)]
        store.add(groups, stage=EVALUATION_STAGE, step=0, env=env)
    return folder


@pytest.mark.parametrize("name", [PLAN, "sold-out/eval-0/2", "ride-cancelled/eval-0/1", "countdown/eval-0/1"])
def test_every_line_of_a_log_can_be_shown_and_the_changes_add_up(name):
    one = played(name)
    view = WorldView.of(one, LIFE)
    record = view.record(whole=True)
    lines = log_of(one)
    assert [entry["n"] for entry in record["entries"] if entry["n"] is not None] == list(range(len(lines)))
    states = record["initial"]["apps"]
    for entry in record["entries"]:
        if entry["n"] is not None:
            states = applied(states, entry["changes"])
            assert states == json.loads(json.dumps(view.at(entry["n"])["apps"]))
    assert record["verdict"]["success"]
    assert all(act["matched"] is not None for act in record["oracle"])


def test_a_moment_within_a_wait_is_shown_as_it_was():
    one = played("sold-out/eval-0/2")
    lines, past = log_of(one), Replay(LIFE.scenario(one.task), log_of(one), one.seed)
    inside = [n for n in range(1, len(lines)) if n not in past._ends]
    assert inside, "this scenario has waits in which several things happen"
    for moment in inside:
        assert log_bytes(past.world(moment).log) == log_bytes(lines[:moment])
    assert [*past.changes_per_line()] == [past.changes(n, n + 1) for n in range(len(lines))]
    with pytest.raises(UsageError, match="no moment"):
        past.world(len(lines) + 1)


def test_what_was_missed_pends_or_fails_is_said():
    view = WorldView.of(played(policy=idle_policy()), LIFE).record()
    assert not view["verdict"]["success"]
    missed = [act for act in view["oracle"] if act["matched"] is None]
    assert missed
    assert all(act["why"] for act in missed)
    assert {entry["status"] for entry in view["entries"]} >= {"done", "pending"}
    assert next(entry["args"]["seconds"] for entry in view["entries"] if entry["kind"] == "think") == 7


def test_a_log_of_other_times_is_shown_as_far_as_it_goes():
    one = played()
    lines = log_of(one)
    at = next(n for n, line in enumerate(lines) if line.by == "env")
    changed = [*lines[:at], replace_result(lines[at]), *lines[at + 1 :]]
    one.state = {**one.state, "log": log_bytes(changed).decode()}
    view = WorldView.of(one, LIFE)
    record = view.record()
    assert len([entry for entry in record["entries"] if entry["n"] is not None]) == len(lines)
    assert f"line {at}" in record["why"]
    assert 0 <= record["known"] < at
    assert view.at(record["known"])["apps"]
    with pytest.raises(UsageError, match="only"):
        view.at(len(lines) - 1)


def replace_result(line: Any) -> Any:
    return type(line)(**{name: getattr(line, name) for name in line.__struct_fields__} | {"result": "another"})


def test_without_its_scenario_a_world_is_its_log(tmp_path):
    record = WorldView.of(played(), TicTacToe()).record()
    assert record["entries"]
    assert record["apps"] == []
    assert "scenarios" in record["why"]
    one = asyncio.run(rollout(TicTacToe(), next(iter(TicTacToe().tasks())), idle_policy()))
    with pytest.raises(UsageError, match="no log of a world"):
        WorldView.of(one, TicTacToe())


def test_a_world_goes_on_from_any_decision():
    one = played()
    env = LIFE.branch_at(one, 1)
    again = asyncio.run(rollout(env, one.task, LIFE.oracle(one.task), seed=one.seed))
    assert again.trajectory.score.reward == 1
    assert again.state["digest"] == one.state["digest"]
    idle = asyncio.run(rollout(env, one.task, idle_policy(), seed=one.seed))
    assert idle.trajectory.score.reward == 0
    assert replay_log(LIFE.scenario(one.task), log_of(idle), one.seed).digest() == idle.state["digest"]
    deeper = asyncio.run(rollout(LIFE.branch_at(again, 2), one.task, LIFE.oracle(one.task), seed=one.seed))
    assert deeper.state["digest"] == one.state["digest"]
    assert deeper.trajectory.messages == one.trajectory.messages
    with pytest.raises(UsageError, match="no decision 99"):
        LIFE.branch_at(one, 99)


def test_a_team_goes_on_from_its_first_seats_decisions():
    def call(name: str, **args: Any) -> Message:
        return assistant("", ToolCall(id="1", name=name, arguments=json.dumps(args)))

    env = AssistantLifeTeam(thinking=fixed_thinking_time(3))
    idle = {seat: idle_policy() for seat in env.seats}
    agent = Scripted([call("Emails__expert_agent", task="Write to Ana."), "done"])
    mailer = Scripted([call("Emails__send_email", recipients=["ana@example.org"]), "sent"])
    one = asyncio.run(rollout(env, task_of(PLAN), {**idle, "agent": agent, "Emails": mailer}))
    record = WorldView.of(one, env).record()
    thinking = [entry for entry in record["entries"] if entry["kind"] == "think"]
    assert [entry["args"]["why"] for entry in thinking] == ["thinking", *["thinking Emails"] * 2, "thinking"]
    assert [entry["n"] for entry in thinking if entry["args"]["why"] == "thinking"] == record["decisions"]
    again = asyncio.run(rollout(env.branch_at(one, 1), one.task, idle, seed=one.seed))
    assert [message.role for message in again.trajectories[0].messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    lines = log_of(again)
    assert lines[: record["decisions"][1]] == log_of(one)[: record["decisions"][1]]


def test_over_http(tmp_path):
    run = run_with(tmp_path / "runs" / "greedy", played(), played(policy=idle_policy()))

    def use(client: Client) -> None:
        world = client.said("/api/runs/greedy/rollouts/1/world")
        assert world["verdict"]["success"]
        assert world["kinds"]["Emails"] == "Mail"
        start = client.said("/api/runs/greedy/rollouts/1/world/at?n=-1")
        end = client.said(f"/api/runs/greedy/rollouts/1/world/at?n={world['known']}")
        assert start["apps"].keys() == end["apps"].keys() == set(world["apps"])
        assert end["time"] > start["time"]
        found = client.said(f"/api/runs/greedy/rollouts/1/world/difference?from=-1&to={world['known']}")
        assert applied(start["apps"], found["changes"]) == end["apps"]
        for wrong, status in (("at?n=x", 400), ("at?n=99999", 400), ("difference?from=0", 400)):
            refused = client.said(f"/api/runs/greedy/rollouts/1/world/{wrong}")
            assert refused["status"] == status
            assert "\n" not in refused["error"]
        assert (client.said("/api/runs/greedy/rollouts/77/world"))["status"] == 404

    with_studio(run.parent, plays=tmp_path / "plays", use=use)


def test_branches_by_hand_and_with_a_policy_are_kept_beside(tmp_path):
    run = run_with(tmp_path / "runs" / "first", played(policy=idle_policy()), played())

    def use(client: Client) -> None:
        world = client.said("/api/runs/first/rollouts/1/world")
        moment = world["decisions"][0]
        branch = "/api/runs/first/rollouts/1/world/branch"
        by_policy = (client.said(branch, {"n": moment, "policy": "oracle"}))["session"]
        while not by_policy["over"]:
            by_policy = client.said(f"/api/play/{by_policy['id']}")
        assert by_policy["error"] is None
        assert by_policy["score"]["reward"] == 1
        assert by_policy["stored"] == {"key": "branch-first", "id": 1}
        beside = client.said("/api/runs/branch-first/rollouts/1/world")
        assert beside["verdict"]["success"]
        opened = client.said("/api/runs/branch-first/rollouts/1")
        assert opened["state"]["onward"] == {"run": "first", "rollout": 1, "n": moment, "decision": 0}
        assert opened["world"] is True
        by_hand = (client.said(branch, {"n": moment, "policy": "hand"}))["session"]
        assert by_hand["waiting"]
        assert by_hand["messages"][-1]["role"] == "user"
        assert "Emails__send_email" in {tool["name"] for tool in by_hand["tools"]}
        over = client.said(f"/api/play/{by_hand['id']}/act", {"stop": True})
        assert over["stop"] == "left"
        assert over["stored"] == {"key": "branch-first-2", "id": 1}
        last = len([entry for entry in world["entries"] if entry["n"] is not None]) - 1
        assert "choose an earlier" in (client.said(branch, {"n": last}))["error"]
        assert "no opponent" in (client.said(branch, {"n": 0, "policy": "os:system"}))["error"]
        assert (client.said(branch, {"n": "0"}))["status"] == 400

    with_studio(run.parent, plays=tmp_path / "plays", use=use)


def test_a_world_that_is_verified_turn_by_turn_goes_on_too(tmp_path):
    (tmp_path / "files").mkdir()
    mail, person, clock = Mail("Emails", user_email="kim@example.org"), UserInterface(), System()
    with capture(mail, person, clock) as story:
        asked = story.user(person).send_message_to_agent("Write ana@example.org that lunch is at one.")
        sent = story.agent(mail, after=asked).send_email(recipients=["ana@example.org"], subject="Lunch", content="One")
        told = story.agent(person, after=sent).send_message_to_user("Done")
        more = story.user(person, after=told, delay=5).send_message_to_agent("And tell Ben the same.")
        story.agent(mail, after=more).send_email(recipients=["ben@example.org"], subject="Lunch", content="One")
    lunch = Scenario(id="lunch", apps=(mail, person, clock), events=story.events, duration=600)
    (tmp_path / "files" / "lunch.json").write_bytes(export_scenario(lunch))
    name = f"are,folder={tmp_path / 'files'}"
    env = AreScenarios(tmp_path / "files")
    task = next(iter(env.tasks("eval")))
    one = asyncio.run(rollout(env, task, env.players["oracle"]()))
    run = run_with(tmp_path / "runs" / "gaia", one, env=name)

    def use(client: Client) -> None:
        world = client.said("/api/runs/gaia/rollouts/1/world")
        assert world["why"] == ""
        assert world["verdict"]["decision"] == "accept"
        assert "turn" in {entry["kind"] for entry in world["entries"]}
        assert [act["turn"] for act in world["oracle"]] == [0, 0, 1]
        body = {"n": world["decisions"][1], "policy": "oracle"}
        game = client.said("/api/runs/gaia/rollouts/1/world/branch", body)["session"]
        while not game["over"]:
            game = client.said(f"/api/play/{game['id']}")
        assert game["error"] is None
        assert game["score"]["reward"] == 1
        beside = client.said("/api/runs/branch-gaia/rollouts/1/world")
        assert [entry["n"] for entry in beside["entries"]] == [entry["n"] for entry in world["entries"]]

    with_studio(run.parent, plays=tmp_path / "plays", use=use)


def test_an_environment_that_a_run_merely_names_is_not_made(tmp_path):
    run = run_with(tmp_path / "runs" / "foreign", played(), env=f"os:system,command=touch {tmp_path}/done")

    def use(client: Client) -> None:
        world = client.said("/api/runs/foreign/rollouts/1/world")
        assert world["entries"]
        assert "only ready-made environments" in world["why"]
        assert (client.said("/api/runs/foreign/rollouts/1/world/at?n=0"))["status"] == 400

    with_studio(run, plays=tmp_path / "plays", use=use)
    assert not (tmp_path / "done").exists()


def test_a_judge_that_a_run_merely_names_is_not_made(tmp_path):
    """A run may come with a file of its own."""
    (tmp_path / "judge.py").write_text(f"open({str(tmp_path / 'done')!r}, 'w').close()\nJudge = None\n")
    for settings in (f"judge={tmp_path}/judge.py:Judge", "judge=http://127.0.0.1:1/v1,judge_model=m"):
        run = run_with(tmp_path / settings[-1] / "foreign", played(), env=f"life,{settings}")

        def use(client: Client) -> None:
            world = client.said("/api/runs/foreign/rollouts/1/world")
            assert (world["why"], world["verdict"]["decision"]) == ("", "accept")
            body = {"n": world["decisions"][-1], "policy": "oracle"}
            game = client.said("/api/runs/foreign/rollouts/1/world/branch", body)["session"]
            while not game["over"]:
                game = client.said(f"/api/play/{game['id']}")
            assert (game["error"], game["score"]["reward"]) == (None, 1)

        with_studio(run, plays=tmp_path / "plays", use=use)
    assert not (tmp_path / "done").exists()


def test_a_verdict_that_is_not_the_scores_is_said(tmp_path):
    no = Scripted(lambda messages, rng: '{"same": false}')
    env = AssistantLife(["who-said"], levels=(2,), judge=no)
    task = next(iter(env.tasks("eval")))
    right = env.scenario(task).oracle[0].args["content"]
    one = asyncio.run(
        rollout(env, task, Scripted(lambda messages, rng: f"Hello. {right}" if len(messages) < 4 else ""))
    )
    record = WorldView.of(one, LIFE).record()
    assert (one.trajectory.score.reward, record["verdict"]["decision"]) == (0, "accept")
    assert "the score has another verdict: reject" in record["why"]
    assert WorldView.of(played(), LIFE).record()["why"] == ""


def test_hostile_words_are_data(tmp_path):
    bad = "<script>alert(1)</script>\u202e\x1b[31m" + "x" * 50_000
    one = played(policy=_Says(bad))
    record = WorldView.of(one, LIFE).record()
    said = next(entry for entry in record["entries"] if entry["action"] == "send_message_to_user")
    assert len(said["args"]["content"]) < 5_000
    assert said["args"]["content"].startswith("<script>")


class _Says:
    def __init__(self, text: str):
        self.text = text

    async def complete(self, messages: Any, tools: Any = (), *, key: str = "") -> Any:
        done = await idle_policy().complete(messages, tools, key=key)
        return replace(done, message=replace(done.message, content=self.text, tool_calls=()))
