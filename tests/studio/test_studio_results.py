"""What the studio says of a run's result: tasks compared, figures by version, durations, settings, names, access."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from studios import TOKEN, Client, served
from wanderlust.cli.main import main
from wanderlust.environment import Environment, Episode
from wanderlust.evals.evaluate import evaluate_sync
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.progress import NullLogger
from wanderlust.store.store import RunStore
from wanderlust.studio.auth import lasting_token
from wanderlust.studio.comparisons import widest_pair
from wanderlust.studio.static_export import export_site
from wanderlust.types import Group, Rollout, Score, Task, Trajectory, Turn, assistant, user

TICTACTOE = "wanderlust.environments.tictactoe:TicTacToe"


class Paid(Environment):
    """Pays what it is told, and fails for half of the tasks while it does not work."""

    works = False

    def __init__(self, pay: float) -> None:
        self.pay = pay

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id=f"t{n}", prompt=(user("x"),), info={"half": n % 2, "number": n}) for n in range(6)]

    async def run(self, episode: Episode) -> None:
        await episode.agent.act(*episode.task.prompt)
        if not self.works and int(episode.task.id[1:]) % 2:
            raise ValueError("not now")
        episode.reward("constructor", self.pay)


def evaluated(folder: Path, policy: str, *words: str) -> Path:
    options = ["-n", "10", "--samples", "3", "--group-by", "opponent", "--out", str(folder), "--policy", policy]
    with pytest.raises(SystemExit) as end:
        main(["eval", "tictactoe", *options, *words])
    assert end.value.code == 0
    return folder


def stored(folder: Path, rewards: dict[str, list[float | None]], *, config: dict[str, Any] | None = None) -> Path:
    """An evaluation with these rewards by task, one group each."""
    folder.mkdir(parents=True)
    settings = {"env": "toy", "policy": "mine", **(config or {})}
    (folder / "run.json").write_text(json.dumps({"recipe": "eval", "config": settings}))
    with RunStore.create(folder / "rollouts.db") as store:
        for index, (task, values) in enumerate(rewards.items()):
            rollouts = [played(task, number, reward) for number, reward in enumerate(values)]
            store.add([Group(task=rollouts[0].task, rollouts=rollouts, index=index)], stage="eval", step=0, env="toy")
    return folder


def played(task: str, number: int, reward: float | None) -> Rollout:
    turn = Turn(observation=(user("?"),), action=assistant(f"sample {number}"))
    score = None if reward is None else Score(reward=reward)
    return Rollout(
        task=Task(id=task), seed=0, sample_index=number, trajectories=[Trajectory(turns=[turn], score=score)]
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    evaluated(root / "teacher", "teacher")
    evaluated(root / "random", "random")
    stored(root / "first", {"same-first": [0.2, 0.2, 0.7], "alike": [1, 1], "lost": [1, 1], "alone": [0]})
    stored(root / "second", {"same-first": [0.2, 1.2, 0.2], "alike": [1, 1], "lost": [1, None, 0, 0], "other": [0]})
    return root


@pytest.fixture(scope="module")
def studio(runs: Path) -> Iterator[Client]:
    with served(runs) as client:
        yield client


def test_every_common_task_has_a_row_whose_means_are_those_of_its_samples(studio: Client) -> None:
    found = studio.get("compare", a="random", b="teacher")
    assert len(found["tasks"]) == 10
    assert found["difference"]["mean"] == pytest.approx(found["second"]["mean"] - found["first"]["mean"])
    for row in found["tasks"]:
        listed = studio.get("compare/task", a="random", b="teacher", task=row["task"])
        for run, side in (("random", "a"), ("teacher", "b")):
            rewards = {sample["id"]: sample["reward"] for sample in listed[side]}
            assert fmean(rewards.values()) == pytest.approx(row[side])
            assert len(rewards) == row[f"{side}_samples"] == 3
            shown = studio.get(f"runs/{run}/rollouts/{row[f'{side}_id']}")["row"]
            assert (shown["task"], shown["reward"]) == (row["task"], rewards[row[f"{side}_id"]])
    nothing = studio.ask("/api/compare?a=teacher&b=nothing")
    assert (nothing.status, nothing.json) == (404, {"error": "there is no run 'nothing' here"})


def test_the_seat_that_is_compared_is_named(tmp_path: Path) -> None:
    """The column of rewards is that of the first seat that learns, which may be another one in each run."""
    for name, learns in (("sold", "seller"), ("sold-better", "seller"), ("bought", "buyer")):
        stored(tmp_path / name, {})
        seats = [
            Trajectory(seat=seat, trainable=seat == learns, score=Score(reward=float(seat == "seller")))
            for seat in ("buyer", "seller")
        ]
        group = Group(task=Task(id="t"), rollouts=[Rollout(task=Task(id="t"), seed=0, trajectories=seats)])
        with RunStore.open(tmp_path / name / "rollouts.db") as store:
            store.add([group], stage="eval", step=0, env="toy")
    with served(tmp_path) as studio:
        assert studio.get("compare", a="sold", b="sold-better")["a_about"] == "rewards of the seat seller"
        refused = studio.ask("/api/compare?a=sold&b=bought")
    assert refused.status == 400
    assert "sold has the rewards of the seat seller, bought those of buyer" in refused.json["error"]


def test_the_samples_that_are_shown_differ_where_any_do(studio: Client) -> None:
    found = studio.get("compare", a="first", b="second")
    rows = {row["task"]: row for row in found["tasks"]}
    assert rows.keys() == {"same-first", "alike", "lost"}
    assert found["missing"] == 2
    assert {task: row["flip"] for task, row in rows.items()} == {"same-first": None, "alike": None, "lost": "lost"}

    def shown(row: dict[str, Any]) -> list[float]:
        listed = studio.get("compare/task", a="first", b="second", task=row["task"])
        return [next(sample["reward"] for sample in listed[side] if sample["id"] == row[f"{side}_id"]) for side in "ab"]

    assert shown(rows["same-first"]) == [0.2, 1.2]
    assert shown(rows["lost"]) == [1, 0]
    assert shown(rows["alike"]) == [1, 1]
    lost = studio.get("compare/task", a="first", b="second", task="lost")["b"]
    assert [sample["reward"] for sample in lost] == [1, None, 0, 0]
    assert rows["lost"]["b_samples"] == 3
    assert studio.ask("/api/compare/task?a=first&b=second&task=none").status == 404


def test_of_equal_means_the_pair_that_differs_most_is_shown() -> None:
    first = [(1, 0.5), (2, 0.5)]
    second = [(3, 0.5), (4, 0.0), (5, 1.0)]
    a, b = widest_pair(first, second)
    assert abs(a[1] - b[1]) == 0.5


def test_more_than_is_compared_is_refused_and_not_left_out(studio: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wanderlust.studio.comparisons.MAX_COMPARED_ROLLOUTS", 8)
    refused = studio.ask("/api/compare?a=first&b=second")
    assert refused.status == 400
    assert "second: more than 8 rollouts are too many" in refused.json["error"]


def test_it_is_said_what_of_a_training_run_is_compared(tmp_path: Path) -> None:
    for name, reward in (("one", 0.0), ("two", 1.0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps({"recipe": "train", "config": {"env": "toy"}}))
        with RunStore.create(tmp_path / name / "rollouts.db") as store:
            for step in range(2):
                group = Group(task=Task(id="t"), rollouts=[played("t", 0, reward * step)])
                store.add([group], stage="rl", step=step, env="toy", metrics={"loss": 1.0})
    stored(tmp_path / "tried", {"t": [1.0]})
    with served(tmp_path) as client:
        found = client.get("compare", a="one", b="two")
        assert found["difference"]["mean"] == 1.0
        assert "step 1 of rl, as played while training" in found["a_about"]
        assert client.get("compare", a="tried", b="two")["a_about"] == ""


ANYTHING = (None, True, -1, 1.5, "many", [1], {"a": 1})


@pytest.mark.parametrize("recipe", ["eval", "train", 5])
def test_files_of_a_run_may_hold_anything(recipe: object, tmp_path: Path) -> None:
    for n, (one, two) in enumerate([*product(ANYTHING, repeat=2)][::5]):
        folder = stored(tmp_path / f"r{n}", {"t": [1.0]})
        config = {"env": one, "policy": two, "num_tasks": 3, "n": two, "samples": one, "steps": two, "sft_steps": one}
        (folder / "run.json").write_text(json.dumps({"recipe": recipe, "config": config}))
        report = {"usage": one, "wall_s": two, "played": one, "by_code": two, "result": one, "advice": [two]}
        (folder / "report.json").write_text(json.dumps(report if n % 3 else one))
        (folder / "wander.lock").write_text(json.dumps({"made_by": one, "packages": two, "command": one}))
    with served(tmp_path) as client:
        assert len(client.get("runs")["runs"]) == n + 1
        for key in range(n + 1):
            for path in (f"r{key}", f"r{key}/result", f"r{key}/rollouts"):
                found = client.ask(f"/api/runs/{path}")
                assert found.status in (200, 400, 409), (path, found.body)
                assert found.json


@pytest.mark.parametrize(("stage", "of"), [("sft", 60), ("rl", 100)])
def test_a_stage_of_training_has_its_own_number_of_steps(stage: str, of: int, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    config = {"env": "toy", "sft_steps": 60, "steps": 100, "optimizer": "adamw"}
    (tmp_path / "run/run.json").write_text(json.dumps({"recipe": "train", "config": config}))
    with RunStore.create(tmp_path / "run/rollouts.db") as store:
        store.add([Group(task=Task(id="t"), rollouts=[played("t", 0, 1)])], stage=stage, step=6, metrics={"loss": 1.0})
    with served(tmp_path) as client:
        (info,) = client.get("runs")["runs"]
    assert (info["stage"], info["step"], info["of"]) == (stage, 7, of)


def test_all_groups_of_a_step_are_listed_and_a_cut_group_has_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wanderlust.studio.rollouts.MAX_SIBLINGS", 2)
    stored(tmp_path / "many", {f"t{n}": [1.0] for n in range(600)} | {"wide": [0.0, 0.5, 1.0]})
    with served(tmp_path) as client:
        found = client.get("runs/many/steps/eval/0")
        assert (found["total"], len(found["groups"])) == (601, 601)
        opened = client.get("runs/many/groups/eval/0/600")
        assert (opened["total"], len(opened["rollouts"])) == (3, 2)


def test_a_duration_is_what_the_run_recorded(runs: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(runs / "teacher", tmp_path / "copy"))
    seconds = json.loads((copy / "report.json").read_text())["usage"]["seconds"]
    unfinished = Path(shutil.copytree(runs / "teacher", tmp_path / "unfinished"))
    (unfinished / "report.json").unlink()
    older = Path(shutil.copytree(unfinished, tmp_path / "older"))
    with RunStore.open(older / "rollouts.db") as store, store._commit() as db:
        db.execute("delete from meta where key = 'seconds'")
    steps = tmp_path / "steps"
    steps.mkdir()
    (steps / "run.json").write_text(json.dumps({"recipe": "train", "config": {"env": "toy", "steps": 4}}))
    with RunStore.create(steps / "rollouts.db") as store:
        for step in range(2):
            figures = {"loss": 1.0, "rollout_s": 20.0, "update_s": 10.0}
            store.add([Group(task=Task(id="t"), rollouts=[played("t", 0, 1)])], stage="rl", step=step, metrics=figures)
    demo = Path(shutil.copytree(steps, tmp_path / "demo"))
    (demo / "report.json").write_text('{"wall_s": 295.1}')
    for old in (False, True):
        for file in tmp_path.rglob("*") if old else ():
            os.utime(file, (1e9, 1e9))
        with served(tmp_path) as client:
            found = {run["key"]: (run["seconds"], run["seconds_of"]) for run in client.get("runs")["runs"]}
        assert found == {
            "copy": (seconds, "run"),
            "unfinished": (pytest.approx(seconds, abs=0.001), "run"),
            "older": (None, ""),
            "steps": (60.0, "steps"),
            "demo": (295.1, "run"),
        }


def test_an_evaluation_has_the_figures_that_the_command_prints(runs: Path, studio: Client) -> None:
    found = studio.get("runs/random/result")
    report = json.loads((runs / "random/report.json").read_text())
    assert found["report"] == report
    assert found["complete"]
    assert (report["group_by"], report["breakdown"].keys()) == ("opponent", {"random", "optimal", "greedy"})
    assert {"pass@1", "pass^2"} <= report["passes"].keys()
    assert report["rewards"]["agent"]["low"] < report["rewards"]["agent"]["value"] < report["rewards"]["agent"]["high"]
    assert found["keys"] == ["first", "opponent"]
    by = studio.get("runs/random/result", by="first")["report"]
    assert by["rewards"] == report["rewards"]
    assert sum(part["played"] for part in by["breakdown"].values()) == report["played"]
    assert by["usage"]["seconds"] == report["usage"]["seconds"]


def test_the_passing_reward_is_that_of_the_run(tmp_path: Path) -> None:
    run = evaluated(tmp_path / "runs/lenient", "random", "--pass-threshold", "0.5")
    evaluated(run, "random")  # shown again with another one, and left as it is
    report = json.loads((run / "report.json").read_text())
    assert 0 < report["passes"]["pass@1"]["value"] < 1
    with served(tmp_path / "runs") as client:
        assert client.get("runs/lenient/result", by="first")["report"]["passes"] == report["passes"]
        assert "--pass-threshold 0.5" in client.get("runs/lenient")["command"]
        (run / "report.json").unlink()
        found = client.get("runs/lenient/result")
        assert (found["complete"], found["report"]["passes"]) == (False, report["passes"])


def test_figures_of_an_unfinished_evaluation_are_computed_from_its_rollouts(runs: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(runs / "random", tmp_path / "copy"))
    report = json.loads((copy / "report.json").read_text())
    (copy / "report.json").write_text(json.dumps({**report, "played": 3, "rewards": {}}))
    with served(tmp_path) as client:
        found = client.get("runs/copy/result")
        (copy / "report.json").unlink()
        (info,) = client.get("runs")["runs"]
        assert (info["finished"], info["step"], info["of"]) == (False, 30, 30)
        settings = json.loads((copy / "run.json").read_text())
        settings["config"] |= {"n": settings["config"].pop("num_tasks")}  # as `evaluate` in Python has it
        (copy / "run.json").write_text(json.dumps(settings))
        with RunStore.open(copy / "rollouts.db") as store, store._commit() as db:
            db.execute("delete from rollouts where id > 12")
        (info,) = client.get("runs")["runs"]
        assert (info["step"], info["of"]) == (12, 30)
    assert not found["complete"]
    assert {name: found["report"][name] for name in ("rewards", "passes", "parts", "metrics", "stops")} == {
        name: report[name] for name in ("rewards", "passes", "parts", "metrics", "stops")
    }
    assert found["report"]["usage"]["seconds"] is None


@pytest.mark.parametrize("finished", [True, False])
def test_versions_of_the_code_have_figures_of_their_own(
    finished: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "runs/both"
    evaluate_sync(Paid(1.0), Scripted(["hi"]), out=out, progress=False)
    monkeypatch.setattr(Paid, "works", True)
    evaluate_sync(Paid(3.0), Scripted(["hi"]), out=out, progress=False, accept_changes=True)
    stored(tmp_path / "runs/other", {f"t{n}": [0.0] for n in range(6)})
    if not finished:
        (out / "report.json").unlink()
    with served(tmp_path / "runs") as client:
        (info,) = [run for run in client.get("runs")["runs"] if run["key"] == "both"]
        assert info["reward"] is None
        assert [(one["reward"], one["scored"]) for one in info["versions"]] == [(1.0, 3), (3.0, 3)]
        found = client.get("runs/both/result", by="half")
        codes = [one["digest"] for one in info["versions"]]
        assert found["report"]["rewards"] == {}
        assert [found["report"]["by_code"][code]["parts"]["constructor"]["value"] for code in codes] == [1.0, 3.0]
        assert found["report"]["by_code"][codes[1]]["breakdown"].keys() == {"1"}
        assert found["changes"][codes[1]] == ["the environment's settings"]
        refused = client.ask("/api/compare?a=both&b=other")
        assert refused.status == 400
        assert "has rollouts of 2 versions of its environment: play it anew" in refused.json["error"]
        lock = client.get("runs/both")["lock"]
        assert [one["digest"] for one in lock["made_by"]] == codes
        assert lock["made_by"][1]["changed"] == ["the environment's settings"]
        assert lock["packages"]["msgspec"]


def test_an_export_has_the_figures_of_an_evaluation(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    (tmp_path / "page/index.html").write_text('<base href="/" data-studio="live" />')
    export_site([runs / "random"], tmp_path / "out", page=tmp_path / "page", progress=NullLogger())
    found = json.loads((tmp_path / "out/data/random/result.json").read_text())
    with served(runs) as client:
        assert found == client.get("runs/random/result")


def test_settings_and_lock_are_shown_and_a_damaged_lock_is_said(runs: Path, studio: Client, tmp_path: Path) -> None:
    found = studio.get("runs/teacher")
    assert found["config"]["num_tasks"] == 10
    assert found["lock"]["command"][:2] == ["eval", "tictactoe"]
    assert found["lock"]["made_by"][0]["changed"] == []
    assert studio.get("runs/first")["lock"] is None
    copy = Path(shutil.copytree(runs / "teacher", tmp_path / "copy"))
    (copy / "wander.lock").write_text("{")
    with served(tmp_path) as client:
        body = client.get("runs/copy")
        assert "wander.lock" in body["lock"]["problem"]
        assert "wander.lock" in body["problem"]


def test_an_environment_has_one_name_in_lists_filters_and_rows(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    config = {"recipe": "train", "config": {"env": f"{TICTACTOE},size=3"}}
    (tmp_path / "run/run.json").write_text(json.dumps(config))
    with RunStore.create(tmp_path / "run/rollouts.db") as store:
        for step, env in enumerate((TICTACTOE, "it's mine")):
            group = Group(task=Task(id="t"), rollouts=[played("t", 0, 1.0)])
            store.add([group], stage="rl", step=step, env=env, metrics={"loss": 1.0})
    with served(tmp_path) as client:
        (info,) = client.get("runs")["runs"]
        assert info["env"] == "tictactoe,size=3"
        (row,) = client.get("runs/run/rollouts", filter='env == "tictactoe"')["rows"]
        assert row["env"] == "tictactoe"
        assert client.get("runs/run/rollouts", filter='env != "tictactoe"')["total"] == 1
        assert client.get("runs/run/rollouts", filter='env in ("it\'s mine")')["total"] == 1
        assert client.get("runs/run/rollouts", sort="env")["total"] == 2


def test_a_run_is_followed_from_its_beginning_by_a_tab_that_was_there_before(tmp_path: Path) -> None:
    with served(tmp_path) as client, client.listening("?run=later") as events:
        assert client.ask("/api/runs/later").status == 404
        stored(tmp_path / "later", {"t": [1.0]})
        seen = {}
        while len(seen) < 2:
            name, body = next(events)
            seen[name] = body
        assert seen["run"]["rollouts"] == 1
        assert [run["key"] for run in seen["runs"]["runs"]] == ["later"]


def test_a_browser_without_the_token_gets_a_field_for_it(studio: Client) -> None:
    headers = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "none"}
    found = studio.ask("/run/first?a=%22%3E%3Cscript%3E&token=wrong", headers=headers)
    body = found.body.decode()
    assert (found.status, found.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert 'name="token"' in body
    assert '<input type="hidden" name="a" value="&quot;&gt;&lt;script&gt;">' in body
    assert "wrong" not in body
    assert "not the token" in body
    policy = found.headers["content-security-policy"]
    assert "form-action 'self'" in policy
    assert "script-src" not in policy
    assert "unsafe" not in policy
    assert studio.ask("/api/runs", headers={}).headers["content-type"].startswith("text/plain")
    right = studio.ask(f"/run/first?a=1&token={TOKEN}", headers=headers)
    assert (right.status, right.headers["location"]) == (303, "/run/first?a=1")


def test_the_token_of_a_port_lasts_in_a_private_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    token = lasting_token(8765)
    file = tmp_path / "wanderlust/studio-8765.token"
    assert (lasting_token(8765), file.stat().st_mode & 0o777) == (token, 0o600)
    assert lasting_token(8766) != token
    assert lasting_token(0) != lasting_token(0)
    assert len(list(tmp_path.rglob("*.token"))) == 2
    file.chmod(0o644)
    fresh = lasting_token(8765)
    assert (fresh != token, file.stat().st_mode & 0o777) == (True, 0o600)
    file.unlink()
    (tmp_path / "secret").write_text("s" * 40)
    file.symlink_to(tmp_path / "secret")
    assert lasting_token(8765) != "s" * 40
    assert (tmp_path / "secret").read_text() == "s" * 40
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    assert lasting_token(8765)
