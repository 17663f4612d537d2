"""Turns verified before the next, worlds scored like all else, noise and teams around them, one verdict always."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from benchmarks.verifier.lookalikes import make_look_alikes
from benchmarks.verifier.paraphrases import paraphrase_judge
from benchmarks.verifier.planned_actions import oracle_actions, run_actions

from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Recorded, Scripted
from wanderlust.runner.engine import rollout, rollouts
from wanderlust.tools.function import ToolError
from wanderlust.types import Status, ToolCall, assistant
from wanderlust_worlds.apps.apartments import Apartment, Apartments
from wanderlust_worlds.apps.calendar import Calendar
from wanderlust_worlds.apps.city import City
from wanderlust_worlds.apps.mail import Mail
from wanderlust_worlds.apps.messages import Conversation, Messages
from wanderlust_worlds.apps.messages_v1 import MessagesV1
from wanderlust_worlds.apps.shopping import Shopping
from wanderlust_worlds.apps.user_interface import System, UserInterface
from wanderlust_worlds.engine.replay import replay_log, restore, snapshot
from wanderlust_worlds.engine.scenario import Scenario, capture, play_oracle
from wanderlust_worlds.verification.online import TurnGate
from wanderlust_worlds.verification.oracle import Oracle
from wanderlust_worlds.verification.verify import verify
from wanderlust_worlds.wrap.distractions import Distraction
from wanderlust_worlds.wrap.noise import (
    with_described_tools,
    with_distractions,
    with_failing_calls,
    with_noise,
    with_renamed_tools,
)
from wanderlust_worlds.wrap.teams import TeamWorldEnvironment, chosen_apps
from wanderlust_worlds.wrap.verified_environment import OracleRubric, VerifiedWorldEnvironment
from wanderlust_worlds.wrap.world_environment import (
    WorldEnvironment,
    agent_tools,
    fixed_thinking_time,
    log_of,
    measured_thinking_time,
)
from world_apps import Notes

MAIL, UI, SYSTEM, NOTES = Mail("Emails", user_email="me@x.org"), UserInterface(), System(), Notes()
APPS = (MAIL, UI, SYSTEM, NOTES)


def two_turns():
    with capture(*APPS) as story:
        asked = story.user(UI).send_message_to_agent("Invite Ana to lunch.")
        sent = story.agent(MAIL, after=asked).send_email(recipients=["ana@x.org"], content="Please answer soon.")
        told = story.agent(UI, after=sent).send_message_to_user("I have asked her.")
        reply = story.env(MAIL, after=told, delay=60).reply_to_email_from_user(
            sender="ana@x.org", email_id=sent, content="At one?"
        )
        more = story.user(UI, after=reply).send_message_to_agent("Note what she says.")
        noted = story.agent(NOTES, after=more).add_note(text=f"lunch: {sent}")
        story.agent(UI, after=noted).send_message_to_user("Noted.")
    return Scenario(id="two-turns", apps=APPS, events=story.events)


LUNCH = two_turns()


def call(name, /, **args):
    return assistant("", ToolCall(id="1", name=name, arguments=json.dumps(args)))


ASK = call("Emails__send_email", recipients=["ana@x.org"], content="please  ANSWER soon.")
SOON = call("Emails__send_email", recipients=["ana@x.org"], content="Kindly reply soon.")


def note(messages, _):
    """The second turn: what the mail was called stands in the first answer of a tool."""
    turn = sum(m.role == "assistant" for m in messages)
    sent = next((m.content for m in messages if m.role == "tool"), "")
    said = [ASK, "I have asked her.", call("Notes__add_note", text=f"lunch: {sent}"), "Noted."]
    return said[turn]


def soon(messages, rng):
    return SOON if len(messages) == 1 else note(messages, rng)


def play(env, policy, **options):
    (task,) = env.tasks()
    return asyncio.run(rollout(env, task, policy, **options))


def test_a_turn_that_is_right_lets_the_next_begin():
    env = VerifiedWorldEnvironment([LUNCH])
    played = play(env, Scripted(note), rubric=OracleRubric(env))
    assert (played.error, played.status) == (None, Status.DONE)
    decided = [line.args["decision"] for line in log_of(played) if line.action == "decided"]
    assert decided == ["accept", "accept"]
    assert played.trajectory.score.reward == 1
    assert set(played.trajectory.score.parts.values()) == {1.0}
    assert replay_log(LUNCH, log_of(played)).digest() == played.state["digest"]


def test_a_turn_that_is_wrong_stops_the_world_with_its_verdict():
    env = VerifiedWorldEnvironment([LUNCH])
    played = play(env, Scripted(["I have asked her."]), rubric=OracleRubric(env))
    assert played.state["stopped"].startswith("rejected: 2-send_email (Emails.send_email): nobody did it")
    assert "reply_to_email_from_user" not in [line.action for line in log_of(played)]
    score = played.trajectory.score
    assert (score.reward, score.parts["accepted"]) == (0, 0)
    assert "nobody did it" in score.notes["verdict"]
    assert replay_log(LUNCH, log_of(played)).digest() == played.state["digest"]


def test_without_a_judge_worlds_go_on_and_say_that_they_do_not_know():
    env = VerifiedWorldEnvironment([LUNCH])
    played = play(env, Scripted(soon), rubric=OracleRubric(env, weights={"accepted": 1, "done": 0.5}))
    score = played.trajectory.score
    assert (score.metrics["undecided"], score.parts["accepted"], score.parts["done"]) == (1, 0, 0.75)
    assert score.reward == 0.375


def test_a_judge_decides_turn_by_turn_and_is_asked_once():
    env = VerifiedWorldEnvironment([LUNCH], judge=paraphrase_judge())
    played = play(env, Scripted(soon), rubric=OracleRubric(env))
    assert (played.error, played.trajectory.score.reward) == (None, 1)
    assert len(played.state["verdict"]["answers"]) == 1
    log = log_of(played)
    assert verify(log, Oracle.of(LUNCH)).decision == "undecided"
    no_gate = WorldEnvironment([LUNCH])
    rubric = OracleRubric(no_gate, judge=paraphrase_judge())
    assert play(no_gate, Scripted(soon), rubric=rubric).trajectory.score.reward == 1


@pytest.mark.parametrize("seed", range(30))
def test_turns_by_turn_and_on_the_whole_verdicts_agree(seed):
    one = make_look_alikes(seed)
    oracle, perfect = Oracle.of(one), oracle_actions(one)
    for deeds, right in ((perfect, True), (perfect[1:], False), ([replace(perfect[-1], id="said"), *perfect], False)):
        world = run_actions(one, deeds, gate=TurnGate(oracle=oracle))
        assert verify(world.log, oracle).accepted is right
        assert world.stopped.startswith("rejected") is not right


# Noise


def test_calls_fail_at_the_rate_asked_for_and_alike():
    one = with_failing_calls(LUNCH, 0.2)
    worlds = [one.world(seed=s) for s in (1, 1, 2)]
    for world in worlds:
        for n in range(500):
            try:
                world.call("Notes", "add_note", {"text": f"{n}"})
            except ToolError as error:
                assert "try again" in str(error)  # noqa: PT017
        world.call("UserInterface", "send_message_to_user", {"content": "never fails"})
    logs = [[line.error is None for line in world.log] for world in worlds]
    assert logs[0] == logs[1] != logs[2]
    assert 60 < 501 - sum(logs[0]) < 140
    assert replay_log(one, worlds[0].log, 1).digest() == worlds[0].digest()
    twin = restore(json.loads(json.dumps(snapshot(worlds[0]))), APPS, one.plan)
    assert twin.failures == worlds[0].branch().failures == 0.2
    play_oracle(one)
    for share in (-0.1, 1):
        with pytest.raises(UsageError, match="of all calls cannot fail"):
            with_failing_calls(LUNCH, share)


def wrong_call(tools):
    """What the agent reads after wrong arguments."""
    (send,) = (tool for tool in tools if tool.action.name == "send_email")
    (name,) = (shown for shown, true in send.original_names.items() if true == "recipients")
    with pytest.raises(ToolError, match=name) as refused:
        asyncio.run(send(**{name: 3}))
    return str(refused.value)


def test_renamed_tools_leave_true_names_in_the_log():
    one = with_renamed_tools(LUNCH, seed=4)
    tools = agent_tools(one.world(), one.names)
    plain = {tool.name for tool in agent_tools(one.world())}
    assert len({tool.name for tool in tools}) == len(tools)
    assert not plain & {tool.name for tool in tools}
    assert with_renamed_tools(LUNCH, seed=4).names == one.names
    half = with_renamed_tools(LUNCH, 0.5, seed=1).names
    assert 0.3 < len(half) / len(one.names) < 0.7

    def other(messages, rng):
        said = note(messages, rng)
        return (
            said if isinstance(said, str) else assistant("", *(ToolCall(id="1", **there(c)) for c in said.tool_calls))
        )

    def there(made):
        app, _, action = made.name.partition("__")
        args = json.loads(made.arguments)
        known = {one.names.get(f"{app}.{action}.{name}", name): value for name, value in args.items()}
        return {"name": one.names.get(f"{app}.{action}", made.name), "arguments": json.dumps(known)}

    env = VerifiedWorldEnvironment([one])
    played = play(env, Scripted(other), rubric=OracleRubric(env))
    assert played.error is None
    assert played.trajectory.score.reward == 1
    assert "recipients" not in wrong_call(tools)
    done = [line.action for line in log_of(played) if line.by == "agent"]
    assert done == ["send_email", "send_message_to_user", "add_note", "send_message_to_user"]


def test_distractors_come_at_the_rate_asked_for_and_change_nothing():
    counts = [len(with_distractions(LUNCH, 6, seed=s).events) - len(LUNCH.events) for s in range(60)]
    expected = 6 * LUNCH.duration / 60
    assert abs(sum(counts) / len(counts) - expected) < 0.05 * expected
    one = with_distractions(LUNCH, 10, seed=1, until=90)
    assert verify(play_oracle(one).log, Oracle.of(one)).accepted
    assert [e.id for e in with_distractions(one, 0).events] == [e.id for e in one.events]
    mine = with_distractions(LUNCH, 5, pool=[Distraction(app="Notes", action="add_note", args={"text": "hum"})])
    assert {e.app for e in mine.events[len(LUNCH.events) :]} == {"Notes"}
    with pytest.raises(UsageError, match="nothing in 'bare' to make them of"):
        with_distractions(Scenario(id="bare", apps=(NOTES,)), 3)


def test_tools_are_described_in_other_words_at_the_share_asked_for():
    plain = {tool.name: tool.description for tool in agent_tools(LUNCH.world())}
    texts = with_described_tools(LUNCH, seed=4).descriptions
    assert texts == with_described_tools(LUNCH, seed=4).descriptions != with_described_tools(LUNCH, seed=5).descriptions
    shown = {tool.name: tool.description for tool in agent_tools(LUNCH.world(), descriptions=texts)}
    assert shown.keys() == plain.keys()
    assert [name for name in plain if shown[name] == plain[name]] == []
    assert shown["Emails__send_email"].endswith("dispatch a mail.")
    half = with_described_tools(LUNCH, 0.5, seed=1).descriptions
    assert 0.3 < len(half) / len(plain) < 0.7


def test_every_app_distracts_and_leaves_alone_whom_the_task_is_about():
    chats = Messages(
        "Chats",
        names={"1": "Ana", "2": "Ben"},
        conversations={
            "a": Conversation(conversation_id="a", participant_ids=("me", "1")),
            "b": Conversation(conversation_id="b", participant_ids=("me", "2")),
        },
    )
    flat = {"name": "Attic", "location": "Town", "zip_code": "1", "price": 500.0, "square_footage": 300}
    homes = Apartments(
        "Homes", apartments={"x": Apartment(apartment_id="x", bedrooms=1, bathrooms=1, property_type="Flat", **flat)}
    )
    apps = [Mail("Mail"), chats, MessagesV1("Old"), Calendar("Days"), Shopping("Shop"), homes, City("City"), NOTES]
    with capture(*apps) as story:
        story.agent(chats).send_message(user_id="1", content="Hello")
    scenario = with_distractions(Scenario(id="all", apps=apps, events=story.events, duration=3600), 20)
    seen = Counter(one.app for one in scenario.events[1:])
    assert seen.keys() == {"Mail", "Chats", "Days", "Shop", "Homes", "City"}
    assert min(seen.values()) > 0.6 * max(seen.values())
    again = with_distractions(scenario, 5, seed=1)
    world = play_oracle(again)
    assert [line.error for line in world.log if line.error] == []
    assert {one.args["sender_id"] for one in again.events[1:] if one.app == "Chats"} == {"2"}
    assert min(one.price for one in world.find(Apartments).apartments.values() if one.name != "Attic") > 500


def test_a_noisy_world_is_still_won_by_who_tries_again():
    one = with_noise(LUNCH, failures=0.3, per_minute=20, seed=2)
    env = VerifiedWorldEnvironment([one])

    def tries(messages, _):
        done = {
            asked.tool_calls[0].name: answer.content
            for asked, answer in pairwise(messages)
            if asked.tool_calls and not answer.content.startswith("error")
        }
        said = "\n".join(m.content for m in messages)
        if "Emails__send_email" not in done:
            return ASK
        if "I have asked her." not in said:
            return "I have asked her."
        if "Note what she says." not in said:
            return call("System__wait_for_notification", timeout=100)
        made = call("Notes__add_note", text=f"lunch: {done['Emails__send_email']}")
        return "Noted." if "Notes__add_note" in done else made

    played = play(env, Scripted(tries), rubric=OracleRubric(env))
    assert (played.error, played.trajectory.score.reward) == (None, 1), played.trajectory.score
    assert any(line.error for line in log_of(played) if line.by == "agent")


# Teams


def app_agent(messages, _):
    """Does what it is asked, once for each task, and says what came of it."""
    if messages[-1].role == "tool":
        return messages[-1].content
    asked = json.loads(messages[-1].content)
    return call(asked["tool"], **asked["args"])


def main_agent(messages, _):
    turn = sum(m.role == "assistant" for m in messages)
    sent = next((m.content for m in messages if m.role == "tool"), "")
    mail = {"tool": "Emails__send_email", "args": {"recipients": ["ana@x.org"], "content": "Please answer soon."}}
    memo = {"tool": "Notes__add_note", "args": {"text": f"lunch: {sent}"}}
    return [
        call("Emails__expert_agent", task=json.dumps(mail)),
        "I have asked her.",
        call("Notes__expert_agent", task=json.dumps(memo)),
        "Noted.",
    ][turn]


def test_a_team_does_what_one_agent_does():
    env = TeamWorldEnvironment([LUNCH], apps=("Emails", "Notes"), thinking=measured_thinking_time)
    seats = {"agent": Scripted(main_agent), "Emails": Scripted(app_agent), "Notes": Scripted(app_agent)}
    played = play(env, seats, rubric=OracleRubric(env))
    assert played.error is None
    rewards = {t.seat: (t.score.reward, t.trainable, len(t.turns)) for t in played.trajectories}
    assert rewards == {"agent": (1, True, 4), "Emails": (1, False, 2), "Notes": (1, False, 2)}
    assert replay_log(LUNCH, log_of(played)).digest() == played.state["digest"]
    again = play(env.with_recorded_thinking(played), Recorded(played))
    assert (again.error, again.state) == (None, played.state)


def test_a_team_has_only_ways_to_ask():
    asked = []

    class Looking:
        async def complete(self, messages, tools=(), *, key=""):
            asked.extend(tools)
            return await Scripted(["Hello."]).complete(messages)

    play(TeamWorldEnvironment([LUNCH], apps=("Emails",)), {"agent": Looking(), "Emails": Scripted(app_agent)})
    names = [tool.name for tool in asked]
    assert [name for name in names if name.startswith("Emails")] == ["Emails__expert_agent"]
    assert asked[-1].schema["required"] == ["task"]
    assert "send_email" in asked[-1].description
    with pytest.raises(UsageError, match="has no app Fax to be an agent"):
        TeamWorldEnvironment([LUNCH], apps=("Fax",))
    assert chosen_apps(LUNCH, 1.0) == ("Emails", "Notes")
    assert len(chosen_apps(LUNCH, 0.5)) == 1


def test_an_app_agent_that_never_answers_is_told_of():
    def endless(messages, _):
        return call("Emails__list_emails")

    env = TeamWorldEnvironment([LUNCH], apps=("Emails",))
    seats = {"agent": Scripted([call("Emails__expert_agent", task="x"), "Bye."]), "Emails": Scripted(endless)}
    played = play(env, seats)
    (agent,) = (t for t in played.trajectories if t.seat == "agent")
    assert "did not come to an end within 20 turns" in agent.messages[2].content


# One verdict


async def outcomes(concurrency, count=100):
    env = VerifiedWorldEnvironment(
        [with_noise(LUNCH, failures=0.1, per_minute=5)], thinking=fixed_thinking_time(2), judge=paraphrase_judge()
    )
    async with rollouts(env, env.tasks(), Scripted(soon), group_size=count, concurrency=concurrency) as groups:
        played = [r async for group in groups for r in group.rollouts]
    return {(r.error, r.state["digest"], json.dumps(r.state["verdict"], sort_keys=True)) for r in played}


def test_a_hundred_runs_leave_one_verdict_and_one_log_at_any_concurrency():
    found = set[str]()
    for concurrency in (1, 7, 64):
        found |= asyncio.run(outcomes(concurrency))
    assert len(found) == 1


def test_strings_may_hash_as_they_like():
    code = "import asyncio, test_worlds_turns as t\nprint(hash('x'), *asyncio.run(t.outcomes(4, 3)))\n"
    said = set()
    for seed in ("0", "1", "4711"):
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        said.add(tuple(done.stdout.split(" ", 1)))
    assert len({hashed for hashed, _ in said}) == 3
    assert len({outcome for _, outcome in said}) == 1


def test_the_same_scenario_is_made_in_every_process():
    assert make_look_alikes(7).events == make_look_alikes(7).events
    assert replace(make_look_alikes(7), apps=()) != replace(make_look_alikes(8), apps=())
