"""Training without labels: what teaches, what is only watched, and what becomes of judgements that fail."""

from __future__ import annotations

import asyncio
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from wanderlust.cli.main import main
from wanderlust.environment import SingleTurnEnvironment
from wanderlust.errors import EnvironmentFailure, UsageError
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.choice_judge import ChoiceJudge
from wanderlust.rubrics.generated import (
    CHOICE_CRITERION_TEMPLATE,
    HELD_CRITERIA,
    HELD_CRITERION_CHARS,
    MIN_CRITERIA,
    ask_for_rubric,
    rubric_client,
)
from wanderlust.rubrics.judge import JudgeOptions
from wanderlust.rubrics.rubric import Rubric
from wanderlust.runner.progress import NullLogger
from wanderlust.store.reader import RunReader
from wanderlust.store.store import RunStore
from wanderlust.training.checkpoint import Run
from wanderlust.training.config import TrainConfig
from wanderlust.training.label_free_rewards import written_rubric_reward
from wanderlust.training.loop import NoSignalWarning, UnscoredRolloutsWarning
from wanderlust.training.optimizer import weights_of
from wanderlust.training.setup import validate_config
from wanderlust.training.tiny_model import ModelShape, fresh_model, fresh_tokenizer
from wanderlust.training.train import run_training
from wanderlust.types import Task, user


def right(completion: str, answer: object) -> float:
    return float(completion == answer)


class Digits(SingleTurnEnvironment):
    """Say the digit you are shown; `label` is added to what is held to be right."""

    def __init__(self, label: int | None = 0):
        tasks = [
            Task(id=f"{n}", prompt=(user(f"say {n}"),), answer=None if label is None else f"{(n + label) % 10}")
            for n in range(10)
        ]
        super().__init__({"train": tasks, "eval": tasks if label == 0 else []}, rubric=Rubric(right))

    extract = staticmethod(str.strip)


class Picky(Digits):
    """Takes few words for an answer."""

    extract = staticmethod(lambda text: text if text and ord(text[0]) % 4 == 0 else "")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "fresh"
    tokenizer = fresh_tokenizer(["say 0", "say 1", "0123456789"] * 20)
    shape = ModelShape(width=32, layers=1, heads=2, inner=64, positions=4096)
    save_pretrained(folder, fresh_model(tokenizer, shape, seed=0), tokenizer)
    return folder


def config(checkpoint: Path, estimator: str, **changes: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "env": f"{__name__}:Digits",
        "steps": 2,
        "tasks_per_step": 4,
        "group_size": 4,
        "lr": 3e-3,
        "max_tokens": 1,
        "eval_every": 100,
    }
    return TrainConfig(policy=str(checkpoint), label_estimator=estimator, **{**settings, **changes})


def trained(settings: TrainConfig, path: Path, *, workers: int = 1) -> tuple[torch.Tensor, RunReader]:
    validate_config(settings)
    run = Run.begin(path, settings)
    run_training(settings, run, logger=NullLogger(), workers=workers)
    run.store.close()
    return weights_of(load_pretrained(path / "checkpoints" / "rl")[0]), RunStore.read(path / "rollouts.db")


def test_labels_change_nothing(checkpoint: Path, tmp_path: Path) -> None:
    ends = []
    for label in ("0", "3", "null"):
        settings = config(checkpoint, "majority", env=f"{__name__}:Digits,label={label}")
        ends.append(trained(settings, tmp_path / f"run{label}")[0])
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])
    assert not torch.equal(ends[0], weights_of(load_pretrained(checkpoint)[0]))


def test_what_it_is_watched_by_is_kept(checkpoint: Path, tmp_path: Path) -> None:
    _, reader = trained(config(checkpoint, "majority"), tmp_path / "run")
    with reader:
        names = set(reader.metric_names("rl"))
        truths = [value for _, value in reader.metrics("rl", "metric/truth")]
        rewards = [value for _, value in reader.metrics("rl", "reward")]
        gains = [value for _, value in reader.metrics("rl", "metric/label_free/gain")]
    assert {
        "metric/label_free/disagrees",
        "metric/label_free/diversity",
        "metric/label_free/flat",
        "metric/truth/right",
    } <= names
    assert len(truths) == len(gains) == 2
    assert all(truth < reward for truth, reward in zip(truths, rewards, strict=True))
    assert "rollouts_unscored" not in names


@pytest.mark.parametrize(
    ("teacher", "changes"),
    [("likeliest", {}), ("mutual", {}), ("synthesis", {"label_question": True}), ("majority", {"max_staleness": 1})],
)
def test_every_teacher_plays_its_part(checkpoint: Path, tmp_path: Path, teacher: str, changes: dict[str, Any]) -> None:
    _, reader = trained(config(checkpoint, teacher, steps=1, **changes), tmp_path / "run")
    with reader:
        assert "metric/label_free/disagrees" in reader.metric_names("rl")
        assert reader.metrics("rl", "rollouts_failed") == [(0, 0.0)]


def test_judgements_that_fail_are_counted_said_once_and_no_zero(checkpoint: Path, tmp_path: Path) -> None:
    settings = config(checkpoint, "majority", env=f"{__name__}:Picky", tasks_per_step=8)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        _, reader = trained(settings, tmp_path / "run")
    (told,) = [str(one.message) for one in said if one.category is UnscoredRolloutsWarning]
    assert "no rollout of the group gives an answer" in told
    with reader:
        failed = [value for _, value in reader.metrics("rl", "rollouts_failed")]
        unjudged = [value for _, value in reader.metrics("rl", "rollouts_unscored")]
        scores = [t.score for g in reader.groups("rl", 0) for r in g.rollouts for t in r.trajectories]
    assert 0 < failed[0] < 32
    assert unjudged == [failed[0], failed[0] + failed[1]]
    assert sum(score is None for score in scores) == failed[0]


@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.UnscoredRolloutsWarning")
@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
def test_a_run_in_which_no_judgement_succeeds_ends_with_the_reason(checkpoint: Path, tmp_path: Path) -> None:
    settings = config(checkpoint, "majority", label_reward="rubric", label_judge=f"{__name__}:silent")
    with pytest.raises(EnvironmentFailure, match="all 4 rollouts failed: RubricFailure"):
        trained(settings.replace(steps=1, tasks_per_step=1), tmp_path / "run")


def silent(messages: Any, rng: Any) -> str:
    return "no verdict"


def test_the_start_of_a_policy_writes_criteria_under_a_schema_and_ticks_them(checkpoint: Path, tmp_path: Path) -> None:
    settings = config(checkpoint, "synthesis", label_reward="rubric", steps=1, tasks_per_step=1, max_tokens=4)
    with pytest.warns(NoSignalWarning):  # weights that are random tick nothing
        _, reader = trained(settings, tmp_path / "run")
    with reader:
        (group,) = reader.groups("rl", 0)
        assert reader.metrics("rl", "rollouts_failed") == [(0, 0.0)]
    scores = [t.score for rollout in group.rollouts for t in rollout.trajectories]
    for score in filter(None, scores):
        count = len(
            re.findall(r"^\[[x ]\] [a-z]+: .*? \(Yes \d\.\d\d, No \d\.\d\d\)$", score.notes["label_free"], re.M | re.S)
        )
        assert MIN_CRITERIA <= count <= HELD_CRITERIA
        assert score.metrics["label_free/calls"] == count + 1 / 4  # the writer's call is shared by four
        assert score.metrics["label_free/completion_tokens"] > 0
        assert 0 < score.metrics["label_free/mass"] < 1


def test_a_writer_that_is_held_writes_as_many_criteria_as_asked_for(checkpoint: Path) -> None:
    sampling = SamplingOptions(max_tokens=1000)
    writer = LocalPolicy.of(*load_pretrained(checkpoint), sampling, seed=1)
    client = rubric_client(writer, JudgeOptions(), bounds=(2, 3))
    rubric = asyncio.run(ask_for_rubric(client, reference="4", bounds=(2, 3))).value
    assert 2 <= len(rubric) <= 3
    assert all(len(one.text) <= HELD_CRITERION_CHARS for one in rubric)


class Sure:
    async def complete(self, messages: Any, tools: Any = (), *, key: str = "") -> Any:
        raise AssertionError("asked for words")

    async def choice_logprobs(self, messages: Any, choices: Any) -> list[float]:
        return [-0.1, -9.0]


SURE = ChoiceJudge(Sure(), CHOICE_CRITERION_TEMPLATE)


def test_a_judge_is_a_checkpoint_a_policy_or_a_judge_by_log_probabilities(checkpoint: Path) -> None:
    policy = LocalPolicy.of(*load_pretrained(checkpoint), SamplingOptions())

    def judge_of(name: str) -> Any:
        return written_rubric_reward(config(checkpoint, "synthesis", label_judge=name), policy).checklist.judge

    assert judge_of("").policy is policy
    assert isinstance(judge_of(str(checkpoint)).policy, LocalPolicy)
    assert judge_of(str(checkpoint)).policy is not policy
    assert judge_of(f"{__name__}:SURE") is SURE
    assert isinstance(judge_of(f"{__name__}:Sure").policy, Sure)
    assert isinstance(judge_of(f"{__name__}:silent"), Scripted)


def test_a_judge_that_there_is_not_is_one_line(checkpoint: Path) -> None:
    with pytest.raises(UsageError, match=r"^[^\n]*nowhere[^\n]*$"):
        validate_config(config(checkpoint, "majority", label_judge="nowhere:judge"))
    with pytest.raises(UsageError, match=r"^no policy 'nowhere'; [^\n]*a run or checkpoint folder[^\n]*$"):
        validate_config(config(checkpoint, "majority", label_judge="nowhere"))
    with pytest.raises(UsageError, match="not both"):
        validate_config(config(checkpoint, "majority", teacher=str(checkpoint)))


def test_a_run_of_single_rollouts_is_refused(checkpoint: Path) -> None:
    with pytest.raises(UsageError, match="set group_size to 2 or more"):
        validate_config(config(checkpoint, "majority", group_size=1))


def test_a_teacher_that_there_is_not_is_one_line_with_the_nearest(
    checkpoint: Path, tmp_path: Path, capsys: Any
) -> None:
    with pytest.raises(SystemExit) as end:
        main(
            [
                "train",
                "wordle",
                "--policy",
                str(checkpoint),
                "--label-estimator",
                "majorty",
                "--out",
                str(tmp_path / "run"),
            ]
        )
    told = capsys.readouterr().err.strip()
    assert (end.value.code, len(told.splitlines())) == (2, 1)
    assert "majority" in told
