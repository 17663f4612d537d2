"""Updates on samples that are there before the first one: imitation, preferences, reward models."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from math import isfinite
from typing import Any

from wanderlust.runner.pause import wait_if_paused
from wanderlust.runner.progress import Logger
from wanderlust.training.batch.samples import Sample
from wanderlust.training.checkpoint import TRAINER_FOLDER, Run
from wanderlust.training.loop import MAX_NONFINITE_UPDATES, NonFiniteUpdate
from wanderlust.training.losses import PolicyLoss
from wanderlust.training.trainers.base import Trainer

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
        if self.run is None:
            return
        folder, name = self.run.path / TRAINER_FOLDER, f"{self.stage}-{done}"
        folder.mkdir(exist_ok=True)
        await self.trainer.save_state(folder / name)
        self.run.save({"stage": self.stage, "step": done, "trainer": name, "facts": self.facts})
