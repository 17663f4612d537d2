"""The studio's server over real runs: what its routes say, whom it lets in, and what it makes of broken stores."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from studios import TOKEN, Client, served
from wanderlust.cli.main import main
from wanderlust.store.queries import ROW_FIELDS
from wanderlust.store.store import RunStore
from wanderlust.training.tiny_model import fresh_tokenizer
from wanderlust.types import (
    Group,
    Rollout,
    Score,
    Task,
    Tokens,
    ToolCall,
    Trajectory,
    Turn,
    assistant,
    tool_message,
    user,
)

SCORES = ["parts.format", "parts.invalid", "parts.result", "metrics.draw", "metrics.loss", "metrics.win"]
FIELDS = [*ROW_FIELDS, *SCORES]
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e" + "x" * 30_000


def evaluated(folder: Path, *words: str) -> Path:
    with pytest.raises(SystemExit) as end:
        main(["eval", "tictactoe", "-n", "6", "--samples", "2", "--out", str(folder), *words])
    assert end.value.code == 0
    return folder


def learnt(folder: Path) -> Path:
    """The folder of a run with two steps of a group of three, tokens and figures, and words that mean no good."""
    words = fresh_tokenizer(["say 0123456789 häß"] * 20)
    (folder / "checkpoints/rl").mkdir(parents=True)
    words.save_pretrained(folder / "checkpoints/rl")
    (folder / "checkpoints/rl/config.json").write_text("{}")
    config = {"env": "toy", "policy": "fresh", "steps": 5}
    (folder / "run.json").write_text(json.dumps({"recipe": "train", "config": config}))
    asked, said = words.encode("say 7"), words.encode("häß7")
    with RunStore.create(folder / "rollouts.db") as store:
        for step in range(2):
            siblings = [rollout(n, asked, said, reward=float(n == 1)) for n in range(3)]
            group = Group(task=siblings[0].task, rollouts=siblings)
            store.add([group], stage="rl", step=step, env="toy", metrics={"loss": 1 - step, "reward": step / 3})
        store.add_event("reward_hacking_warning", {"monitor": "length", "step": 1, "text": "longer and longer"})
    return folder


def rollout(sibling: int, asked: list[int], said: list[int], *, reward: float) -> Rollout:
    call = ToolCall(id="c1", name="look", arguments='{"at": 1}')
    tokens = Tokens(prompt=tuple(asked), completion=tuple(said), logprobs=(-0.5,) * len(said), version=3)
    turns = [
        Turn(
            observation=(user("say 7"),),
            action=assistant(f"same {'differs' if sibling else 'words'}", call),
            tokens=tokens,
        ),
        Turn(observation=(tool_message(HOSTILE, call),), action=assistant(HOSTILE)),
    ]
    seat = Trajectory(turns=turns, score=Score(reward=reward, parts={"right": reward}), advantage=reward - 1 / 3)
    state = {"board": "x", "diary": "y" * 100_000, "odd": float("nan")}
    return Rollout(task=Task(id="t", answer=7), seed=0, sample_index=sibling, trajectories=[seat], state=state)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    evaluated(root / "teacher", "--policy", "teacher")
    evaluated(root / "random", "--policy", "random")
    shutil.copytree(root / "random", root / "deeper/random")
    learnt(root / "learnt")
    return root


@pytest.fixture(scope="module")
def studio(runs: Path) -> Iterator[Client]:
    with served(runs) as client:
        yield client


def test_all_runs_below_a_folder_are_listed_under_keys_of_their_own(studio: Client) -> None:
    found = {run["key"]: run for run in studio.get("runs")["runs"]}
    assert found.keys() == {"teacher", "random", "random~2", "learnt"}
    teacher, learnt_ = found["teacher"], found["learnt"]
    assert (teacher["kind"], teacher["env"], teacher["policy"]) == ("evaluation", "tictactoe", "teacher")
    assert (teacher["rollouts"], teacher["of"], teacher["coverage"], teacher["errors"]) == (12, 12, 1.0, 0)
    assert teacher["finished"]
    assert not teacher["running"]
    assert teacher["problem"] is None
    assert (learnt_["kind"], learnt_["stage"], learnt_["step"], learnt_["of"]) == ("training", "rl", 2, 5)
    assert learnt_["reward"] == pytest.approx(1 / 3)


def test_a_run_says_how_to_go_on_and_what_can_be_asked(studio: Client) -> None:
    found = studio.get("runs/learnt")
    assert found["command"].startswith("wander train --resume ")
    assert studio.get("runs/teacher")["command"] == "wander eval tictactoe --policy teacher --num-tasks 6 --samples 2"
    assert found["tokens"] is True
    assert [field["name"] for field in found["fields"]] == [*ROW_FIELDS, "parts.right"]
    assert found["stages"] == [
        {"name": "rl", "first": 0, "last": 1, "rollouts": 6, "statuses": {"done": 6}},
    ]
    figures = studio.get("runs/learnt/metrics")
    assert figures["series"]["loss"] == {"steps": [0, 1], "values": [1.0, 0.0]}
    (event,) = studio.get("runs/learnt/events")["events"]
    assert (event["kind"], event["body"]["monitor"]) == ("reward_hacking_warning", "length")
    assert studio.get("runs/learnt/events", after=event["id"]) == {"events": []}


def test_rows_are_filtered_sorted_and_paged(studio: Client) -> None:
    every = studio.get("runs/teacher/rollouts", sort="-reward")
    rewards = [row["reward"] for row in every["rows"]]
    assert (every["total"], rewards) == (12, sorted(rewards, reverse=True))
    some = studio.get("runs/teacher/rollouts", sort="-reward", offset=5, limit=3)
    assert some["rows"] == every["rows"][5:8]
    low = studio.get("runs/teacher/rollouts", filter=f"reward < {rewards[0]} and status == 'done'")
    assert low["total"] == sum(reward < rewards[0] for reward in rewards)
    (first, *_) = studio.get("runs/learnt/rollouts")["rows"]
    assert first["target"] == "7"
    assert first["answer"].startswith("<script>alert(1)</script>\\x1b[31m\\u202e")
    assert len(first["answer"]) == 200


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("filter=rewerd%3C1", 400, "no field 'rewerd'"),
        ("sort=rewerd", 400, "cannot sort by 'rewerd'"),
        ("limit=-1", 400, "limit must be a whole number"),
        ("limit=100000", 400, "from 0 to 1000"),
        ("offset=%D9%A1", 400, "offset must be a whole number"),
    ],
)
def test_what_cannot_be_asked_is_one_line(studio: Client, query: str, status: int, words: str) -> None:
    found = studio.ask(f"/api/runs/teacher/rollouts?{query}")
    assert found.status == status
    assert words in found.json["error"]
    if query.startswith("filter"):
        assert (found.json["at"], found.json["fields"]) == (0, FIELDS)


def test_a_rollout_opens_with_long_texts_cut(studio: Client) -> None:
    found = studio.get("runs/learnt/rollouts/2")
    first, second = found["trajectories"][0]["turns"]
    assert first["action"]["tool_calls"] == [{"id": "c1", "name": "look", "arguments": '{"at": 1}'}]
    assert first["tokens"]["version"] == 3
    assert second["action"]["cut"] == len(HOSTILE)
    assert second["action"]["content"] == HOSTILE[:20_000]
    assert studio.get("runs/learnt/rollouts/2/text", turn=1, message=-1) == {"text": HOSTILE}
    assert studio.get("runs/learnt/rollouts/2/text", turn=1, message=0) == {"text": HOSTILE}
    assert found["state"]["board"] == "x"
    assert found["state"]["diary"] == {"cut": 100_002}
    assert found["state"]["odd"] is None
    assert (found["previous"], found["next"], found["again"], found["world"]) == (1, 3, None, False)
    assert found["trajectories"][0]["score"]["parts"] == {"right": 1.0}
    again = studio.get("runs/teacher/rollouts/1")["again"]
    assert again.startswith("wander eval tictactoe --policy teacher --task")
    raw = studio.ask("/api/runs/learnt/rollouts/2/raw")
    assert raw.headers["content-disposition"] == 'attachment; filename="rollout-2.json"'
    assert raw.json["trajectories"][0]["turns"][1]["action"]["content"] == HOSTILE


def test_tokens_are_told_with_their_text(studio: Client) -> None:
    found = studio.get("runs/learnt/rollouts/2/tokens", seat=0, turn=0)
    assert "".join(token["text"] for token in found["tokens"]) == "say 7häß7"
    read, sampled = ([t for t in found["tokens"] if t["sampled"] is kind] for kind in (False, True))
    assert all(token["logprob"] is None for token in read)
    assert {(token["logprob"], round(token["advantage"], 3)) for token in sampled} == {(-0.5, 0.667)}
    assert found["tokenizer"].endswith("tokenizer.json")
    assert studio.get("runs/learnt/rollouts/2/tokens", turn=1)["why"].startswith("no tokens were recorded")


def test_siblings_stand_side_by_side(studio: Client) -> None:
    (group,) = studio.get("runs/learnt/steps/rl/1")["groups"]
    assert (group["n"], group["low"], group["high"], group["has_signal"], group["ids"]) == (
        3,
        0.0,
        1.0,
        True,
        [4, 5, 6],
    )
    found = studio.get("runs/learnt/groups/rl/1/0")
    assert [opened["row"]["sample_index"] for opened in found["rollouts"]] == [0, 1, 2]
    assert found["diverge"] == [None, {"turn": 0, "character": 5}, {"turn": 0, "character": 5}]
    assert len(found["rollouts"][0]["trajectories"][0]["turns"][1]["action"]["content"]) == 4000


def test_a_stream_begins_with_what_there_is(studio: Client) -> None:
    with studio.listening("?run=learnt") as events:
        name, body = next(events)
        assert (name, body["rollouts"], body["last_id"], body["step"]) == ("run", 6, 6, 1)
        assert body["metrics"]["rl"]["loss"] == [1, 0.0]
        name, body = next(events)
        assert name == "runs"
        assert len(body["runs"]) == 4


LOST = ["runs/none", "runs/teacher/rollouts/999", "runs/teacher/rollouts/x", "runs/teacher/groups/eval/0/99", "no"]


@pytest.mark.parametrize("path", LOST)
def test_what_is_not_there_is_said(studio: Client, path: str) -> None:
    found = studio.ask(f"/api/{path}")
    assert found.status == 404
    assert list(found.json) == ["error"]


OUTSIDERS: dict[str, tuple[dict[str, str], int]] = {
    "no token": ({}, 401),
    "a wrong token": ({"Authorization": "Bearer nope"}, 401),
    "a wrong cookie": ({"Cookie": "wander-1=nope; a=b"}, 401),
    "a cookie that is none": ({"Cookie": '\x01"=;;='}, 401),
    "another name": ({"Authorization": f"Bearer {TOKEN}", "Host": "evil.example:80"}, 421),
    "a name like ours": ({"Authorization": f"Bearer {TOKEN}", "Host": "localhost.evil.example"}, 421),
    "a name with a user": ({"Authorization": f"Bearer {TOKEN}", "Host": "localhost@evil.example"}, 421),
    "another page": ({"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}, 403),
    "no page": ({"Authorization": f"Bearer {TOKEN}", "Origin": "null"}, 403),
    "another port": ({"Authorization": f"Bearer {TOKEN}", "Origin": "http://127.0.0.1:1"}, 403),
    "a page that fetches": ({"Authorization": f"Bearer {TOKEN}", "Sec-Fetch-Site": "cross-site"}, 403),
}


@pytest.mark.parametrize("who", OUTSIDERS)
def test_nobody_else_is_let_in(studio: Client, who: str) -> None:
    headers, status = OUTSIDERS[who]
    for path in ("/api/runs", "/", "/api/stream", "/api/runs/teacher/rollouts/1/raw"):
        found = studio.ask(path, headers=headers)
        assert (found.status, b"teacher" in found.body) == (status, False)
    headers = {"Host": studio.url.removeprefix("http://"), **headers}
    assert studio.ask("/api/runs/teacher/control", method="POST", body={"do": "stop"}, headers=headers).status == status


def test_the_address_brings_a_cookie_and_the_cookie_opens(studio: Client) -> None:
    found = studio.ask(f"/run/teacher?token={TOKEN}&x=1", headers={})
    assert (found.status, found.headers["location"]) == (303, "/run/teacher?x=1")
    assert "HttpOnly" in found.headers["set-cookie"]
    assert "SameSite=strict" in found.headers["set-cookie"]
    cookie = {"Cookie": found.headers["set-cookie"].partition(";")[0]}
    assert studio.ask("/api/runs", headers=cookie).status == 200
    assert studio.ask(f"//evil.example?token={TOKEN}", headers={}).headers["location"] == "/evil.example"
    assert TOKEN not in found.headers["location"]


def test_every_answer_is_marked_as_what_it_is(studio: Client) -> None:
    for path in ("/api/runs", "/api/runs/learnt/rollouts/1", "/api/none", "/"):
        headers = studio.ask(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["content-type"].split(";")[0] in ("application/json", "text/plain", "text/html")
    assert studio.ask("/api/runs").headers["cache-control"] == "no-store"


def test_requests_are_bounded(studio: Client) -> None:
    assert studio.ask("/api/runs?x=" + "a" * 20_000).status == 414
    large = studio.ask("/api/runs/teacher/control", method="POST", body=b"x" * (2**20 + 1))
    assert large.status >= 400
    assert studio.ask("/api/runs/teacher/control", method="POST", body={"do": "explode"}).status == 400
    assert (
        "no active process" in studio.ask("/api/runs/teacher/control", method="POST", body={"do": "stop"}).json["error"]
    )
    assert studio.ask("/api/runs", method="DELETE").status == 405


def test_without_a_front_end_one_line_says_what_to_do(runs: Path, tmp_path: Path) -> None:
    with served(runs, page_folder=tmp_path) as client:
        found = client.ask("/run/teacher")
        assert (found.status, found.headers["content-type"]) == (503, "text/plain; charset=utf-8")
        assert b"make page" in found.body
        (tmp_path / "index.html").write_text("<!doctype html><title>x</title>")
        (tmp_path / "assets").mkdir()
        (tmp_path / "assets/a.js").write_text("1")
        (tmp_path / "assets/a.js.br").write_bytes(b"packed")
        assert client.ask("/run/teacher?x=1").headers["content-type"].startswith("text/html")
        plain = client.ask("/assets/a.js")
        assert (plain.body, plain.headers["cache-control"][:6]) == (b"1", "public")
        brotli = client.ask("/assets/a.js", headers={"Authorization": f"Bearer {TOKEN}", "Accept-Encoding": "gzip, br"})
        assert (brotli.body, brotli.headers["content-encoding"]) == (b"packed", "br")
        assert "javascript" in brotli.headers["content-type"]
        assert client.ask("/assets/b.js").status == 404
        (tmp_path.parent / "secret").write_text("secret")
        for path in ("/../secret", "/assets/../../secret", "/%2e%2e/secret", "/assets/%2e%2e%2f%2e%2e%2fsecret"):
            assert b"secret" not in client.ask(path).body


def broken(root: Path, run: Path) -> dict[str, str]:
    """Folders of runs with something wrong with their store, and a word of what is to be said."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(run, root / name)) / "rollouts.db"

    copy("empty").write_bytes(b"")
    copy("foreign").write_text("this is a letter, not a store\n" * 100)
    with closing(sqlite3.connect(copy("newer"))) as newer, newer:
        newer.execute("update meta set value = '99' where key = 'version'")
    newer.close()
    (cut := copy("truncated")).write_bytes(cut.read_bytes()[:5000])
    copy("missing").unlink()
    (copy("config").parent / "run.json").write_text("{")
    other = copy("other")
    other.unlink()
    with closing(sqlite3.connect(other)) as db, db:
        db.execute("create table meta (key text, value text)")
    db.close()
    return {
        "empty": "not a run store",
        "foreign": "not a run store",
        "newer": "has format version 99",
        "truncated": "damaged",
        "missing": "nothing was played yet",
        "config": "cannot read",
        "other": "not a run store",
    }


def test_broken_runs_are_listed_with_what_is_wrong(runs: Path, tmp_path: Path) -> None:
    wrong = broken(tmp_path, runs / "teacher")
    lock = sqlite3.connect(Path(shutil.copytree(runs / "teacher", tmp_path / "locked")) / "rollouts.db")
    lock.execute("pragma locking_mode = exclusive")
    lock.execute("begin exclusive")
    wrong["locked"] = "locked"
    shutil.copytree(runs / "teacher", tmp_path / "good")
    with served(tmp_path) as client:
        found = {run["key"]: run["problem"] for run in client.get("runs")["runs"]}
        assert found.pop("good") is None
        assert found.keys() == wrong.keys()
        for key, problem in found.items():
            assert wrong[key] in problem, (key, problem)
            assert "no such table" not in problem
            assert client.get(f"runs/{key}")["problem"] == problem
            rows = client.ask(f"/api/runs/{key}/rollouts")
            assert rows.status == (200 if key == "config" else 409), (key, rows.body)
        with client.listening("?run=foreign") as events:
            assert next(events)[0] == "runs"
    lock.close()


def test_a_run_that_is_deleted_while_open_is_gone(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "learnt", tmp_path / "a")
    with served(tmp_path) as client, client.listening("?run=a") as events:
        assert next(events)[0] == "run"
        shutil.rmtree(tmp_path / "a")
        assert next(event for event in events if event[0] == "gone") == ("gone", {"key": "a"})
        problem = client.get("runs")["runs"][0]["problem"]
        assert "deleted" in problem or problem == "there is no run here"  # its folder went last
        assert client.ask("/api/runs/a/rollouts").status == 409
        assert client.get("runs/a")["stages"] == []


def test_what_is_stored_is_seen_at_once(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "live.db") as store, served(tmp_path / "live.db") as client:
        with client.listening("?run=live") as events:
            assert next(events)[1]["rollouts"] == 0
            for number in range(1, 4):
                played = rollout(0, [1], [2], reward=1.0)
                store.add([Group(task=played.task, rollouts=[played])], stage="s", step=number, metrics={"x": number})
                body = next(body for name, body in events if name == "run")
                assert (body["rollouts"], body["last_id"], body["step"]) == (number, number, number)
                assert body["metrics"]["s"]["x"] == [number, float(number)]
        assert client.get("runs")["runs"][0]["running"]
    assert not served_once(tmp_path / "live.db")["running"]


def served_once(path: Path) -> dict[str, Any]:
    with served(path) as client:
        (run,) = client.get("runs")["runs"]
        return dict(run)


def test_any_text_may_be_asked_for(studio: Client) -> None:
    for text in ("'; drop table rollouts; --", "\x00", "\ud7ff", "%", "\\", "💡" * 500, "(" * 999):
        found = studio.ask(f"/api/runs/teacher/rollouts?filter={quote(text)}")
        assert found.status == 400
        assert found.json["fields"]
        assert studio.ask(f"/api/runs/{quote(text, safe='')}").status == 404
        assert studio.ask(f"/api/runs/teacher/metrics?stage={quote(text)}").status == 200
