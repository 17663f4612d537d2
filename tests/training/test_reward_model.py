"""Reward models: pairs from any source, fitted and calibrated, read as others read them, and trained against."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from collections.abc import Mapping
from math import exp, log
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from toys import TOKENIZER, WORDS, Again, fresh
from wanderlust import Rubric, Scripted, SingleTurnEnvironment, Task, TrainConfig, evaluate_sync, exact, rollout, train
from wanderlust import user as from_user
from wanderlust.algorithms import finetune
from wanderlust.cli.main import main
from wanderlust.environments.learned_reward import LearnedReward
from wanderlust.errors import StoreError, UsageError
from wanderlust.policies.base import Hardware
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.policies.local.reward_model import RewardScorer, ScoreScale, scored_ids, with_score_head
from wanderlust.rubrics.moments import Moments, PairMoments
from wanderlust.rubrics.monitors import turning_point
from wanderlust.rubrics.reward_model import RewardModel
from wanderlust.rubrics.rubric import held_out
from wanderlust.runner.progress import NullLogger
from wanderlust.store.run_folder import STORE_FILE
from wanderlust.store.store import RunStore
from wanderlust.training.finetune import resume_finetuning
from wanderlust.training.preferences import calibrate, calibration_error, fit_temperature, preference_pairs
from wanderlust.training.run_report import OVEROPTIMISATION_FILE
from wanderlust.types import assistant, user

QUICK: dict[str, Any] = {"lr": 5e-3, "epochs": 12, "batch_tokens": 60, "progress": False, "eval_share": 0.3}
ORDER = "abcd"
"""A letter is preferred to those after it."""


def pairs() -> list[dict[str, Any]]:
    """All pairs of two-letter answers to three prompts; the better one has the earlier first letter."""
    answers = [a + b for a in ORDER for b in ORDER]
    return [
        {"prompt": prompt, "chosen": one, "rejected": other, "task": f"{one[1]}{other[1]}"}
        for prompt in "abc"
        for one in answers
        for other in answers
        if one[0] < other[0] and Random(prompt + one + other).random() < 0.4
    ]


def preferring(path: Path, **settings: Any) -> Any:
    """A reward model that learnt the order."""
    save_pretrained(path / "start", fresh(3), TOKENIZER)
    return finetune(pairs(), path / "start", "reward", out=path / "rm", **{**QUICK, **settings})


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(preferring(tmp_path_factory.mktemp("learnt")).path)


# Training and reading


def test_held_out_pairs_are_right_calibrated_and_reported(learnt: Path) -> None:
    report = json.loads((learnt / "report.json").read_text())
    figures = report["reward_model"]
    assert figures["accuracy"] > 0.9
    assert figures["held_out_pairs"] == report["rows"]["held_out"] > 20
    assert 0 <= figures["calibration_error"] < 0.2
    assert figures["temperature"] > 0
    assert figures["longer_chosen"] == 0.5
    assert report["curve"][0]["metrics"]["reward_accuracy"]["value"] == 0.5
    assert "rows trained on" in (learnt / "report.md").read_text()


def test_transformers_reads_the_same_score_in_padded_rows(learnt: Path) -> None:
    folder = Path(RewardModel(learnt).model)
    scorer = RewardScorer.load(folder, Hardware())
    theirs = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    assert theirs.config.num_labels == 1
    talks = [[user("a"), assistant("ab")], [user("abc"), assistant("d"), user("b"), assistant("cca")]]
    rows = [scored_ids(scorer.renderer, talk) for talk in talks]
    assert all(row[-1] in scorer.renderer.end_ids for row in rows)
    width = max(map(len, rows))
    padded = torch.tensor([[*row, *[theirs.config.pad_token_id] * (width - len(row))] for row in rows])
    with torch.no_grad():
        wanted = theirs(input_ids=padded).logits[:, 0].tolist()
    assert [scorer.score(row) for row in rows] == pytest.approx(wanted, abs=1e-5)
    plain = copy.copy(scorer)
    plain._own = None
    assert [plain.score(row) for row in rows] == pytest.approx(wanted, abs=1e-5)
    scale = scorer.scale
    assert scorer.log_odds(talks[0]) == pytest.approx((wanted[0] - scale.centre) / scale.temperature, abs=1e-4)


@pytest.mark.parametrize("settings", [{"lora": 2, "lr": 1e-2}, {"implementation": "transformers"}])
def test_adapters_and_the_plain_pass_learn_too(tmp_path: Path, settings: dict[str, Any]) -> None:
    result = preferring(tmp_path, **settings)
    assert result.report["reward_model"]["accuracy"] > 0.75
    model, _ = load_pretrained(result.policy_folder, scores=True)
    assert not any("lora" in name for name, _ in model.named_parameters())


def test_the_head_begins_at_zero_and_its_pad_token_ends_no_turn() -> None:
    model = with_score_head(fresh(1), TOKENIZER)
    assert not model.score.weight.any()
    assert model.config.pad_token_id == TOKENIZER.pad_token_id != TOKENIZER.eos_token_id


class Cut(Exception):
    """Ends a run in the middle."""


class CutAt(NullLogger):
    """A logger that ends the run when an update has been taken."""

    def log_step(self, stage: str, step: int, *, of: int, metrics: Mapping[str, float]) -> None:
        if (stage, step) == ("reward", 60):
            raise Cut


def test_an_interrupted_run_ends_in_the_same_weights_and_figures(learnt: Path, tmp_path: Path) -> None:
    with pytest.raises(Cut):
        preferring(tmp_path, progress=CutAt())
    again = resume_finetuning(tmp_path / "rm", progress=False)
    assert again.report["reward_model"] == json.loads((learnt / "report.json").read_text())["reward_model"]
    talk = [user("a"), assistant("b")]
    assert RewardModel(again.path)(messages=talk) == RewardModel(learnt)(messages=talk)


# Sources and bad input


def rated(prompt: str, completion: str, rating: Any, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "completion": completion, "rating": rating, **more}


def numbered(rows: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    return [(f"line {number}", row) for number, row in enumerate(rows, 1)]


def texts(rows: list[dict[str, Any]]) -> tuple[list[tuple[str, str]], dict[str, int]]:
    left_out: dict[str, int] = {}
    found = preference_pairs(numbered(rows), left_out)
    return [tuple(one.messages[-1].content for one in pair.conversations) for pair in found], left_out  # type: ignore[misc]


def test_rated_answers_are_paired_from_the_outside_inwards() -> None:
    rows = [rated("q", text, rating) for text, rating in zip("abcde", (1, 5, 3, 2, 4), strict=True)]
    assert texts(rows) == ([("b", "a"), ("e", "d")], {})
    assert texts([rated("q", "a", True), rated("q", "b", False), rated("p", "c", 1)]) == ([("a", "b")], {"alone": 1})
    assert texts([rated("q", "a", 1), rated("q", "a", 3), rated("q", "b", 1.5)]) == ([("a", "b")], {})


def test_ties_and_contradictions_are_counted_and_left_out() -> None:
    a, b = ({"prompt": "q", "chosen": x, "rejected": y} for x, y in ("ab", "ba"))
    assert texts([a, a, a, b]) == ([("a", "b")] * 2, {"contradictions": 2})
    assert texts([a, b]) == ([], {"contradictions": 2})
    assert texts([a, {"prompt": "q", "chosen": "c", "rejected": "c"}]) == ([("a", "b")], {"ties": 1})
    assert texts([rated("q", "a", 1), rated("q", "b", 1)]) == ([], {"ties": 1})


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], ["nothing to train on"]),
        ([rated("q", "a", 1), rated("q", "b", 1)], ["none of 2 rows gives a preference", "1 ties"]),
        ([rated("p", "a", 1), rated("q", "b", 0)], ["none of 2 rows", "2 alone"]),
        ([{"prompt": "q", "chosen": "a", "rejected": "a"}] * 3, ["none of 3 rows", "3 ties"]),
        ([rated("q", "a", "good")], ["line 1", "rating is 'good'", "number"]),
        ([rated("q", "a", float("nan"))], ["line 1", "nan"]),
        ([{"prompt": "q", "completion": "a"}], ["line 1", "chosen and rejected"]),
        ([{"prompt": "q", "chosen": "a"}], ["line 1", "chosen and rejected"]),
        ([{"prompt": "q " * 99, "chosen": "a", "rejected": "b"}], ["1 rows are longer than 32 tokens"]),
    ],
)
def test_bad_preferences_are_one_line(
    rows: list[dict[str, Any]], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_pretrained(tmp_path / "start", fresh(3), TOKENIZER)
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(SystemExit) as ended:
        main(["reward-model", str(file), "--policy", str(tmp_path / "start"), "--out", str(tmp_path / "rm")])
    told = capsys.readouterr().err
    assert (ended.value.code, told.count("\n")) == (2, 1), told
    assert all(word in told for word in words), told
    assert not (tmp_path / "rm").exists()


def test_what_is_left_out_is_told_and_in_the_report(tmp_path: Path) -> None:
    save_pretrained(tmp_path / "start", fresh(3), TOKENIZER)
    rows = [
        *pairs(),
        {"prompt": "a", "chosen": "b", "rejected": "b"},
        {"prompt": "d", "chosen": "b", "rejected": "c"},
        {"prompt": "d", "chosen": "c", "rejected": "b"},
        rated("d", "a", 1),
        {"prompt": "a" * 40, "chosen": "b", "rejected": "c"},
    ]
    result = finetune(rows, tmp_path / "start", "reward", out=tmp_path / "rm", **{**QUICK, "epochs": 1})
    counted = result.report["rows"]
    assert [counted[name] for name in ("too_long", "ties", "contradictions", "alone")] == [1, 1, 2, 1]
    assert "1 left out as ties" in (result.path / "report.md").read_text()


def test_one_sided_lengths_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_pretrained(tmp_path / "start", fresh(3), TOKENIZER)
    rows = [{"prompt": a + b, "chosen": "abc", "rejected": "a"} for a in WORDS for b in WORDS]
    finetune(rows, tmp_path / "start", "reward", out=tmp_path / "rm", **{**QUICK, "epochs": 1, "progress": True})
    assert "the longer answer is preferred in 100% of the pairs" in capsys.readouterr().err


# Calibration


def test_a_temperature_is_found_again_and_mends_the_error() -> None:
    rng = Random(0)
    odds = [rng.uniform(-4, 4) for _ in range(4000)]
    true = [value if rng.random() < 1 / (1 + exp(-value)) else -value for value in odds]
    over = [3 * value for value in true]
    assert fit_temperature(over) == pytest.approx(3, rel=0.1)
    assert calibration_error(over) > 0.1
    found = calibrate([(value, 0.0) for value in over], [str(n % 200) for n in range(4000)])
    assert found.error is not None
    assert found.error < 0.03 < (found.error_before or 0)
    assert found.scale.centre == pytest.approx(sum(over) / 8000)


def test_pairs_that_are_all_right_are_not_stated_as_certain() -> None:
    found = calibrate([(1.0, 0.0)] * 4, ["a", "b", "c", "d"])
    assert 1 / (1 + exp(-1 / found.scale.temperature)) == pytest.approx(5 / 6, abs=1e-3)
    assert calibrate([], []).as_dict()["accuracy"] is None
    assert calibrate([(1.0, 0.0)], ["a"]).error is None


def test_a_broken_scale_is_refused(tmp_path: Path) -> None:
    ScoreScale(temperature=2.0, centre=1.0).save(tmp_path)
    assert ScoreScale.load(tmp_path) == ScoreScale(temperature=2.0, centre=1.0)
    (tmp_path / "reward_model.json").write_text('{"temperature": 0, "centre": 0}')
    with pytest.raises(StoreError, match="temperature is 0"):
        ScoreScale.load(tmp_path)


# As a reward


def letters() -> SingleTurnEnvironment:
    tasks = [Task(id=f"letter-{word}", prompt=(from_user(word),), answer="a") for word in WORDS]
    return SingleTurnEnvironment({"train": tasks, "eval": tasks}, rubric=Rubric(exact()))


def test_a_reward_model_is_a_part_of_a_rubric(learnt: Path) -> None:
    rubric = Rubric(RewardModel(learnt), held_out(exact()))
    env = letters()
    scores = []
    for said in ("ab", "da"):
        result = asyncio.run(rollout(env, next(iter(env.tasks())), Scripted([said]), rubric=rubric))
        assert result.trajectory.score is not None
        scores.append(result.trajectory.score)
    good, bad = scores
    assert 1 > good.reward > 0.6
    assert 0 < bad.reward < 0.4
    assert good.metrics["reward_model/score"] == pytest.approx(log(good.reward / (1 - good.reward)), abs=1e-6)
    copied = pickle.loads(pickle.dumps(RewardModel(learnt)))
    assert copied(messages=[user("a"), assistant("ab")]).value == pytest.approx(good.reward)


def test_too_long_a_text_has_no_score(learnt: Path) -> None:
    env = letters()
    result = asyncio.run(
        rollout(env, next(iter(env.tasks())), Scripted(["a" * 99]), rubric=Rubric(RewardModel(learnt)))
    )
    assert (result.stop_reason, result.trajectory.score) == ("RubricFailure", None)
    assert "does not fit the reward model's 32" in str(result.error)


def test_models_that_write_and_models_that_score_are_told_apart(learnt: Path, tmp_path: Path) -> None:
    save_pretrained(tmp_path / "start", fresh(3), TOKENIZER)
    for place in (tmp_path / "start", tmp_path / "nowhere"):
        with pytest.raises(UsageError, match="is no reward model"):
            RewardModel(place)
    with pytest.raises(StoreError, match="scores texts and writes none"):
        evaluate_sync(letters(), str(learnt), progress=False)
    with pytest.raises(StoreError, match="it writes texts"):
        load_pretrained(tmp_path / "start", scores=True)


def test_rollouts_are_rescored_and_a_run_gives_preferences(
    learnt: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = Scripted(lambda messages, rng: rng.choice(ORDER) + rng.choice(ORDER))
    evaluate_sync(
        letters(), policy, samples=6, rubric=Rubric(RewardModel(learnt)), out=tmp_path / "played", progress=False
    )
    with pytest.raises(SystemExit) as ended:
        main(["rescore", str(tmp_path / "played"), "--rubric", str(learnt), "--json"])
    assert ended.value.code == 0
    body = json.loads(capsys.readouterr().out)
    assert body["comparison"]["difference"]["value"] == 0
    words = ["reward-model", str(tmp_path / "played"), "--policy", str(learnt.parent / "start"), "--json"]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--out", str(tmp_path / "second"), "--epochs", "2", "--eval-data", str(tmp_path / "played")])
    assert ended.value.code == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows["trained"] + rows["held_out"] > 4
    with pytest.raises(SystemExit) as ended:
        main(["reward-model", "--resume", str(tmp_path / "second")])
    told = capsys.readouterr().out
    assert "Held-out pairs: " in told
    assert f"wander train learned-reward,env=ENV,model={tmp_path / 'second'}" in told.replace("\n", "")


# Training against it


def test_a_policy_learns_from_it_with_the_truth_beside_it(learnt: Path, tmp_path: Path) -> None:
    env = LearnedReward(letters(), model=str(learnt))
    config = TrainConfig(
        steps=12,
        tasks_per_step=4,
        group_size=8,
        lr=2e-2,
        max_tokens=4,
        eval_every=12,
        kl=1e-4,
        shards=1,
        result_samples=0,
    )
    result = train(env, learnt.parent / "start", config=config, out=tmp_path / "rl", workers=1, progress=False)
    curve = result.report["overoptimisation"]
    points = curve["points"]
    assert len(points) == 12
    assert points[-1]["reward"] > points[0]["reward"] + 0.1
    assert points[0]["kl"] == pytest.approx(0, abs=1e-4)
    assert points[-1]["kl"] > 0.01
    assert curve["sentence"] in (result.path / "report.md").read_text()
    assert (result.path / OVEROPTIMISATION_FILE).stat().st_size > 1000
    with RunStore.read(result.path / STORE_FILE) as store:
        (group, *_) = store.groups("rl", 0)
        score = group.rollouts[0].trajectories[0].score
    assert score is not None
    assert {"truth", "truth/exact", "reward_model/score"} <= score.metrics.keys()


def test_an_environment_by_name_takes_the_model_and_its_own_settings(learnt: Path) -> None:
    env = LearnedReward("brief-wordle", model=str(learnt), words=60)
    assert env.seats == env.env.seats
    assert next(iter(env.tasks())).id == next(iter(env.env.tasks())).id
    assert env.unwrapped is env.env
    with pytest.raises(UsageError, match="no reward model"):
        LearnedReward("wordle", model="nowhere")
    with pytest.raises(UsageError, match="no setting 'words'"):
        LearnedReward(Again(), model=str(learnt), words=60)

    def best(completions: list[str]) -> list[float]:
        return [float(one == max(completions)) for one in completions]

    with pytest.raises(UsageError, match="compares rollouts"):
        LearnedReward(SingleTurnEnvironment(rubric=Rubric(best)), model=str(learnt))


# The monitor


class Step:
    """As much of a step's statistics as the monitor reads."""

    def __init__(self, number: int, reward: float, truth: float, error: float = 0.01):
        pair = PairMoments(Moments(reward, error, 128), Moments(truth, error, 128), 0.04, 0.04, 0.0, 0.0)
        self.step, self.pairs, self.examples = number, {"truth": pair, "part ~ truth": pair}, {"reward": ((0, 0),)}


def flagged(rewards: list[float], truths: list[float]) -> list[tuple[int, float]]:
    rng, history, out = Random(0), list[Any](), list[tuple[int, float]]()
    for number, (reward, truth) in enumerate(zip(rewards, truths, strict=True)):
        history.append(Step(number, reward + rng.gauss(0, 0.01), truth + rng.gauss(0, 0.01)))
        if (alert := turning_point(history)) is not None:
            out.append((number, alert.value))
    return out


def test_the_turn_is_flagged_soon_and_dated() -> None:
    rewards = [0.5 + 0.005 * n for n in range(80)]
    truths = [0.5 + 0.005 * min(n, 80 - n) for n in range(80)]
    found = flagged(rewards, truths)
    assert 45 < found[0][0] < 65
    assert all(36 <= step <= 44 for _, step in found)


@pytest.mark.parametrize(
    ("rewards", "truths"),
    [
        ([0.5 + 0.005 * n for n in range(80)], [0.5 + 0.003 * n for n in range(80)]),
        ([0.5] * 200, [0.5] * 200),
        ([0.5 + 0.005 * n for n in range(80)], [0.5] * 80),
        ([0.5 + 0.005 * min(n, 80 - n) for n in range(80)], [0.5 + 0.005 * min(n, 80 - n) for n in range(80)]),
    ],
)  # learning, nothing, a truth that does not move, harder tasks that move both
def test_what_is_no_turn_is_not_flagged(rewards: list[float], truths: list[float]) -> None:
    assert flagged(rewards, truths) == []
