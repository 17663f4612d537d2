"""Scenarios of ARE as a hub ships them, what is refused at import, what ARE refuses at export, and judges by name."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re

import pytest

from are_scenarios import asks, event, file, tells
from test_world_files import LUNCH, wander
from wanderlust.errors import UsageError
from wanderlust.policies.endpoint import Endpoint
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.tasks.registry import load_environment
from wanderlust_life.assistant_life import AssistantLife, scenario_of
from wanderlust_life.families.family import all_families
from wanderlust_life.universes.generate import make_universe
from wanderlust_worlds.apps import check_app
from wanderlust_worlds.apps.reminders import Reminders
from wanderlust_worlds.engine.events import PlannedCall, ScenarioError
from wanderlust_worlds.engine.scenario import Scenario
from wanderlust_worlds.exchange.are_scenarios import AreScenarios
from wanderlust_worlds.exchange.read import import_scenario
from wanderlust_worlds.exchange.write import export_scenario, export_warnings
from wanderlust_worlds.wrap.verified_environment import OracleRubric
from world_apps import Notes

FIGURES = ("duration", "start_time", "seed")
SHORT = file(asks(), tells("Hi.", "end", ["ask"]), scenario_id="short")


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_rows_of_a_hub_are_a_folder_of_scenarios(tmp_path, suffix):
    rows = [{"id": n, "scenario_id": n, "split": "eval", "data": json.dumps(one)} for n, one in
            (("lunch", LUNCH), ("short", SHORT))]  # fmt: skip
    path = tmp_path / f"rows.{suffix}"
    if suffix == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        arrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_pylist(rows), path)
    tasks = AreScenarios(tmp_path).tasks("eval")
    assert [(task.id, task.info["file"]) for task in tasks] == [
        ("lunch", f"rows.{suffix}, line 1"),
        ("short", f"rows.{suffix}, line 2"),
    ]


def test_rows_are_imported_as_files_are(tmp_path, capsys):
    rows, single = tmp_path / "rows.jsonl", tmp_path / "single.json"
    rows.write_text("".join(json.dumps({"scenario_id": one["metadata"]["definition"]["scenario_id"],
                                        "data": json.dumps(one)}) + "\n" for one in (LUNCH, SHORT)))  # fmt: skip
    single.write_text(json.dumps(SHORT))
    code, out, err = wander(capsys, "world", "import", rows, single, "--out", tmp_path / "out", "--json")
    assert (code, err) == (0, "")
    imported = json.loads(out)["imported"]
    assert [one["file"] for one in imported] == [f"{rows}, line 1", f"{rows}, line 2", str(single)]
    assert imported[1] == {**imported[2], "file": f"{rows}, line 2"}
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["rows-1.json", "rows-2.json", "single.json"]
    assert wander(capsys, "world", "import", *sorted((tmp_path / "out").iterdir()))[0] == 0


def test_rows_that_cannot_be_imported_are_named(tmp_path, capsys):
    rows, empty, twin = tmp_path / "rows.jsonl", tmp_path / "empty.jsonl", tmp_path / "rows-1.json"
    rows.write_text(json.dumps({"data": json.dumps(SHORT)}) + "\n")
    twin.write_text(json.dumps(LUNCH))
    empty.write_text("\n")
    code, _, err = wander(capsys, "world", "import", rows, empty)
    assert (code, err.splitlines()) == (2, [f"wander: {empty} has no rows, expected a scenario in each"])
    code, _, err = wander(capsys, "world", "import", rows, twin, "--out", tmp_path / "out")
    assert (code, len(err.splitlines())) == (2, 1)
    assert f"{rows}, line 1 and {twin} would be one file in --out" in err
    assert not (tmp_path / "out").exists()
    rows.write_text(json.dumps({"data": json.dumps(SHORT)}) + "\n" + json.dumps({"data": "{"}))
    code, _, err = wander(capsys, "world", "import", rows)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "rows.jsonl, line 2: data is not JSON" in err


def test_a_broken_row_is_named(tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"data": json.dumps(SHORT)}) + "\n" + json.dumps({"data": "{"}))
    with pytest.raises(ScenarioError, match=r"rows\.jsonl, line 2: data is not JSON") as refused:
        AreScenarios(tmp_path)
    assert "\n" not in str(refused.value)
    (tmp_path / "rows.jsonl").write_text("{")
    with pytest.raises(UsageError, match=r"rows\.jsonl, line 1: this is no JSON"):
        AreScenarios(tmp_path)
    (tmp_path / "rows.jsonl").unlink()
    with pytest.raises(UsageError, match="no files"):
        AreScenarios(tmp_path)


@pytest.mark.parametrize(("change", "words"), [
    ({"events": []}, "it has apps and no events"),
    ({"duration": -1}, "duration is -1, expected seconds above 0"),
    ({"duration": 0}, "duration is 0, expected seconds above 0"),
    ({"duration": math.inf}, "duration is inf, expected a number"),
    ({"start_time": math.nan}, "start_time is nan, expected a number"),
    ({"seed": math.inf}, "seed is inf, expected a number"),
    ({"seed": 1.5}, r"seed is 1\.5, expected a whole number"),
    ({"wanderlust": {"failures": 5.0}}, r"metadata\.wanderlust.* failures are 5, expected a share"),
    ({"wanderlust": {"failures": -0.1}}, r"failures are -0\.1, expected a share"),
])  # fmt: skip
def test_worlds_in_which_nothing_can_happen_are_refused(change, words):
    raw = json.loads(json.dumps(SHORT))
    raw["metadata"]["definition"] |= {key: value for key, value in change.items() if key in FIGURES}
    raw |= {name: value for name, value in change.items() if name == "events"}
    raw["metadata"] |= {name: value for name, value in change.items() if name == "wanderlust"}
    with pytest.raises(ScenarioError, match=words) as refused:
        import_scenario(raw)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("wrong", [{"duration": -1}, {"duration": math.nan}, {"start": math.inf}, {"failures": 1.5}])
def test_a_scenario_of_ones_own_needs_figures_that_can_be(wrong):
    with pytest.raises(ScenarioError, match=f"scenario 'mine': its {next(iter(wrong))}"):
        Scenario(id="mine", apps=(Notes(),), **wrong)


def test_files_that_expect_nothing_of_the_agent_are_no_environment(tmp_path):
    (tmp_path / "asks.json").write_text(json.dumps(file(asks(), scenario_id="asks")))
    with pytest.raises(ScenarioError, match=r"asks\.json: no event is the agent's: doing nothing would pass"):
        AreScenarios(tmp_path)
    assert import_scenario((tmp_path / "asks.json").read_bytes()).scenario.oracle == ()


# Export


def test_an_export_says_what_are_refuses(caplog):
    assert export_warnings(import_scenario(LUNCH).scenario) == ()
    raw = file(
        asks(),
        event("sent", "AGENT", "Emails.send_email", after=["ask"], recipients=["ana@x.org"], subject="a", content="b"),
        event(
            "late", "ENV", "Emails.send_email_to_user_only", after=["sent"], sender="a@x.org", subject="", content="x"
        ),
        event("join", "ENV", "Emails.send_email_to_user_only", after=["ask", "late"], sender="a@x.org", content="x"),
        event("alone", "AGENT", "Contacts.delete_contact", contact_id="c3"),
        tells("Done.", "end", ["sent"]),
        event("after", "AGENT", "Contacts.delete_contact", after=["end"], contact_id="c2"),
    )
    scenario = import_scenario(raw).scenario
    with caplog.at_level(logging.WARNING):
        export_scenario(scenario)
    assert [line.partition(":")[0] for line in export_warnings(scenario)] == [
        "event 'late'",
        "event 'join'",
        "event 'alone'",
        "event 'after'",
    ]
    (record,) = caplog.records
    assert "ARE will refuse this file: event 'late'" in record.getMessage()
    assert "(and 3 more)" in record.getMessage()


def test_an_export_says_which_apps_ares_importer_leaves_out():
    raw = import_scenario(LUNCH).scenario
    ask = PlannedCall(
        id="a", app="AgentUserInterface", action="send_message_to_agent", by="user", args={"content": "a"}
    )
    act = PlannedCall(
        id="b", app="Reminders", action="delete_reminder", by="agent", after=("a",), args={"reminder_id": "r"}
    )
    scenario = Scenario(id="x", apps=(*raw.apps, Reminders()), events=(ask, act))
    assert export_warnings(scenario) == ("event 'b': ARE's importer knows no app of class ReminderApp",)


def test_life_says_which_of_its_families_are_takes():
    refused = {name for name in all_families() if export_warnings(scenario_of(f"{name}/eval-0/1"))}
    assert {"plan-b", "sold-out", "ride-cancelled", "ask-around"} <= refused
    assert not refused & {"invite", "who-said", "two-of-a-name", "too-late"}


# Judges by name


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "files"
    place.mkdir()
    (place / "lunch.json").write_text(json.dumps(LUNCH))
    return place


JUDGE = """
from wanderlust.policies.scripted import Scripted

Yes = Scripted(lambda messages, rng: '{"same": true}')
No = Scripted(lambda messages, rng: '{"same": false}')
"""


def test_settings_name_a_judge(folder):
    for env in ("life", "life-team", f"are,folder={folder}"):
        judge = load_environment(f"{env},judge=http://localhost:1/v1,judge_model=m").judge
        assert isinstance(judge.policy, Endpoint)
        for wrong, words in (
            ("judge=http://localhost:1/v1", "judge_model=NAME"),
            ("judge=5", "expected a policy, or the name of one"),
            ("judge=nowhere", "no policy 'nowhere'"),
            ("judge_model=m", "needs a judge"),
        ):
            with pytest.raises(UsageError, match=words) as refused:
                load_environment(f"{env},{wrong}")
            assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("name", "reward"), [("Yes", 1.0), ("No", 0.0)])
def test_files_are_judged_from_the_command_line(folder, tmp_path, capsys, name, reward):
    """An agent that writes other words than the oracle: only a judge can tell."""
    (tmp_path / "judges.py").write_text(JUDGE)
    (tmp_path / "player.py").write_text("""
from wanderlust_worlds.exchange.are_scenarios import TurnOracle
from wanderlust.types import Completion, ToolCall, assistant
import json

class Other(TurnOracle):
    async def complete(self, messages, tools=(), *, key=""):
        done = await super().complete(messages, tools, key=key)
        calls = []
        for call in done.message.tool_calls:
            args = json.loads(call.arguments)
            if "content" in args:
                args["content"] = "In other words: " + args["content"]
            calls.append(ToolCall(id=call.id, name=call.name, arguments=json.dumps(args)))
        return Completion(message=assistant(done.message.content, *calls))
""")
    judge, player = (f"{tmp_path / file}" for file in (f"judges.py:{name}", "player.py:Other"))
    words = ("eval", f"are,folder={folder}", "--policy", player, "--json")
    code, out, err = wander(capsys, *words, "--judge", judge)
    assert code == 0, err
    assert json.loads(out)["report"]["rewards"]["agent"]["value"] == reward
    assert "undecided" not in err
    code, out, err = wander(capsys, *words)
    assert json.loads(out)["report"]["rewards"]["agent"]["value"] == 0.0
    assert "1 of 1 verdicts are undecided and count as not accepted: only a judge can tell (--judge)" in err


def test_a_judge_rejects_what_the_facts_of_life_accept(tmp_path):
    (tmp_path / "judges.py").write_text(JUDGE)
    env = AssistantLife(["who-said"], levels=(2,), judge=str(tmp_path / "judges.py:No"))
    task = next(iter(env.tasks("eval")))
    right = env.scenario(task).oracle[0].args["content"]
    said = Scripted(lambda messages, rng: f"Hello. {right}" if len(messages) < 4 else "")
    done = asyncio.run(rollout(env, task, said))
    assert done.trajectories[0].score.reward == 0.0
    alone = AssistantLife(["who-said"], levels=(2,))
    assert asyncio.run(rollout(alone, task, said)).trajectories[0].score.reward == 1.0


def test_a_rubric_with_a_judge_asks_the_facts_of_life_too():
    env = AssistantLife(["who-said"], levels=(2,))
    task = next(iter(env.tasks("eval")))
    right = env.scenario(task).oracle[0].args["content"]
    yes = Scripted(lambda messages, rng: '{"same": true}')
    for text, judge, reward in (("Nobody.", yes, 0), (f"Hello. {right}", yes, 1), (f"Hello. {right}", None, 1)):
        said = Scripted([text, ""])
        done = asyncio.run(rollout(env, task, said, rubric=OracleRubric(env, judge=judge)))
        assert done.trajectory.score.reward == reward, text


def test_a_judge_alone_is_refused_in_one_line(capsys):
    code, _, err = wander(capsys, "eval", "life", "--policy", "nothing", "--judge-model", "m")
    assert code == 2
    assert "--judge-model needs --judge" in err
    code, _, err = wander(capsys, "eval", "wordle", "--policy", "oracle", "--judge", "http://localhost:1/v1")
    assert code != 0
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(("env", "words"), [
    ("life,nonsense=1", "has no setting 'nonsense'; there are: families, levels, .*judge, .*limits"),
    ("life,families=nap", "no family 'nap'"),
    ("life,levels=9", "no level 9"),
    ("life,thinking=5", "thinking is 5, expected a function"),
    ("life,gate=5", "gate is 5, expected a function"),
    ("life,limits=5", "limits is 5, expected Limits"),
    ("life-team,apps=Nope", "no app 'Nope': one of AgentUserInterface"),
    ("are,folder=FOLDER,compat=foo", "compat is 'foo', expected one of strict, are, gaia2_cli"),
    ("are,folder=FOLDER,window=5", "window is 5, expected a TimeWindow"),
    ("are,folder=FOLDER,rubric=x", "rubric is 'x', expected a rubric"),
    ("are,folder=FOLDER,share=1", "no setting 'share'; there are: folder, judge, judge_model, compat, window"),
])  # fmt: skip
def test_settings_that_cannot_be_are_one_line_before_anything_is_played(folder, capsys, env, words):
    code, out, err = wander(capsys, "eval", env.replace("FOLDER", str(folder)), "--policy", "nothing")
    assert (code, out, len(err.strip().splitlines())) == (2, "", 1), err
    assert re.search(words, err), err


def test_one_family_level_or_app_may_be_named_by_itself():
    env = load_environment("life,families=invite,levels=2")
    assert ([one.name for one in env.families], env.levels) == (["invite"], (2,))
    assert load_environment("life-team,apps=Emails").seats == ("agent", "Emails")


def test_the_policies_that_are_there_are_named(folder, capsys):
    code, _, err = wander(capsys, "eval", f"are,folder={folder}", "--policy", "greedy")
    assert code == 2
    assert "a player of the environment: oracle, nothing" in err
    assert len(err.strip().splitlines()) == 1


# What is no universe, and no app


def test_a_universe_that_is_not_there_is_one_line():
    with pytest.raises(UsageError, match=r"'mine'.*train, held"):
        make_universe(1, "small", "mine")
    with pytest.raises(UsageError, match=r"'huge'.*small, medium, gaia2"):
        make_universe(1, "huge")


def test_a_class_is_no_app():
    with pytest.raises(UsageError, match=r"check_app got the class Notes: pass an app, as in check_app\(Notes\(\)\)"):
        check_app(Notes)
    with pytest.raises(UsageError, match="check_app got 5, expected an app"):
        check_app(5)
    assert check_app(Notes()) == check_app(Notes())
