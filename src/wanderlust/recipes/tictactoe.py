"""Teach a small language model tic-tac-toe: games of an imperfect teacher, then its own. The demo of this library.

The experiment is that of a public course (a 2.6-billion-parameter model, two runs of eight hours on two large GPUs),
made small enough for two CPU cores: text in, text out, real tokens, real gradients.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Literal

from wanderlust.environments.tictactoe import (
    ExactFigures,
    PolicyTree,
    TicTacToe,
    build_policy_tree,
    teacher_player,
    tictactoe_teacher,
    worth_learning,
)
from wanderlust.environments.tictactoe.exact import OPENINGS, Opening
from wanderlust.environments.tictactoe.game import eval_tasks
from wanderlust.environments.tictactoe.prompts import BOARD_VIEWS, COMPACT_WORDING, view_trajectory
from wanderlust.environments.tictactoe.rules import FIXED_OPPONENTS, mixed_opponent
from wanderlust.environments.tictactoe.solver import boards_of, lint_opponent, solve_against
from wanderlust.environments.tictactoe.teacher import StartPositions, suggest_move
from wanderlust.evals.statistics import wilson
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local import ExploringStarts
from wanderlust.policies.local.device import one_thread
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.runner.engine import play_groups
from wanderlust.runner.progress import Logger
from wanderlust.store.run_folder import FRESH_POLICY
from wanderlust.training.algorithms.presets import algorithm
from wanderlust.training.batch.samples import Sample, imitation_samples
from wanderlust.training.checkpoint import Run
from wanderlust.training.config import TrainConfig
from wanderlust.training.group_source import OnPolicySource
from wanderlust.training.loop import TrainingLoop
from wanderlust.training.tiny_model import ModelShape, fresh_model, fresh_tokenizer
from wanderlust.training.trainers.process_pool import ProcessPoolTrainer
from wanderlust.training.trainers.replica import Replica
from wanderlust.training.warmup import fresh_shape
from wanderlust.types import Group, Task

EMPTY_FACTS: dict[str, Any] = {"rows": [], "curve": [], "sampled": [], "warnings": [], "boards": [], "seconds": 0.0}
STAGE_NAMES = ("teacher", "sft", "rl")
RATIO_MIN = 0.25
"""Least weight of a credited token: lets a good move be learnt that the policy would hardly have made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoConfig(TrainConfig):
    """A training configuration, and what is the demo's own."""

    env: str = "tictactoe"
    policy: str = FRESH_POLICY
    sft_episodes: int = 200
    """Games the teacher plays; the lost ones are not imitated."""
    sft_steps: int = 350
    sft_batch: int = 16
    sft_lr: float = 3e-3
    fresh_positions: int = 512
    algorithm: str = "cispo-tree"
    max_tokens: int = 12
    """Bound of an answer; a well-formed one has 7 tokens."""
    steps: int = 250
    tasks_per_step: int = 48
    updates_per_step: int = 2
    lr: float = 7e-4
    optimizer: Literal["adamw", "muon"] = "muon"
    lr_warmup_steps: int = 10
    lr_end: float = 0.05
    eval_every: int = 50
    fresh_width: int = 128
    """Twice the default: it learns in half of the steps, and a step takes little longer (docs/decisions/0006)."""
    exploring_starts: int = 2
    """Rollouts of every group whose first move is a random legal one."""
    max_random_share: float = 1.0
    """The opponents' share of random moves spans 0 to this."""
    whole_games_share: float = 0.33
    """Share of groups that play whole games; the others start in positions met before."""
    ramp_steps: int = 125
    """Steps until the weakest opponents play at random; in the first one all play perfectly."""

    @property
    def shape(self) -> ModelShape:
        """Shape of the fresh model."""
        return replace(fresh_shape(self), theta=30.0)


FULL_DEMO = DemoConfig()
QUICK_DEMO = DemoConfig(
    fresh_width=64, sft_steps=300, steps=12, tasks_per_step=32, eval_every=12, ema_decay=0.8, ramp_steps=12
)


class DemoReplica(Replica):
    """A replica that can also be evaluated."""

    def evaluate_exactly(self, openings: Sequence[Opening]) -> PolicyTree:
        """Everything that the greedy policy says after these openings."""
        return asyncio.run(build_policy_tree(self.policy.greedy(), openings=openings))

    def sample_games(self, tasks: Sequence[Task]) -> list[Group]:
        """Games drawn as in training."""
        return asyncio.run(play_groups(TicTacToe(), tasks, self.policy, seed=self.config.seed, concurrency=256))

    @classmethod
    def load_demo(cls, folder: Path, config: DemoConfig, *, device: str = "cpu") -> DemoReplica:
        """The untrained model of a run's folder; weights are published later."""
        one_thread()
        model, tokenizer = load_pretrained(folder)
        explore = partial(ExploringStarts, first_move=suggest_move, first=config.group_size - config.exploring_starts)
        return cls(model.to(device), tokenizer, TicTacToe(), config=config, explore=explore)


class Demo:
    """One run of the demo, stage by stage; every stage can be resumed after any interruption."""

    def __init__(self, config: DemoConfig, run: Run, *, logger: Logger, workers: int = 2, device: str = "cpu"):
        self.config, self.run, self.logger, self.count, self.device = config, run, logger, workers, device
        saved = run.state or {"facts": dict(EMPTY_FACTS)}
        self.facts: dict[str, Any] = saved["facts"]

    def run_stages(self) -> dict[str, Any]:
        """Run what is left to run; returns the facts that the report is made of."""
        reached = self.run.state or {"stage": "teacher", "step": 0}
        self.run.store.truncate(STAGE_NAMES[STAGE_NAMES.index(reached["stage"]) :], reached["step"])
        games = self.play_teacher_games()
        tokenizer = fresh_tokenizer(
            text for game in games for text in [message.content for message in game.rollouts[0].trajectory.messages]
        )
        model = fresh_model(tokenizer, self.config.shape, seed=self.config.seed)
        folder = self.run.path / "checkpoints"
        if not (folder / "untrained").exists():
            save_pretrained(folder / "untrained", model, tokenizer)
        make = partial(DemoReplica.load_demo, folder / "untrained", self.config, device=self.device)
        samples = self.samples(games, Renderer(tokenizer))
        with ProcessPoolTrainer(
            make, model, self.config.sft_optimizer, count=self.count, shards=self.config.shards
        ) as pool:
            asyncio.run(self._stages(pool, samples, folder, tokenizer=tokenizer))
        self.facts["seconds"] = self.run.clock.record()
        return self.facts

    async def _stages(
        self, pool: ProcessPoolTrainer, samples: Sequence[Sample], folder: Path, *, tokenizer: Any
    ) -> None:
        config, method = self.config, algorithm(self.config.algorithm)
        learner = TrainingLoop(
            self.run,
            pool,
            logger=self.logger,
            facts=self.facts,
            algorithm=method,
            loss=replace(method.loss, ratio_min=RATIO_MIN),
        )
        stage = (self.run.state or {"stage": "teacher"})["stage"]
        if stage == "teacher":
            self.facts["rows"] = [*teacher_rows()]
            await pool.publish()
            await self.evaluate(pool, "untrained")
        if stage != "rl":
            await learner.run_sft(samples, config)
            await self.evaluate(pool, "sft", step=0)
            save_pretrained(folder / "sft", pool.model, tokenizer)
        starts = StartPositions(
            seed=config.seed, high=config.max_random_share, whole=config.whole_games_share, ramp=config.ramp_steps
        )
        await learner.run_rl(
            OnPolicySource(pool, starts, count=config.tasks_per_step),
            config,
            env="tictactoe",
            group_metrics=self._group_metrics,
            evaluate=lambda step: self.evaluate(pool, "rl", step=step),
        )
        save_pretrained(folder / "rl", pool.model, tokenizer)
        self.facts["warnings"] = lint_findings(self.facts["boards"], config)
        self.facts["sampled"] = await self.sampled_rows(pool)

    async def sampled_rows(self, pool: ProcessPoolTrainer) -> list[dict[str, Any]]:
        """Games drawn as in training, with intervals: what the greedy figures leave out."""
        (groups,) = await pool.call("sample_games", [(eval_tasks(),)])
        return [sampled_row("rl", name, groups) for name in FIXED_OPPONENTS]

    def play_teacher_games(self) -> list[Group]:
        """The teacher's games, against opponents of every strength; the same ones for the same seed."""
        rng = Random(f"teacher/{self.config.seed}")
        tasks = [
            Task(id=f"tictactoe-teacher-{n}", info={"opponent": "mixed", "random": rng.random()})
            for n in range(self.config.sft_episodes)
        ]
        games = play_groups(TicTacToe(), tasks, tictactoe_teacher(), seed=self.config.seed, concurrency=256)
        groups = asyncio.run(games)
        self.run.store.add(groups, stage="teacher", step=0, env="tictactoe")
        self.logger.log_step("teacher", len(groups), of=len(groups), metrics=_outcomes(groups))
        return groups

    def samples(self, games: Sequence[Group], renderer: Renderer) -> list[Sample]:
        """Imitation samples: the good games in all eight views of the board, whole and joined half-way."""
        selected = [g.rollouts[0] for g in games if worth_learning(g.rollouts[0])]
        return [
            sample
            for n, game in enumerate(selected)
            for i, view in enumerate(BOARD_VIEWS)
            for join in ((0,) if (n + i) % 2 else (1 + (n + i // 2) % max(len(game.trajectory.turns) - 1, 1),))
            if join < len(game.trajectory.turns)
            for sample in imitation_samples(
                view_trajectory(game, view, COMPACT_WORDING, join=join),
                renderer,
                context=self.config.sft_context_weight,
            )
        ]

    async def evaluate(self, pool: ProcessPoolTrainer, policy: str, *, step: int | None = None) -> bool:
        """Exact figures of the greedy policy; with a `step` they are also a point of the learning curve. Goes on."""
        half = [(OPENINGS[:4],), (OPENINGS[4:],)]
        first, second = await pool.call("evaluate_exactly", half)
        rows = first.merged(second).rows(policy)
        self.facts["rows"] = [row for row in self.facts["rows"] if row["policy"] != policy] + rows
        if step is not None:
            self.facts["seconds"] = self.run.clock.record()
            point = {"step": step, "seconds": self.facts["seconds"], "rows": rows}
            self.facts["curve"] = [p for p in self.facts["curve"] if p["step"] < step] + [point]
            figures = {f"{r['opponent']}/{k}": r[k] for r in rows for k in ("win", "draw", "loss", "invalid")}
            self.run.store.add(stage="rl", step=step, metrics={f"exact/{k}": v for k, v in figures.items()})
            self.logger.log_step("eval", step, of=self.config.steps, metrics=figures)
        return True

    def _group_metrics(self, groups: Sequence[Group]) -> dict[str, float]:
        played = [r.state for g in groups for r in g.rollouts if r.error is None]
        boards = {board for state in played for board in boards_of(state["moves"], state["start"])}
        self.facts["boards"] = sorted(boards.union(self.facts["boards"]))
        return {**_outcomes(groups), "boards_seen": float(len(self.facts["boards"]))}


def teacher_rows() -> list[dict[str, Any]]:
    """The teacher's exact figures."""
    player = teacher_player()
    return [ExactFigures.of(solve_against(player, o)).row("teacher", name) for name, o in FIXED_OPPONENTS.items()]


def lint_findings(boards: Sequence[str], config: DemoConfig) -> list[str]:
    """Findings of the opponent lint on the opponents of training and on the positions that training saw."""
    met = mixed_opponent(config.max_random_share / 2)
    lines = [
        line for opponent in (met, *FIXED_OPPONENTS.values()) for line in lint_opponent(opponent, boards_seen=boards)
    ]
    return list(dict.fromkeys(lines))


def sampled_row(policy: str, opponent: str, groups: Sequence[Group]) -> dict[str, Any]:
    """Shares of sampled games against one opponent, with 95% intervals."""
    played = [r.state for g in groups for r in g.rollouts if r.error is None and r.state["opponent"] == opponent]
    row: dict[str, Any] = {"policy": policy, "opponent": opponent, "episodes": len(played), "exact": False}
    ends = {"win": "X", "draw": "draw"}
    for share in ("win", "draw", "loss", "invalid"):
        hits = [
            state["invalid"] > 0
            if share == "invalid"
            else state["winner"] == ends[share]
            if share in ends
            else state["winner"] not in ends.values()
            for state in played
        ]
        value = sum(hits) / max(len(hits), 1)
        row[share], (row[f"{share}_low"], row[f"{share}_high"]) = value, wilson(value, len(hits))
    return row


def _outcomes(groups: Sequence[Group]) -> dict[str, float]:
    """Shares of won, drawn and lost games."""
    ends = Counter(r.state.get("winner") for g in groups for r in g.rollouts if r.error is None)
    count = max(ends.total(), 1)
    lost = count - ends["X"] - ends["draw"]
    return {"metric/win": ends["X"] / count, "metric/draw": ends["draw"] / count, "metric/loss": lost / count}
