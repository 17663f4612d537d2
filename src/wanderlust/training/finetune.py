"""Offline training on stored conversations (SFT) or preferences (DPO, reward models): no environment is needed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, nullcontext
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from wanderlust.errors import UsageError, nearest_names
from wanderlust.evals.comparison import compare_rewards
from wanderlust.evals.statistics import estimate, mean
from wanderlust.policies.base import Hardware
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.checkpoints import MAX_ONE_THREAD_PARAMETERS, resolve_start
from wanderlust.policies.local.device import one_thread, resolve_device
from wanderlust.policies.local.policy import LocalPolicy
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.runner.control import serve_control
from wanderlust.runner.engine import run_blocking, suspended_loop
from wanderlust.runner.progress import Logger, ProgressLogger, open_progress
from wanderlust.store.run_folder import (
    CHECKPOINTS_FOLDER,
    COMMAND_KEY,
    FRESH_POLICY,
    REPORT_FILE,
    RUNS_FOLDER,
)
from wanderlust.tasks.datasets import Row
from wanderlust.training import losses
from wanderlust.training.checkpoint import BEST_CHECKPOINT, Run, load_config, load_state, save_state
from wanderlust.training.config import usable_cores
from wanderlust.training.conversations import (
    Examples,
    data_notes,
    data_rows,
    epoch_batches,
    has_reasoning,
    is_held_out,
    parse_row,
    rows_digest,
    to_example,
)
from wanderlust.training.finetune_config import FinetuneConfig, Method
from wanderlust.training.loggers import open_loggers
from wanderlust.training.losses import PolicyLoss
from wanderlust.training.models import checkpoint_folder, load_scoring, load_trainable, merge_adapters
from wanderlust.training.preferences import (
    calibrate,
    longer_chosen,
    preference_notes,
    preference_pairs,
    why_no_preferences,
)
from wanderlust.training.run_report import write_loss_report
from wanderlust.training.supervised import SupervisedLoop
from wanderlust.training.tiny_model import fresh_model, tokenizer_of
from wanderlust.training.train import TrainResult, check_same_run, join_if_led, start_folder
from wanderlust.training.trainers.base import SupportsWholeModel
from wanderlust.training.trainers.fsdp_group import RankOptions, fsdp_group
from wanderlust.training.trainers.in_process import LocalLearner
from wanderlust.training.warmup import VOCABULARY_SIZE, fresh_shape

LAST_CHECKPOINT, START_CHECKPOINT = "last", "start"
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
    hardware = resolve_device(Hardware(device=config.device, precision=config.precision))
    source = data if isinstance(data, str | Path) else _stored_rows(data, folder)
    config = config.replace(
        data=str(source),
        policy=resolve_start(start_folder(policy, folder)),
        device=hardware.device,
        precision=hardware.precision,
    ).with_lr()
    if method == "dpo" and config.policy == FRESH_POLICY:
        raise UsageError("dpo compares with the model that it starts from, and a fresh one says nothing: name a policy")
    config = config.replace(data_digest=rows_digest([*_rows(config, held_out=False), *_rows(config, held_out=True)]))
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
        if (folder / REPORT_FILE).is_file():
            return TrainResult(path=folder, report=json.loads((folder / REPORT_FILE).read_text()))
    with open_progress(progress) as own, open_loggers(loggers, folder, config.as_dict(), logger=own) as logger:
        note = logger.log_line if isinstance(logger, ProgressLogger) else None
        model, tokenizer, examples = _prepare(config, folder)
        for line in _notes(config, examples):
            if note:
                note(line)
        if folder.exists():
            run = Run.resume(folder, previous_state=previous_state)
        else:
            run = Run.begin(folder, config)
            if command:
                run.store.set_meta(COMMAND_KEY, tuple(command))
        start = folder / CHECKPOINTS_FOLDER / START_CHECKPOINT
        if config.policy == FRESH_POLICY:
            if not start.exists():
                save_pretrained(start, model, tokenizer)
        else:
            start = checkpoint_folder(config.policy)
        del model
        with closing(run.store), serve_control(run.store.path, note) if note else nullcontext():
            training = partial(_train, config, run, examples, start=start, tokenizer=tokenizer, logger=logger)
            return TrainResult(path=folder, report=run_blocking(training))


def _notes(config: FinetuneConfig, examples: Examples) -> Iterator[str]:
    """What to tell about the data, a line each."""
    if config.method == "reward":
        yield from preference_notes(examples)
    yield from data_notes(config, examples)


def _stored_rows(rows: Iterable[Row], folder: Path) -> Path:
    """Rows of this process in a file next to the run, so that it can be resumed."""
    lines = "".join(json.dumps(dict(row), default=str) + "\n" for row in rows)
    file = folder.with_name(f"{folder.name}-data.jsonl")
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(lines)
    elif file.read_text() != lines:
        raise UsageError(f"{file} holds other rows: choose another folder, or remove it")
    return file


def _rows(config: FinetuneConfig, *, held_out: bool) -> Iterator[tuple[str, Row]]:
    source = config.eval_data if held_out else config.data
    if source:
        yield from data_rows(source, min_reward=config.min_reward, stage=config.stage, method=config.method)


def _prepare(config: FinetuneConfig, folder: Path) -> tuple[Any, Any, Examples]:
    """The initial model, its tokenizer, and the data as ids. Raises UsageError for a wrong row, or for none."""
    rows, others = list(_rows(config, held_out=False)), list(_rows(config, held_out=True))
    if rows_digest([*rows, *others]) != config.data_digest:
        raise UsageError(f"{config.data} has changed since {folder} was begun: restore it, or begin another run")
    examples = Examples(with_reasoning=sum(has_reasoning(row) for _, row in (*rows, *others)))
    if config.method == "reward":
        parsed, apart = (preference_pairs(each, examples.not_preferred) for each in (rows, others))
    else:
        parsed, apart = ([parse_row(where, row, config.method) for where, row in each] for each in (rows, others))
    if not apart:
        apart = [row for row in parsed if is_held_out(row.key, config)]
        parsed = [row for row in parsed if not is_held_out(row.key, config)]
    if not parsed:
        why = why_no_preferences(len(rows), examples.not_preferred) if rows and not apart else ""
        raise UsageError(f"{config.data}: there is nothing to train on{' but held-out rows' if apart else ''}{why}")
    if config.policy == FRESH_POLICY:
        whole = [one for row in parsed for one in row.conversations]
        messages = (message for one in whole for message in one.messages)
        tokenizer = tokenizer_of(messages, (tool for one in whole for tool in one.tools), size=VOCABULARY_SIZE)
        model = fresh_model(tokenizer, fresh_shape(config.for_engine(updates=1)), seed=config.seed)
    else:
        model, tokenizer = load_pretrained(checkpoint_folder(config.policy))
    one_thread()
    if config.threads or model.num_parameters() >= MAX_ONE_THREAD_PARAMETERS:
        torch.set_num_threads(config.threads or usable_cores())
    renderer = Renderer(tokenizer)
    longest = config.max_context or int(getattr(model.config, "max_position_embeddings", 0) or 2**31)
    for number, (row, into) in enumerate(
        [*((row, examples.train) for row in parsed), *((row, examples.held_out) for row in apart)]
    ):
        one = to_example(row, renderer, config, number=number)
        if any(len(sample.ids) > longest for sample in one.samples):
            examples.too_long += 1
        else:
            into.append(one)
    if not examples.train:
        raise UsageError(f"{config.data}: all {examples.too_long} rows are longer than {longest} tokens")
    return model, tokenizer, examples


def _loss_of(config: FinetuneConfig) -> PolicyLoss:
    beta = config.dpo_beta if config.method == "dpo" else 1.0
    return losses.SFT_LOSS if config.method == "sft" else replace(losses.PREFERENCE_LOSS, beta=beta)


@asynccontextmanager
async def _open_learner(config: FinetuneConfig, start: Path, *, updates: int) -> AsyncIterator[SupportsWholeModel]:
    """The weights that learn, in this process or sharded over several."""
    settings = config.for_engine(updates=updates)
    if config.engine == "fsdp":
        with fsdp_group(RankOptions(config=settings, start=start, plays=False), processes=config.processes) as group:
            yield group
        return
    model, _ = (load_scoring if config.method == "reward" else load_trainable)(settings, start)
    with LocalLearner(
        model,
        settings.rl_optimizer,
        micro_batch_tokens=config.micro_batch_tokens,
        recompute=config.recompute_activations,
        fast=settings.fast,
        hardware=settings.hardware,
    ) as learner:
        yield learner


async def _train(
    config: FinetuneConfig, run: Run, examples: Examples, *, start: Path, tokenizer: Any, logger: Logger
) -> dict[str, Any]:
    """Take the remaining updates; returns the content of the run's report."""
    lengths = [one.tokens for one in examples.train]
    epochs = [
        epoch_batches(lengths, config.batch_tokens, seed=config.seed, epoch=epoch) for epoch in range(config.epochs)
    ]
    updates = [batch for epoch in epochs for batch in epoch]
    every = config.eval_every or len(epochs[0])
    async with _open_learner(config, start, updates=len(updates)) as learner:
        loop = SupervisedLoop(
            learner,
            _loss_of(config),
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

    @property
    def facts(self) -> dict[str, Any]:
        """What is saved with the state."""
        return self.loop.facts

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
        held_out, curve = self.examples.held_out, self.facts["curve"]
        if not held_out:
            return
        figures = await self._held_out_figures()
        self.facts["before"] = self.facts["before"] or figures["loss"]
        self.facts["after"] = figures["loss"]
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
            self.facts["best_scores"] = self.facts.get("scores")

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
            self.facts["scores"] = scores
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
        model = merge_adapters(settings, await self.trainer.whole_model())
        save_pretrained(self.run.path / CHECKPOINTS_FOLDER / name, model, self.tokenizer)

    def report(self) -> dict[str, Any]:
        """The run's report, which is written and marks it as finished."""
        curve, config = self.facts["curve"], self.config
        best = min(curve, key=lambda point: (point["metrics"]["loss"]["value"], -point["step"]), default=None)
        chosen = BEST_CHECKPOINT if best is not None and 0 < best["step"] < self.loop.updates else LAST_CHECKPOINT
        body = {
            "seed": config.seed,
            "method": config.method,
            "wall_s": round(self.run.clock.record(), 1),
            "checkpoint": str(self.run.path / CHECKPOINTS_FOLDER / LAST_CHECKPOINT),
            "policy_checkpoint": chosen,
            "table_title": "Held-out rows",
            "verdict": self._verdict(),
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
            scores = self.facts["best_scores" if chosen == BEST_CHECKPOINT else "scores"] if curve else []
            calibration = calibrate(scores, [one.key for one in self.examples.held_out])
            calibration.scale.save(self.run.path / CHECKPOINTS_FOLDER / chosen)
            body["reward_model"] = {**calibration.as_dict(), "longer_chosen": longer_chosen(self.examples)}
        write_loss_report(self.run.path, body, losses=self.run.store.metrics(config.method, "loss"))
        return body

    def _verdict(self) -> str:
        """Whether held-out loss fell, in one sentence."""
        before, after = self.facts["before"], self.facts["after"]
        if not before:
            return "No rows were held out, so nothing was evaluated."
        try:
            moved = compare_rewards(self._by_task(before), self._by_task(after))
        except UsageError:
            return ""
        size = moved.difference
        interval = "" if size.low is None or size.high is None else f" [{size.low:+.3f}, {size.high:+.3f}]"
        what = "No difference shown" if not moved.clear else f"Held-out loss {'fell' if size.value < 0 else 'rose'}"
        return f"{what}: {size.value:+.3f}{interval} by {len(before)} held-out rows ({size.clusters} tasks or prompts)."
