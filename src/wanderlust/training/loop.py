"""The two ways a policy gets better, as loops over one step: imitate somebody, or reinforce what paid.

Whatever trains (worker processes, the engine in this process, a service) is a `Trainer`; wherever groups come from
(played now, or ahead of the trainer) is a `BatchSource`. This is the one place where a step is taken.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any, TypeAlias

from wanderlust.errors import RubricFailure, UsageError, WanderlustError
from wanderlust.runner.pause import wait_if_paused
from wanderlust.runner.progress import Logger
from wanderlust.training.algorithms.base import Algorithm, SupportsBatchAdvantages, SupportsState
from wanderlust.training.algorithms.grpo import has_signal
from wanderlust.training.batch.samples import Sample, build_samples, trajectories_of
from wanderlust.training.checkpoint import TRAINER_FOLDER, Run, save_state
from wanderlust.training.config import OptimizerConfig, TrainConfig
from wanderlust.training.group_source import BatchSource, assign_batch_advantages, run_in_thread
from wanderlust.training.losses import PolicyLoss
from wanderlust.training.reward_hacking import RewardHackingMonitors, hacking_error, log_warnings
from wanderlust.training.trainers.base import SupportsEMA, SupportsLogprobs, SupportsStages, Trainer
from wanderlust.training.trainers.process_pool import minibatches
from wanderlust.types import Group, Score

GroupMetrics: TypeAlias = Callable[[Sequence[Group]], dict[str, float]]
EvalCallback: TypeAlias = Callable[[int], Awaitable[bool]]
"""Told the number of finished steps; whether to go on."""

SAVE_EVERY_STEPS = 5
"""Steps between two saved states."""
MAX_NONFINITE_UPDATES = 3
"""Updates in a row without a finite loss and gradient that end a run."""
NONFINITE_BATCH_FILE, NONFINITE_STATE_FILE = "nonfinite-batch.pt", "nonfinite-state.pt"
MAX_SAMPLER_KL = 1e-3
"""`sampler_kl_k3` of a synchronous fp32 step above which a run stops; rounding alone makes less than 1e-8."""
MAX_ROUNDED_SAMPLER_KL, MAX_STALE_SAMPLER_KL = 0.05, 2.0
"""`sampler_kl_k3` above which a run in lower precision, or with older weights, warns; rounding to bf16 makes 6e-4."""
NO_SIGNAL_MESSAGE = (
    "all advantages are zero, so this step has no gradient (said once; `steps_without_signal` counts them): "
    "tasks are too hard or too easy, all rollouts failed, or a group is a single rollout"
)


class NonFiniteUpdate(WanderlustError):
    """Losses or gradients were no finite numbers, again and again."""


class SamplerGapError(WanderlustError):
    """Tokens were drawn from other probabilities than those that the trainer computes."""


class SamplerGapWarning(UserWarning):
    """The same, where weights may be older or rounded."""


class NoSignalWarning(UserWarning):
    """A step had nothing to learn from."""


class UnscoredRolloutsWarning(UserWarning):
    """Rollouts have no judgement; they count for nothing."""


@dataclass(slots=True)
class StepCounters:
    """Counts of steps and updates without effect, in this stage."""

    steps_without_signal: int = 0
    """Steps."""
    nonfinite_updates: int = 0
    """Updates."""
    nonfinite_in_a_row: int = 0
    """Broken ones since the last good one."""
    unscored_rollouts: int = 0
    """Rollouts whose rubric failed."""
    kl_weight: float = 0.0
    """Weight of the KL divergence after the last step, where it has a target; 0 before the first."""

    def finite_metrics(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """The metrics that are numbers (a broken update has others), and how many updates were broken so far."""
        broken = {"updates_nonfinite": float(self.nonfinite_updates)} if self.nonfinite_updates else {}
        return {**{name: value for name, value in metrics.items() if isfinite(value)}, **broken}


class TrainingLoop:
    """Takes the steps of a run, keeps what they showed, and saves what going on needs."""

    def __init__(
        self,
        run: Run,
        trainer: Trainer,
        *,
        logger: Logger,
        facts: dict[str, Any],
        algorithm: Algorithm,
        loss: PolicyLoss | None = None,
        monitors: RewardHackingMonitors | None = None,
    ):
        """`algorithm` is the one that groups are credited by, equipped; `loss` stands in place of its own."""
        self.run, self.trainer, self.logger, self.facts = run, trainer, logger, facts
        self.algorithm, self.loss, self.counters = algorithm, loss or algorithm.loss, StepCounters()
        self.monitors = monitors or RewardHackingMonitors()
        self._gap_said = False

    async def begin(self, stage: str, config: OptimizerConfig, source: BatchSource | None = None) -> int:
        """Begin a stage, or go on with the one that was saved; returns the step to start at.

        Published is what learns.
        """
        if isinstance(self.trainer, SupportsStages):
            self.trainer.begin(config)
        state, self.counters = self.run.state, StepCounters()
        if state is None or state["stage"] != stage:
            await self.trainer.publish()
            return 0
        await self.trainer.load_state(self.run.path / TRAINER_FOLDER / state["trainer"])
        self.counters = StepCounters(**state["counters"])
        if self.loss.kl is not None and self.counters.kl_weight:
            self.loss = replace(self.loss, kl=replace(self.loss.kl, weight=self.counters.kl_weight))
        if isinstance(self.algorithm, SupportsState):
            self.algorithm.restore(state["algorithm"])
        if source is not None:
            source.restore(state["source"])
        if "monitors" in state:
            self.monitors.restore(state["monitors"])
        return int(state["step"])

    async def save(self, stage: str, step: int, source: BatchSource | None = None) -> None:
        """Save everything that resuming needs: first the trainer's own state, then the one that names it."""
        own = {
            "source": source.state() if source is not None else {},
            "facts": self.facts,
            "counters": asdict(self.counters),
            "monitors": self.monitors.state(),
            "algorithm": self.algorithm.state() if isinstance(self.algorithm, SupportsState) else {},
        }
        await save_stage(self.run, self.trainer, stage, step=step, own=own)

    async def run_rl(
        self, source: BatchSource, config: TrainConfig, *, env: str, group_metrics: GroupMetrics, evaluate: EvalCallback
    ) -> None:
        """Take groups, credit them, update, until all steps are done.

        `group_metrics` adds the environment's own figures of a step's groups; `evaluate` is called every `eval_every`
        steps and after the last, and may end it. Ends with the averaged weights.
        """
        start = await self.begin("rl", config.rl_optimizer, source)
        if self.run.state is None or self.run.state["stage"] != "rl":
            await self.save("rl", 0, source)
        async with source:
            for step in range(start, config.steps):
                await wait_if_paused()
                groups, metrics = await self._step(step, source, config)
                warnings = await self.monitors.watch(groups, step)
                metrics |= {**group_metrics(groups), "reward_hacking_warnings": float(self.monitors.warning_count)}
                self.run.store.add(groups, stage="rl", step=step, env=env, metrics=metrics)
                self.run.clock.record()
                log_warnings(warnings, self.run.store, self.logger, stage="rl")
                self.logger.log_step("rl", step + 1, of=config.steps, metrics=metrics)
                done, goes_on, stops = step + 1, True, bool(warnings) and self.monitors.stop_on_warning
                if done % config.eval_every == 0 or done == config.steps:
                    async with self.ema_weights():
                        goes_on = await evaluate(done)
                if done % SAVE_EVERY_STEPS == 0 or done == config.steps or stops or not goes_on:
                    await self.save("rl", done, source)
                if stops:
                    raise hacking_error(warnings)
                if not goes_on:
                    break
        if isinstance(self.trainer, SupportsEMA):
            await self.trainer.use_ema()

    def ema_weights(self) -> AbstractAsyncContextManager[None]:
        """Inside, evaluations see the averaged weights, where the trainer keeps any."""
        return self.trainer.ema_weights() if isinstance(self.trainer, SupportsEMA) else nullcontext()

    async def _step(self, step: int, source: BatchSource, config: TrainConfig) -> tuple[list[Group], dict[str, float]]:
        began = time.monotonic()
        batch = await source.next_groups(step)
        groups = batch.groups
        failed = [r for g in groups for r in g.rollouts if r.stop_reason == RubricFailure.__name__]
        if failed and not self.counters.unscored_rollouts:
            message = (
                f"step {step}: {len(failed)} rollouts have no score and are left out (said once; `rollouts_unscored`"
            )
            warnings.warn(f"{message} counts them): {failed[0].error}", UnscoredRolloutsWarning, stacklevel=2)
        self.counters.unscored_rollouts += len(failed)
        unjudged = (
            {"rollouts_unscored": float(self.counters.unscored_rollouts)} if self.counters.unscored_rollouts else {}
        )
        if isinstance(self.algorithm, SupportsBatchAdvantages):
            await run_in_thread(assign_batch_advantages(self.algorithm, groups))
        there = time.monotonic()
        metrics = await self._update_on_minibatches(step, build_samples(groups, self.loss), config)
        if isinstance(self.trainer, SupportsEMA):
            early = (step + 1) / (step + 10)  # early on the start must be forgotten faster
            self.trainer.update_ema(min(config.ema_decay, early))
        update = time.monotonic() - there
        read = metrics.pop("tokens")
        metrics = self._adapt_kl(self.counters.finite_metrics(metrics))
        if not read:
            if not self.counters.steps_without_signal:
                warnings.warn(f"step {step}: {NO_SIGNAL_MESSAGE}", NoSignalWarning, stacklevel=2)
            self.counters.steps_without_signal += 1
            metrics["steps_without_signal"] = float(self.counters.steps_without_signal)
        metrics["update_tokens_per_s"] = read / update
        whole = time.monotonic() - began
        metrics["trainer_idle_frac"] = batch.waited_seconds / whole
        metrics["trainer_waited_s"] = batch.waited_seconds
        idle = whole - batch.waited_seconds if batch.idle_seconds is None else batch.idle_seconds
        metrics["sampler_waited_s"] = idle
        rollout = there - began  # context tokens are included in the throughput; seconds are wall-clock ones
        turns = [turn.tokens for g in groups for r in g.rollouts for t in r.trajectories for turn in t.turns]
        tokens = sum(len(t.prompt) + len(t.completion) for t in turns if t is not None)
        games = sum(len(g.rollouts) for g in groups)
        speed = {
            "rollout_s": rollout,
            "update_s": update,
            "rollout_tokens_per_s": tokens / rollout,
            "rollouts_per_s": games / (rollout + update),
        }
        return groups, {**metrics, **rollout_metrics(groups), **unjudged, **batch.metrics, **speed}

    def _adapt_kl(self, metrics: dict[str, float]) -> dict[str, float]:
        """Move the weight of the KL divergence towards its target by what this step measured; adds `kl_weight`."""
        kl = self.loss.kl
        if kl is None or not kl.target or "kl" not in metrics:
            return metrics
        self.loss = replace(self.loss, kl=kl.adapted(metrics["kl"] / kl.weight))
        assert self.loss.kl is not None
        self.counters.kl_weight = self.loss.kl.weight
        return {**metrics, "kl_weight": kl.weight}

    async def _update_on_minibatches(
        self, step: int, samples: Sequence[Sample], config: TrainConfig
    ) -> dict[str, float]:
        """An update on each part; the gap is that of the first one, as later ones have left the sampler's weights."""
        updates = config.updates_per_step
        if updates > 1 and self.loss.correction is not None:
            if not isinstance(self.trainer, SupportsLogprobs):
                raise UsageError(
                    "several updates per step with a correction need a trainer with compute_logprobs: set "
                    "updates_per_step=1"
                )
            for sample, logprobs in zip(samples, await self.trainer.compute_logprobs(samples, self.loss), strict=True):
                sample.proximal_logprobs = logprobs
        metrics, read = dict[str, float](), 0.0
        for part, batch in enumerate(minibatches(samples, parts=updates, shards=config.shards)):
            newest = await self._update(step, batch, self.loss, sampled_by=None if part else config)
            read += newest.pop("tokens")
            metrics = (
                newest if part == 0 else {**newest, **{k: v for k, v in metrics.items() if k.startswith("sampler_")}}
            )
        await self.trainer.publish()
        return {**metrics, "tokens": read}

    async def _update(
        self, step: int, batch: Sequence[Sample], loss: PolicyLoss, *, sampled_by: TrainConfig | None = None
    ) -> dict[str, float]:
        """One update. Updates without a finite loss and gradient change nothing and are counted in the metrics.

        Raises NonFiniteUpdate after MAX_NONFINITE_UPDATES in a row, with the batch and the trainer's state saved, and
        SamplerGapError, before anything changes, where the batch was `sampled_by` the newest weights and is not theirs.
        """
        metrics = await self.trainer.forward_backward(batch, loss)
        if sampled_by is not None:
            warning = check_sampler_gap(step, metrics.get("sampler_kl_k3", 0.0), sampled_by)
            if warning and not self._gap_said:
                self._gap_said = True
                warnings.warn(warning, SamplerGapWarning, stacklevel=2)
        taken = await self.trainer.optim_step()
        if not taken.get("skipped"):
            self.counters.nonfinite_in_a_row = 0
            return {**metrics, **taken}
        self.counters.nonfinite_updates += 1
        self.counters.nonfinite_in_a_row += 1
        if self.counters.nonfinite_in_a_row >= MAX_NONFINITE_UPDATES:
            file = self.run.path / NONFINITE_BATCH_FILE
            await self.trainer.save_state(self.run.path / NONFINITE_STATE_FILE)
            save_state(file, {"step": step, "samples": [asdict(sample) for sample in batch]})
            raise NonFiniteUpdate(
                f"step {step}: loss or gradient was no finite number {MAX_NONFINITE_UPDATES} times in a row; nothing "
                f"was changed by those updates; the batch is in {file}, weights beside it: try a lower learning rate"
            )
        return metrics


SAVE_EVERY_UPDATES = 50
"""Updates between two saved states, besides those at evaluations."""
SHOWN_METRICS = ("loss", "reward_margin", "reward_accuracy", "chosen_reward", "rejected_reward", "grad_norm", "lr")


class SupervisedLoop:
    """Takes the updates of a stage, keeps what they showed, and saves what going on needs."""

    def __init__(
        self,
        trainer: Trainer,
        loss: PolicyLoss,
        *,
        stage: str,
        updates: int,
        logger: Logger,
        run: Run | None = None,
        facts: dict[str, Any] | None = None,
    ):
        """`facts` are saved with the state; without a `run` nothing is kept."""
        self.trainer, self.loss, self.stage, self.updates = trainer, loss, stage, updates
        self.logger, self.run = logger, run
        self.facts: dict[str, Any] = {**(facts or {}), "nonfinite": 0, "in_a_row": 0}

    async def take(
        self,
        batch: Callable[[int], Sequence[Sample]],
        *,
        every: int = 0,
        evaluate: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        """Go on from the saved state until all updates are taken, each on the samples of its `batch`.

        Is evaluated before the first one, every `every` updates, and at the end.
        """
        state, first = self.run.state if self.run is not None else None, 0
        if self.run is not None and state is not None and state["stage"] == self.stage:
            await self.trainer.load_state(self.run.path / TRAINER_FOLDER / state["trainer"])
            self.facts, first = state["facts"], int(state["step"])
        if self.run is not None:
            self.run.store.truncate([self.stage], first)
        if evaluate is not None and state is None:
            await evaluate(0)
            await self._save(0)
        for step in range(first, self.updates):
            await wait_if_paused()
            await self._update(step, batch(step))
            done = step + 1
            due = evaluate is not None and (done % every == 0 or done == self.updates)
            if evaluate is not None and due:
                await evaluate(done)
            if due or done % SAVE_EVERY_UPDATES == 0:
                await self._save(done)

    async def _update(self, step: int, samples: Sequence[Sample]) -> None:
        """One update. Raises NonFiniteUpdate after several in a row without a finite loss and gradient."""
        began = time.monotonic()
        figures = await self.trainer.forward_backward(samples, self.loss)
        figures |= await self.trainer.optim_step()
        skipped = bool(figures.get("skipped"))
        self.facts["nonfinite"] += skipped
        self.facts["in_a_row"] = self.facts["in_a_row"] + 1 if skipped else 0
        if self.facts["in_a_row"] >= MAX_NONFINITE_UPDATES:
            raise NonFiniteUpdate(
                f"update {step}: loss or gradient was no finite number {MAX_NONFINITE_UPDATES} times in a row; nothing "
                "was changed by those updates: try a lower learning rate"
            )
        metrics = {name: figures[name] for name in SHOWN_METRICS if isfinite(figures.get(name, float("nan")))}
        metrics["tokens_per_s"] = figures["tokens"] / (time.monotonic() - began)
        if self.facts["nonfinite"]:
            metrics["updates_nonfinite"] = float(self.facts["nonfinite"])
        if self.run is not None:
            self.run.store.add(stage=self.stage, step=step, metrics=metrics)
            self.run.clock.record()
        self.logger.log_step(self.stage, step + 1, of=self.updates, metrics=metrics)

    async def _save(self, done: int) -> None:
        """Save everything that resuming needs."""
        if self.run is not None:
            await save_stage(self.run, self.trainer, self.stage, step=done, own={"facts": self.facts})


async def save_stage(run: Run, trainer: Trainer, stage: str, *, step: int, own: Mapping[str, Any]) -> None:
    """Save a state of a stage: first the trainer's, then the one that names it, with what the loop has of its `own`."""
    folder, name = run.path / TRAINER_FOLDER, f"{stage}-{step}"
    folder.mkdir(exist_ok=True)
    await trainer.save_state(folder / name)
    run.save({"stage": stage, "step": step, "trainer": name, **own})


def check_sampler_gap(step: int, gap: float, config: TrainConfig) -> str | None:
    """Compare the log-probabilities of a step's tokens, sampler against trainer, by `sampler_kl_k3`.

    Raises SamplerGapError above MAX_SAMPLER_KL in a synchronous fp32 run. Of other runs it returns the warning to give
    above their bound, and None below it.
    """
    exact = not config.max_staleness and config.precision == "fp32"
    bound = MAX_SAMPLER_KL if exact else MAX_STALE_SAMPLER_KL if config.max_staleness else MAX_ROUNDED_SAMPLER_KL
    if not gap > bound:
        return None
    line = (
        f"step {step}: sampler_kl_k3 is {gap:.2g}, above {bound:g}: the sampler's probabilities are not the trainer's"
    )
    if exact:
        raise SamplerGapError(
            f"{line}, and an update would be wrong; nothing was changed: try --implementation transformers, or another "
            "model; where a service samples in lower precision, set --precision bf16"
        )
    return f"{line} (said once); set --max-staleness lower, or choose a loss that corrects for it (grpo-tis, cispo)"


def rollout_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Mean reward and its parts over the seats that learn, each seat's reward where there are several, and counts."""
    by_seat: dict[str, list[Score]] = {}
    for trajectory in trajectories_of(groups):
        if trajectory.trainable and trajectory.score is not None:
            by_seat.setdefault(trajectory.seat, []).append(trajectory.score)
    scores = [score for seat in by_seat.values() for score in seat]
    count = max(len(scores), 1)
    names = sorted({name for score in scores for name in score.parts})
    parts = {f"part/{name}": sum(s.parts.get(name, 0.0) for s in scores) / count for name in names}
    seats = {f"reward/{seat}": sum(s.reward for s in of) / len(of) for seat, of in sorted(by_seat.items())}
    return {
        "reward": sum(s.reward for s in scores) / count,
        **(seats if len(seats) > 1 else {}),
        **parts,
        "frac_groups_with_signal": sum(map(has_signal, groups)) / max(len(groups), 1),
        "rollouts_failed": float(sum(r.error is not None for g in groups for r in g.rollouts)),
        "rollouts": float(sum(len(g.rollouts) for g in groups)),
    }
