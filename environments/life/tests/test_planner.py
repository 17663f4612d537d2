"""The player `planner`: requests in clauses, tools by what they say they do, plans that follow from what came back."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from wanderlust.runner.engine import rollout
from wanderlust.types import ToolCall, assistant, tool_message, user
from wanderlust_life.assistant_life import AssistantLife
from wanderlust_life.planner.plan import HORIZON, plan_of, planner_policy
from wanderlust_life.planner.requests import day_in, moment_in, names_in, read_request, seconds_in
from wanderlust_life.planner.tools import PlannerPolicy, Use, arguments_of, find_tool, read_notices
from wanderlust_worlds.wrap.world_environment import agent_tools

NOW = 1_832_313_600.0
"""Monday, 24 January 2028, 08:00."""


def play(name, **options):
    env = AssistantLife([name.partition("/")[0]])
    task = next(task for task in env.tasks("train") if task.id == name)
    made = asyncio.run(rollout(env, task, planner_policy(**options)))
    return made.trajectories[0]


def tool(name, description, **fields):
    schema = {"properties": {field: {"type": "string", "description": about} for field, about in fields.items()}}
    return SimpleNamespace(name=name, description=description, schema=schema)


def test_requests_are_read_in_clauses_with_their_conditions():
    text = (
        "Please mail Ana Bell that I am late, and tell me when it is done. Order me a cab to The Old Fox: if the "
        "driver cancels, take Premium, and tell Bo Cole in Chats that I come later. Send 'Put it. And wait' to them."
    )
    clauses = [(one.verb, one.condition) for one in read_request(text).clauses]
    assert clauses == [
        ("mail", ""),
        ("tell", ""),
        ("order", ""),
        ("take", "if the driver cancels"),
        ("tell", "if the driver cancels"),
        ("send", ""),
    ]
    assert [one.verb for one in read_request("How much was it? Who paid for it?").clauses] == ["question"] * 2
    assert [one.verb for one in read_request("Mail Ana and ask whether it suits.").clauses] == ["mail"]


def test_names_days_times_and_durations_are_found():
    assert names_in("Ana Bell, then Bo von Cole on Friday, 3 May at The Old Fox: 'Dear Cy Dee'") == [
        "Ana Bell",
        "Bo von Cole",
    ]
    assert moment_in("on Wednesday, 26 January at 12:30", NOW) == NOW + 2 * 86_400 + 4.5 * 3600
    assert day_in("since Friday, 21 January", NOW, past=True) == NOW - 3 * 86_400 - 8 * 3600
    assert moment_in("some day", NOW) is None
    assert [seconds_in(text) for text in ("within 4 minutes", "for ten minutes", "two hours", "soon")] == [
        240,
        600,
        7200,
        None,
    ]


def test_tools_are_found_by_what_they_say_whatever_they_are_called():
    tools = [
        tool("Mail__x1", "Send a mail.", a="Addresses that it goes to.", b="Its subject.", c="Its text."),
        tool("Mail__x2", "Forward a mail, with its attachments.", a="The id of the mail to forward."),
        tool("Chat__x1", "Send a message to one person.", a="Whom to send it to.", b="What to say."),
    ]
    step = Use("Mail", "send a mail", {"addresses_it_goes_to": ["a@b.example"], "its_text": "Hello", "nowhere": 1})
    found = find_tool(step, tools)
    assert found.name == "Mail__x1"
    assert arguments_of(step, found) == {"a": ["a@b.example"], "c": "Hello"}
    assert find_tool(Use("Mail", "forward a mail", {}), tools).name == "Mail__x2"
    assert find_tool(Use("Cabs", "order a ride", {}), tools) is None


def test_it_reads_messages_and_descriptions_alone():
    """Tools that have only a name, a description and a schema get the same calls as those of a world."""
    env = AssistantLife(["keep-flats"])
    task = next(iter(env.tasks("train")))
    played = asyncio.run(rollout(env, task, planner_policy()))
    trajectory = played.trajectories[0]
    scenario = env.scenario(task)
    world = scenario.world()
    bare = [
        SimpleNamespace(name=t.name, description=t.description, schema=t.schema)
        for t in agent_tools(world, scenario.names, scenario.descriptions)
    ]
    for number, turn in enumerate(trajectory.turns):
        context = trajectory.conversation(number)[:-1]
        answer = asyncio.run(planner_policy().complete(context, bare)).message
        assert [(c.name, c.arguments) for c in answer.tool_calls] == [
            (c.name, c.arguments) for c in turn.action.tool_calls
        ]
        assert answer.content == turn.action.content


def test_a_plan_has_a_horizon_and_a_failing_call_is_made_again():
    steps = plan_of("Mail Ana Bell that I am late.", horizon=3)
    assert next(steps).does == "tell the time"
    talk = [user("Mail Ana Bell that I am late.")]
    tools = [
        tool("System__t", "Tell the time."),
        tool("Contacts__s", "Find contacts with a text.", q="The text."),
        tool("Emails__s", "Send a mail.", r="Addresses that it goes to.", s="Its subject.", t="Its text."),
    ]
    ana = {"first_name": "Ana", "last_name": "Bell", "email": "ana@b.example", "phone": "+1"}
    results = ['{"current_timestamp": 0.0}', "error: try again", json.dumps([ana]), "m1"]

    def said(policy):
        messages, made = list(talk), []
        for number, result in enumerate([*results, ""]):
            answer = asyncio.run(policy.complete(messages, tools)).message
            made.append([call.name for call in answer.tool_calls] or answer.content)
            if not answer.tool_calls:
                break
            call = ToolCall(id=f"c{number}", name="x", arguments="{}")
            messages += [assistant("", call), tool_message(result, call)]
        return made

    calls = [["System__t"], ["Contacts__s"], ["Contacts__s"]]
    assert said(planner_policy(horizon=4)) == [*calls, ["Emails__s"], "It is done."]
    assert said(planner_policy(horizon=3)) == [*calls, "I could not do that."]


def test_it_asks_where_two_share_a_name_and_goes_on_with_the_answer():
    played = play("two-of-a-name/train-0/1")
    assert played.score.reward == 1
    said = [turn.action.content for turn in played.turns if turn.action.content]
    assert said[0].startswith("Do you mean ")
    assert said[1] == "It is done."


def test_it_watches_and_plans_once_more():
    assert play("ride-cancelled/train-0/1", horizon=30).score.reward == 1
    assert play("sold-out/train-0/1", horizon=30).score.reward == 1
    assert play("sold-out/train-0/3", horizon=60).score.reward == 0  # the second cancellation is not in the plan
    assert play("ride-cancelled/train-0/1", horizon=5).score.reward == 0


def test_notices_are_told_from_the_users_words():
    text = "Do it.\n\n[2028-01-24 08:01:30] Emails: New email received\n\n[2028-01-24 08:01:31] Chats: New: a\n\nb"
    assert [(one.app, one.text) for one in read_notices(text)] == [
        ("", "Do it."),
        ("Emails", "New email received"),
        ("Chats", "New: a\n\nb"),
    ]


def test_what_it_cannot_do_ends_in_a_sentence():
    policy = PlannerPolicy(plan_of)
    answer = asyncio.run(policy.complete([user("Sing.")], [])).message
    assert answer.content == "I have no tool for that."


def test_it_is_of_middle_strength_with_the_levels_in_order():
    env = AssistantLife()
    tasks = list(env.tasks("eval"))
    rewards: dict[int, list[float]] = {}
    for task in tasks:
        played = asyncio.run(rollout(env, task, env.players["planner"]()))
        rewards.setdefault(task.info["level"], []).append(played.trajectories[0].score.reward)
    shares = [sum(values) / len(values) for _, values in sorted(rewards.items())]
    assert all(easy > hard for easy, hard in pairwise(shares))
    whole = sum(map(sum, rewards.values())) / len(tasks)
    assert 0.2 <= whole <= 0.6
    page = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
    assert f"| `planner` | {whole:.2f} | " in page
    assert f"at most {HORIZON} calls" in page


@pytest.mark.parametrize("name", ["ask-meal-payer", "forward-party"])
def test_it_plays_lives_that_were_lived(name):
    env = AssistantLife([name], universe="lived", levels=1)
    task = next(iter(env.tasks("train")))
    played = asyncio.run(rollout(env, task, env.players["planner"]()))
    assert played.error is None
    assert played.trajectories[0].score is not None
