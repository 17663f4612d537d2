"""Leaderboards of a hub: runs that come to the same figures when they are played again, and no others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import zstandard

from bars_hub import make_key
from hub_attacks import MODULE, Wheel, publish_unchecked
from wanderlust.cli.main import main
from wanderlust.errors import UsageError, WanderlustError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import play_groups
from wanderlust.store.store import RunStore
from wanderlust.tasks.registry import make_environment
from wanderlust.types import Group, Message, Rollout, Score, Status, Trajectory, Turn, user
from wanderlust_hub import board
from wanderlust_hub.board import answers_digest, board_command, read_rollouts, track
from wanderlust_hub.entry import HubError, RankedRun, Record, StoredFile
from wanderlust_hub.index import Hub, rollouts_file
from wanderlust_hub.page import write_pages
from wanderlust_hub.publishing import Change as ChangeOfHub
from wanderlust_hub.publishing import allow, change, create_hub, revoke, yank
from wanderlust_hub.rank import rank, read_run, recompute, replay_entries
from wanderlust_hub.signing import fingerprint, public_key

Change = Callable[[Rollout], Rollout | None]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a hub of one package and its module."""
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    create_hub("hub", key=make_key(tmp_path / "key"))
    publish_unchecked(Wheel(), hub=Path("hub"), key=Path("key"))
    Path("harmless_here.py").write_text(MODULE)
    return tmp_path


def stored(
    name: str, answer: str, *, change: Change = lambda one: one, stage: str = "eval", split: str = "eval"
) -> Path:
    """A run whose policy always says the same, as it was stored, or changed before that."""
    env = make_environment(f"{Path('harmless_here.py').resolve()}:Harmless")
    groups = asyncio.run(play_groups(env, env.tasks(split), Scripted(lambda messages, rng: answer), group_size=2))
    Path(name).mkdir()
    made = [
        Group(task=g.task, index=g.index, rollouts=[new for one in g.rollouts if (new := change(one))]) for g in groups
    ]
    with RunStore.create(Path(name, "rollouts.db")) as store:
        store.add(made, stage=stage, step=0, env="harmless")
    return Path(name)


def rewarded(one: Rollout) -> Rollout:
    score = one.trajectories[0].score
    assert score is not None
    return replace(one, trajectories=[replace(one.trajectories[0], score=replace(score, reward=1.0))])


def against_itself(one: Rollout) -> Rollout:
    """With a second seat that learns and earns otherwise."""
    return replace(one, trajectories=[*one.trajectories, Trajectory(seat="other", score=Score(reward=-1.0))])


def turned(one: Rollout, change: Callable[[Turn], Turn]) -> Rollout:
    first = one.trajectories[0]
    return replace(one, trajectories=[replace(first, turns=[change(first.turns[0])])])


def test_runs_are_ranked_shown_and_verified(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    board = rank("harmless", [stored("low", "7"), stored("half", "1")], hub="hub", key=Path("key"))
    assert [(one.run.reward, one.run.tasks, one.run.of, one.run.failed) for one in board] == [
        (0.5, 2, 2, 0),
        (0, 2, 2, 0),
    ]
    assert board[0].run.low is not None
    assert board[0].run.low < 0.5
    assert board[0].run.shared is None
    hub = Hub.open("hub")
    assert hub.rankings("harmless") == board
    assert hub.verify().ok
    write_pages(hub, Path("pages"))
    assert "<h2>Leaderboard</h2>" in Path("pages/pages/harmless.html").read_text()
    with pytest.raises(SystemExit):
        main(["hub", "rank", "hub", "harmless", "--json"])
    rows = json.loads(capsys.readouterr().out)["rankings"]
    assert [row["run"]["reward"] for row in rows] == [0.5, 0.0]
    with pytest.raises(HubError, match="ranked already"):
        rank("harmless", [Path("half")], hub="hub", key=Path("key"))
    (file, _) = sorted(Path("hub").rglob("*.zst"))
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert "is not what was ranked" in Hub.open("hub").verify().problems[0]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (rewarded, "the score of 'agent' was"),
        (against_itself, "played against itself"),
        (lambda one: turned(one, lambda turn: replace(turn, action=Message("assistant", "0"))), "differs"),
        (lambda one: turned(one, lambda turn: replace(turn, observation=(user("Say 7."),))), "differs"),
        (lambda one: replace(one, state={"board": "won"}), "the state was"),
        (lambda one: replace(one, status=Status.TRUNCATED, stop_reason="max_turns"), "it ended with"),
        (lambda one: replace(one, status=Status.TRUNCATED, stop_reason="timeout"), "ended by the clock"),
        (lambda one: replace(one, task=replace(one.task, answer="7")), "is none of this version"),
        (lambda one: replace(one, task=replace(one.task, id=f"other {one.task.id}")), "are not those that -n 2 plays"),
    ],
)
def test_runs_that_do_not_come_to_the_same_are_refused(place: Path, change: Change, wrong: str) -> None:
    before = {path: path.read_bytes() for path in Path("hub").rglob("*") if path.is_file()}
    with pytest.raises(HubError, match=wrong):
        rank("harmless", [stored("run", "7", change=change)], hub="hub", key=Path("key"))
    assert {path: path.read_bytes() for path in Path("hub").rglob("*") if path.is_file()} == before


def test_one_rollout_counts_once(place: Path) -> None:
    env, run = make_environment(f"{Path('harmless_here.py').resolve()}:Harmless"), read_run(stored("run", "1"))
    recompute(env, run, env.tasks("eval"))
    with pytest.raises(HubError, match="twice with one seed"):
        recompute(env, replace(run, rollouts=[*run.rollouts, run.rollouts[0]]), env.tasks("eval"))


def only_right(one: Rollout) -> Rollout | None:
    return one if one.trajectories[0].score.reward else None  # type: ignore[union-attr]


def failed_unless_right(one: Rollout) -> Rollout:
    if only_right(one):
        return one
    return replace(one, status=Status.ERROR, trajectories=[replace(one.trajectories[0], score=None)])


INCOMPLETE: dict[str, tuple[Change, str]] = {
    "a sample of one task is left out": (
        lambda one: None if one.task.id.endswith("0") and one.sample_index else one,
        "1 of 2 samples of task",
    ),
    "first samples are left out": (lambda one: one if one.sample_index else None, "1 of 2 samples of task"),
    "lost rollouts became errors": (failed_unless_right, "2 of 4 rollouts failed"),
    "errors alone": (lambda one: replace(one, status=Status.ERROR), "no scored rollout"),
    "a rollout of another seed": (
        lambda one: replace(one, seed=one.seed + one.sample_index),
        "rollouts of the seeds",
    ),
    "samples with numbers of their own": (
        lambda one: replace(one, sample_index=3 * one.sample_index),
        "2 of 4 samples of task",
    ),
    "tasks that somebody chose": (lambda one: None if one.task.id.endswith("0") else one, "are not those that -n 1"),
    "only what was won": (only_right, "are not those that -n 1"),
}


@pytest.mark.parametrize("name", INCOMPLETE)
def test_runs_with_holes_are_refused(place: Path, name: str) -> None:
    change, wrong = INCOMPLETE[name]
    with pytest.raises(WanderlustError, match=wrong):
        rank("harmless", [stored("run", "1", change=change)], hub="hub", key=Path("key"))
    assert Hub.open("hub").rankings("harmless") == []


def evaluated(folder: str, *words: str) -> Path:
    """A real evaluation of the module, which its package is made of."""
    with pytest.raises(SystemExit) as left:
        main(["eval", "harmless_here.py:Harmless", "--policy", "say.py:one", *words, "--out", folder])
    assert left.value.code == 0
    return Path(folder)


def test_only_what_the_version_fixes_is_in_the_main_track(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("say.py").write_text("def one(messages, rng):\n    return '1'\n")
    entry = Hub.open("hub").find("harmless").entry
    command = board_command(entry).split()
    assert command[:3] == ["wander", "eval", "harmless"]
    seed, samples = (command[command.index(word) + 1] for word in ("--seed", "--samples"))
    runs = [
        evaluated("main", "--seed", seed, "--samples", samples),
        evaluated("other seed", "--seed", "7", "--samples", samples),
        evaluated("few", "--seed", seed, "--samples", "1"),
        evaluated("one task", "--seed", seed, "--samples", samples, "-n", "1"),
        evaluated("long", "--seed", seed, "--samples", samples, "--max-turns", "70"),
    ]
    found = rank("harmless", runs[1:] + runs[:1], hub="hub", key=Path("key"))
    assert [track(one.run) for one in found] == ["", "max_turns 70", "samples 1", "seed 7", "tasks 1"]
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["hub", "rank", "hub", "harmless"])
    assert "max_turns 70" in capsys.readouterr().out
    assert replay_entries(Hub.open("hub"), count=None) == []


def test_the_same_answers_are_ranked_once(place: Path) -> None:
    rank("harmless", [stored("run", "1")], hub="hub", key=Path("key"))
    reordered = stored("reordered", "1")
    rows = read_run(reordered).rollouts
    (reordered / "rollouts.db").unlink()
    groups = [Group(task=one.task, index=n, rollouts=[one]) for n, one in enumerate(reversed(rows))]
    with RunStore.create(reordered / "rollouts.db") as store:
        store.add(groups, stage="eval", step=0, env="harmless")
    relabelled = stored("relabelled", "1", change=lambda one: replace(one, seconds=9.0))
    for again in (reordered, relabelled):
        with pytest.raises(HubError, match="ranked already"):
            rank("harmless", [again], hub="hub", key=Path("key"))


Forged = Callable[[RankedRun, list[Rollout]], tuple[RankedRun, bytes]]


def packed(run: RankedRun, rows: list[Rollout]) -> tuple[RankedRun, bytes]:
    body = zstandard.compress(b"".join(msgspec.json.encode(one) + b"\n" for one in rows))
    return replace(run, record=StoredFile.of(body), answers=answers_digest(rows)), body


def junk(run: RankedRun, rows: list[Rollout]) -> tuple[RankedRun, bytes]:
    body = b"junk, no rollouts at all"
    return replace(run, reward=42.0, record=StoredFile.of(body)), body


def paid(run: RankedRun, rows: list[Rollout]) -> tuple[RankedRun, bytes]:
    return packed(replace(run, reward=1.0, low=0.9, high=1.0), [rewarded(one) for one in rows])


def nobody(run: RankedRun, rows: list[Rollout]) -> tuple[RankedRun, bytes]:
    made, body = packed(run, rows)
    return replace(made, answers="0" * 64), body


def bomb(run: RankedRun, rows: list[Rollout]) -> tuple[RankedRun, bytes]:
    body = zstandard.compress(b"0" * (2**20 + 1))
    return replace(run, record=StoredFile.of(body), answers="0" * 64), body


FORGED: dict[str, tuple[Forged, str]] = {
    "no rollouts": (junk, "cannot be read"),
    "another mean": (lambda run, rows: packed(replace(run, reward=42.0), rows), "says reward 42"),
    "more tasks": (lambda run, rows: packed(replace(run, tasks=9, of=9), rows), "says tasks 9"),
    "more rollouts": (lambda run, rows: packed(replace(run, rollouts=400), rows), "says rollouts 400"),
    "rewards in the rollouts, too": (paid, "the score of 'agent' was"),
    "answers that were not given": (
        lambda run, rows: packed(
            replace(run, reward=1.0),
            [rewarded(turned(one, lambda turn: replace(turn, action=Message("assistant", "0")))) for one in rows],
        ),
        "differs",
    ),
    "another track": (lambda run, rows: packed(replace(run, settings={}), rows), "signed for the track 'main'"),
    "answers of nobody": (nobody, "other answers"),
    "a bomb": (bomb, "more than"),
    "holes": (lambda run, rows: packed(replace(run, rollouts=3, reward=2 / 3), rows[1:]), "of 2 samples"),
}


@pytest.mark.parametrize("name", FORGED)
def test_entries_that_an_allowed_key_forged_do_not_verify(
    place: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(board, "MAX_ROLLOUT_BYTES", 2**20)
    forge, wrong = FORGED[name]
    (honest,) = rank("harmless", [stored("run", "1")], hub="hub", key=Path("key"))
    rows = read_rollouts(Hub.open("hub").ranked_rollouts(honest.run))
    run, body = forge(replace(honest.run, policy="forged"), rows)
    create_hub("other", key=Path("key"))
    publish_unchecked(Wheel(), hub=Path("other"), key=Path("key"))
    file = Path("other") / rollouts_file(run)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(body)
    record = Record(number=0, previous="", action="rank", by=honest.by, run=run)
    change(Path("other"), ChangeOfHub(record=record, files={}), key=Path("key"))
    with pytest.raises(SystemExit) as left:
        main(["hub", "verify", "other", "--replay", "-1", "--json"])
    assert left.value.code == 1
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert any("'forged'" in one and wrong in one for one in problems), problems


def test_training_tasks_are_compared(place: Path) -> None:
    run = stored("run", "1")
    trained, clean = stored("trained", "1", stage="rl"), stored("clean", "1", stage="rl", split="train")
    assert rank("harmless", [run], hub="hub", key=Path("key"), trained_on=[trained])[0].run.shared == 2
    other = stored("other", "0")
    board = rank("harmless", [other], hub="hub", key=Path("key"), trained_on=[clean])
    assert board[-1].run.trained_on == "clean"
    with pytest.raises(UsageError, match="is no training run"):
        rank("harmless", [other], hub="hub", key=Path("key"), trained_on=[Path("hub")])


def test_only_known_keys_rank_and_revoked_ones_are_left_out(place: Path) -> None:
    run, other = stored("run", "1"), make_key(place / "other")
    with pytest.raises(HubError, match="is unknown to this hub"):
        rank("harmless", [run], hub="hub", key=other)
    allow(Path("other.pub"), hub="hub", key=Path("key"))
    assert len(rank("harmless", [run], hub="hub", key=other)) == 1
    revoke(fingerprint(public_key(other)), hub="hub", key=Path("key"))
    assert Hub.open("hub").rankings("harmless") == []
    assert Hub.open("hub").verify().ok
    yank("harmless", "1.0.0", hub="hub", key=Path("key"))
    with pytest.raises(UsageError, match="no usable version"):
        rank("harmless", [run], hub="hub", key=Path("key"))
