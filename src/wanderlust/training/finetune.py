"""Offline training on stored conversations (SFT) or preferences (DPO, reward models): no environment is needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from wanderlust.errors import UsageError, nearest_names
from wanderlust.evals.statistics import estimate, mean
from wanderlust.policies.local.policy import LocalPolicy
from wanderlust.runner.engine import run_blocking, suspended_loop
from wanderlust.runner.progress import Logger
from wanderlust.store.run_folder import CHECKPOINTS_FOLDER, FRESH_POLICY, RUNS_FOLDER
from wanderlust.tasks.datasets import Row
from wanderlust.training import losses
from wanderlust.training.checkpoint import (
    BEST_CHECKPOINT,
    Run,
    check_same_run,
    load_config,
    load_state,
    open_run,
    save_state,
)
from wanderlust.training.conversations import Examples, data_notes, epoch_batches
from wanderlust.training.engines import join_if_led, open_learner
from wanderlust.training.finetune_config import FinetuneConfig, Method
from wanderlust.training.finetune_data import digest_of, read_examples, save_start, store_rows
from wanderlust.training.loggers import open_loggers
from wanderlust.training.loop import SupervisedLoop
from wanderlust.training.models import resolve_models, save_model
from wanderlust.training.preferences import calibrate, longer_chosen, preference_notes
from wanderlust.training.result import TrainResult
from wanderlust.training.run_report import loss_sentence, write_loss_report
from wanderlust.training.trainers.base import SupportsWholeModel

LAST_CHECKPOINT = "last"
REFERENCE_FILE = "reference.pt"
"""The reference's log-probabilities of a DPO run: those of the initial policy, computed once."""


@suspended_loop()
def finetune(
    data: str | Path | Iterable[Row],
    policy: str | Path | LocalPolicy = FRESH_POLICY,
    method: Method = "sft",
    *,
    out: str | Path | None = None,
    resume: bool = True,
    loggers: Sequence[str] = (),
    progress: Logger | bool = True,
    command: Sequence[str] = (),
    **settings: Any,
) -> TrainResult:
    """Train a model on stored conversations or preferences, offline; held-out loss is measured before and after.

    A run that was interrupted at any moment and resumed ends with the same weights, bit for bit (CPU).

    Args:
        data: What `wander export --to sft|dpo` writes, or a run's folder. Or any JSONL, CSV or Parquet file, or rows,
            with `messages`, `prompt` and `completion`, or `prompt`, `chosen` and `rejected`. For `reward`, the former
            may have a `rating`.
        policy: A checkpoint or run folder, `smollm2`, or `fresh` for a small new model. Or a model in this process.
        method: `sft`: cross-entropy on the assistant's messages. `dpo`: the better of two answers made likelier.
            `reward`: a reward model, whose score is higher for the better of two answers (Bradley-Terry).
        out: Folder of the run. Default: `runs/METHOD-DATA-seedN`.
        resume: Whether `out` may hold the same run already, which then goes on. Else it must be new.
        loggers: Send metrics to tensorboard, wandb, trackio or mlflow as well.
        progress: Whether to draw progress on stderr, or the logger that gets it.
        command: Words of the command that began the run, which are kept with it.
        settings: The options of `wander sft`, `wander dpo` and `wander reward-model` by name: `epochs`, `lr`,
            `batch_tokens`, `roles`, ...

    Returns:
        The finished run, as of `train`: `.report`, `.curve`, `.policy_folder`.

    Raises:
        UsageError: when an argument or a row is wrong (the line names file and line number), or `out` holds another
            run.

    Example:
        >>> rows = [{"prompt": f"{n} + 1?", "completion": str(n + 1)} for n in range(100)]
        >>> finetune(rows, "fresh", epochs=3, out="runs/sums").policy_folder
        PosixPath('runs/sums/checkpoints/last')
    """
    join_if_led()
    known = [each.name for each in fields(FinetuneConfig)]
    for name in settings.keys() - known:
        raise UsageError(f"there is no setting {name!r}; {nearest_names(name, known, kind='settings')}")
    name = Path(data).stem if isinstance(data, str | Path) else "rows"
    config = FinetuneConfig(**settings, method=method)
    folder = Path(out) if out is not None else RUNS_FOLDER / f"{method}-{name}-seed{config.seed}"
    if folder.exists() and not resume:
        raise UsageError(f"{folder} exists already: resume it, or choose another folder")
    source = data if isinstance(data, str | Path) else store_rows(data, folder)
    config = resolve_models(config.replace(data=str(source)), policy, folder).with_lr()
    if method == "dpo" and config.policy == FRESH_POLICY:
        raise UsageError("dpo compares with the model that it starts from, and a fresh one says nothing: name a policy")
    config = config.replace(data_digest=digest_of(config))
    return _finetune_in_folder(folder, config, loggers=loggers, progress=progress, command=command)


@suspended_loop()
def resume_finetuning(
    folder: Path, *, loggers: Sequence[str] = (), progress: Logger | bool = True, previous_state: bool = False
) -> TrainResult:
    """Go on with the run in `folder` as it was begun, or return what it came to where it is finished.

    With `previous_state`, from the state saved before the last one. Raises StoreError, which names the file, when a
    saved state is damaged; UsageError when the data has changed.
    """
    join_if_led()
    config = load_config(folder, FinetuneConfig)
    return _finetune_in_folder(folder, config, loggers=loggers, progress=progress, previous_state=previous_state)


def _finetune_in_folder(
    folder: Path,
    config: FinetuneConfig,
    *,
    loggers: Sequence[str],
    progress: Logger | bool,
    command: Sequence[str] = (),
    previous_state: bool = False,
) -> TrainResult:
    if folder.exists():
        check_same_run(folder, config)
        if finished := TrainResult.of(folder):
            return finished
    with open_loggers(loggers, folder, config.as_dict(), progress=progress) as logger:
        model, tokenizer, examples = read_examples(config, folder)
        about_pairs = preference_notes(examples) if config.method == "reward" else []
        for line in (*about_pairs, *data_notes(config, examples)):
            logger.log_line(line)
        with open_run(folder, config, note=logger.log_line, command=command, previous_state=previous_state) as run:
            start = save_start(config, folder, model=model, tokenizer=tokenizer)
            del model
            training = partial(_train, config, run, examples, start=start, tokenizer=tokenizer, logger=logger)
            return TrainResult(path=folder, report=run_blocking(training))


async def _train(
    config: FinetuneConfig, run: Run, examples: Examples, *, start: Path, tokenizer: Any, logger: Logger
) -> dict[str, Any]:
    """Take the remaining updates; returns the content of the run's report."""
    lengths = [one.tokens for one in examples.train]
    epochs = [
        epoch_batches(lengths, config.batch_tokens, seed=config.seed, epoch=epoch) for epoch in range(config.epochs)
    ]
    updates = [batch for epoch in epochs for batch in epoch]
    every, beta = config.eval_every or len(epochs[0]), config.dpo_beta if config.method == "dpo" else 1.0
    settings = config.for_engine(updates=len(updates))
    async with open_learner(settings, start, scores=config.method == "reward") as learner:
        loop = SupervisedLoop(
            learner,
            losses.SFT_LOSS if config.method == "sft" else replace(losses.PREFERENCE_LOSS, beta=beta),
            stage=config.method,
            updates=len(updates),
            logger=logger,
            run=run,
            facts={"curve": [], "before": [], "after": []},
        )
        training = _Finetuning(config, run, learner, loop=loop, examples=examples, tokenizer=tokenizer)
        if config.method == "dpo":
            await training.set_reference()
        if run.state is None:
            run.store.truncate(["eval"], 0)
        await loop.take(
            lambda step: [sample for n in updates[step] for sample in examples.train[n].samples],
            every=every,
            evaluate=training.evaluate,
        )
        await training.save_checkpoint(LAST_CHECKPOINT)
    return training.report()


class _Finetuning:
    """What the updates of a run showed on held-out rows, and what is left of it."""

    def __init__(
        self,
        config: FinetuneConfig,
        run: Run,
        trainer: SupportsWholeModel,
        *,
        loop: SupervisedLoop,
        examples: Examples,
        tokenizer: Any,
    ):
        self.config, self.run, self.trainer, self.loop = config, run, trainer, loop
        self.examples, self.tokenizer = examples, tokenizer

    async def set_reference(self) -> None:
        """Log-probabilities of the initial policy, which stand where others have the sampler's."""
        samples = [s for one in [*self.examples.train, *self.examples.held_out] for s in one.samples]
        file = self.run.path / REFERENCE_FILE
        if not file.exists():
            rows = await self.trainer.compute_logprobs(samples, self.loop.loss)
            save_state(file, {"logprobs": [torch.tensor(row) for row in rows]})
        for sample, row in zip(samples, load_state(file)["logprobs"], strict=True):
            sample.logprobs = row.tolist()

    async def evaluate(self, done: int) -> None:
        """A point of the curve; the checkpoint with the lowest loss on held-out rows is kept."""
        held_out, curve = self.examples.held_out, self.loop.facts["curve"]
        if not held_out:
            return
        figures = await self._held_out_figures()
        self.loop.facts["before"] = self.loop.facts["before"] or figures["loss"]
        self.loop.facts["after"] = figures["loss"]
        estimates = {
            name: asdict((estimate if name == "reward_accuracy" else mean)(list(self._by_task(values).values())))
            for name, values in figures.items()
        }
        curve[:] = [point for point in curve if point["step"] < done]
        lowest = min((point["metrics"]["loss"]["value"] for point in curve), default=None)
        curve.append({"step": done, "rewards": {}, "parts": {}, "metrics": estimates, "failed": 0})
        metrics = {name: value["value"] for name, value in estimates.items()}
        self.run.store.add(stage="eval", step=done, metrics=metrics)
        self.loop.logger.log_step("eval", done, of=self.loop.updates, metrics=metrics)
        if lowest is not None and metrics["loss"] < lowest:
            await self.save_checkpoint(BEST_CHECKPOINT)
            self.loop.facts["best_scores"] = self.loop.facts.get("scores")

    async def _held_out_figures(self) -> dict[str, list[float]]:
        """Per held-out row: its share of the mean loss of a token (sft), or its own loss, margin and win.

        Of a reward model the two scores of each pair are noted.
        """
        held_out = self.examples.held_out
        samples = [sample for one in held_out for sample in one.samples]
        read = iter(await self.trainer.compute_logprobs(samples, self.loop.loss))
        if self.config.method == "sft":
            counts = [sum(len(sample.trained_positions) for sample in one.samples) for one in held_out]
            share = len(held_out) / sum(counts)
            return {"loss": [-share * sum(sum(next(read)) for _ in one.samples) for one in held_out]}
        margins, scores = [], []
        for one in held_out:
            gains = [
                sign * (new - old)
                for sample in one.samples
                for sign, new, old in zip(sample.advantages, next(read), sample.logprobs, strict=True)
                if sign
            ]
            margins.append(self.loop.loss.beta * sum(gains))
            scores.append((gains[0], -gains[-1]))
        if self.config.method == "reward":
            self.loop.facts["scores"] = scores
        return {
            "loss": (-torch.nn.functional.logsigmoid(torch.tensor(margins, dtype=torch.float64))).tolist(),
            "reward_margin": margins,
            "reward_accuracy": [0.5 if margin == 0 else float(margin > 0) for margin in margins],
        }

    def _by_task(self, values: Sequence[float]) -> dict[str, list[float]]:
        out: dict[str, list[float]] = {}
        for one, value in zip(self.examples.held_out, values, strict=True):
            out.setdefault(one.key, []).append(value)
        return out

    async def save_checkpoint(self, name: str) -> None:
        """Save the weights as a Hugging Face folder, adapters merged."""
        settings = self.config.for_engine(updates=max(self.loop.updates, 1))
        model = await self.trainer.whole_model()
        save_model(self.run.path / CHECKPOINTS_FOLDER / name, settings, model=model, tokenizer=self.tokenizer)

    def report(self) -> dict[str, Any]:
        """The run's report, which is written and marks it as finished."""
        curve, config = self.loop.facts["curve"], self.config
        best = min(curve, key=lambda point: (point["metrics"]["loss"]["value"], -point["step"]), default=None)
        chosen = BEST_CHECKPOINT if best is not None and 0 < best["step"] < self.loop.updates else LAST_CHECKPOINT
        body = {
            "seed": config.seed,
            "method": config.method,
            "wall_s": round(self.run.clock.record(), 1),
            "checkpoint": str(self.run.path / CHECKPOINTS_FOLDER / LAST_CHECKPOINT),
            "policy_checkpoint": chosen,
            "table_title": "Held-out rows",
            "verdict": loss_sentence(*(self._by_task(self.loop.facts[when]) for when in ("before", "after"))),
            "curve": curve,
            "best": None if best is None else {"step": best["step"], "loss": best["metrics"]["loss"]["value"]},
            "updates": self.loop.updates,
            "rows": {
                "trained": len(self.examples.train),
                "held_out": len(self.examples.held_out),
                "too_long": self.examples.too_long,
                **self.examples.not_preferred,
            },
            "tokens": config.epochs * sum(one.tokens for one in self.examples.train),
        }
        if config.method == "reward":
            scores = self.loop.facts["best_scores" if chosen == BEST_CHECKPOINT else "scores"] if curve else []
            calibration = calibrate(scores, [one.key for one in self.examples.held_out])
            calibration.scale.save(self.run.path / CHECKPOINTS_FOLDER / chosen)
            body["reward_model"] = {**calibration.as_dict(), "longer_chosen": longer_chosen(self.examples)}
        write_loss_report(self.run.path, body, losses=self.run.store.metrics(config.method, "loss"))
        return body
