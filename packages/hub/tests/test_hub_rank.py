"""Leaderboards of a hub: runs that come to the same figures when they are played again, and no others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bars_hub import make_key
from hub_attacks import MODULE, Wheel, publish_unchecked
from wanderlust.cli.main import main
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import play_groups
from wanderlust.store.store import RunStore
from wanderlust.tasks.registry import make_environment
from wanderlust.types import Group, Message, Rollout, Score, Status, Trajectory, Turn, user
from wanderlust_hub.entry import HubError
from wanderlust_hub.index import Hub
from wanderlust_hub.page import write_pages
from wanderlust_hub.publishing import allow, create_hub, revoke, yank
from wanderlust_hub.rank import rank, read_run, recompute
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
        (lambda one: replace(one, task=replace(one.task, id="other")), "is none of this version"),
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


def test_failed_and_left_out_rollouts_are_counted(place: Path) -> None:
    def some(one: Rollout) -> Rollout | None:
        if one.task.id.endswith("0"):
            return None
        failed = replace(one.trajectories[0], score=None)
        return one if one.sample_index else replace(one, status=Status.ERROR, trajectories=[failed])

    (only,) = rank("harmless", [stored("run", "1", change=some)], hub="hub", key=Path("key"))
    assert (only.run.tasks, only.run.of, only.run.failed, only.run.reward) == (1, 2, 1, 1.0)
    with pytest.raises(UsageError, match="no scored rollout"):
        rank(
            "harmless",
            [stored("none", "1", change=lambda one: replace(one, status=Status.ERROR))],
            hub="hub",
            key=Path("key"),
        )


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
