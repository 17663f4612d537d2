"""Gaia2 in one command: its three phases, the noise of a file's augmentation, both judges' checkers, ARE's report."""

from __future__ import annotations

import asyncio
import copy
import json

import pytest
from msgspec.structs import replace

from are_scenarios import APPS, asks, event, file, tells
from test_world_files import LUNCH, wander
from wanderlust.errors import UsageError
from wanderlust.evals.evaluate import evaluate_sync
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.tools.function import ToolError
from wanderlust.types import Rollout, Score, Status, Task, Trajectory
from wanderlust_worlds.apps import check_app
from wanderlust_worlds.apps.files import Files
from wanderlust_worlds.apps.messages_v1 import MessagesV1
from wanderlust_worlds.engine.events import DISTRACTOR_MARK, ScenarioError
from wanderlust_worlds.engine.scenario import play_oracle
from wanderlust_worlds.engine.world import World
from wanderlust_worlds.exchange.augmentation import distractions_of, with_augmentation
from wanderlust_worlds.exchange.gaia2 import APPS_SEAT, Gaia2
from wanderlust_worlds.exchange.gaia2_folder import AGENT2AGENT, NOISE, read_configurations
from wanderlust_worlds.exchange.gaia2_report import gaia2_report, gaia2_runs
from wanderlust_worlds.exchange.read import import_scenario
from wanderlust_worlds.exchange.write import export_scenario
from wanderlust_worlds.verification.are_checkers import CHECKER_INSTRUCTIONS, PLACEHOLDER_CHECKER, checkers_of
from wanderlust_worlds.verification.oracle import Oracle
from wanderlust_worlds.verification.verdict import JudgeQuestion
from wanderlust_worlds.verification.verify import verify
from wanderlust_worlds.verification.world_judge import verify_with_judge
from wanderlust_worlds.wrap.world_environment import agent_tools, log_of

GAIA2 = "wanderlust_worlds.exchange.gaia2:Gaia2"
NOISY = copy.deepcopy(LUNCH) | {
    "augmentation": {
        "apps": [app for app in APPS if app["name"] in ("Emails", "Messages", "Chats", "Shopping", "RentAFlat")],
        "tool_names_mapping": {"Emails__send_email": "Emails__dispatch"},
        "tool_descriptions_mapping": {"Emails__send_email": "Send a letter off."},
    }
}
TIMED = file(asks(), tells("Hi.", "end", ["ask"]), scenario_id="timed", tags=["Time"])


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "gaia2"
    for config, files in {"mini": {"lunch": NOISY}, "execution": {"lunch": NOISY}, "time": {"timed": TIMED}}.items():
        (place / config).mkdir(parents=True)
        rows = [{"id": name, "scenario_id": name, "data": json.dumps(one)} for name, one in files.items()]
        (place / config / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place


# The run


def test_one_folder_is_played_in_the_three_phases_of_gaia2s_own_run(folder):
    env = Gaia2(folder)
    assert [(task.id, task.info["config"]) for task in env.tasks("eval")] == [
        ("lunch", "execution"),
        ("timed", "time"),
        ("agent2agent/lunch", "mini_agent2agent"),
        ("noise/lunch", "mini_noise"),
    ]
    assert [env.scenario(task).duration for task in env.tasks()] == [1800, 420, 1800, 1800]
    assert Gaia2(folder, phases="standard").seats == ("agent",)


def test_the_oracle_passes_in_every_phase_and_an_idle_agent_in_none(folder):
    env = Gaia2(folder, thinking="none")
    for policy, reward in (("oracle", 1.0), ("nothing", 0.0)):
        report = evaluate_sync(env, policy, progress=False)
        assert (report.scored, report.rewards["agent"].value) == (4, reward)


def test_in_a_team_every_app_acts_through_its_own_agent(folder):
    env = Gaia2(folder, phases=AGENT2AGENT, thinking="none")
    (task,) = env.tasks()
    done = asyncio.run(rollout(env, task, env.players["oracle"]()))
    agent, apps = done.trajectories
    called = {call.name for turn in agent.turns for call in turn.action.tool_calls}
    assert {"Emails__expert_agent", "Contacts__expert_agent"} <= called
    assert not any(name.endswith("send_email") for name in called)
    assert {call.name for turn in apps.turns for call in turn.action.tool_calls} >= {"Emails__send_email"}
    assert (apps.seat, apps.trainable, agent.trainable) == (APPS_SEAT, False, True)
    starts = [turn.observation[0].content for turn in apps.turns if turn.observation[0].role == "system"]
    assert sorted(starts)[0].startswith("You are the agent of Contacts.")
    assert len(starts) == 2


def test_thinking_that_was_measured_is_replayed_to_the_same_log(folder):
    env = Gaia2(folder, phases="standard")
    task = next(iter(env.tasks()))
    done = asyncio.run(rollout(env, task, env.players["oracle"]()))
    again = asyncio.run(rollout(env.with_recorded_thinking(done), task, env.players["oracle"]()))
    assert any(line.action == "advance" and line.args["seconds"] > 0 for line in log_of(done))
    assert again.state["digest"] == done.state["digest"]


@pytest.mark.parametrize(("options", "words"), [
    ({"phases": "nap"}, "no phase .*nap.*standard, agent2agent, noise"),
    ({"phases": ()}, "there is no phase"),
    ({"thinking": "fast"}, "thinking is 'fast', expected measured, none, or seconds per token"),
    ({"thinking": -1}, "thinking is -1"),
    ({"share": 0}, "share is 0"),
])  # fmt: skip
def test_options_that_cannot_be_are_one_line(folder, options, words):
    with pytest.raises(UsageError, match=words) as refused:
        Gaia2(folder, **options)
    assert "\n" not in str(refused.value)


def test_folders_that_cannot_be_played_are_one_line(folder, tmp_path):
    with pytest.raises(ScenarioError, match="has no files"):
        Gaia2(tmp_path / "nowhere")
    (folder / "search").mkdir()
    (folder / "search" / "twice.json").write_text(json.dumps(LUNCH))
    with pytest.raises(ScenarioError, match=r"search/twice\.json: its scenario 'lunch' is in execution/test\.jsonl"):
        Gaia2(folder)
    (folder / "search" / "twice.json").write_text(json.dumps(file(asks(), scenario_id="asks")))
    with pytest.raises(ScenarioError, match=r"twice\.json: no event is the agent's"):
        Gaia2(folder)


def test_a_folder_without_mini_is_played_in_all_phases(tmp_path):
    (tmp_path / "lunch.json").write_text(json.dumps(LUNCH))
    assert [task.id for task in Gaia2(tmp_path).tasks()] == ["lunch", "agent2agent/lunch", "noise/lunch"]
    assert [*read_configurations(tmp_path)] == [""]


# Noise


def test_noise_is_what_the_files_augmentation_has(folder):
    env = Gaia2(folder, phases=NOISE)
    scenario = env.scenario(next(iter(env.tasks())))
    made = [one for one in scenario.events if one.id.startswith(DISTRACTOR_MARK)]
    assert {(one.app, one.action) for one in made} == {
        ("Emails", "create_and_add_email"),
        ("Messages", "create_and_add_message"),
        ("Chats", "create_and_add_message"),
        ("Shopping", "add_product"),
        ("RentAFlat", "add_new_apartment"),
    }
    assert scenario.failures == 0.1
    tools = {tool.name: tool for tool in agent_tools(scenario.world(), scenario.names, scenario.descriptions)}
    assert tools["Emails__dispatch"].description == "Send a letter off."
    assert "Emails__send_email" not in tools
    world = play_oracle(scenario)
    assert [line.error for line in world.log if (line.event or "").startswith(DISTRACTOR_MARK) and line.error] == []


def test_the_standard_phase_has_no_noise(folder):
    env = Gaia2(folder, phases="standard")
    scenario = env.scenario(next(iter(env.tasks())))
    assert (scenario.names, scenario.descriptions, scenario.failures) == ({}, {}, 0.0)


def test_distractors_come_at_the_rate_asked_for_while_the_material_lasts():
    imported = import_scenario(NOISY)
    apps = [copy.deepcopy(app) for app in APPS if app["name"] == "Emails"]
    inbox = apps[0]["app_state"]["folders"]["INBOX"]["emails"]
    inbox[:] = [{**inbox[0], "email_id": f"x{n}", "subject": f"Subject {n}"} for n in range(900)]
    noisy = with_augmentation(imported.scenario, {"apps": apps}, per_minute=30)
    made = [one for one in noisy.events if DISTRACTOR_MARK in one.id]
    assert len({one.args["subject"] for one in made}) == len(made)
    assert len(made) == pytest.approx(30 * noisy.duration / 60, rel=0.15)
    assert with_augmentation(imported.scenario, {"apps": apps}, per_minute=30).events == noisy.events
    few = with_augmentation(imported.scenario, imported.augmentation, per_minute=600)
    pool = sum(map(len, distractions_of(imported.augmentation, imported.scenario.apps).values()))
    assert sum(DISTRACTOR_MARK in one.id for one in few.events) == pool


def test_noise_that_has_not_come_is_no_fault_for_the_judge_of_are():
    scenario = import_scenario(NOISY).scenario
    noisy = with_augmentation(scenario, NOISY["augmentation"], failures=0)
    log = play_oracle(scenario).log
    assert verify(log, Oracle.of(noisy), compat="are").accepted


@pytest.mark.parametrize(("augmentation", "words"), [
    ({"apps": 5}, r"augmentation\.apps is int, expected a list"),
    ({"apps": [5]}, r"augmentation\.apps, number 0: expected an object"),
    ({"apps": [{"name": "Emails", "app_state": {"folders": 5}}]}, "its material does not fit Emails"),
    ({"tool_descriptions_mapping": {"Emails__send_email": 5}}, "is to be described by 5, expected a text"),
    ({"tool_descriptions_mapping": [1]}, r"augmentation\.tool_descriptions_mapping is list, expected an object"),
])  # fmt: skip
def test_augmentations_that_cannot_be_used_are_one_line(tmp_path, augmentation, words):
    (tmp_path / "lunch.json").write_text(json.dumps(copy.deepcopy(LUNCH) | {"augmentation": augmentation}))
    with pytest.raises(ScenarioError, match=words) as refused:
        Gaia2(tmp_path)
    assert "\n" not in str(refused.value)


def test_other_descriptions_survive_export_and_import():
    imported = import_scenario(NOISY)
    assert imported.scenario.descriptions == {"Emails.send_email": "Send a letter off."}
    again = import_scenario(export_scenario(imported.scenario, imported.augmentation))
    assert again.scenario.descriptions == imported.scenario.descriptions
    strange = import_scenario(
        copy.deepcopy(LUNCH) | {"augmentation": {"tool_descriptions_mapping": {"Emails__fly": "Fly."}}}
    )
    assert "there is no such tool to be described otherwise" in strange.warnings[0]


# Judges


def judged(compat, reply, *, content="In other words."):
    """The verdict on a log in which the first mail has other words, and what the judge was asked about it."""
    scenario = import_scenario(LUNCH).scenario
    oracle, asked = Oracle.of(scenario), []
    lines = list(play_oracle(scenario).log)
    spoilt = next(n for n, line in enumerate(lines) if line.action == "send_email")
    lines[spoilt] = replace(lines[spoilt], args={**lines[spoilt].args, "content": content})

    def answer(messages, rng):
        asked.append(messages[0].content)
        return reply(messages)

    verdict = asyncio.run(verify_with_judge(lines, oracle, Scripted(answer), compat=compat))
    names = [name for text in asked for name, told in CHECKER_INSTRUCTIONS.items() if text.startswith(told)]
    return verdict, names


def yes(messages):
    return json.dumps({"reason": "fine", "passes": True})


def test_each_upstream_judge_asks_its_own_checkers_by_their_names():
    verdict, names = judged("are", yes)
    assert (verdict.decision, names) == ("accept", ["signature_checker", "tone_checker", "email_checker"])
    assert [line.partition(":")[0] for line in verdict.answers[0].text.splitlines()] == [PLACEHOLDER_CHECKER, *names]
    verdict, names = judged("gaia2_cli", yes)
    assert (verdict.decision, names) == ("accept", ["signature_checker", "email_checker"])
    for action, are in {
        "send_message": ("placeholder_checker", "tone_checker", "message_checker"),
        "add_calendar_event": ("event_checker",),
        "order_ride": ("cab_checker",),
        "send_message_to_user": ("sanity_checker", "user_message_checker"),
        "edit_contact": ("content_checker",),
    }.items():
        question = JudgeQuestion(event="e", line=0, app="A", action=action, about={}, wanted={}, actual={})
        assert checkers_of(question, "are") == are
        assert set(are) - set(checkers_of(question, "gaia2_cli")) <= {"tone_checker", "sanity_checker"}
        assert checkers_of(question, "strict") == ()


@pytest.mark.parametrize("compat", ["are", "gaia2_cli"])
def test_one_checker_that_says_no_rejects_and_ends_the_asking(compat):
    def unsigned(messages):
        return json.dumps({"passes": "how the written mail is signed" not in messages[0].content})

    verdict, names = judged(compat, unsigned)
    assert (verdict.decision, names) == ("reject", ["signature_checker"])
    verdict, names = judged(compat, yes, content="Lunch? Best,\nYour Name")
    assert (verdict.decision, names) == ("reject", [])


@pytest.mark.parametrize("compat", ["are", "gaia2_cli"])
def test_a_checkers_answer_that_cannot_be_read_is_no_yes(compat):
    verdict, names = judged(compat, lambda messages: "It is fine.")
    assert (verdict.decision, verdict.answers[0].same) == ("undecided", None)
    assert names == ["signature_checker"] * 3


def test_the_judges_answers_give_the_same_verdict_without_the_judge():
    scenario = import_scenario(LUNCH).scenario
    for compat in ("are", "gaia2_cli"):
        verdict, _ = judged(compat, yes)
        assert [answer.judge for answer in verdict.answers] == ["judge"]
        clean = verify(play_oracle(scenario).log, Oracle.of(scenario), answers=verdict.answers, compat=compat)
        assert clean.accepted


def test_gaia2_is_judged_from_the_command_line(tmp_path, capsys):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "short.json").write_text(json.dumps(file(asks(), tells("Hi.", "end", ["ask"]))))
    (tmp_path / "players.py").write_text(
        "from wanderlust.policies.scripted import Scripted\n"
        "Other = Scripted(['Good morning.'])\n"
        "Yes = Scripted(lambda messages, rng: '{\"passes\": true}')\n"
        "No = Scripted(lambda messages, rng: '{\"passes\": false}')\n"
    )
    env = f"{GAIA2},folder={tmp_path / 'files'},phases=standard"
    words = ("eval", env, "--policy", f"{tmp_path / 'players.py'}:Other", "--json")
    for judge, reward in (("Yes", 1.0), ("No", 0.0)):
        code, out, err = wander(capsys, *words, "--judge", f"{tmp_path / 'players.py'}:{judge}")
        assert (code, json.loads(out)["report"]["rewards"]["agent"]["value"]) == (0, reward), err
    code, out, err = wander(capsys, *words)
    assert "1 of 1 verdicts are undecided" in err


# The report


def _rollout(task, sample, *, config="execution", phase="standard", passed=True, status=Status.DONE, undecided=0.0):
    score = None if status is Status.ERROR else Score(
        reward=float(passed), parts={"accepted": float(passed)}, metrics={"undecided": undecided}
    )  # fmt: skip
    return Rollout(
        task=Task(id=task, info={"phase": phase, "config": config}), seed=0, sample_index=sample, status=status,
        trajectories=[Trajectory(score=score)], error="PolicyFailure: gone" if status is Status.ERROR else None,
        seconds=2.0,
    )  # fmt: skip


def test_the_report_has_ares_names_and_formulas():
    rollouts = [
        *(_rollout("a", n, passed=passed) for n, passed in enumerate((True, True, False))),
        *(_rollout("b", n, passed=passed) for n, passed in enumerate((True, False, False))),
        *(_rollout("noise/a", n, config="mini_noise", phase="noise", passed=False) for n in range(3)),
        _rollout("c", 0, status=Status.ERROR),
        _rollout("c", 1, undecided=1.0, passed=False),
    ]
    report = gaia2_report(gaia2_runs(rollouts), model="m")
    part = report["statistics"]["per_capability"]["execution"]
    counts = {name: part[f"{name}_runs"] for name in ("total", "validated", "success", "exception", "no_validation")}
    assert counts == {"total": 8, "validated": 6, "success": 3, "exception": 1, "no_validation": 1}
    assert part["success_rate"] == pytest.approx(50)
    assert part["success_rate_std"] == pytest.approx(50)  # of 100, 50 and 0
    assert part["success_rate_sem"] == pytest.approx(50 / 3**0.5)
    assert (part["pass_at_k"], part["pass_k"], part["total_scenarios"]) == (2, 0, 3)
    whole = report["statistics"]["global"]
    assert whole["macro_success_rate"] == pytest.approx(25)
    assert whole["micro_success_rate"] == pytest.approx(100 * 3 / 9)
    assert [one["phase_name"] for one in report["run_configurations"]] == ["noise", "standard"]
    assert set(report["statistics"]["per_capability"]) == {"execution", "mini_noise"}


def test_a_run_is_exported_as_ares_report_beside_ours(folder, tmp_path, capsys):
    run = tmp_path / "run"
    words = ("eval", f"{GAIA2},folder={folder},thinking=none", "--policy", "oracle", "--samples", "2", "--out", run)
    assert wander(capsys, *words)[0] == 0
    code, out, err = wander(capsys, "export", run, "--to", "gaia2", "--json")
    assert (code, json.loads(out)["written"]) == (0, 8), err
    made = run / "export-gaia2"
    stats = json.loads((made / "benchmark_stats.json").read_text())
    assert stats["statistics"]["global"]["macro_success_rate"] == 100
    assert stats["metadata"]["model"] == "oracle"
    rows = [json.loads(line) for line in (made / "noise" / "mini" / "output.jsonl").read_text().splitlines()]
    assert [(row["task_id"], row["score"], row["metadata"]["run_number"]) for row in rows] == [
        ("lunch", 1.0, 1),
        ("lunch", 1.0, 2),
    ]


def test_rollouts_of_other_environments_are_no_report():
    with pytest.raises(UsageError, match="the task 't' is none of Gaia2"):
        gaia2_runs([Rollout(task=Task(id="t"), seed=0)])


# Messages among names


def _old(talks=None):
    talk = {
        "participants": ["Me", "Ana Berg"], "title": "Ana", "conversation_id": "t1", "last_updated": 5.0,
        "messages": [{"sender": "Ana Berg", "timestamp": float(n), "content": f"word{n}"} for n in range(12)],
    }  # fmt: skip
    return {"conversations": {"t1": talk} if talks is None else talks}


def test_messages_of_old_files_are_read_played_and_written_again():
    apps = [*APPS, {"name": "MessagingApp", "class_name": "MessagingApp", "app_state": _old()}]
    raw = file(
        asks(),
        event("said", "AGENT", "MessagingApp.send_message", after=["ask"], conversation_id="t1", content="Lunch?"),
        tells("Done.", "end", ["said"]),
        event("back", "ENV", "MessagingApp.create_and_add_message", after=["end"], conversation_id="t1",
              sender="Ana Berg", content="Yes."),
        apps=apps,
        scenario_id="old",
    )  # fmt: skip
    imported = import_scenario(raw)
    assert not [line for line in imported.warnings if "MessagingApp" in line]
    world = play_oracle(imported.scenario)
    said = world.apps["MessagingApp"].conversations["t1"].messages[-2:]
    assert [(one.sender, one.content) for one in said] == [("Me", "Lunch?"), ("Ana Berg", "Yes.")]
    again = import_scenario(export_scenario(imported.scenario))
    assert json.loads(export_scenario(imported.scenario))["apps"][-1]["class_name"] == "MessagingApp"
    assert play_oracle(again.scenario).digest() == world.digest()


def test_people_are_their_names_in_old_messages():
    world = World([MessagesV1.from_are("MessagingApp", _old()), Files()], start=100.0)

    def use(action, /, by="agent", **args):
        return world.call("MessagingApp", action, args, by=by)

    assert check_app(world.apps["MessagingApp"]) == []
    talk = use("create_conversation", participants=["Bo Cruz"])
    assert world.apps["MessagingApp"].conversations[talk].title == "Bo Cruz, Me"
    use("add_participant_to_conversation", conversation_id=talk, participant="Ana Berg")
    assert sorted(one.conversation_id for one in use("list_conversations_by_participant", participant="Ana")) == sorted(
        ["t1", talk]
    )
    assert [one.content for one in use("read_conversation", conversation_id="t1", limit=2)["messages"]] == [
        "word11",
        "word10",
    ]
    assert (use("search", query="BO CRUZ"), use("regex_search", query="word1$")) == ([talk], ["t1"])
    world.apps["Files"].write_bytes("/note.txt", b"hi")
    sent = use("send_attachment", conversation_id=talk, filepath="/note.txt")
    assert use("read_conversation", conversation_id=talk)["messages"][0].attachment is None
    place = use("download_attachment", conversation_id=talk, message_id=sent, download_path="/Downloads")
    assert world.apps["Files"].read_bytes(place) == b"hi"
    use("remove_participant_from_conversation", conversation_id=talk, participant="Ana Berg")
    for words, action, args in (
        ("at least one other", "create_conversation", {"participants": []}),
        ("is not in the conversation", "remove_participant_from_conversation",
         {"conversation_id": talk, "participant": "Ana Berg"}),
        ("no conversation 'x'", "send_message", {"conversation_id": "x", "content": "a"}),
        ("limit must be at most 5", "list_recent_conversations", {"limit": 6}),
        ("has no attachment", "download_attachment", {"conversation_id": "t1", "message_id": "t1-0"}),
    ):  # fmt: skip
        with pytest.raises(ToolError, match=words):
            use(action, **args)
    with pytest.raises(ToolError, match="Cleo is not in the conversation"):
        use("create_and_add_message", by="env", conversation_id="t1", sender="Cleo", content="a")
