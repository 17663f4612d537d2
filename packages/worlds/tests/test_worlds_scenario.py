"""Scenarios: written as stories, refused when malformed, played by the oracle and by agents, replayed."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

from wanderlust.environment import Limits
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Recorded, Scripted
from wanderlust.runner.engine import rollout, rollouts
from wanderlust.store.records import pack, unpack
from wanderlust.types import Completion, Status, ToolCall, Turn, assistant
from wanderlust_worlds.apps.mail import Mail
from wanderlust_worlds.apps.user_interface import System, UserInterface
from wanderlust_worlds.engine.events import ConditionEvent, Event, PlannedCall, ScenarioError
from wanderlust_worlds.engine.log import LogEntry, read_log
from wanderlust_worlds.engine.replay import replay_log
from wanderlust_worlds.engine.scenario import Scenario, capture, play_oracle
from wanderlust_worlds.wrap.world_environment import (
    WorldEnvironment,
    agent_tools,
    charged_seconds,
    fixed_thinking_time,
    log_of,
    measured_thinking_time,
    thinking_time_per_token,
)
from world_apps import Notes, texts

MAIL, UI, SYSTEM = Mail("Emails", user_email="me@x.org"), UserInterface("AgentUserInterface"), System("SystemApp")
NOTES = Notes()
APPS = (MAIL, UI, SYSTEM, NOTES)


def lunch():
    """Two turns: an invitation, and what becomes of it."""
    with capture(*APPS) as story:
        asked = story.user(UI).send_message_to_agent("Invite Ana to lunch.")
        sent = story.agent(MAIL, after=asked, delay=2).send_email(recipients=["ana@x.org"], subject="Lunch")
        told = story.agent(UI, after=sent).send_message_to_user("I have asked her.")
        reply = story.env(MAIL, after=told, delay=60).reply_to_email_from_user(
            sender="ana@x.org", email_id=sent, content="At one?"
        )
        more = story.user(UI, after=reply, delay=1).send_message_to_agent("Note what she says.")
        noted = story.agent(NOTES, after=more).add_note(text=f"lunch: {sent}")
        story.agent(UI, after=noted).send_message_to_user("Noted.")
    return Scenario(id="lunch", apps=APPS, events=story.events)


LUNCH = lunch()


def call(name, /, **args):
    return assistant("", ToolCall(id="1", name=name, arguments=json.dumps(args)))


GOOD = [
    call("Emails__send_email", recipients=["ana@x.org"], subject="Lunch?", content="Hello!"),
    "She is asked.",
    call("Emails__get_email_by_index", idx=0),
    call("Notes__add_note", text="at one"),
    "Noted!",
]


def play(env, policy, **options):
    (task,) = env.tasks()
    return asyncio.run(rollout(env, task, policy, **options))


def test_a_story_becomes_events():
    asked, sent, told, reply, more, _, _ = LUNCH.events
    assert (asked.by, asked.action, asked.after) == ("user", "send_message_to_agent", ())
    assert (sent.by, sent.after, sent.delay) == ("agent", (asked.id,), 2)
    assert reply.args == {"sender": "ana@x.org", "email_id": f"{{{{{sent.id}}}}}", "content": "At one?"}
    assert (reply.after, more.after) == ((told.id,), (reply.id,))
    acts = [act.action for act in LUNCH.oracle]
    assert acts == ["send_email", "send_message_to_user", "add_note", "send_message_to_user"]


def test_the_oracle_plays_its_own_acts():
    world = play_oracle(LUNCH)
    acts = [(round(h.time - LUNCH.start), h.by, h.action) for h in world.log if h.event]
    assert acts == [
        (0, "user", "send_message_to_agent"),
        (2, "agent", "send_email"),
        (2, "agent", "send_message_to_user"),
        (62, "env", "reply_to_email_from_user"),
        (63, "user", "send_message_to_agent"),
        (63, "agent", "add_note"),
        (63, "agent", "send_message_to_user"),
    ]
    (sent,) = (h.result for h in world.log if h.action == "send_email")
    assert texts(world) == [f"lunch: {sent}"]
    assert replay_log(LUNCH, world.log, oracle=True).digest() == world.digest()


def test_an_oracle_that_fails_is_an_error_and_never_a_success():
    for events, said in (
        (
            [PlannedCall(id="x", app="Notes", action="drop_note", args={"note_id": "?"}, by="agent")],
            "event 'x': .* no note",
        ),
        ([PlannedCall(id="x", app="Notes", action="explode", by="env")], "event 'x': .* ZeroDivisionError"),
        (
            [
                ConditionEvent(id="c", holds=lambda world: False, within=3),
                PlannedCall(id="x", app="Notes", action="add_note", args={"text": ""}, by="agent", after=("c",)),
            ],
            "event 'x': it never happened",
        ),
        (
            [PlannedCall(id="x", app="Notes", action="add_note", args={"text": ""}, by="agent", delay=2_000)],
            "by duration",
        ),
    ):
        with pytest.raises(ScenarioError, match=said):
            play_oracle(Scenario(id="s", apps=APPS, events=events))


def act(id="x", app="Notes", action="add_note", args=None, **rest):
    return PlannedCall(id=id, app=app, action=action, args={"text": "t"} if args is None else args, **rest)


@pytest.mark.parametrize(("events", "said"), [
    ([act(app="Note")], "event 'x': there is no app 'Note'; there are: Emails, "),
    ([act(action="add")], "event 'x': Notes has no action 'add'; it has: add_note, "),
    ([act(), act()], "event 'x': there are two"),
    ([act(after=("y",))], "event 'x': it comes after 'y', and there is no such event"),
    ([act("a", after=("c",)), act("b", after=("a",)), act("c", after=("b",))], "event 'a': it waits for itself: a < c"),
    ([act(after=("x",))], "event 'x': it waits for itself: x < x"),
    ([act(args={"text": 3})], r"event 'x': Notes: .*Expected `str`, got `int` - at `\$.text`"),
    ([act(args={})], "event 'x': Notes: .*missing required field `text`"),
    ([act(args={"text": "", "colour": 1})], "event 'x': Notes: .*unknown field `colour`"),
    ([act("a"), act(after=("a",), args={"text": "{{a}}", "lucky": "no"})], "event 'x': .*argument 'lucky': Expected"),
    ([act("a"), act(after=("a",), args={"lucky": "{{a}}"})], r"event 'x': .*takes text, \[lucky\]; look at text"),
    ([act(args={"text": "{{a}}"})], r"event 'x': \{\{a\}\} has no source"),
    ([act("a"), act(args={"text": "see {{a}}"})], r"event 'x': \{\{a\}\} may not have happened"),
    ([act(delay=-1)], "event 'x': delay is -1, expected seconds"),
    ([act(at=float("nan"))], "event 'x': at is nan, expected seconds"),
    ([act(action="whisper", by="agent")], "event 'x': Notes.whisper is not an agent's action"),
    ([act("later 1")], "event 'later 1': ids that begin with"),
    ([ConditionEvent(id="x", holds=True)], "event 'x': holds is True, expected a function"),
])  # fmt: skip
def test_a_malformed_scenario_is_refused_before_it_runs(events, said):
    scenario = Scenario(id="s", apps=APPS, events=events)
    with pytest.raises(ScenarioError, match=said) as refused:
        WorldEnvironment([scenario])
    assert "\n" not in str(refused.value)


def test_apps_of_one_name_are_refused():
    for apps in ((Notes(), Notes()), (Notes("world"),)):
        with pytest.raises(ScenarioError, match="there is another one, or the engine"):
            WorldEnvironment([Scenario(id="s", apps=apps)])


def test_a_story_is_checked_where_it_is_written():
    with pytest.raises(ScenarioError, match="too many positional"), capture(*APPS) as story:
        story.env(NOTES).add_note("a", False, "c")
    with pytest.raises(ScenarioError, match="no action 'ad_note'"), capture(*APPS) as story:
        story.env(NOTES).ad_note("a")
    with pytest.raises(ScenarioError, match="not an app of this story"), capture(*APPS) as story:
        story.env(Notes("Other")).add_note("a")
    with pytest.raises(ScenarioError, match="Expected `str`, got `int`"), capture(*APPS) as story:
        story.env(NOTES).add_note(3)


def test_two_turns_with_an_agent():
    env = WorldEnvironment([LUNCH], thinking=fixed_thinking_time(5))
    played = play(env, Scripted(GOOD))
    assert (played.status, played.state["stopped"]) == (Status.DONE, "duration"), played.error
    said = [m.content for m in played.trajectory.messages if m.role in ("user", "tool")]
    assert said[0] == "Invite Ana to lunch."
    assert said[2] == "[2024-10-15 07:01:10] Emails: New email received"
    assert json.loads(said[3])["content"] == "At one?"
    assert "Note what she says." in said[4]
    log = log_of(played)
    fulfilled = [h.args["event"] for h in log if h.action == "fulfil"]
    assert fulfilled == [act.id for act in LUNCH.oracle]
    assert charged_seconds(log) == [5] * 5
    assert played.state["tool_calls"]["done"] == 3


def test_a_replay_makes_the_same_world_and_notices_a_changed_log():
    played = play(WorldEnvironment([LUNCH], thinking=fixed_thinking_time(5)), Scripted(GOOD))
    log = log_of(played)
    assert replay_log(LUNCH, log).digest() == played.state["digest"]
    line = next(n for n, h in enumerate(log) if h.action == "send_email")
    changed = [*log[:line], msgspec.structs.replace(log[line], result="another id"), *log[line + 1 :]]
    with pytest.raises(UsageError, match=rf"differs from the log in line {line}: "):
        replay_log(LUNCH, changed)
    with pytest.raises(UsageError, match="differs from the log"):
        replay_log(LUNCH, log, seed=1)
    with pytest.raises(UsageError, match="cannot be repeated"):
        replay_log(LUNCH, [LogEntry(0.0, "world", "world", "milestone", {})])


def test_measured_thinking_is_replayed_from_the_recording():
    env = WorldEnvironment([LUNCH], thinking=measured_thinking_time)
    played = play(env, Scripted([*GOOD, "bye"]))
    assert played.error is None
    assert all(seconds > 0 for seconds in charged_seconds(log_of(played)))
    assert replay_log(LUNCH, log_of(played)).digest() == played.state["digest"]
    again = play(env.with_recorded_thinking(played), Recorded(played))
    assert (again.error, again.state) == (None, played.state)


def test_thinking_by_tokens_takes_what_is_known():
    turn = Turn(observation=(), action=assistant("four"), usage={"completion_tokens": 30})
    assert thinking_time_per_token(0.1)([turn], 99.0) == pytest.approx(3)
    assert thinking_time_per_token(0.1)([Turn(observation=(), action=assistant("x" * 40))], 99.0) == pytest.approx(1)


async def all_digests(concurrency):
    env = WorldEnvironment([LUNCH], thinking=thinking_time_per_token(0.5))
    async with rollouts(env, env.tasks(), Scripted(GOOD), group_size=100, concurrency=concurrency) as groups:
        return {r.state["digest"] for group in [g async for g in groups] for r in group.rollouts}


def test_a_hundred_rollouts_leave_one_log_on_any_number_of_workers():
    (one,), (other,) = asyncio.run(all_digests(1)), asyncio.run(all_digests(64))
    assert one == other


def test_time_is_up_while_the_agent_thinks():
    played = play(WorldEnvironment([LUNCH], thinking=fixed_thinking_time(600)), Scripted(GOOD))
    assert played.status is Status.DONE
    assert played.state["stopped"] == "duration"
    assert played.state["now"] == LUNCH.start + LUNCH.duration
    assert len(played.trajectory.turns) == 2


def test_an_agent_waits_and_a_truncated_episode_keeps_its_log():
    policy = Scripted(lambda messages, rng: call("SystemApp__wait_for_notification", timeout=10))
    played = play(WorldEnvironment([LUNCH]), policy, limits=Limits(max_turns=3))
    assert (played.status, played.stop_reason) == (Status.TRUNCATED, "max_turns")
    assert played.trajectory.messages[3].content == "[2024-10-15 07:00:10] world: 10 seconds went by, nothing came"
    assert replay_log(LUNCH, log_of(played)).digest() == played.state["digest"]


def test_mistakes_are_told_and_logged():
    policy = Scripted([call("Notes__explode"), call("Notes__add_note", text=3), call("Notes__whisper"), "bye"])
    played = play(WorldEnvironment([LUNCH]), policy)
    told = [m.content for m in played.trajectory.messages if m.role == "tool"]
    assert told[0] == "error: ZeroDivisionError: boom"
    assert "Expected `str`" in told[1]
    assert "there is no tool 'Notes__whisper'" in told[2]
    assert [h.error is None for h in log_of(played) if h.app == "Notes"] == [False, False]


def test_text_that_cannot_be_stored_is_escaped():
    played = play(WorldEnvironment([LUNCH]), Scripted(["half \ud800", "bye"]))
    assert [h.args for h in log_of(played) if h.action == "send_message_to_user"] == [{"content": "half \\ud800"}]


def test_a_rollout_is_stored_whatever_the_model_wrote():
    policy = Scripted([call("Emails__list_emails", offset=10**30), call("Notes__add_note", text=[[{}]]), "bye"])
    played = play(WorldEnvironment([LUNCH]), policy)
    again = unpack(pack(played), None)
    assert again.state == played.state
    assert replay_log(LUNCH, log_of(again)).digest() == played.state["digest"]
    with pytest.raises(UsageError, match="no log of a world"):
        read_log('{"time": "late"}')


def test_tools_have_valid_schemas_with_the_right_required_arguments():
    tools = {tool.name: tool for tool in agent_tools(LUNCH.world())}
    assert "Emails__create_and_add_email" not in tools
    move = tools["Emails__get_email_by_id"]
    assert move.schema["required"] == ["email_id"]
    assert move.schema["properties"]["folder_name"]["default"] == "INBOX"
    assert tools["Emails__send_email"].schema.get("required", []) == []
    assert all(tool.schema["type"] == "object" and tool.description for tool in tools.values())
    with pytest.raises(UsageError, match="cannot be a tool's name"):
        agent_tools(Scenario(id="s", apps=[Notes("My notes")]).world())


class Counting:
    """A policy that says how many tokens it wrote."""

    async def complete(self, messages, tools=(), *, key=""):
        return Completion(message=assistant("done"), usage={"completion_tokens": 40})


def test_usage_is_what_tokens_cost():
    played = play(WorldEnvironment([LUNCH], thinking=thinking_time_per_token(0.25)), Counting())
    assert charged_seconds(log_of(played)) == [10]


def test_an_event_needs_only_an_id():
    assert Event(id="e").after == ()
