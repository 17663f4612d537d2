"""Self-iteration and runs that choose their tasks: the same on any number of workers, after any restart, and ahead."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from examples.guess_the_price import PRICES, Prices, marked, teacher, told

from tiers import proof_except
from toys import TOKENIZER, fresh
from wanderlust.environment import Episode, MultiTurnEnvironment, Revision, SingleTurnEnvironment
from wanderlust.environments.tictactoe import TicTacToe
from wanderlust.errors import UsageError
from wanderlust.evals.self_revision import iterate_revisions
from wanderlust.policies.base import Hardware
from wanderlust.policies.checkpoints import load_local_policy
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.policies.scripted import Scripted
from wanderlust.store.store import RunStore
from wanderlust.tasks.curriculum import NoUsefulTasksWarning
from wanderlust.tasks.revision import resolve_revision
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.training.algorithms.diversity import DiversityBonus, Improvement, hashed_embedding
from wanderlust.training.algorithms.grpo import raw_reward, standardized
from wanderlust.training.checkpoint import Run
from wanderlust.training.config import TrainConfig
from wanderlust.training.optimizer import weights_of
from wanderlust.training.setup import validate_config as check_training
from wanderlust.training.train import run_training
from wanderlust.types import Group, Message, Rollout, Score, Task, Trajectory, Turn, assistant

EXIT = "exit,min_conversations=4,capacity=16"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "fresh"
    save_pretrained(folder, fresh(0), TOKENIZER)
    return folder


def config(checkpoint: Path, curriculum: str, **changes: Any) -> TrainConfig:
    settings = {
        "steps": 8,
        "tasks_per_step": 4,
        "group_size": 4,
        "lr": 0.01,
        "max_tokens": 1,
        "eval_every": 4,
    } | changes
    settings = {"algorithm": "grpo-diverse", **settings}
    return TrainConfig(env="toys:Again", policy=str(checkpoint), curriculum=curriculum, **settings)


class Stopping:
    """Pulls the plug when a step is shown; keeps what it was shown."""

    def __init__(self, *place: object):
        self.place, self.seen = place, dict[int, Mapping[str, float]]()

    def log_step(self, stage: str, step: int, *, of: int, metrics: Mapping[str, float]) -> None:
        if stage == "rl":
            self.seen[step] = {name: value for name, value in metrics.items() if name.startswith("curriculum")}
        if (stage, step) == self.place:
            raise KeyboardInterrupt


def run(settings: TrainConfig, path: Path, *, at: int = 0, workers: int = 1) -> dict[int, Mapping[str, float]]:
    """Go on with the run, to its end or to a step; what the curriculum told."""
    opened, watch = Run.resume(path) if path.exists() else Run.begin(path, settings), Stopping("rl", at)
    try:
        run_training(settings, opened, logger=watch, workers=workers)
    except KeyboardInterrupt:
        assert at
    finally:
        opened.store.close()
    return watch.seen


@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
@pytest.mark.filterwarnings("ignore::wanderlust.tasks.curriculum.uniform.NoUsefulTasksWarning")
@pytest.mark.parametrize(
    "curriculum", proof_except([EXIT], [EXIT, "band,drop_useless=true,low=0,exploration=0.5"], group="resumes")
)
def test_a_run_ends_in_the_same_weights_on_other_workers_and_after_a_stop(
    curriculum: str, checkpoint: Path, tmp_path: Path
) -> None:
    settings, whole, cut = config(checkpoint, curriculum), tmp_path / "whole", tmp_path / "cut"
    told = run(settings, whole)
    assert told[8]["curriculum_made" if curriculum == EXIT else "curriculum_known"] > 0.1
    heard = run(settings, cut, at=3, workers=2) | run(settings, cut, at=7) | run(settings, cut)
    assert heard == told
    ends = [weights_of(load_pretrained(path / "checkpoints" / "rl")[0]) for path in (whole, cut)]
    assert torch.equal(*ends)
    with RunStore.read(whole / "rollouts.db") as one, RunStore.read(cut / "rollouts.db") as other:
        assert one.counts() == other.counts()


@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
@pytest.mark.filterwarnings("ignore::wanderlust.tasks.curriculum.uniform.NoUsefulTasksWarning")
def test_ahead_of_the_trainer_every_group_is_learnt_from_once(checkpoint: Path, tmp_path: Path) -> None:
    settings = config(checkpoint, EXIT, max_staleness=1)
    assert run(settings, tmp_path / "run", at=6)[6]["curriculum_buffer"] == 16
    run(settings, tmp_path / "run")
    with RunStore.read(tmp_path / "run" / "rollouts.db") as store:
        assert sum(store.counts()["rl"].values()) == 8 * 4 * 4


@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
def test_tasks_that_are_all_too_hard_are_told_in_a_line_and_counted(checkpoint: Path, tmp_path: Path) -> None:
    settings = config(checkpoint, "band,pass_threshold=2", steps=4)  # nobody earns 2
    with pytest.warns(NoUsefulTasksWarning, match=r"^all 4 tasks are too hard or too easy[^\n]+$"):
        told = run(settings, tmp_path / "run")
    assert [told[step]["curriculum_starved"] for step in (1, 2, 3, 4)] == [0, 4, 8, 12]


def test_a_run_that_could_not_begin_says_why(checkpoint: Path) -> None:
    with pytest.raises(UsageError, match="unknown curriculum 'harder'"):
        check_training(config(checkpoint, "harder"))
    with pytest.raises(UsageError, match=r"^Twice cannot begin in the middle of a conversation: [^\n]+$"):
        check_training(replace(config(checkpoint, EXIT), env="toys:Twice"))


def test_which_environments_begin_in_the_middle_of_a_conversation() -> None:
    class Own(SingleTurnEnvironment):
        async def run(self, episode: Episode) -> None: ...

    class Talk(MultiTurnEnvironment):
        def respond(self, messages: Sequence[Message], episode: Episode) -> None: ...

    assert [kind.prefixes for kind in (SingleTurnEnvironment, Talk, ToolEnvironment, Prices)] == [True] * 4
    assert [kind.prefixes for kind in (Own, TicTacToe)] == [False] * 2
    assert (resolve_revision(Prices()).improve, resolve_revision(Talk()).improve) == ("again", Revision().improve)
    with pytest.raises(UsageError, match="Own cannot begin in the middle"):
        resolve_revision(Own())


def test_self_iteration_shows_the_last_answer_and_what_was_said_of_it() -> None:
    env, tasks = Prices(goods=2), Prices(goods=2).tasks("eval")[:20]

    def heeds(messages: Any, rng: Any) -> str:
        shown.add(tuple(message.role for message in messages))
        if len(messages) == 1:
            return " ".join(str(rng.randint(0, 9)) for _ in range(2))
        said = [one.split() for one in messages[-1].content.split("\n")[0].split(", ")]
        return " ".join(str(int(n) + {"low": 1, "right": 0, "high": -1}[mark]) for n, mark in said)

    shown: set[tuple[str, ...]] = set()
    rounds = asyncio.run(iterate_revisions(env, tasks, Scripted(heeds), rounds=9))
    rewards = [fmean(one.trajectory.score.reward for one in each.values() if one.trajectory.score) for each in rounds]
    assert shown == {("user",), ("user", "assistant", "user")}
    assert [set(each) for each in rounds] == [{task.id for task in tasks}] * 10
    assert rewards == sorted(rewards)
    assert (rewards[0] < 0.5, rewards[-1]) == (True, 1.0)
    silly = asyncio.run(
        iterate_revisions(env, tasks[:1], Scripted(lambda messages, rng: messages[-1].content), rounds=1)
    )
    assert silly[1][tasks[0].id].trajectory.messages[-1].content == "form\nagain"
    failing = asyncio.run(iterate_revisions(env, tasks[:1], Scripted([]), rounds=2))
    assert [each[tasks[0].id].status for each in failing] == ["error"] * 3
    with pytest.raises(UsageError, match="two tasks have the same id"):
        asyncio.run(iterate_revisions(env, [tasks[0], tasks[0]], Scripted(["x"]), rounds=1))


def test_prices_are_told_and_the_teacher_heeds_now_and_then() -> None:
    assert marked("4 9", [4, 2]) == ["right", "high"]
    assert (marked("4", [4, 2]), marked("four 2", [4, 2]), told("4", ["form"])) == (["form"], ["form"], "form")
    assert told("4 9", ["right", "high"]) == "4 right, 9 high"
    assert min(PRICES.values()) == 0
    assert max(PRICES.values()) <= 9
    tasks = Prices().tasks("eval")
    assert {good for task in tasks for good in task.prompt[0].content.split(", ")} <= set(PRICES)
    assert not {task.prompt for task in tasks} & {task.prompt for task in Prices().tasks("train")}
    rounds = asyncio.run(iterate_revisions(Prices(), tasks, teacher(), rounds=4))
    first, last = (fmean(one.trajectory.score.reward for one in rounds[at].values()) for at in (0, 4))  # type: ignore[union-attr]
    assert first == pytest.approx(0.325, abs=0.05)
    assert last > first + 0.1


def siblings(texts: Sequence[str], rewards: Sequence[float]) -> Group:
    """A group whose rollouts say these texts and are paid so."""
    task, out = Task(id="t"), []
    for text, reward in zip(texts, rewards, strict=True):
        trajectory = Trajectory(turns=[Turn(observation=(), action=assistant(text))], score=Score(reward=reward))
        out.append(Rollout(task=task, seed=0, trajectories=[trajectory]))
    return Group(task=task, rollouts=out)


@pytest.mark.parametrize(
    ("texts", "rewards"),
    [
        (["3 4 5 6"] * 7 + ["9 9 0 1"], [1.0] * 7 + [0.0]),
        (["3 4 5 6"] * 4 + ["9 9 0 1", "0 0 0 0", "1 2 8 8", "7"], [1.0] * 4 + [0.0] * 4),
        (["a b", "c d", "a d", "x"], [0.2, 0.9, 0.5, 0.1]),
        (["same"] * 4, [1.0, 0.0, 0.0, 0.0]),
    ],
)
def test_diversity_keeps_a_baseline_of_zero_mean(texts: list[str], rewards: list[float]) -> None:
    group = siblings(texts, rewards)
    asyncio.run(DiversityBonus(advantage=standardized).assign_advantages(group))
    advantages = [one.trajectory.advantage for one in group.rollouts]
    assert sum(advantages) == pytest.approx(0.0, abs=1e-9)
    assert advantages[rewards.index(max(rewards))] > 0.1 > -0.1 > advantages[rewards.index(min(rewards))]


def test_who_answers_unlike_its_siblings_counts_for_more() -> None:
    plane = {"a": (0.0, 0.0), "b": (1.0, 0.0), "c": (0.0, 1.0), "d": (3.0, 3.0)}
    method = DiversityBonus(advantage=standardized, embed=plane.__getitem__, max_factor=9.0)
    group = siblings(["a", "b", "c", "d"], [0, 1, 0, 1])
    asyncio.run(method.assign_advantages(group))
    mean, far = (1.0, 1.0), {"a": 2**0.5, "b": 1.0, "c": 1.0, "d": 8**0.5}
    assert mean == tuple(fmean(column) for column in zip(*plane.values(), strict=True))
    factors, signs = [far[text] / (8**0.5 - 1) for text in "abcd"], (-1, 1, -1, 1)
    baseline = sum(sign * 0.866 * factor for sign, factor in zip(signs, factors, strict=True)) / sum(factors)
    wanted = [factor * (sign * 0.866 - baseline) for sign, factor in zip(signs, factors, strict=True)]
    assert [one.trajectory.advantage for one in group.rollouts] == pytest.approx(wanted, abs=1e-3)
    assert method.diversity_factors(["a", "a", "a"]) == [1.0, 1.0, 1.0]
    assert max(replace(method, max_factor=2.0).diversity_factors(["b", "c", "b", "c", "d"])) <= 2.0
    assert sum(x * x for x in hashed_embedding("some words, some more")) == pytest.approx(1.0)
    near, other = (
        (hashed_embedding("go to the shop"), hashed_embedding(text)) for text in ("go to the shops", "1 + 1 = 2")
    )
    assert sum(a * b for a, b in zip(*near, strict=True)) > 0.7 > sum(a * b for a, b in zip(*other, strict=True)) + 0.5
    assert set(hashed_embedding("")) == {0.0}
    assert json.dumps(hashed_embedding("\ud800"))


def test_a_revision_is_paid_for_what_it_adds() -> None:
    def advantages(info: Mapping[str, Any], rewards: list[float]) -> list[float | None]:
        group = siblings(["x"] * len(rewards), rewards)
        group.task = replace(group.task, info=info)
        asyncio.run(Improvement(advantage=raw_reward).assign_advantages(group))
        return [one.trajectory.advantage for one in group.rollouts]

    rewards = [0.0, 0.5, 0.75, 1.0]
    assert advantages({}, rewards) == rewards
    assert advantages({"exit": {"request": "diverge"}}, rewards) == rewards
    assert advantages({"exit": {"revised": [0.5, 1.0]}}, rewards) == [0.0, 0.0, 0.5, 1.0]
    assert advantages({"exit": {"revised": [0.0, 2.0]}}, rewards) == [0.0, 0.25, 0.375, 0.5]
    assert advantages({"exit": {"revised": [1.0, 1.0]}}, rewards) == [0.0] * 4


@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
@pytest.mark.filterwarnings("ignore::wanderlust.tasks.curriculum.uniform.NoUsefulTasksWarning")
def test_tasks_that_ask_for_better_answers_know_the_reward_of_the_one_they_revise(
    checkpoint: Path, tmp_path: Path
) -> None:
    run(config(checkpoint, EXIT + ",diverge=0.3", algorithm="grpo-improve"), tmp_path / "run")
    known = 0
    with RunStore.read(tmp_path / "run" / "rollouts.db") as store:
        groups = [group for step in range(1, 9) for group in store.iter_groups("rl", step)]
    for group in groups:
        made = group.task.info.get("exit", {})
        assert ("revised" in made) <= (made.get("request") == "improve")
        if "revised" in made:
            before, best = made["revised"]
            known += 1
            assert before <= best
            paid = {one.score.reward for g in groups for r in g.rollouts for one in r.trajectories if one.score}
            assert before in paid
    assert known > 0


@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
@pytest.mark.filterwarnings("ignore::wanderlust.tasks.curriculum.uniform.NoUsefulTasksWarning")
def test_the_result_is_of_revised_answers(checkpoint: Path, tmp_path: Path) -> None:
    """Revising is what is trained: the first answers stand beside it, and decide nothing."""
    settings = config(checkpoint, EXIT, result_samples=2)
    run(settings, tmp_path / "run")
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    result = report["result"]
    assert "in answers revised 4 times; first answers " in result["sentence"]
    assert [(row["match"], row["policy"]) for row in result["rows"]][:2] == [("", "before"), ("", "after")]
    assert {row["policy"] for row in result["rows"] if row["match"] == "first answers"} >= {"before", "after"}
    policy = load_local_policy(tmp_path / "run" / "checkpoints" / "rl", Hardware(), settings.sampling, seed=0)
    env = settings.make_env()
    tasks = list(env.tasks("eval"))
    chains = [asyncio.run(iterate_revisions(env, tasks, policy, rounds=4, seed=n)) for n in range(2)]
    (row,) = [one for one in result["rows"] if (one["match"], one["policy"]) == ("", "after")]
    scores = [chain[-1][task.id].trajectory.score for chain in chains for task in tasks]
    assert row["reward"]["value"] == pytest.approx(fmean(one.reward for one in scores if one is not None))
    last = report["curve"][-1]
    assert last["revisions"] == 4
    assert "first_answers" in last
