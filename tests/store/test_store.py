"""The run store: what is written comes back equal, survives a kill, and is never overwritten by accident."""

import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from project_files import ROOT
from wanderlust.errors import StoreError
from wanderlust.store.reader import RunReader
from wanderlust.store.records import train_dictionary
from wanderlust.store.store import DICTIONARY_SAMPLES, RunStore
from wanderlust.types import (
    Group,
    Rollout,
    Score,
    Status,
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

CALL = ToolCall(id="c1", name="look", arguments='{"at": "é"}')


def tokens(rng, offset=0):
    completion = tuple(rng.randrange(150_000) for _ in range(rng.randrange(1, 30)))
    logprobs = tuple(-rng.randrange(1, 2**20) / 2**16 for _ in completion)  # float32 values
    return Tokens(prompt=(1, 2, 3), completion=completion, logprobs=logprobs, offset=offset, version=7)


def play(number=0, sibling=0, seats=("agent",)):
    """A rollout with everything in it that a rollout can have."""
    rng = Random(f"{number}/{sibling}")
    opening = Turn(observation=(system("s"), user("zażółć \x00 😀")), action=assistant("", CALL), tokens=tokens(rng))
    answer = Turn(
        observation=(tool_message("seen", CALL),), action=assistant(f"move {rng.random()}"), usage={"prompt_tokens": 5}
    )
    rewritten = Turn(observation=(user("summary"),), action=assistant("x"), resets_context=True, tokens=tokens(rng, 40))
    score = Score(reward=rng.random(), parts={"win": 1.0}, metrics={"length": 3.0})
    return Rollout(
        task=Task(id=f"t{number}", prompt=(user("go"),), answer={"moves": [1, None]}, info={"q": 0.25}),
        seed=3,
        sample_index=sibling,
        trajectories=[
            Trajectory(seat=seat, turns=[opening, answer, rewritten], score=score, advantage=-0.5) for seat in seats
        ],
        status=Status.TRUNCATED,
        stop_reason="max_turns",
        state={"board": [["X", None], ["O", 2]], "raw": b"\xff"},
        seconds=0.125,
    )


def group(number=0, size=2):
    played = [play(number, sibling) for sibling in range(size)]
    return Group(task=played[0].task, rollouts=played, index=number)


def test_what_is_written_comes_back_equal(tmp_path):
    written = [group(0), group(1)]
    with RunStore.create(tmp_path / "run.db") as store:
        store.add(written, stage="rl", step=4, env="game")
        assert store.groups("rl", 4) == written
        assert [store.get(row.id) for row in store.rollouts()] == [r for g in written for r in g.rollouts]
    with RunStore.read(tmp_path / "run.db") as reader:
        assert reader.groups("rl", 4) == written
        assert reader.groups("rl", 5) == []


def test_several_seats_and_failures_come_back_equal(tmp_path):
    several = play(seats=("X", "O"))
    failed = Rollout(task=Task(id="f"), seed=2**62, status=Status.ERROR, error="boom", transient=True)
    with RunStore.create(tmp_path / "run.db") as store:
        store.add([Group(task=several.task, rollouts=[several, replace(failed, sample_index=1)])], stage="a", step=0)
        assert [store.get(1), store.get(2)] == [several, replace(failed, sample_index=1)]
        assert store.rollouts()[1].reward is None


@pytest.mark.parametrize("logprobs", [(-0.1, -1e-300), (float("-inf"), -0.0), (-1e300, 0.0), ()])
def test_log_probabilities_are_kept_exactly_whatever_they_are(tmp_path, logprobs):
    told = Tokens(prompt=(), completion=(5, 2**31 - 1), logprobs=logprobs)
    turn = Turn(observation=(), action=assistant(""), tokens=told)
    given = Rollout(task=Task(id="t"), seed=0, trajectories=[Trajectory(turns=[turn])])
    with RunStore.create(tmp_path / "run.db") as store:
        store.add([Group(task=given.task, rollouts=[given])], stage="a", step=0)
        assert repr(store.get(1)) == repr(given)


def test_tuples_in_plain_data_come_back_as_lists(tmp_path):
    given = Rollout(task=Task(id="t", answer=(1, (2,))), seed=0)
    with RunStore.create(tmp_path / "run.db") as store:
        store.add([Group(task=given.task, rollouts=[given])], stage="a", step=0)
        assert store.get(1).task.answer == [1, [2]]


@pytest.mark.parametrize("state", [{"lock": object()}, {"number": 2**70}])
def test_what_is_not_plain_data_is_refused_and_nothing_is_kept(tmp_path, state):
    bad = replace(play(), sample_index=1, state=state)
    with RunStore.create(tmp_path / "run.db") as store:
        with pytest.raises(StoreError, match="'t0' is not plain data"):
            store.add([Group(task=bad.task, rollouts=[play(), bad])], stage="a", step=0, metrics={"m": 1})
        assert store.counts() == {}
        assert store.metric_names("a") == []


def test_a_dictionary_is_learned_and_rows_before_it_stay_readable(tmp_path):
    path = tmp_path / "run.db"
    size = DICTIONARY_SAMPLES // 10
    written = [group(n, size) for n in range(25)]
    with RunStore.create(path) as store, RunStore.read(path) as early:
        for step, one in enumerate(written):
            store.add([one], stage="rl", step=step)
        assert [early.groups("rl", n) for n in range(25)] == [[one] for one in written]
    with RunStore.open(path) as store:  # goes on with the same dictionary
        store.add([written[0]], stage="more", step=0)
        assert store.groups("more", 0) == [written[0]]
    db = sqlite3.connect(path)
    packed = dict(db.execute("select dictionary, avg(length(payload)) from rollouts group by 1"))
    db.close()
    assert packed.keys() == {0, 1}
    assert packed[1] < packed[0] / 2


def test_records_with_nothing_in_common_need_no_dictionary():
    assert train_dictionary([b"", b"x"]) is None


def test_adding_again_replaces(tmp_path):
    with RunStore.create(tmp_path / "run.db") as store:
        store.add([group(0), group(1)], stage="rl", step=0, metrics={"loss": 1.0})
        better = play(0, 1)
        better.trajectory.turns.pop()
        store.add([Group(task=better.task, rollouts=[better])], stage="rl", step=0, metrics={"loss": 0.5})
        assert store.groups("rl", 0)[0].rollouts == [play(0, 0), better]
        assert store.metrics("rl", "loss") == [(0, 0.5)]
        assert store.select("select count(*) from tokens") == [(4,)]


def test_rows_are_filtered_ordered_and_cut(tmp_path):
    with RunStore.create(tmp_path / "run.db") as store:
        for step in range(3):
            store.add([group(step)], stage="rl", step=step, env="game")
        store.add([Group(task=Task(id="f"), rollouts=[Rollout(task=Task(id="f"), seed=0)])], stage="eval", step=0)
        rewards = sorted((r.trajectory.score.reward for n in range(3) for r in group(n).rollouts), reverse=True)
        assert [row.reward for row in store.rollouts({"stage": "rl"}, order="-reward", limit=2, offset=1)] == rewards[
            1:3
        ]
        assert [row.task for row in store.rollouts({"reward": None})] == ["f"]
        assert len(store.rollouts({"reward !=": None, "step >=": 1})) == 4
        (row,) = store.rollouts({"group": 1, "sample_index": 0})
        assert (row.env, row.task, row.group, row.seed, row.turns, row.stop_reason) == (
            "game",
            "t1",
            1,
            3,
            3,
            "max_turns",
        )
        played = play(1, 0).trajectory.turns
        assert (row.tokens_in, row.tokens_out) == (11, len(played[0].tokens.completion + played[2].tokens.completion))
        assert store.counts() == {"rl": {"truncated": 6}, "eval": {"done": 1}}


@pytest.mark.parametrize("bad", [{"where": {"payload": 1}}, {"where": {"step like": 1}}, {"order": "1; drop table"}])
def test_unknown_fields_and_operators_are_refused(tmp_path, bad):
    with RunStore.create(tmp_path / "run.db") as store, pytest.raises(StoreError, match="there are"):
        store.rollouts(**bad)


def test_metrics_events_and_facts(tmp_path):
    with RunStore.create(tmp_path / "run.db") as store:
        for step in (2, 1):
            store.add(stage="rl", step=step, metrics={"loss": step / 2, "nan": float("nan")})
        assert store.metrics("rl", "loss") == [(1, 0.5), (2, 1.0)]
        assert store.metric_names("rl") == ["loss", "nan"]
        assert repr(store.metrics("rl", "nan")[0]) == "(1, nan)"
        first, second = store.add_event("started"), store.add_event("note", {"a": [1]})
        assert first < second
        assert [(e.kind, e.body) for e in store.events(after=first)] == [("note", {"a": [1]})]
        store.set_meta("seed", 3)
        assert store.meta() == {"format": "wanderlust run", "version": 2, "seed": 3}


def test_a_resumed_run_forgets_what_it_does_again(tmp_path):
    with RunStore.create(tmp_path / "run.db") as store:
        for stage in ("sft", "rl", "eval"):
            for step in range(3):
                store.add([group(step)], stage=stage, step=step, metrics={"m": 1.0})
        assert store.truncate(["rl", "eval"], 2) == 8
        assert store.counts() == {"sft": {"truncated": 6}, "rl": {"truncated": 4}}
        assert [len(store.metrics(stage, "m")) for stage in ("sft", "rl", "eval")] == [3, 2, 0]
        assert store.select("select count(*) from tokens where id not in (select id from rollouts)") == [(0,)]


def test_nothing_is_overwritten(tmp_path):
    path = tmp_path / "run.db"
    path.write_text("my notes")
    with pytest.raises(StoreError, match="exists already"):
        RunStore.create(path)
    assert path.read_text() == "my notes"
    with pytest.raises(StoreError, match="cannot lock"):
        RunStore.create(tmp_path / "nowhere" / "run.db")


def foreign_database(path):
    db = sqlite3.connect(path)
    db.execute("create table meta (key, value)")
    db.commit()
    db.close()


def damaged(path):
    with RunStore.create(path) as store:
        for step in range(30):
            store.add([group(n, 8) for n in range(4)], stage="rl", step=step)
    body = bytearray(path.read_bytes())
    for page in range(2, len(body) // 16384):
        body[page * 16384 : page * 16384 + 200] = os.urandom(200)
    path.write_bytes(body)


def cut(path):
    damaged(path)
    path.write_bytes(path.read_bytes()[: 5 * 16384])


def newer(path):
    with RunStore.create(path) as store:
        store.set_meta("version", 99)


@pytest.mark.parametrize(
    "make",
    [lambda p: p.write_text("notes\n" * 999), lambda p: p.touch(), foreign_database, damaged, cut, newer, Path.mkdir],
)
def test_a_foreign_or_damaged_file_is_said_in_one_line_and_left_alone(tmp_path, make):
    path = tmp_path / "run.db"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(StoreError, match=r"run\.db") as told:
        RunStore.open(path)
    assert "\n" not in str(told.value)
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_damaged_record_is_named(tmp_path):
    path = tmp_path / "run.db"
    with RunStore.create(path) as store:
        store.add([group()], stage="rl", step=0)
    db = sqlite3.connect(path)
    (payload,) = db.execute("select payload from rollouts where id = 2").fetchone()
    body = bytearray(payload)
    body[len(body) // 2] ^= 1
    db.execute("update rollouts set payload = ? where id = 2", (bytes(body),))
    db.execute("update tokens set body = x'0102' where id = 1")
    db.commit()
    db.close()
    with RunStore.read(path) as reader:
        for id in (1, 2):
            with pytest.raises(StoreError, match=f"rollout {id}: a record is damaged"):
                reader.get(id)
        with pytest.raises(StoreError, match="no rollout 9"):
            reader.get(9)


def test_missing_files_and_closed_stores_say_so(tmp_path):
    for opened in (RunStore.open, RunStore.read, RunReader):
        with pytest.raises(StoreError, match="there is no run store"):
            opened(tmp_path / "no.db")
    assert list(tmp_path.iterdir()) == []
    with RunStore.create(tmp_path / "run.db") as store:
        pass
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.add(stage="a", step=0, metrics={"m": 1.0})


def test_a_second_writer_is_refused_while_the_first_lives(tmp_path):
    path = tmp_path / "run.db"
    with RunStore.create(path):
        with pytest.raises(StoreError, match=f"another writer has it open .process {os.getpid()}"):
            RunStore.open(path)
        (tmp_path / "link.db").symlink_to(path)
        with pytest.raises(StoreError, match="another writer"):
            RunStore.open(tmp_path / "link.db")
    RunStore.open(path).close()


WRITER = """
import sys
from itertools import count
from test_store import group
from wanderlust.store.store import RunStore
with RunStore.create(sys.argv[1]) as store:
    for step in count():
        store.add([group(step, 8)], stage="rl", step=step, metrics={"m": step})
        print(step, flush=True)
"""


@pytest.fixture
def writer(tmp_path):
    """A process that writes for ever and prints each step that was acknowledged."""
    here = Path(__file__).parent
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(ROOT / "tests"), str(ROOT / "src")])}
    command = [sys.executable, "-c", WRITER, str(tmp_path / "run.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True) as process:
        yield process
        process.kill()


def test_everything_acknowledged_survives_a_kill(writer, tmp_path):
    path = tmp_path / "run.db"
    acknowledged = [int(writer.stdout.readline()) for _ in range(60)]
    with RunStore.read(path) as reader:  # reads beside the writer, and sees it go on
        assert reader.groups("rl", 59) == [group(59, 8)]
        before = reader.metrics("rl", "m")
        acknowledged.append(int(writer.stdout.readline()))
        assert len(reader.metrics("rl", "m")) > len(before) - 1 >= 59
    with pytest.raises(StoreError, match=f"process {writer.pid}"):
        RunStore.open(path)
    os.kill(writer.pid, signal.SIGKILL)
    acknowledged += [int(line) for line in writer.stdout.read().split()]
    writer.wait()
    with RunStore.read(path) as reader:
        assert len(reader.metrics("rl", "m")) >= len(acknowledged)
    with RunStore.open(path) as store:
        steps = [step for step, _ in store.metrics("rl", "m")]
        assert steps == list(range(len(steps)))
        assert len(steps) >= len(acknowledged) > 60
        assert all(store.groups("rl", step) == [group(step, 8)] for step in steps[::10])
        store.add([group(0)], stage="rl", step=len(steps))


def test_an_orphan_of_a_killed_writer_does_not_hold_the_lock(tmp_path):
    code = """
import os, sys, time
from wanderlust.store.store import RunStore
store = RunStore.create(sys.argv[1])
if os.fork() == 0:
    print(os.getpid(), flush=True)
    time.sleep(60)
time.sleep(60)
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", code, str(tmp_path / "run.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True) as process:
        orphan = int(process.stdout.readline())
        process.kill()
        process.wait()
        try:
            RunStore.open(tmp_path / "run.db").close()
        finally:
            os.kill(orphan, signal.SIGKILL)
