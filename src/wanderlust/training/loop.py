"""The two ways a policy gets better, as loops over one step: imitate somebody, or reinforce what paid.

Whatever trains (worker processes, the engine in this process, a service) is a `Trainer`; wherever groups come from
(played now, or ahead of the trainer) is a `Source`. This is the one place where a step is taken.
"""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from math import isfinite
from random import Random
from typing import Any, TypeAlias

from wanderlust.errors import RubricFailure, StoreError, UsageError, WanderlustError
from wanderlust.runner.control import passed
from wanderlust.training import losses
from wanderlust.training.algorithms.base import Algorithm, Batchwise, Stateful, credit_batch
from wanderlust.training.algorithms.grpo import live
from wanderlust.training.batch.samples import Sample, samples_of
from wanderlust.training.checkpoint import save_state
from wanderlust.training.group_source import Source, beside
from wanderlust.training.loggers import Watch
from wanderlust.training.losses import PolicyLoss
from wanderlust.training.optimizer import OptimizerConfig
from wanderlust.training.reward_hacking import Lookout, gamed, report
from wanderlust.training.run import Run
from wanderlust.training.trainers.base import Averaging, Looking, Staged, Trainer
from wanderlust.training.trainers.process_pool import part_of
from wanderlust.types import Group

Describe: TypeAlias = Callable[[Sequence[Group]], dict[str, float]]
Examine: TypeAlias = Callable[[int], Awaitable[bool]]
"""Told the number of finished steps; whether to go on."""

SAVE_EVERY = 5
"""Steps between two saved states."""
BROKEN = 3
"""Updates in a row without a finite loss and gradient that end a run."""
BATCH, BATCH_STATE = "broken-batch.pt", "broken-state.pt"
TRAINER = "trainer"
"""Folder of the trainer's own states, beside the state that names one of them."""
NOTHING = (
    "no trainable sibling has any credit, so nothing is learnt from this step (said once; `steps_empty` counts them): "
    "tasks are too hard or too easy, or all rollouts failed"
)


class Broken(WanderlustError):
    """Losses or gradients were no finite numbers, again and again."""


class NothingToLearn(UserWarning):
    """A step had nothing to learn from."""


class Unjudged(UserWarning):
    """Rollouts have no judgement; they count for nothing."""


@dataclass(slots=True)
class Trouble:
    """What taught nothing or did not take place, in this stage."""

    empty: int = 0
    """Steps."""
    broken: int = 0
    """Updates."""
    in_a_row: int = 0
    """Broken ones since the last good one."""
    unjudged: int = 0
    """Rollouts whose rubric failed."""

    def known(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """The metrics that are numbers (a broken update has others), and how many updates were broken so far."""
        broken = {"updates_broken": float(self.broken)} if self.broken else {}
        return {**{name: value for name, value in metrics.items() if isfinite(value)}, **broken}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImitateConfig:
    """Supervised warm-up."""

    optimizer: OptimizerConfig
    batch: int = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinforceConfig:
    """Reinforcement learning."""

    optimizer: OptimizerConfig
    """Its `steps` count updates: rollout steps x `parts`."""
    steps: int
    groups: int = 32
    """Groups a step."""
    parts: int = 1
    """Updates a step, each on its own part of the samples."""
    examine_every: int = 25
    average: float = 0.95
    """Examined and kept is the moving average of the weights, with this share of the old at each step; 0 is off."""


class Learner:
    """Takes the steps of a run, keeps what they showed, and saves what going on needs."""

    def __init__(
        self,
        run: Run,
        trainer: Trainer,
        *,
        watch: Watch,
        facts: dict[str, Any],
        algorithm: Algorithm,
        loss: PolicyLoss | None = None,
        lookout: Lookout | None = None,
    ):
        """`algorithm` is the one that groups are credited by, equipped; `loss` stands in place of its own."""
        self.run, self.trainer, self.watch, self.facts = run, trainer, watch, facts
        self.algorithm, self.loss, self.trouble = algorithm, loss or algorithm.loss, Trouble()
        self.lookout = lookout or Lookout()

    async def begin(self, stage: str, config: OptimizerConfig, source: Source | None = None) -> int:
        """Begin a stage, or go on with the one that was saved; returns the step to start at.

        Published is what learns.
        """
        if isinstance(self.trainer, Staged):
            self.trainer.begin(config)
        state, self.trouble = self.run.state, Trouble()
        if state is None or state["stage"] != stage:
            await self.trainer.publish()
            return 0
        if "trainer" not in state:
            raise StoreError(f"the state in {self.run.path} was saved by another version of wanderlust; begin anew")
        await self.trainer.load_state(self.run.path / TRAINER / state["trainer"])
        self.trouble = Trouble(**state["trouble"])
        if isinstance(self.algorithm, Stateful):
            self.algorithm.restore(state["algorithm"])
        if source is not None:
            source.restore(state["source"])
        if "lookout" in state:
            self.lookout.restore(state["lookout"])
        return int(state["step"])

    async def save(self, stage: str, step: int, source: Source | None = None) -> None:
        """Keep everything that going on needs: first the trainer's own state, then the one that names it."""
        folder, name = self.run.path / TRAINER, f"{stage}-{step}"
        folder.mkdir(exist_ok=True)
        await self.trainer.save_state(folder / name)
        self.run.save(
            {
                "stage": stage,
                "step": step,
                "trainer": name,
                "source": source.state() if source is not None else {},
                "facts": self.facts,
                "trouble": asdict(self.trouble),
                "lookout": self.lookout.state(),
                "algorithm": self.algorithm.state() if isinstance(self.algorithm, Stateful) else {},
            }
        )
        for old in folder.iterdir():
            if old.name != name:
                shutil.rmtree(old) if old.is_dir() else old.unlink()

    async def imitate(self, samples: Sequence[Sample], config: ImitateConfig, *, seed: int) -> None:
        """Gradient steps on the imitation loss; every pass over the samples is shuffled anew."""
        start = await self.begin("imitate", config.optimizer)
        for step in range(start, config.optimizer.steps):
            await passed()
            began = time.monotonic()
            figures = await self._update(step, _batch(samples, step, config.batch, seed=seed), losses.IMITATION)
            tokens = figures.pop("tokens")
            await self.trainer.publish()
            metrics = self.trouble.known(figures)
            metrics["tokens_per_s"] = tokens / (time.monotonic() - began)
            self.run.store.add(stage="imitate", step=step, metrics=metrics)
            self.watch.show("imitate", step + 1, of=config.optimizer.steps, figures=metrics)
            if (step + 1) % (SAVE_EVERY * 10) == 0:
                await self.save("imitate", step + 1)

    async def reinforce(
        self, source: Source, config: ReinforceConfig, *, env: str, describe: Describe, examine: Examine
    ) -> None:
        """Take groups, credit them, update, until all steps are done.

        `describe` adds the environment's own figures of a step's groups; `examine` is called every `examine_every`
        steps and after the last, and may end it. Ends with the averaged weights.
        """
        start = await self.begin("reinforce", config.optimizer, source)
        if start == 0:
            await self.save("reinforce", 0, source)
        async with source:
            for step in range(start, config.steps):
                await passed()
                groups, metrics = await self._step(step, source, config=config)
                found = self.lookout.look(groups, step)
                metrics |= {**describe(groups), "findings": float(self.lookout.speaking)}
                self.run.store.add(groups, stage="reinforce", step=step, env=env, metrics=metrics)
                report(found, self.run.store, self.watch, stage="reinforce")
                self.watch.show("reinforce", step + 1, of=config.steps, figures=metrics)
                done, goes_on, stops = step + 1, True, bool(found) and self.lookout.stops
                if done % config.examine_every == 0 or done == config.steps:
                    async with self._averaged():
                        goes_on = await examine(done)
                if done % SAVE_EVERY == 0 or done == config.steps or stops or not goes_on:
                    await self.save("reinforce", done, source)
                if stops:
                    raise gamed(found)
                if not goes_on:
                    break
        if isinstance(self.trainer, Averaging):
            await self.trainer.settle()

    @asynccontextmanager
    async def _averaged(self) -> AsyncIterator[None]:
        if isinstance(self.trainer, Averaging):
            async with self.trainer.averaged():
                yield
        else:
            yield

    async def _step(
        self, step: int, source: Source, *, config: ReinforceConfig
    ) -> tuple[list[Group], dict[str, float]]:
        began = time.monotonic()
        harvest = await source.harvest(step)
        groups = harvest.groups
        unjudged = self._unjudged(step, groups)
        if isinstance(self.algorithm, Batchwise):
            await beside(credit_batch(self.algorithm, groups))
        there = time.monotonic()
        metrics = await self._learn(step, samples_of(groups, self.loss), parts=config.parts)
        if isinstance(self.trainer, Averaging):
            early = (step + 1) / (step + 10)  # early on the start must be forgotten faster
            self.trainer.average(min(config.average, early))
        update = time.monotonic() - there
        read = metrics.pop("tokens")
        metrics = self.trouble.known(metrics)
        if not read:
            metrics["steps_empty"] = self._nothing(step)
        metrics["update_tokens_per_s"] = read / update
        metrics["wait_share"] = harvest.waited / (time.monotonic() - began)
        speed = _speed(groups, there - began, update)
        return groups, {**metrics, **_figures(groups), **unjudged, **harvest.figures, **speed}

    async def _learn(self, step: int, samples: Sequence[Sample], *, parts: int) -> dict[str, float]:
        """An update on each part; the gap is that of the first one, as later ones have left the sampler's weights."""
        if parts > 1 and self.loss.correction is not None:
            if not isinstance(self.trainer, Looking):
                raise UsageError("several updates a step with a correction need a trainer that can look: take parts=1")
            for sample, logprobs in zip(samples, await self.trainer.look(samples, self.loss), strict=True):
                sample.update = logprobs
        metrics, read = dict[str, float](), 0.0
        for part in range(parts):
            newest = await self._update(step, part_of(samples, part, parts), self.loss)
            read += newest.pop("tokens")
            metrics = newest if part == 0 else {**newest, **{k: v for k, v in metrics.items() if "gap" in k}}
        await self.trainer.publish()
        return {**metrics, "tokens": read}

    async def _update(self, step: int, batch: Sequence[Sample], loss: PolicyLoss) -> dict[str, float]:
        """One update. Broken ones change nothing and are counted in the metrics.

        Raises Broken after BROKEN of them in a row, with the batch and the trainer's state saved.
        """
        seen = await self.trainer.forward_backward(batch, loss)
        taken = await self.trainer.optim_step()
        if not taken.get("skipped"):
            self.trouble.in_a_row = 0
            return {**seen, **taken}
        self.trouble.broken += 1
        self.trouble.in_a_row += 1
        if self.trouble.in_a_row >= BROKEN:
            file = self.run.path / BATCH
            await self.trainer.save_state(self.run.path / BATCH_STATE)
            save_state(file, {"step": step, "samples": [asdict(sample) for sample in batch]})
            raise Broken(
                f"step {step}: loss or gradient was no finite number {BROKEN} times in a row; nothing was changed by "
                f"those updates and the batch lies in {file}, the weights beside it: try a lower learning rate"
            )
        return seen

    def _unjudged(self, step: int, groups: Sequence[Group]) -> dict[str, float]:
        """Count the rollouts whose rubric failed, so far in this stage; the first ones are said."""
        failed = [r for g in groups for r in g.rollouts if r.stop == RubricFailure.__name__]
        if failed and not self.trouble.unjudged:
            told = f"step {step}: {len(failed)} rollouts have no judgement and count for nothing (said once; `unjudged`"
            warnings.warn(f"{told} counts them): {failed[0].error}", Unjudged, stacklevel=2)
        self.trouble.unjudged += len(failed)
        return {"unjudged": float(self.trouble.unjudged)} if self.trouble.unjudged else {}

    def _nothing(self, step: int) -> float:
        """Count a step that taught nothing; the first one is said."""
        if not self.trouble.empty:
            warnings.warn(f"step {step}: {NOTHING}", NothingToLearn, stacklevel=2)
        self.trouble.empty += 1
        return float(self.trouble.empty)


def _batch(samples: Sequence[Sample], step: int, size: int, *, seed: int) -> list[Sample]:
    """The samples of one step of endless shuffled passes."""
    out: list[Sample] = []
    place = step * size
    while len(out) < size:
        turn, index = divmod(place + len(out), len(samples))
        order = list(samples)
        Random(f"imitate/{seed}/{turn}").shuffle(order)
        out += order[index : index + size - len(out)]
    return out


def _figures(groups: Sequence[Group]) -> dict[str, float]:
    """Mean reward and its parts, share of live groups, failed rollouts."""
    scores = [t.score for g in groups for r in g.rollouts for t in r.trajectories if t.score is not None]
    count = max(len(scores), 1)
    names = sorted({name for score in scores for name in score.parts})
    parts = {f"part/{name}": sum(s.parts.get(name, 0.0) for s in scores) / count for name in names}
    return {
        "reward": sum(s.reward for s in scores) / count,
        **parts,
        "live": sum(map(live, groups)) / max(len(groups), 1),
        "failed": float(sum(r.error is not None for g in groups for r in g.rollouts)),
        "games": float(sum(len(g.rollouts) for g in groups)),
    }


def _speed(groups: Sequence[Group], rollout: float, update: float) -> dict[str, float]:
    """Throughput of the two halves of a step, context tokens included; seconds are wall-clock ones."""
    turns = [turn.tokens for g in groups for r in g.rollouts for t in r.trajectories for turn in t.turns]
    tokens = sum(len(t.prompt) + len(t.completion) for t in turns if t is not None)
    games = sum(len(g.rollouts) for g in groups)
    return {
        "rollout_s": rollout,
        "update_s": update,
        "rollout_tokens_per_s": tokens / rollout,
        "games_per_s": games / (rollout + update),
    }
