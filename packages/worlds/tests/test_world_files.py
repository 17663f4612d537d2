"""Files of ARE from the command line: imported, played as an environment, verified; budgets of what was played."""

from __future__ import annotations

import asyncio
import copy
import json
import subprocess
import sys
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from are_scenarios import asks, event, file, tells
from bars_exchange import unseen
from packages import install
from wanderlust.cli.main import main
from wanderlust.errors import UsageError
from wanderlust.policies.base import TokenPrices
from wanderlust.testing import check_environment
from wanderlust.types import Rollout, Score, Status, Task, Trajectory, Turn, assistant
from wanderlust_life.assistant_life import scenario_of
from wanderlust_worlds.engine.events import ScenarioError
from wanderlust_worlds.engine.log import log_bytes
from wanderlust_worlds.engine.scenario import play_oracle
from wanderlust_worlds.exchange.are_scenarios import AreScenarios
from wanderlust_worlds.exchange.read import import_scenario, read_scenario
from wanderlust_worlds.success_curve import BudgetOutcome, budget_grid, budget_outcomes, success_curve
from wanderlust_worlds.wrap.world_environment import agent_tools

LUNCH = file(
    asks(),
    event("sent", "AGENT", "Emails.send_email", after=["ask"], recipients=["ana@x.org"], subject="Lunch", content="?"),
    event("gone", "AGENT", "Contacts.delete_contact", after=["ask"], contact_id="c3"),
    tells("I asked.", "told", ["sent", "gone"]),
    event("reply", "ENV", "Emails.reply_to_email_from_user", after=["told"], delay=60.0, sender="ana@x.org",
          email_id="{{sent}}", content="At one?"),
    event("back", "AGENT", "Emails.reply_to_email", after=["reply"], email_id="{{reply}}", content="Yes."),
    tells("Done.", "end", ["back"]),
    scenario_id="lunch",
)  # fmt: skip


ARE = "wanderlust_worlds.exchange.are_scenarios:AreScenarios"


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "files"
    place.mkdir()
    (place / "lunch.json").write_text(json.dumps(LUNCH))
    (place / "short.json").write_text(json.dumps(file(asks(), tells("Hi.", "end", ["ask"]), scenario_id="short")))
    return place


def wander(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    said = capsys.readouterr()
    return end.value.code, said.out, said.err


def with_names(names):
    return LUNCH | {"augmentation": {"tool_names_mapping": names}}


# Names


def test_tools_have_the_names_of_the_augmentation():
    names = {"Contacts__delete_contact": "Contacts__drop", "SystemApp__get_current_time": "now", "Nap__sleep": "nap"}
    got = import_scenario(with_names(names))
    assert got.scenario.names == {"Contacts.delete_contact": "Contacts__drop"}
    assert got.warnings == (
        "augmentation.tool_names_mapping, 'Nap__sleep': there is no such tool to be called otherwise",
    )
    offered = {tool.name for tool in agent_tools(got.scenario.world(), got.scenario.names)}
    assert "Contacts__drop" in offered
    assert "Contacts__delete_contact" not in offered
    assert play_oracle(got.scenario).digest() == play_oracle(import_scenario(LUNCH).scenario).digest()


@pytest.mark.parametrize(("augmentation", "words"), [
    ([1], "augmentation is list, expected an object"),
    ({"tool_names_mapping": [1]}, "tool_names_mapping is list, expected an object"),
    ({"tool_names_mapping": {"Contacts__delete_contact": 3}}, "is to be called 3, expected a name"),
    ({"tool_names_mapping": {"Contacts__delete_contact": "a b"}}, "is to be called 'a b', expected a name"),
    ({"tool_names_mapping": {"Contacts__delete_contact": "Emails__send_email"}}, "would both be called"),
])  # fmt: skip
def test_names_that_cannot_be_are_refused(augmentation, words):
    with pytest.raises(ScenarioError, match=words) as refused:
        import_scenario(LUNCH | {"augmentation": augmentation})
    assert "\n" not in str(refused.value)


# The environment


def test_a_folder_is_an_environment(folder, capsys, tmp_path):
    run = tmp_path / "run"
    code, out, err = wander(capsys, "eval", f"{ARE},folder={folder}", "--policy", "oracle", "--out", run, "--json")
    assert code == 0, err
    assert json.loads(out)["report"]["rewards"]["agent"]["value"] == 1.0
    assert set(json.loads(out)["by"]["capability"]) == {"Execution"}
    code, out, _ = wander(capsys, "world", "verify", run, 1, "--json")
    assert (code, json.loads(out)["decision"]) == (0, "accept")
    code, out, _ = wander(capsys, "world", "budget", run, "--json")
    curves = json.loads(out)["curves"]
    assert [one["measure"] for one in curves] == ["simulated_seconds"]
    assert curves[0]["points"][-1]["success"]["value"] == 1.0
    code, out, _ = wander(capsys, "world", "budget", run, "--group-by", "file")
    assert "simulated seconds, lunch.json (1 rollouts)" in out
    assert "█" * 40 in out
    code, out, _ = wander(capsys, "eval", f"{ARE},folder={folder}", "--policy", "nothing", "--json")
    assert json.loads(out)["report"]["rewards"]["agent"]["value"] == 0.0


def test_it_keeps_the_promises_of_environments(folder):
    assert [str(one) for one in asyncio.run(check_environment(AreScenarios(folder)))] == []


def test_folders_that_hold_no_scenarios_are_refused(folder, tmp_path):
    with pytest.raises(UsageError, match="are,folder=DIR"):
        AreScenarios()
    with pytest.raises(ScenarioError, match=r"has no files \*\.json"):
        AreScenarios(tmp_path)
    (folder / "twin.json").write_text(json.dumps(LUNCH))
    with pytest.raises(ScenarioError, match=r"twin\.json: its scenario 'lunch' is in .*lunch\.json as well"):
        AreScenarios(folder)
    (folder / "a.json").write_text("{")
    with pytest.raises(ScenarioError, match=r"a\.json: the file is not JSON"):
        AreScenarios(folder)


# Import


def test_files_are_imported_and_written_as_understood(folder, capsys, tmp_path):
    out_folder = tmp_path / "out"
    files = sorted(folder.iterdir())
    code, out, err = wander(capsys, "world", "import", *files, "--out", out_folder)
    assert (code, err) == (0, "")
    assert "2 of 2 imported" in out
    assert read_scenario(out_folder / "lunch.json").scenario.events == read_scenario(files[0]).scenario.events
    assert wander(capsys, "world", "import", files[0], "--out", out_folder)[0] == 2
    body = json.loads(wander(capsys, "world", "import", files[0], "--json")[1])["imported"][0]
    assert (body["id"], body["turns"], body["events"], body["acts"], len(body["apps"])) == ("lunch", 2, 7, 5, 12)
    assert wander(capsys, "world", "show", files[0])[0] == 0


def change(path, value):
    """LUNCH with something else in one place."""
    raw = copy.deepcopy(LUNCH)
    *way, last = path
    place = raw
    for key in way:
        place = place[key]
    place[last] = value
    return raw


ACT = ("events", 1)
BAD = [
    ((*ACT, "action", "app"), "Nap", "event 'sent': there is no app 'Nap'"),
    ((*ACT, "action", "function"), "nap", "event 'sent': Emails has no action 'nap'"),
    ((*ACT, "dependencies"), ["end"], "event 'sent': it waits for itself"),
    ((*ACT, "dependencies"), ["nobody"], "event 'sent': it comes after 'nobody'"),
    ((*ACT, "action", "args", 0, "value"), "ana", "event 'sent': argument 'recipients' is 'ana', expected list"),
    ((*ACT, "event_relative_time"), "soon", "event 'sent': event_relative_time is 'soon', expected"),
    (("events", 4, "action", "args", 1, "value"), "{{gone by}}", "event 'reply': {{gone by}} has no source"),
    (("events", 2, "action", "args", 0, "value"), "c99", "event 'gone': Contacts.delete_contact failed: "),
    (("events", 5, "event_relative_time"), 1e7, "it never happened; the world stopped by duration"),
]


@pytest.mark.parametrize(("path", "value", "words"), BAD, ids=range(len(BAD)))
def test_bad_files_are_one_line_and_the_others_are_imported(path, value, words, folder, capsys):
    bad = folder / "bad.json"
    bad.write_text(json.dumps(change(path, value)))
    code, out, err = wander(capsys, "world", "import", bad, folder / "short.json")
    assert code == 2
    assert "1 of 2 imported" in out
    assert len(err.splitlines()) == 1
    assert f"{bad}: {words}" in err or (str(bad) in err and words in err)
    assert wander(capsys, "world", "verify", bad)[0] == 2


PLACES = [
    (path, key)
    for path in [(), ("metadata", "definition"), ("events", 1), ("events", 1, "action"), ("events", 4, "action"),
                 ("apps", 3), ("apps", 3, "app_state"), ("apps", 6, "app_state"), ("apps", 4, "app_state")]
    for key in reduce(lambda at, step: at[step], path, LUNCH)
]  # fmt: skip
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=200)
@given(st.sampled_from(PLACES), JUNK)
def test_any_junk_in_a_file_is_refused_or_understood(place, junk):
    (path, key) = place
    assert "\n" not in refusal(change((*path, key), junk))


def refusal(raw):
    """Why a file is refused; nothing where it is not."""
    try:
        play_oracle(import_scenario(raw).scenario)
    except UsageError as error:
        return str(error)
    return ""


# Verify


def test_a_log_is_verified_with_reasons(folder, capsys, tmp_path):
    name, log = folder / "lunch.json", tmp_path / "log.jsonl"
    lines = list(play_oracle(read_scenario(name).scenario).log)
    log.write_bytes(log_bytes(lines))
    assert wander(capsys, "world", "verify", name, "--log", log)[0] == 0
    log.write_bytes(log_bytes(line for line in lines if line.event != "gone"))
    for compat in ("strict", "are", "gaia2_cli"):
        code, out, _ = wander(capsys, "world", "verify", name, "--log", log, "--compat", compat)
        assert code == 1
        assert f"lunch: reject ({compat})" in out
    code, out, _ = wander(capsys, "world", "verify", name, "--log", log, "--json")
    assert (code, json.loads(out)["missing"]) == (1, ["gone"])
    log.write_bytes(log_bytes(lines).replace(b"I asked.", b"Asked her."))
    code, out, _ = wander(capsys, "world", "verify", name, "--log", log)
    assert code == 3
    assert "only a judge can tell: told (content)" in out


def test_a_judge_of_a_log_of_life_stands_beside_the_facts(capsys, tmp_path):
    (tmp_path / "judges.py").write_text(
        "from wanderlust.policies.scripted import Scripted\nYes = Scripted(lambda messages, rng: '{\"same\": true}')\n"
    )
    name, log = "who-said/eval-0/2", tmp_path / "log.jsonl"
    lines = list(play_oracle(scenario_of(name)).log)
    right = next(line.args["content"] for line in lines if line.action == "send_message_to_user")
    for text, accepted in ((f"Hello. {right}", True), ("Nobody.", False)):
        log.write_bytes(log_bytes(lines).replace(right.encode(), text.encode()))
        words = ("world", "verify", name, "--log", log, "--judge", tmp_path / "judges.py:Yes", "--json")
        assert (wander(capsys, *words)[0] == 0) is accepted, text


def test_without_a_log_the_verifier_is_tried(folder, capsys):
    for name in ("plan-b", folder / "lunch.json"):
        for compat in ("strict", "are", "gaia2_cli"):
            code, out, _ = wander(capsys, "world", "verify", name, "--compat", compat, "--json")
            body = json.loads(out)
            assert (code, body["wrong"], body["right"]) == (0, [], body["of"])
            assert body["verdicts"]["as the oracle does"] == {"accept": 1}
            assert body["of"] >= 6


def test_what_cannot_be_verified_is_one_line(folder, capsys, tmp_path):
    name, log, none = folder / "lunch.json", tmp_path / "log", tmp_path / "none"
    log.write_text("{")
    (tmp_path / "empty").write_text("")
    for words, why in (
        (("verify", name, "--log", log), "this is no log of a world"),
        (("verify", name, "--log", none), "cannot be read"),
        (("verify", name, "--log", tmp_path), "cannot be read"),
        (("verify", name, "--log", tmp_path / "empty"), "is empty"),
        (("verify", none / "x.json"), "cannot be read"),
        (("verify", name, none, 1), "there is no run here"),
        (("verify", none, "x"), "say which rollout"),
        (("verify",), "needs SCENARIO"),
        (("import",), "needs FILE"),
        (("import", folder), "cannot be read: Is a directory"),
        (("budget", none), "there is no run here"),
    ):
        code, out, err = wander(capsys, "world", *words)
        assert (code, out) == (2, ""), words
        assert why in err
        assert len(err.splitlines()) == 1


# Budgets


def played(task, reward, read=0, written=0, status=Status.DONE):
    usage = {"prompt_tokens": read, "completion_tokens": written} if read else {}
    turn = Turn(observation=(), action=assistant("x"), usage=usage)
    score = None if reward is None else Score(reward=reward, metrics={"simulated_seconds": float(read)})
    return Rollout(task=Task(id=task), seed=0, status=status, trajectories=[Trajectory(turns=[turn], score=score)])


def test_curves_count_what_passed_within_the_budget():
    rollouts = [played("a", 1.0, 10, 5), played("b", 0.0, 1, 1), played("c", 1.0, 100, 1), played("d", 1.0),
                played("e", None, 1, 1, Status.ERROR)]  # fmt: skip
    found, unknown = budget_outcomes(rollouts, "tokens")
    assert unknown == 1
    assert budget_grid(found) == [15.0, 101.0]
    points = success_curve(found, [2.0, *budget_grid(found)])
    assert [round(point.success.value, 3) for point in points] == [0.0, 0.333, 0.667]
    assert all(point.success.low <= point.success.value <= point.success.high for point in points)
    money, _ = budget_outcomes(rollouts, "dollars", prices=TokenPrices(input=1e6, output=2e6))
    assert [one.spent for one in money] == [20.0, 3.0, 102.0]
    assert budget_outcomes(rollouts, "dollars") == ([], 4)
    assert [one.spent for one in budget_outcomes(rollouts, "simulated_seconds")[0]] == [10.0, 1.0, 100.0, 0.0]


def test_a_budget_is_what_the_seat_that_learns_passed_by():
    one = played("a", 0.0, 2, 1)
    one.trajectories[0].trainable = False
    one.trajectories.append(Trajectory(seat="b", score=Score(reward=1.0)))
    ((found,), unknown) = budget_outcomes([one], "tokens")
    assert (found.passed, found.spent, unknown) == (True, 3.0, 0)


@given(
    st.lists(
        st.builds(BudgetOutcome, task=st.sampled_from("abc"), passed=st.booleans(), spent=st.floats(0, 1e9)), min_size=1
    )
)
def test_curves_rise_to_the_share_that_passed(found):
    values = [point.success.value for point in success_curve(found, budget_grid(found))]
    assert values == sorted(values)
    assert len(values) <= 12
    assert values[-1] == pytest.approx(sum(one.passed for one in found) / len(found))


# What nobody has seen


@pytest.mark.parametrize("seed", [11, 77_003])
def test_new_scenarios_of_the_schema_pass(seed):
    right, wrong = unseen(seed, 10)
    assert wrong == []
    assert right == 62


NAMED = """
from pathlib import Path

from wanderlust.errors import UsageError
from wanderlust_worlds.exchange.read import read_scenario


def scenario(name):
    if name != "my-lunch":
        raise UsageError(f"{name!r} is no lunch")
    return read_scenario(Path("lunch.json")).scenario
"""


def test_a_package_makes_scenarios_known_by_name(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    points = {"wanderlust_worlds.scenarios": {"a-lunch": "lunches:scenario", "lost": "lunches:nothing"}}
    install(tmp_path / "site", monkeypatch, name="lunches", points=points, code=NAMED)
    monkeypatch.chdir(folder)
    assert json.loads(wander(capsys, "world", "show", "my-lunch", "--json")[1])["id"] == "lunch"
    assert wander(capsys, "world", "verify", "my-lunch")[0] == 0
    assert json.loads(wander(capsys, "world", "show", "invite", "--json")[1])["id"] == "invite/eval-0/1"
    code, out, line = wander(capsys, "world", "show", "my-dinner")
    assert (code, out, len(line.splitlines())) == (2, "", 1)
    assert all(
        part in line for part in ("'my-dinner' is no lunch", "no family 'my-dinner'", "of the package lunches 0.1")
    )


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("world show invite", "'invite' is no file of a scenario, and the environment 'life' is not installed"),
        ("world list", "wander world has no command 'list'"),
    ],
)
def test_without_lives_one_line_says_what_brings_them(words: str, what: str, tmp_path: Path) -> None:
    code = f"""
import importlib.metadata as metadata
found = metadata.entry_points
metadata.entry_points = lambda **wanted: tuple(one for one in found(**wanted) if "wanderlust_life" not in one.value)
from wanderlust.cli.main import main
main({words.split()!r})
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"wander: {what}: install it with pip install 'wanderlust[environments]'\n"
