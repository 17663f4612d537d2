"""Compare, show, export, new, check and list, on runs that were really played."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from patience import PATIENCE
from wanderlust.store.formats import conversations, render_atif
from wanderlust.types import (
    Rollout,
    Score,
    Task,
    Tokens,
    ToolCall,
    Trajectory,
    Turn,
    assistant,
    system,
    tool_message,
    user,
)
from worlds import found, wander


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two evaluations of one world, and a failure in the second."""
    place = found(tmp_path_factory.mktemp("runs"))
    assert wander("eval", "world:World", "--policy", "me", "--samples", 2, "--out", "a", cwd=place).returncode == 0
    (place / "mended").unlink()
    assert wander("eval", "world:World", "--policy", "other", "--samples", 2, "--out", "b", cwd=place).returncode == 1
    (place / "mended").touch()
    return place


def json_of(*words: object, cwd: Path) -> Any:
    done = wander(*words, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_runs_are_compared_on_their_common_tasks(folder: Path) -> None:
    body = json_of("compare", "a", "b", cwd=folder)["comparison"]
    odd, third = {n for n in range(60) if n % 2}, {n for n in range(60) if n % 3 == 0}
    assert set(body["lost"]) == {f"t{n}" for n in odd - third - {7}}
    assert set(body["gained"]) == {f"t{n}" for n in third - odd}
    assert body["missing"] == 1
    assert body["difference"]["value"] == pytest.approx((20 - 29) / 59)
    assert body["difference"]["low"] < body["difference"]["value"] < body["difference"]["high"]
    text = wander("compare", "a", "b", cwd=folder)
    assert "only the first passes: 19" in text.stdout
    assert "1 tasks were scored in one run only" in text.stderr
    assert wander("compare", "a", "nowhere", cwd=folder).returncode == 1


def test_a_rollout_is_shown_with_the_command_that_plays_it_again(folder: Path) -> None:
    listed = json_of("show", "b", "--limit", 3, cwd=folder)
    failed, *_ = listed["rollouts"]
    assert (failed["task"], failed["reward"], failed["stop_reason"]) == ("t7", None, "EnvironmentFailure")
    text = wander("show", "b", failed["id"], cwd=folder).stdout
    assert "[user] ?" in text
    assert "[assistant turn 1] 2" in text
    assert "the bridge is down" in text
    (command,) = [line.removeprefix("Again: ") for line in text.splitlines() if line.startswith("Again: ")]
    again = json_of(*shlex.split(command)[1:], cwd=folder)
    assert [(row["task"], row["played"]) for row in again["tasks"]] == [("t7", 1)]
    assert wander("show", "b", 999, cwd=folder).returncode == 1
    assert wander("eval", "world:World", "--policy", "me", "--task", "t99", cwd=folder).returncode == 2


def test_exports_are_what_other_programs_read(folder: Path) -> None:
    assert json_of("export", "a", "--to", "jsonl", cwd=folder)["written"] == 120
    lines = [json.loads(line) for line in (folder / "a/export-jsonl.jsonl").read_text().splitlines()]
    assert lines[0]["trajectories"][0]["messages"][0] == {"role": "user", "content": "?"}
    assert json_of("export", "a", "--to", "sft", "--min-reward", 1, cwd=folder)["written"] == 60
    chats = [json.loads(line) for line in (folder / "a/export-sft.jsonl").read_text().splitlines()]
    assert all([m["role"] for m in chat["messages"]] == ["user", "assistant"] for chat in chats)
    assert json_of("export", "a", "--to", "atif", "--out", "docs", cwd=folder)["written"] == 120
    assert len(list((folder / "docs").iterdir())) == 120
    refused = wander("export", "a", "--to", "sft", cwd=folder)
    assert (refused.returncode, refused.stdout) == (2, "")


def test_parquet_holds_every_rollout(folder: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    json_of("export", "b", "--to", "parquet", cwd=folder)
    table = parquet.read_table(folder / "b/export-parquet.parquet").to_pylist()
    assert len(table) == 120
    assert sum(row["reward"] is None for row in table) == 2
    assert {json.loads(row["record"])["task"] for row in table} == {f"t{n}" for n in range(60)}


CALL = ToolCall(id="c1", name="look", arguments='{"at": 3}')
BROKEN = ToolCall(id="c2", name="look", arguments="{oh")


def test_atif_documents_keep_the_rules_of_the_format() -> None:
    turns = [
        Turn(
            observation=(system("s"), user("go")),
            action=assistant("", CALL, BROKEN),
            tokens=Tokens(prompt=(1, 2), completion=(3,), logprobs=(-0.5,)),
            usage={"prompt_tokens": 2, "completion_tokens": 1},
        ),
        Turn(
            observation=(tool_message("seen", CALL), tool_message("no JSON", BROKEN)),
            action=assistant("done"),
            tokens=Tokens(prompt=(4,), completion=(5,), logprobs=(-0.25,), offset=3),
        ),
        Turn(observation=(user("summary"), assistant("x")), action=assistant("y"), resets_context=True),
    ]
    seat = Trajectory(turns=turns, score=Score(reward=1.0, parts={"right": 1.0}))
    played = Rollout(task=Task(id="t"), seed=3, trajectories=[seat])
    body = json.loads(json.dumps(render_atif(played, seat, model="m")))
    steps = body["steps"]
    assert [step["step_id"] for step in steps] == list(range(1, len(steps) + 1))
    assert [step["source"] for step in steps] == ["system", "user", "agent", "agent", "user", "agent", "agent"]
    assert [r["source_call_id"] for r in steps[2]["observation"]["results"]] == ["c1", "c2"]
    assert [call["arguments"] for call in steps[2]["tool_calls"]] == [{"at": 3}, {}]
    assert steps[3]["metrics"]["prompt_token_ids"] == [1, 2, 3, 4]
    assert steps[5]["is_copied_context"] is True
    for step in steps:
        assert step["source"] == "agent" or not {"tool_calls", "metrics", "model_name"} & step.keys()
    assert body["final_metrics"]["extra"]["reward"] == 1.0
    assert render_atif(played, Trajectory()) is None
    assert [chat["messages"][-1]["content"] for chat in conversations(played)] == ["done", "y"]
    assert list(conversations(played, min_reward=2.0)) == []


def test_a_new_environment_can_be_installed_and_keeps_its_promises(tmp_path: Path) -> None:
    assert wander("new", "my-world", cwd=tmp_path).returncode == 0
    files = list((tmp_path / "my-world").iterdir())
    assert sum(len(file.read_text().splitlines()) for file in files) <= 40
    for words in (["new", "my-world"], ["new", "../x"], ["new", "class"], ["new", "9"]):
        assert wander(*words, cwd=tmp_path).returncode == 2
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    pip += ["--disable-pip-version-check", "--target", str(site), str(tmp_path / "my-world")]
    subprocess.run(pip, check=True, capture_output=True, timeout=PATIENCE)
    (tmp_path / "my-world/my_world.py").unlink()  # what is tested is what was installed
    inside = ["env", f"PYTHONPATH={site}", sys.executable, "-m"]
    test = [*inside, "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "my-world")]
    done = subprocess.run(test, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert "1 passed" in done.stdout, done.stdout
    check = [*inside, "wanderlust.cli.main", "check", "my-world", "--json"]
    told = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert json.loads(told.stdout) == {
        "env": "my_world:MyWorld",
        "problems": [],
        "probe": "nothing found",
        "tasks": 4,
    }


def test_check_tells_what_is_broken(folder: Path) -> None:
    (folder / "seconds").write_text("0")
    assert wander("check", "world:World", cwd=folder).returncode == 0
    broken = (folder / "world.py").read_text().replace('Task(id=f"t{n}"', 'Task(id="t"').replace("?", "\\ud800")
    (folder / "broken.py").write_text(broken)
    done = wander("check", "broken:World", "--json", cwd=folder)
    assert done.returncode == 1
    assert {"tasks", "prompt"} <= {finding["rule"] for finding in json.loads(done.stdout)["problems"]}
