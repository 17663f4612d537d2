"""How long a run took: all its parts together, and no part twice."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from toys import TOKENIZER, fresh
from wanderlust.environment import Environment, Episode
from wanderlust.evals.evaluate import evaluate_sync
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.policies.scripted import Scripted
from wanderlust.store.run_folder import SECONDS_KEY, RunClock
from wanderlust.store.store import RunStore
from wanderlust.training.checkpoint import Run
from wanderlust.training.config import TrainConfig
from wanderlust.training.train import train
from wanderlust.types import Task, user


class Sums(Environment):
    works = True

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id=f"{split}-{n}", answer="a") for n in range(4)]

    async def run(self, episode: Episode) -> None:
        said = await episode.agent.act(user("a"))
        if not self.works and episode.task.id.endswith("3"):
            raise ValueError("not now")
        episode.reward("right", float(said.content == episode.task.answer))


def set_seconds(store: Path, seconds: float) -> None:
    with RunStore.open(store) as opened:
        opened.set_meta(SECONDS_KEY, seconds)


def test_parts_add_up_and_what_was_not_recorded_is_the_last_moment_alone(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run.db") as store:
        assert RunClock(store).before == 0
        first = RunClock(store).record()
    set_seconds(tmp_path / "run.db", 100.0 + first)
    with RunStore.open(tmp_path / "run.db") as store:
        clock = RunClock(store)
        assert clock.record(at_once=False) >= 100.0 + first
        assert store.meta()[SECONDS_KEY] == 100.0 + first  # too soon to write again
        whole = clock.record()
        assert store.meta()[SECONDS_KEY] == pytest.approx(whole, abs=0.001)
        assert whole >= 100.0 + first


def test_a_resumed_evaluation_took_as_long_as_all_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "eval"
    monkeypatch.setattr(Sums, "works", False)
    evaluate_sync(Sums(), Scripted(["a"]), out=out, progress=False)
    set_seconds(out / "rollouts.db", 1000.0)
    report = evaluate_sync(Sums(), Scripted(["a"]), out=out, progress=False)
    assert report.failed == 1
    assert report.usage.seconds > 1000.0
    assert json.loads((out / "report.json").read_text())["usage"]["seconds"] == report.usage.seconds


def test_a_finished_evaluation_that_is_called_again_is_left_as_it_is(tmp_path: Path) -> None:
    out = tmp_path / "eval"
    first = evaluate_sync(Sums(), Scripted(["a"]), out=out, progress=False)
    before = {file: file.read_bytes() for file in (out / "report.json", out / "wander.lock", out / "run.json")}
    times = {file: file.stat().st_mtime_ns for file in before}
    again = evaluate_sync(Sums(), Scripted(["a"]), out=out, progress=False, group_by="x")
    assert {file: file.read_bytes() for file in before} == before
    assert {file: file.stat().st_mtime_ns for file in before} == times
    assert again.usage.seconds == pytest.approx(first.usage.seconds, abs=0.001)
    assert again.reward == first.reward
    (out / "report.json").write_text('{"played": 4, "rew')  # a kill while it was written
    evaluate_sync(Sums(), Scripted(["a"]), out=out, progress=False)
    assert (
        json.loads((out / "report.json").read_text())["rewards"] == json.loads(before[out / "report.json"])["rewards"]
    )


@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
def test_a_training_run_took_as_long_as_all_its_parts(tmp_path: Path) -> None:
    save_pretrained(tmp_path / "fresh", fresh(0), TOKENIZER)
    settings = {"tasks_per_step": 2, "group_size": 2, "max_tokens": 1, "steps": 2, "eval_every": 2}
    config = TrainConfig(env=f"{__name__}:Sums", policy=str(tmp_path / "fresh")).replace(**settings)
    new = train(config.env, config.policy, config=config, out=tmp_path / "new", workers=1, progress=False)
    with RunStore.read(new.path / "rollouts.db") as store:
        steps = sum(value for name in ("rollout_s", "update_s") for _, value in store.metrics("rl", name))
    assert new.report["wall_s"] > steps + new.report["result"]["seconds"]
    with closing(Run.begin(tmp_path / "gone-on", config.with_sft_defaults()).store) as store:
        store.set_meta(SECONDS_KEY, 1000.0)  # parts that were killed before a state was saved
    went_on = train(config.env, config.policy, config=config, out=tmp_path / "gone-on", workers=1, progress=False)
    assert 1000.0 < went_on.report["wall_s"] < 2000.0  # added once
