"""Branches of a live world as tools: what is tried counts for nothing, and tells nothing of the future."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.testing import replay_rollout
from wanderlust.tools.function import ToolError
from wanderlust.types import Message, Rollout, ToolCall, assistant
from wanderlust_worlds import (
    App,
    Mail,
    Oracle,
    Scenario,
    System,
    UserInterface,
    World,
    WorldEnvironment,
    action,
    capture,
    log_of,
    replay_log,
    verify,
)
from wanderlust_worlds.apps.mcp_app import McpApp
from wanderlust_worlds.engine.events import Minefield, Plan
from wanderlust_worlds.engine.world import ActionFailed
from wanderlust_worlds.wrap.branches import MAX_BRANCHES, BranchTrial, WorldBranches
from wanderlust_worlds.wrap.teams import TeamWorldEnvironment
from wanderlust_worlds.wrap.world_environment import agent_tools, thinking_time_per_token

SEND = {"recipients": ["ana@example.org"], "subject": "Lunch?"}


def lunch() -> Scenario:
    """Ana is asked, and answers a minute later."""
    mail, phone, system = Mail("Emails", user_email="kim@example.org"), UserInterface(), System()
    with capture(mail, phone, system) as story:
        request = story.user(phone).send_message_to_agent("Ask Ana whether she can do lunch.")
        sent = story.agent(mail, after=request).send_email(**SEND)
        reply = story.env(mail, after=sent, delay=60).reply_to_email_from_user(
            sender="ana@example.org", email_id=sent, content="Gladly, at one."
        )
        story.agent(phone, after=reply).send_message_to_user("At one.")
    return Scenario(id="lunch", apps=(mail, phone, system), events=story.events, duration=600)


def call(name: str, /, **arguments: Any) -> Message:
    return assistant("", ToolCall(id="1", name=name, arguments=json.dumps(arguments)))


def started() -> World:
    world = lunch().world(0)
    world.wait()
    world.deliver()
    return world


def use(tools: dict[str, Any], tool: str, /, **arguments: Any) -> str:
    return str(asyncio.run(tools[tool](**arguments)))


def offered(world: World) -> tuple[WorldBranches, dict[str, Any]]:
    own = agent_tools(world)
    branches = WorldBranches(world, own)
    return branches, {tool.name: tool for tool in [*own, *branches.tools()]}


def test_what_is_tried_stays_in_its_branch():
    world = started()
    before = world.digest()
    branches, tools = offered(world)
    assert use(tools, "branch", name="try") == "you are in branch try; there are main, try"
    tried = use(tools, "Emails__send_email", **SEND)
    assert use(tools, "branch", name="more").startswith("you are in branch more")
    use(tools, "Emails__send_email", **SEND | {"subject": "Tea?"})
    compared = use(tools, "compare", name="try")
    assert compared.startswith("more: 2 calls since they parted\n  Emails.send_email(")
    assert "try: 1 calls" in compared
    assert use(tools, "compare", name="main").endswith("main: 0 calls since they parted")
    assert use(tools, "undo") == "branch more is as before"
    assert "more: 1 calls" in use(tools, "compare", name="main")
    assert use(tools, "switch", name="try") == "you are in branch try"
    use(tools, "undo")  # to when `more` was made
    assert "try: 1 calls" in use(tools, "compare", name="main")
    assert use(tools, "switch", name="main") == "you are in main"
    assert world.digest() == before
    assert use(tools, "Emails__send_email", **SEND) != tried  # other ids
    assert [line.action for line in world.log if line.by == "agent"] == ["send_email"]
    branches.close()
    tree = [(one["event"], one["name"], one["in"], len(one["calls"])) for one in branches.history]
    assert tree == [
        ("branch", "try", "main", 0),
        ("branch", "more", "try", 1),
        ("undo", "more", "more", 1),
        ("switch", "try", "more", 0),
        ("undo", "try", "try", 0),
        ("switch", "main", "try", 0),
        ("close", "main", "main", 0),
    ]
    json.dumps(branches.history)


def test_refusals_are_texts():
    _, tools = offered(started())
    assert "cannot be taken back" in use(tools, "undo")
    assert "is not main" in use(tools, "branch", name="main")
    assert "no branch 'x'" in use(tools, "switch", name="x")
    assert "no branch 'x'" in use(tools, "compare", name="x")
    for number in range(MAX_BRANCHES):
        use(tools, "branch", name=f"b{number}")
    assert "already" in use(tools, "branch", name="b0")
    assert "which is the most" in use(tools, "branch", name="more")


def test_a_branch_tells_nothing_of_the_future():
    world = started()
    _, tools = offered(world)
    use(tools, "branch", name="peek")
    use(tools, "Emails__send_email", **SEND)
    trial = tools["Emails__send_email"].world
    assert isinstance(trial, BranchTrial)
    assert (trial.pending, trial.expected, trial.gate) == (0, (), None)
    with pytest.raises(ActionFailed, match="time stands still"):
        use(tools, "System__wait_for_notification", timeout=300)
    with pytest.raises(ActionFailed, match="nobody hears you"):
        use(tools, "UserInterface__send_message_to_user", content="At one?")
    for move in (trial.wait, lambda: trial.advance(60.0)):
        with pytest.raises(ToolError, match="time stands still"):
            move()
    assert trial.deliver() == ()
    trial.later(0.0, "Emails", "send_email", **SEND)
    assert (trial.now, trial.pending) == (world.now, 0)


def test_draws_and_failures_of_a_branch_are_others():
    world = started()
    trials = [BranchTrial(world, f"0/trial {number}") for number in range(20)]
    mains = [world.branch() for _ in range(2)]
    assert mains[0].draw("coin").random() == mains[1].draw("coin").random()
    assert mains[0].new_id("mail") == mains[1].new_id("mail")
    drawn = {trial.draw("coin").random() for trial in trials}
    assert len(drawn) == len(trials)
    assert world.branch().draw("coin").random() not in drawn
    assert mains[0].new_id("mail") not in {trial.new_id("mail") for trial in trials}


def test_a_minefield_and_a_gate_are_not_in_a_branch():
    def sent(world: World) -> bool:
        return any(line.action == "send_email" for line in world.log)

    apps = (Mail("Emails", user_email="kim@example.org"),)
    plan = Plan.of((Minefield(id="sent", holds=sent),), apps)
    told: list[str] = []
    world = World(apps, plan, gate=lambda world, line: told.append(line.action))
    world.wait(0)
    trial = BranchTrial(world, "x")
    trial.call("Emails", "send_email", SEND)
    assert (trial.stopped, told, world.stopped) == ("", [], "")
    world.call("Emails", "send_email", SEND)
    assert (world.stopped, told) == ("minefield sent", ["send_email"])


class Door(App):
    """Opens a real door."""

    outside = True

    @action("agent", writes=True)
    def open(self) -> str:
        """Open it."""
        return "open"


def test_what_no_branch_has_a_copy_of_is_not_reached():
    world = World([Door()])
    with pytest.raises(ActionFailed, match="Door is no part of the world"):
        BranchTrial(world, "x").call("Door", "open", {})
    assert world.call("Door", "open", {}) == "open"
    assert McpApp.outside


PLAIN = [
    call("Emails__send_email", **SEND),
    call("System__wait_for_notification", timeout=300),
    "At one.",
]
TRYING = [
    call("branch", name="try"),
    call("Emails__send_email", recipients=["bob@example.org"], subject="Lunch?"),
    call("System__wait_for_notification", timeout=300),
    call("undo", note="Bob is not asked for."),
    call("switch", name="main"),
    *PLAIN,
]


def played(env: WorldEnvironment, lines: list[Message | str]) -> Rollout:
    # by the turns taken, as a conversation that goes back has fewer messages than turns
    taken = iter(lines)
    return asyncio.run(rollout(env, env.tasks()[0], Scripted(lambda messages, rng: next(taken))))


def test_an_agent_tries_and_its_log_is_as_if_it_had_not():
    plain = played(WorldEnvironment([lunch()]), PLAIN)
    for forget in (False, True):
        env = WorldEnvironment([lunch()], branches=True, forget=forget)
        tried = played(env, TRYING)
        assert tried.error is None
        acts = [(line.by, line.app, line.action, line.args) for line in log_of(tried) if line.app != "world"]
        assert acts == [(line.by, line.app, line.action, line.args) for line in log_of(plain) if line.app != "world"]
        assert verify(log_of(tried), Oracle.of(lunch())).decision == verify(log_of(plain), Oracle.of(lunch())).decision
        assert [one["event"] for one in tried.state["branches"]] == ["branch", "undo", "switch", "close"]
        (sent, waited) = tried.state["branches"][1]["calls"]
        assert sent["args"]["recipients"] == ["bob@example.org"]
        assert "time stands still" in waited["error"]
        assert replay_log(lunch(), log_of(tried)).digest() == tried.state["digest"]
        asyncio.run(replay_rollout(env, tried))


def test_the_worlds_clock_goes_on_while_an_agent_tries():
    env = WorldEnvironment([lunch()], branches=True, thinking=thinking_time_per_token(1.0))
    plain = WorldEnvironment([lunch()], thinking=env.thinking)
    when = [
        next(line.time for line in log_of(one) if line.by == "agent")
        for one in (played(plain, PLAIN), played(env, TRYING))
    ]
    assert when[1] > when[0]


def test_an_undo_that_forgets_makes_the_conversation_a_tree():
    env = WorldEnvironment([lunch()], branches=True, forget=True)
    tried = played(env, TRYING).trajectory
    assert [tried.parent(turn) for turn in range(len(tried.turns))] == [None, 0, 1, 2, 0, 4, 5, 6]
    assert tried.ends == [3, 7]
    after = tried.turns[4].observation
    assert after[0] == tried.turns[1].observation[0]  # the answer to `branch`
    assert after[1].content == (
        "You are in branch try, and took back what you tried since. Your note: Bob is not asked for."
    )
    assert not any("bob@example.org" in message.content for message in tried.messages[:-1])
    kept = played(WorldEnvironment([lunch()], branches=True), TRYING).trajectory
    assert kept.is_one_conversation


def test_a_branched_rollout_is_gone_on_with_from_any_decision():
    env = WorldEnvironment([lunch()], branches=True, forget=True)
    tried = played(env, TRYING)
    for decision, turn in enumerate(tried.trajectory.turns):
        origin = env.branch_at(tried, decision).origin
        assert origin is not None
        assert [*origin.history, turn.action] == tried.trajectory.conversation(decision)


def test_agents_beside_a_world_have_no_branches():
    env = TeamWorldEnvironment([lunch()], apps=("Emails",), branches=True)
    answer = asyncio.run(rollout(env, env.tasks()[0], Scripted(["Done."])))
    assert "acts outside of the world" in str(answer.error)
