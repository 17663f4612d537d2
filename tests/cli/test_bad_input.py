"""Bad input on the command line: one clear line and exit code 2 for a wrong call, 1 for any other failure."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from wanderlust import Scripted, check, evaluate_sync
from wanderlust._lazy import missing_package
from wanderlust.cli.demo_report import DemoReport
from wanderlust.cli.main import main
from wanderlust.cli.train_command import note_next_commands
from wanderlust.errors import UsageError
from wanderlust.tasks.registry import resolve_object
from wanderlust.training.presets import QUICK_DEMO

ENVIRONMENTS = """
from wanderlust import Environment, Judge, Rubric, Scripted, Task, user


class Fine(Environment):
    def tasks(self, split="train"):
        return [Task(id=f"{split}-{n}", prompt=(user("?"),), answer="1") for n in range(3)]

    async def run(self, episode):
        said = await episode.agent.act(*episode.task.prompt)
        episode.reward("right", float(said.content == "1"))

    def oracle(self, task):
        return Scripted(["1"])


class Raises(Fine):
    def tasks(self, split="train"):
        raise KeyError("no file")


class Dicts(Fine):
    def tasks(self, split="train"):
        return [{"id": "a"}]


class Silent(Fine):
    def tasks(self, split="train"):
        return [Task(id="only")]

    async def run(self, episode):
        episode.reward("right", 1.0)

    oracle = Environment.oracle


class Forgets(Fine):
    async def run(self, episode):
        episode.agent.act(*episode.task.prompt)
        episode.reward("right", 1.0)


class Numbered(Fine):
    def tasks(self, split="train"):
        return [Task(id=1)]


class SeatsText(Fine):
    seats = "agent"


class NoSeats(Fine):
    seats = ()


class OneSeatTwice(Fine):
    seats = ("a", "a")


class LimitsNumber(Fine):
    limits = 3


class PlayersList(Fine):
    players = ["teacher"]


class PlayersMade(Fine):
    players = {"teacher": Scripted(["1"])}


class RubricFunction(Fine):
    rubric = staticmethod(lambda completion: 1.0)


class TeacherFails(Fine):
    players = {"teacher": lambda: Scripted(lambda messages, rng: 1 / 0)}


class SameIds(Fine):
    def tasks(self, split="train"):
        return [Task(id="same", prompt=(user(f"{n}?"),), answer="1") for n in range(3)]


class NobodyLearns(Fine):
    async def run(self, episode):
        episode.agent.trajectory.trainable = False
        await super().run(episode)


class Empty(Fine):
    def tasks(self, split="train"):
        return []


class RewardText(Fine):
    async def run(self, episode):
        episode.reward("right", "high")


class RewardNobody(Fine):
    async def run(self, episode):
        episode.reward("right", 1.0, "nobody")


class Leaves(Fine):
    async def run(self, episode):
        raise SystemExit(3)


class Chatty(Fine):
    async def run(self, episode):
        print("debugging")
        await super().run(episode)


class Sized(Fine):
    def __init__(self, size):
        self.size = size


class PlayerIsAnObject(Fine):
    players = {"teacher": Scripted(["1"])}


class PlayerIsNoPolicy(Fine):
    players = {"teacher": lambda: 7}


class PlayerFails(Fine):
    players = {"teacher": lambda: 1 / 0}


class RandomFails(Fine):
    players = {"teacher": lambda: Scripted(["1"]), "random": lambda: 1 / 0}


class OracleRaises(Fine):
    def oracle(self, task):
        raise KeyError("no such key")


def unreadable(messages, rng):
    return "no verdict in this"


def nothing(messages, rng):
    return None


async def later(messages, rng):
    return "1"


class SaysText:
    async def complete(self, messages, tools=(), *, key=""):
        return "1"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.py").write_text(ENVIRONMENTS)
    monkeypatch.delitem(sys.modules, "bad", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


FRESH = ["train", "--policy", "fresh", "--sft-episodes", "2", "--sft-steps", "1", "--steps", "1"]


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def refused(capsys: pytest.CaptureFixture[str], words: Sequence[object], code: int, *parts: str) -> None:
    ended, out, err = run(capsys, *words)
    assert (ended, out) == (code, ""), err
    (line,) = err.splitlines()
    assert line.startswith("wander: ")
    assert all(part in line for part in parts), line


@pytest.mark.parametrize(
    "words",
    [
        ["eval", "--policy", "oracle"],
        ["check"],
        ["probe"],
        ["train", "--policy", "fresh", "--sft-episodes", "2", "--sft-steps", "1", "--steps", "1"],
        [
            "train",
            "--policy",
            "fresh",
            "--sft-episodes",
            "2",
            "--sft-steps",
            "1",
            "--steps",
            "1",
            "--curriculum",
            "uniform",
        ],
        ["play"],
    ],
    ids=" ".join,
)
def test_tasks_that_raise_or_are_no_tasks(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    verb, *options = words
    refused(capsys, [verb, "bad.py:Raises", *options], 1, "KeyError", "no file")
    refused(capsys, [verb, "bad.py:Dicts", *options], 2, "Dicts.tasks", "gave a dict")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("Numbered", "gave a task whose id is 1, and not a text"),
        ("SeatsText", "SeatsText.seats is 'agent'"),
        ("NoSeats", "NoSeats.seats is ()"),
        ("OneSeatTwice", "names a seat twice: ('a', 'a')"),
        ("LimitsNumber", "LimitsNumber.limits is 3: it must be Limits(...)"),
        ("PlayersList", "PlayersList.players must be functions that make a policy"),
        ("PlayersMade", "PlayersMade.players must be functions that make a policy"),
        ("RubricFunction", "RubricFunction.rubric is a function: it must be a Rubric(...)"),
    ],
)
def test_what_an_environment_declares_wrongly_is_one_line(
    capsys: pytest.CaptureFixture[str], kind: str, said: str
) -> None:
    for verb in (["eval", "--policy", "oracle"], ["check"], ["probe"]):
        refused(capsys, [verb[0], f"bad.py:{kind}", *verb[1:]], 2, said)
    env = object.__new__(resolve_object(f"bad.py:{kind}"))
    assert any(said in str(one) for one in check(env, probe=False).violations)
    with pytest.raises(UsageError, match=re.escape(said)):
        evaluate_sync(env, Scripted(["1"]), progress=False)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("RewardText", "the reward 'right' is 'high', which is no number"),
        ("RewardNobody", "there is no seat 'nobody' to reward; there are: agent"),
        ("Leaves", "it called sys.exit(3)"),
    ],
)
def test_what_an_episode_does_wrongly_is_its_failure(capsys: pytest.CaptureFixture[str], kind: str, said: str) -> None:
    code, _, err = run(capsys, "eval", f"bad.py:{kind}", "--policy", "oracle")
    assert (code, f"EnvironmentFailure x3: {said}" in err) == (1, True)
    code, out, _ = run(capsys, "check", f"bad.py:{kind}", "--no-probe", "--json")
    assert (code, said in out) == (1, True)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("TeacherFails", "there is nothing to train on: PolicyFailure: ZeroDivisionError"),
        ("Silent", "no player 'oracle' to imitate"),
        ("SameIds", "two different tasks have the id 'same'"),
        ("NobodyLearns", "there is nothing to train on: no seat of the environment learns"),
        ("Empty", "the split 'train' is empty"),
    ],
)
def test_why_there_is_nothing_to_imitate(capsys: pytest.CaptureFixture[str], kind: str, why: str) -> None:
    code, _, err = run(capsys, FRESH[0], f"bad.py:{kind}", *FRESH[1:])
    assert (code, why in err.splitlines()[-1]) == (2, True), err


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("nothing", "PolicyFailure x3: the script gave a NoneType, and neither a text nor a Message"),
        ("SaysText", "PolicyFailure x3: the policy gave a str, and not a Completion"),
    ],
)
def test_what_is_no_answer_is_the_policys_failure(capsys: pytest.CaptureFixture[str], policy: str, said: str) -> None:
    code, _, err = run(capsys, "eval", "bad.py:Fine", "--policy", f"bad.py:{policy}")
    assert (code, said in err) == (1, True)
    assert run(capsys, "eval", "bad.py:Fine", "--policy", "bad.py:later")[0] == 0


def test_options_that_change_nothing_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    fine = ["eval", "bad.py:Fine", "--policy", "oracle"]
    assert "no task has 'level' in its info" in run(capsys, *fine, "--group-by", "level")[2]
    refused(capsys, [*fine, "--pass-threshold", "nan"], 2, "the pass threshold is nan")
    gap = ["judge", "gap", "bad.py:Fine", "--policy", "oracle", "--judge", "bad.py:unreadable", "--template", "none"]
    refused(capsys, gap, 2, "cannot read --template none")


@pytest.mark.parametrize("verb", [["serve-env", "tictactoe"], ["studio"], ["serve", "smollm2"]], ids=lambda v: v[0])
def test_a_port_that_there_is_not(capsys: pytest.CaptureFixture[str], verb: list[str]) -> None:
    refused(capsys, [*verb, "--port", "99999"], 2, "--port", "65535")


def test_a_missing_package_is_named_with_its_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "nltk", raising=False)
    line = missing_package(ModuleNotFoundError("No module named 'nltk'", name="nltk"))
    assert line.endswith("pip install 'wanderlust[graders]'")
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    for module in ("wanderlust.cli.serve", "wanderlust.adapters.openenv"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    refused(capsys, ["serve-env", "tictactoe"], 2, "'aiohttp'", "pip install aiohttp")


def test_a_stdout_that_cannot_encode_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stdout)
    for words in (["list"], ["list", "--json"]):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert not end.value.code
    assert b"tictactoe" in stdout.buffer.getvalue()  # type: ignore[attr-defined]


def test_stdout_holds_the_json_alone(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, "eval", "bad.py:Chatty", "--policy", "oracle", "--json")
    assert (code, json.loads(out)["policy"]) == (0, "oracle in bad.py:Chatty")
    assert "debugging" in err
    assert "debugging" in run(capfd, "eval", "bad.py:Chatty", "--policy", "oracle")[1]


def test_near_names_and_full_lists(capsys: pytest.CaptureFixture[str]) -> None:
    fresh = ("--policy", "fresh")
    refused(capsys, ["evl"], 2, "no command 'evl'; did you mean eval? (see wander --help)")
    wrong = ["eval", "tictactoe", "--policy", "oracle", "--modle", "x"]
    refused(capsys, wrong, 2, "no option --modle; did you mean --model", "(see wander eval --help)")
    algorithm = ["train", "bad.py:Fine", *fresh, "--algorithm"]
    refused(capsys, [*algorithm, "grppo"], 2, "did you mean grpo", "in all: ", "cispo-tree")
    refused(capsys, [*algorithm, "zzz"], 2, "there are ", "cispo-tree", "self-play")


def test_an_agent_that_is_never_asked(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "check", "bad.py:Silent", "--json")
    assert code == 1
    assert "turns" in {one["rule"] for one in json.loads(out)["problems"]}
    code, out, _ = run(capsys, "check", "bad.py:Fine", "--num-tasks", "50", "--no-probe")
    assert code == 0
    assert "keeps its contract on 3 tasks" in out


def test_a_forgotten_await_is_said_by_every_command(folder: Path) -> None:
    words = ["eval", "bad.py:Forgets", "--policy", "oracle"]  # in a process of its own: warnings are errors here
    command = [sys.executable, "-m", "wanderlust.cli.main", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert "coroutine 'Agent.act' was never awaited: put `await` before the call" in done.stderr


def test_a_short_option_is_not_another_long_one(capsys: pytest.CaptureFixture[str]) -> None:
    gap = ["judge", "gap", "bad.py:Fine", "--policy", "oracle", "--judge", "bad.py:unreadable"]
    refused(capsys, [*gap, "--n", "2"], 2, "no option --n")


def test_no_command_is_recommended_that_cannot_work(capsys: pytest.CaptureFixture[str]) -> None:
    note_next_commands("kuhn", Path("runs/x"), "c")
    assert "wander play" not in (out := capsys.readouterr().out)
    assert "wander eval kuhn --policy runs/x" in out
    note_next_commands("tictactoe", Path("runs/x"), "c")
    assert "wander play tictactoe --policy runs/x" in capsys.readouterr().out


@pytest.mark.parametrize("recipe", ["train", "demo"])
def test_a_finished_demo_is_shown_again(capsys: pytest.CaptureFixture[str], folder: Path, recipe: str) -> None:
    run_folder = folder / "runs" / "demo-quick-seed0"
    run_folder.mkdir(parents=True)
    (run_folder / "run.json").write_text(json.dumps({"recipe": recipe, "config": QUICK_DEMO.as_dict()}))
    refused(capsys, ["demo", "--quick"], 2, "wander demo --resume runs/demo-quick-seed0")
    if recipe == "demo":
        refused(capsys, ["demo", "--resume", run_folder], 2, "earlier version")
    report = DemoReport(seed=0, wall_s=1.0, checkpoint="c", rows=(), curve=())
    (run_folder / "report.json").write_text(json.dumps(report.as_dict() if recipe == "demo" else {}))
    if recipe == "train":
        (run_folder / "demo.json").write_text(json.dumps(report.as_dict()))
    code, out, _ = run(capsys, "demo", "--quick")
    assert code == 0
    words = ("ceiling", "wander studio", "wander play", "wander eval", "wander train", "wander demo --quick --seed 1")
    places = [out.index(word) for word in words]
    assert places == sorted(places)
    refused(capsys, ["demo", "--out", run_folder], 2, "exists already")


def test_a_folder_that_cannot_be_made(capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, ["eval", "bad.py:Fine", "--policy", "oracle", "--out", "/proc/x"], 1, "/proc/x")


def test_a_run_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, ["show", "nosuch"], 2, "nosuch")
    refused(capsys, ["runs", "nosuch"], 2, "nosuch")


def test_a_constructor_with_an_argument(capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, ["check", "bad.py:Sized"], 2, "bad.py:Sized,size=...")


@pytest.mark.parametrize("how", ["gap", "calibrate"])
def test_verdicts_that_cannot_be_read(capsys: pytest.CaptureFixture[str], folder: Path, how: str) -> None:
    (folder / "items").write_text('{"prompt": "?", "completion": "1", "label": true}\n')
    gap = ["gap", "bad.py:Fine", "--policy", "oracle", "--judge", "bad.py:unreadable", "--samples", "2"]
    words = gap if how == "gap" else ["calibrate", "items", "--policy", "bad.py:unreadable"]
    code, out, err = run(capsys, "judge", *words)
    assert (code, out) == (1, "")
    assert "verdict: " in err.splitlines()[-1]
    assert "JSON is malformed" in err


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "help", "eval") == run(capsys, "eval", "--help")
    assert run(capsys, "help") == run(capsys, "--help")
    assert run(capsys, "-V") == run(capsys, "--version")


@pytest.mark.parametrize("name", ["mistral/large", "gpt-4o"])
def test_hosted_names_list_what_a_policy_may_be(capsys: pytest.CaptureFixture[str], name: str) -> None:
    accepted = ("URL with --model", "run or checkpoint folder", "smollm2", "fresh", "script module:name", "oracle")
    refused(capsys, ["eval", "bad.py:Fine", "--policy", name], 2, f"no policy {name!r}", *accepted)
    refused(capsys, ["train", "bad.py:Fine", "--policy", name], 2, f"no policy {name!r}", *accepted[1:4])


SHORT = ("--sft-episodes", "2", "--sft-steps", "1", "--steps", "1")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("PlayerIsNoPolicy", "the player 'teacher' makes a int, which is no policy"),
        ("PlayerFails", "cannot make the player 'teacher': ZeroDivisionError"),
    ],
)
def test_a_player_that_cannot_be_made(capsys: pytest.CaptureFixture[str], name: str, told: str) -> None:
    for words in (["eval", "--policy", "teacher"], ["train", "--policy", "fresh", *SHORT]):
        refused(capsys, [words[0], f"bad.py:{name}", *words[1:]], 2, told)
    code, out, err = run(capsys, "check", f"bad.py:{name}", "--json")
    assert code == 1, err
    assert told in {one["rule"]: one["detail"] for one in json.loads(out)["problems"]}["players"]


def test_players_that_are_no_functions(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["eval", "--policy", "teacher"], ["train", "--policy", "fresh", *SHORT]):
        told = "PlayerIsAnObject.players must be functions that make a policy, by name"
        refused(capsys, [words[0], "bad.py:PlayerIsAnObject", *words[1:]], 2, told)


def test_a_random_player_that_fails_is_told_before_training(capsys: pytest.CaptureFixture[str]) -> None:
    """It plays when the run is over."""
    words = ["train", "bad.py:RandomFails", "--policy", "fresh", *SHORT]
    refused(capsys, words, 2, "cannot make the player 'random': ZeroDivisionError")


def test_an_oracle_that_raises(capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([], ["--no-probe"]):
        code, out, err = run(capsys, "check", "bad.py:OracleRaises", "--json", *more)
        problems = {one["rule"]: one["detail"] for one in json.loads(out)["problems"]}
        assert (code, problems["oracle"]) == (1, "oracle(task) raises for task 'train-0': KeyError: 'no such key'"), err
    refused(capsys, ["probe", "bad.py:Fine", "--oracle", "oracel"], 2, "no player 'oracel'; did you mean oracle?")
    _, _, err = run(capsys, "probe", "bad.py:OracleRaises", "--num-tasks", "3")
    assert "the oracle failed (task 'eval-0': KeyError: 'no such key'), so 1 counts as the full reward" in err
    assert (
        "there is nothing to train on: PolicyFailure: KeyError: 'no such key'"
        in run(capsys, "train", "bad.py:OracleRaises", "--policy", "fresh", *SHORT)[2]
    )


def test_what_cannot_be_imported(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "raises.py").write_text("def answer(messages, rng):\n    return '1'\n\n\nraise ValueError('no data')\n")
    refused(
        capsys, ["eval", "bad.py:Fine", "--policy", "raises.py:answer"], 2, "cannot be imported: ValueError: no data"
    )
    for target in (":answer", "bad:", ".bad:answer"):
        refused(capsys, ["probe", "bad.py:Fine", "--more", target], 2, f"{target!r} names nothing to import")
