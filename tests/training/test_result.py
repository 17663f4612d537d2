"""How a training run ends: before and after on the same held-out tasks, one sentence, one checkpoint, advice."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest

from toys import TOKENIZER, WORDS, fresh
from wanderlust.cli.train_command import note_next_commands
from wanderlust.environment import Environment, Episode
from wanderlust.errors import UsageError
from wanderlust.evals.comparison import compare
from wanderlust.policies.checkpoints import resolve_checkpoint
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.policies.scripted import Scripted
from wanderlust.store.reader import RunReader
from wanderlust.store.run import load_run
from wanderlust.store.run_folder import STORE_FILE
from wanderlust.training.checkpoint import EvalPoint
from wanderlust.training.config import TrainConfig
from wanderlust.training.result import TrainResult
from wanderlust.training.rl_stage import ADVICE_EVENT
from wanderlust.training.train import train
from wanderlust.training.verdict import Evidence, TaskRewards, Verdict, advise, advise_during
from wanderlust.training.verdict import judge_result as judge_evidence
from wanderlust.types import Task, user

pytestmark = pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
TASKS = 60


def figures(share: float, *, samples: int = 4, seed: int = 0) -> TaskRewards:
    """Passed or not, by task."""
    rng = Random(seed)
    return {f"t{n}": [float(rng.random() < share) for _ in range(samples)] for n in range(TASKS)}


def judge_result(rewards: dict[str, TaskRewards], **known: Any) -> Verdict:
    return judge_evidence(Evidence(**{"rewards": rewards, "truths": {}, **known}))


@pytest.mark.parametrize(
    ("before", "after", "best", "verdict", "sentence", "policy"),
    [
        (0.1, 0.4, None, "better", "Better by 0.", "after"),
        (0.5, 0.2, None, "worse", "Worse by 0.", "before"),
        (0.3, 0.3, None, "none", "No difference shown: ", "after"),
        (0.2, 0.3, 0.8, "better", "Better by 0.", "best"),
        (0.6, 0.1, 0.9, "worse", "Worse by 0.", "best"),
        (0.5, 0.5, 0.52, "none", "No difference shown: ", "after"),
    ],
)
def test_one_sentence_and_one_checkpoint(
    before: float, after: float, best: float | None, verdict: str, sentence: str, policy: str
) -> None:
    rewards = {"before": figures(before, seed=1), "after": figures(after, seed=2)}
    found = judge_result(rewards if best is None else {**rewards, "best": figures(best, seed=3)})
    assert (found.verdict, found.policy) == (verdict, policy)
    assert found.sentence.startswith(sentence)
    assert "60 held-out tasks, 240 sampled rollouts each way" in found.sentence
    assert found.difference is not None
    low, high = found.difference["low"], found.difference["high"]
    assert (low <= 0 <= high) == (verdict == "none")


def test_false_verdicts_are_as_rare_as_they_say() -> None:
    found = [judge_result({"before": figures(0.3, seed=n), "after": figures(0.3, seed=-n - 1)}) for n in range(200)]
    assert sum(one.verdict != "none" for one in found) <= 20  # 5% of 200 are expected, 20 are 3 deviations above


def test_nothing_scored_is_no_verdict() -> None:
    assert judge_result({"before": figures(0.1)}).verdict == "none"
    assert judge_result({"before": {"a": [1.0]}, "after": {"b": [1.0]}}).policy == "after"
    one = judge_result({"before": {"a": [0.0] * 9}, "after": {"a": [1.0] * 9}})
    assert one.sentence.startswith("Too few held-out tasks to tell (1; at least 6): +1.000")


def shifted(by: float, *, seed: int = 1) -> TaskRewards:
    """Figures that all lie higher or lower by as much, with some noise."""
    rng = Random(seed)
    return {f"t{n}": [0.5 + by + rng.gauss(0, 0.05)] for n in range(TASKS)}


WARNINGS = [{"step": 11, "monitor": "gap", "text": "reward rose"}, {"step": 18, "monitor": "gap", "text": "again"}]


@pytest.mark.parametrize(
    ("reward", "truth", "warned", "verdict", "policy", "said"),
    [
        (0.2, -0.3, True, "exploited", "before", "but `truth` fell by 0."),
        (0.2, -0.3, False, "exploited", "before", "the weights before training are handed out"),
        (0.0, -0.3, False, "worse", "before", "Worse: `truth` fell by"),
        (-0.2, -0.3, False, "worse", "before", "after training, and `truth` fell by"),
        (0.2, 0.2, False, "better", "after", "Better by 0."),
        (0.2, 0.2, True, "better", "after", "Monitors warned at step 11 (gap)."),
        (0.2, None, True, "doubtful", "after", "but monitors warned that it is exploited, at step 11 (gap)"),
        (0.2, None, False, "better", "after", "Better by 0."),
        (0.0, None, True, "none", "after", "Monitors warned at step 11 (gap)."),
        (-0.2, 0.2, False, "worse", "after", "Worse by 0."),
    ],
)
def test_the_verdict_weighs_reward_truth_and_warnings(
    reward: float, truth: float | None, warned: bool, verdict: str, policy: str, said: str
) -> None:
    truths = {} if truth is None else {"truth": {"before": shifted(0.0), "after": shifted(truth, seed=2)}}
    rewards = {"before": shifted(0.0, seed=3), "after": shifted(reward, seed=3)}
    found = judge_result(rewards, truths=truths, warnings=WARNINGS if warned else ())
    assert (found.verdict, found.policy) == (verdict, policy)
    assert said in found.sentence
    assert found.sentence.startswith("Better") == (verdict == "better")
    assert len(found.warnings) == 2 * warned
    assert ("Mend the reward" in found.advice) == (verdict in ("exploited", "doubtful"))


def test_the_best_weights_by_truth_are_handed_out() -> None:
    """The reward rises all the while; the truth rises at first."""
    rewards = {"before": shifted(0.0), "best": shifted(0.1, seed=2), "after": shifted(0.3, seed=3)}
    truth = {"before": shifted(0.0), "best": shifted(0.2, seed=2), "after": shifted(-0.2, seed=3)}
    assert judge_result(rewards, truths={"truth": truth}).policy == "best"
    assert judge_result(rewards).policy == "after"


@pytest.mark.parametrize(
    ("held_out", "trained", "verdict", "said"),
    [
        (0.02, 0.4, "overfitted", "Reward rose by 0.4"),
        (0.0, 0.4, "overfitted", "but on held-out ones only by"),
        (0.15, 0.4, "overfitted", "but on held-out ones only by +0.1"),
        (0.25, 0.4, "better", "while tasks trained on rose by 0.4"),
        (-0.3, 0.4, "worse", "while tasks trained on rose by 0.4"),
        (0.3, 0.3, "better", ""),
        (0.3, 0.1, "better", ""),
        (0.0, 0.0, "none", ""),
    ],
)
def test_a_rise_that_held_out_tasks_do_not_show_is_in_the_headline(
    held_out: float, trained: float, verdict: str, said: str
) -> None:
    rewards = {"before": shifted(0.0, seed=3), "after": shifted(held_out, seed=3)}
    found = judge_result(rewards, trained={"before": shifted(0.0, seed=5), "after": shifted(trained, seed=6)})
    assert found.verdict == verdict
    assert said in found.sentence
    assert ("tasks trained on" in found.sentence) == bool(said)
    assert ("more training tasks" in found.advice) == bool(said)


BUYER, SELLER = "buyer against the teacher", "seller against the start"


@pytest.mark.parametrize(
    ("buyer", "seller", "verdict", "policy", "said"),
    [
        (0.2, 0.1, "better", "after", "Better after training: buyer against the teacher +0."),
        (0.2, 0.0, "better", "after", "; seller against the start -0.000 ["),
        (-0.2, 0.0, "worse", "before", "Worse after training: buyer against the teacher -0."),
        (0.2, -0.2, "mixed", "after", "Better in some matches and worse in others after training: "),
        (0.0, 0.0, "none", "after", "No difference shown: buyer against the teacher "),
    ],
)
def test_seats_are_judged_one_by_one(buyer: float, seller: float, verdict: str, policy: str, said: str) -> None:
    """In a game of two sides a mean over seats, or against an opponent that learns too, tells nothing."""
    moves = {BUYER: (buyer, 3), SELLER: (seller, 5)}
    matches = {
        name: {"before": shifted(0.0, seed=seed), "after": shifted(by, seed=seed + 1)}
        for name, (by, seed) in moves.items()
    }
    found = judge_evidence(Evidence(truths={}, matches=matches))
    assert (found.verdict, found.policy) == (verdict, policy)
    assert said in found.sentence
    assert "each of 2 matches" in found.sentence
    assert found.difference is None
    assert list(found.matches) == [BUYER, SELLER]
    assert (SELLER in found.advice) == (verdict == "mixed")


def test_matches_share_the_chance_of_an_error() -> None:
    """Six matches in which nothing changed are called better or worse as rarely as one."""
    some = range(200)
    said = [
        judge_evidence(
            Evidence(
                truths={},
                matches={
                    f"m{k}": {"before": figures(0.3, seed=6 * n + k), "after": figures(0.3, seed=-6 * n - k - 1)}
                    for k in range(6)
                },
            )
        ).verdict
        for n in some
    ]
    assert sum(one != "none" for one in said) <= 20  # without a correction 53 are expected


def advice(rewards: dict[str, TaskRewards], **changes: object) -> str:
    config = TrainConfig(policy="fresh").replace(**changes)
    return "\n".join(advise(config, rewards=rewards, verdict="none", signal=[0.5] * 9, points=[]))


def test_advice_comes_from_what_was_measured() -> None:
    poor = {"before": figures(0.15), "after": figures(0.2), "teacher": figures(0.6), "random": figures(0.1)}
    assert "The warm-up reached" in advice(poor)
    assert "--sft-episodes (now 400)" in advice(poor)
    assert "The warm-up" not in advice({**poor, "before": figures(0.58)})
    (line,) = advise(TrainConfig(), rewards=poor, verdict="none", signal=[0.4, 0.0, 0.0, 0.05], points=[])
    assert "Rewards differed in only 2% of the groups" in line
    flat = [EvalPoint(step=step, value=value) for step, value in ((0, 0.1), (10, 0.5), (20, 0.4), (30, 0.5))]
    (line,) = advise(TrainConfig(), rewards={}, verdict="better", signal=[0.5], points=flat)
    assert "No greedy evaluation after step 10" in line
    (line,) = advise(TrainConfig(), rewards={}, verdict="worse", signal=[0.5], points=flat)
    assert "lower --lr" in line
    assert advise(TrainConfig(), rewards={}, verdict="better", signal=[0.5], points=[]) == []


@pytest.mark.parametrize(
    ("verdict", "unchanged", "clipped", "said"),
    [
        ("none", 0.8, [], "The policy hardly moved: 80% of the sampled rollouts"),
        ("none", 0.2, [], ""),
        ("none", None, [], ""),
        ("better", 0.8, [], ""),
        ("worse", 0.05, [0.0, 0.1], "made it worse, and 95% of its sampled rollouts changed: lower --lr"),
        ("none", 0.2, [0.0, 0.0, 0.3, 0.5], "40% of the tokens left the clip's range within a step: lower --lr"),
    ],
)
def test_advice_on_the_learning_rate_is_by_how_far_the_policy_moved(
    verdict: str, unchanged: float | None, clipped: list[float], said: str
) -> None:
    lines = advise(
        TrainConfig(), rewards={}, verdict=verdict, signal=[0.5], points=[], unchanged=unchanged, clipped=clipped
    )
    assert [said in line for line in lines] == ([True] if said else [])


class Letters(Environment):
    """Say the letter that is shown: ten held-out tasks."""

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id=f"{split}-{n}", answer=WORDS[n % len(WORDS)]) for n in range(10)]

    async def run(self, episode: Episode) -> None:
        said = await episode.agent.act(user(str(episode.task.answer)))
        episode.reward("said", float(said.content == episode.task.answer))


SETTINGS = {"tasks_per_step": 4, "group_size": 4, "max_tokens": 1, "steps": 6, "eval_every": 3}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start") / "fresh"
    save_pretrained(folder, fresh(0), TOKENIZER)
    return folder


def trained(start: Path, out: Path, **changes: object) -> TrainResult:
    config = TrainConfig(env=f"{__name__}:Letters", policy=str(start)).replace(**{**SETTINGS, "lr": 0.01, **changes})
    return train(config.env, config.policy, config=config, out=out, workers=1, progress=False)


@pytest.fixture(scope="module")
def two(start: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainResult, TrainResult]:
    runs = tmp_path_factory.mktemp("runs")
    return trained(start, runs / "a", steps=24, eval_every=12), trained(start, runs / "b", lr=1e-9)


def test_a_run_leaves_a_result_a_page_and_a_picture(two: tuple[TrainResult, TrainResult]) -> None:
    good, still = two
    body = json.loads((good.path / "report.json").read_text())
    assert body["result"]["sentence"] == good.verdict
    assert [row["policy"] for row in body["result"]["rows"]][:2] == ["before", "after"]
    before, after = (row["reward"]["value"] for row in body["result"]["rows"][:2])
    assert after > before + 0.1
    assert good.verdict in (good.path / "report.md").read_text()
    assert (good.path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert still.verdict.startswith("No difference shown")
    assert still.report["result"]["unchanged"] == 1.0
    assert good.report["result"]["unchanged"] < 0.5
    assert any("The policy hardly moved: 100%" in line for line in still.report["advice"])
    assert not any("hardly moved" in line for line in good.report["advice"])
    with closing(load_run(good.path)) as run:
        stored = {(row.stage, row.step) for row in run.rollouts('stage == "result"').rows()}
    assert stored >= {("result", 0), ("result", 24)}


def test_training_runs_are_compared_by_their_sampled_evaluations(two: tuple[TrainResult, TrainResult]) -> None:
    good, still = two
    found = compare(still.path, good.path)
    after = next(row for row in good.report["result"]["rows"] if row["policy"] == "after")
    assert found.second.value == pytest.approx(after["reward"]["value"])
    assert found.difference.value > 0.1
    assert (found.missing, found.second.count) == (0, after["reward"]["count"])


def test_unfinished_runs_are_not_compared(two: tuple[TrainResult, TrainResult], tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text((two[0].path / "run.json").read_text())
    (tmp_path / "rollouts.db").write_bytes((two[0].path / "rollouts.db").read_bytes())
    with pytest.raises(UsageError, match=r"^[^\n]*not finished[^\n]*$"):
        compare(tmp_path, two[0].path)


def test_what_a_run_hands_out_is_what_its_name_takes(two: tuple[TrainResult, TrainResult]) -> None:
    good = two[0]
    assert resolve_checkpoint(str(good.path)).name == "rl"
    body = {**good.report, "policy_checkpoint": "start"}
    (good.path / "report.json").write_text(json.dumps(body))
    try:
        assert resolve_checkpoint(str(good.path)).name == "start"
        assert TrainResult(path=good.path, report=body).policy_folder.name == "start"
    finally:
        (good.path / "report.json").write_text(json.dumps(good.report, indent=2))


def test_a_run_that_got_worse_hands_out_the_model_before(start: Path, tmp_path: Path) -> None:
    taught = trained(start, tmp_path / "taught", steps=24, eval_every=24)
    spoilt = trained(taught.policy_folder, tmp_path / "spoilt", lr=1.0, ema_decay=0.0, steps=3, max_grad_norm=100.0)
    assert spoilt.verdict.startswith("Worse by")
    assert resolve_checkpoint(str(spoilt.path)).name in ("start", "best")
    assert any("lower --lr" in line for line in spoilt.report["advice"])
    assert "are clearly worse" in (spoilt.path / "report.md").read_text()


class Memorised(Letters):
    """Four tasks, whose letters have nothing to do with those of the held-out ones."""

    def tasks(self, split: str = "train") -> list[Task]:
        shift, count = (1, 4) if split == "train" else (3, 12)
        pairs = [(WORDS[n % len(WORDS)], WORDS[(n + shift) % len(WORDS)]) for n in range(count)]
        return [Task(id=f"{split}-{n}", answer=right, info={"shown": shown}) for n, (shown, right) in enumerate(pairs)]

    async def run(self, episode: Episode) -> None:
        said = await episode.agent.act(user(str(episode.task.info["shown"])))
        episode.reward("said", float(said.content == episode.task.answer))


@pytest.mark.filterwarnings("ignore::wanderlust.tasks.curriculum.uniform.NoUsefulTasksWarning")
@pytest.mark.parametrize("changes", [{}, {"curriculum": "learnability"}, {"steps": 16, "lr": 0.03}])
def test_an_overfitted_run_says_so(start: Path, tmp_path: Path, changes: dict[str, object]) -> None:
    """Also where a curriculum chooses the tasks, or steps are few: training rewards tell nothing then."""
    config = TrainConfig(**{**SETTINGS, "steps": 60, "eval_every": 30, "lr": 0.01, "group_size": 8, **changes})
    result = train(Memorised(), str(start), config=config, out=tmp_path / "run", workers=1, progress=False)
    assert result.report["result"]["verdict"] in ("overfitted", "worse")
    assert "tasks trained on" in result.verdict
    assert "more training tasks" in " ".join(result.report["advice"])
    assert "tasks trained on: after training" in (result.path / "report.md").read_text()


class Rivals(Environment):
    """Each of two seats says the letter that is shown; it costs the other one half."""

    seats = ("left", "right")

    def tasks(self, split: str = "train") -> list[Task]:
        return Letters.tasks(self, split)

    async def run(self, episode: Episode) -> None:
        shown = str(episode.task.answer)
        right = {seat: float((await agent.act(user(shown))).content == shown) for seat, agent in episode.agents.items()}
        for seat, other in (self.seats, self.seats[::-1]):
            episode.reward("won", right[seat] - right[other] / 2, seat=seat)


class TaughtRivals(Rivals):
    """With a fixed player to be compared with."""

    players: ClassVar = {"teacher": lambda: Scripted(lambda messages, rng: rng.choice(WORDS))}


@pytest.mark.parametrize("kind", [Rivals, TaughtRivals])
def test_seats_that_learn_are_judged_against_players_that_do_not(
    start: Path, tmp_path: Path, kind: type[Environment]
) -> None:
    """Both seats earn half a point for a right answer whatever they learn together: the mean over them hardly moves."""
    config = TrainConfig(**{**SETTINGS, "steps": 24, "eval_every": 12, "lr": 0.01, "result_samples": 8})
    result = train(kind(), str(start), config=config, out=tmp_path / "run", workers=1, progress=False)
    found, taught = result.report["result"], kind is TaughtRivals
    assert found["verdict"] == "better", result.verdict
    assert result.policy_folder.name == "rl"
    opponents = [*(["the teacher"] if taught else []), "the start"]
    names = {f"{seat} against {opponent}" for opponent in opponents for seat in kind.seats}
    assert names <= found["matches"].keys() == found["match_rewards"].keys()
    assert all(name in result.verdict for name in names)
    page, table = (result.path / "report.md").read_text(), str(result)
    assert all(f"{name}: after training" in page and f"{name}: after training" in table for name in names)
    last = result.curve[-1]
    assert last["opponent"] == ("the teacher" if taught else "")
    assert (last["learning_reward"] is not None) == (result.report["best"] is not None) == taught
    with RunReader(result.path / STORE_FILE) as store:
        advised = [event.body["kind"] for event in store.events() if event.kind == ADVICE_EVENT]
    assert ("opponent" in advised) != taught
    assert not {"worse", "best", "plateau"} & {*advised}


def test_commands_that_follow_work(capsys: pytest.CaptureFixture[str]) -> None:
    note_next_commands("kuhn", Path("runs/x"), "c")
    said = capsys.readouterr().out
    assert "wander show runs/x" in said
    assert "wander eval kuhn --policy runs/x" in said
    assert "wander play" not in said


def point(step: int, value: float, *, width: float = 0.05) -> dict[str, float]:
    return {"step": step, "value": value, "low": value - width, "high": value + width}


SIGNAL = {"frac_groups_with_signal": [0.8] * 40, "entropy": [0.5] * 40}


@pytest.mark.parametrize(
    ("points", "metrics", "unchanged", "kinds"),
    [
        ([point(0, 0.2), point(20, 0.4), point(40, 0.6)], SIGNAL, 0.1, {}),
        ([point(0, 0.2), point(20, 0.2), point(40, 0.2)], SIGNAL, 1.0, {"learning_rate": "raise --lr"}),
        ([point(0, 0.2)], SIGNAL, 1.0, {}),
        ([point(0, 0.5), point(20, 0.3)], SIGNAL, 0.1, {"worse": "lower --lr"}),
        ([point(0, 0.2), point(20, 0.8), point(40, 0.5)], SIGNAL, 0.1, {"best": "step 20 was better (0.800, now 0.5"}),
        (
            [point(0, 0.2), *(point(n, 0.5) for n in (8, 16, 24, 32, 40))],
            SIGNAL,
            0.1,
            {"plateau": "No evaluation after step 8"},
        ),
        (
            [point(0, 0.2), point(20, 0.2)],
            {"frac_groups_with_signal": [0.0] * 20, "entropy": [0.5] * 20},
            1.0,
            {"signal": "--curriculum learnability"},
        ),
        (
            [point(0, 0.2), point(20, 0.5), point(40, 0.48)],
            {"frac_groups_with_signal": [0.8] * 20 + [0.3] * 20, "entropy": [0.5] * 20 + [0.01] * 20},
            0.1,
            {"entropy": "Entropy fell from 0.5 to 0.01"},
        ),
        (
            [point(0, 0.2), point(20, 0.5)],
            {**SIGNAL, "groups_dropped": [1.0] * 20},
            0.1,
            {"staleness": "20 groups became too old"},
        ),
    ],
)
def test_advice_while_it_learns(
    points: list[dict[str, float]], metrics: dict[str, list[float]], unchanged: float, kinds: dict[str, str]
) -> None:
    found = advise_during(TrainConfig(), metrics=metrics, points=points, unchanged=unchanged)
    assert found.keys() == kinds.keys()
    assert all(part in found[kind] and "\n" not in found[kind] for kind, part in kinds.items())


def test_a_rise_in_training_alone_is_said_while_it_learns() -> None:
    rewards = [0.3 + 0.01 * step + 0.02 * (step % 3) for step in range(40)]
    flat = [point(0, 0.3), *(point(n, 0.32) for n in (8, 16, 24, 32, 40))]
    found = advise_during(TrainConfig(), metrics={**SIGNAL, "reward": rewards}, points=flat, unchanged=0.1)
    assert found.keys() == {"overfitting"}
    assert "more training tasks" in found["overfitting"]
    assert "plateau" in advise_during(TrainConfig(), metrics=SIGNAL, points=flat, unchanged=0.1)


def test_a_single_held_out_task_has_no_interval_and_gives_no_advice() -> None:
    points = [{"step": step, "value": 0.5, "low": None, "high": None} for step in (0.0, 10.0)]
    assert advise_during(TrainConfig(), metrics={}, points=points, unchanged=1.0) == {}


def test_a_run_is_advised_once_while_it_learns(start: Path, tmp_path: Path) -> None:
    lines: list[str] = []

    class Lines:
        def log_step(self, stage: str, step: int, *, of: int, metrics: object) -> None:
            pass

        def log_line(self, line: str) -> None:
            lines.append(line)

    config = TrainConfig(**{**SETTINGS, "steps": 4, "lr": 1e-12, "eval_every": 2, "result_samples": 0})
    train(Letters(), start, config=config, out=tmp_path / "slow", progress=Lines(), workers=1)
    line = "eval 2: 100% of the greedy episodes are word for word those from before training: raise --lr (now 1e-12)."
    assert [one for one in lines if "raise --lr" in one] == [line]
    with RunReader(tmp_path / "slow" / STORE_FILE) as store:
        assert [event.body["step"] for event in store.events() if event.kind == ADVICE_EVENT] == [1]
