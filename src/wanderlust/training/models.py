"""The models of a training run: those that learn, sample or score."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import fsum
from pathlib import Path
from typing import Any, TypeVar

from wanderlust._lazy import needs_extra
from wanderlust.errors import UsageError
from wanderlust.policies.base import Hardware
from wanderlust.policies.chat_template import Renderer, Rendering
from wanderlust.policies.checkpoints import resolve_checkpoint, resolve_start
from wanderlust.policies.local.device import memory_of, resolve_device, to_device, to_device_fp32
from wanderlust.policies.local.policy import LocalPolicy
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.policies.local.reward_model import with_score_head
from wanderlust.store.run_folder import SMOLLM2_POLICY
from wanderlust.training import losses
from wanderlust.training.algorithms.base import AlgorithmContext
from wanderlust.training.batch.samples import to_samples, values_by_turn
from wanderlust.training.config import TrainConfig
from wanderlust.training.finetune_config import FinetuneConfig
from wanderlust.training.gradient import GradientComputer
from wanderlust.types import Message, Tokens, Trajectory, Turn, assistant

Settings = TypeVar("Settings", TrainConfig, FinetuneConfig)


def resolve_models(config: Settings, policy: str | Path | LocalPolicy, folder: Path) -> Settings:
    """The configuration with paths of its models, and with the device that `auto` stands for.

    A model in this process is first saved next to the run's folder. Raises UsageError where there is no such model.
    """
    hardware = resolve_device(Hardware(device=config.device, precision=config.precision))
    if isinstance(policy, LocalPolicy):
        start = folder.with_name(f"{folder.name}-start")
        if not start.exists():
            save_pretrained(start, policy.engine.model, policy.renderer.tokenizer)
        policy = start
    config = config.replace(policy=resolve_start(str(policy)), device=hardware.device, precision=hardware.precision)
    if isinstance(config, TrainConfig) and config.teacher:
        config = config.replace(teacher=str(resolve_checkpoint(config.teacher).resolve()))
    return config


def checkpoint_folder(policy: str) -> Path:
    """The checkpoint's folder; the pretrained model is fetched first where it is missing."""
    if policy != SMOLLM2_POLICY:
        return Path(policy)
    with needs_extra("smollm2"):
        from wanderlust.policies.local.smollm2 import fetch_smollm2
    return fetch_smollm2()


def load_trainable(config: TrainConfig, folder: Path, *, scores: bool = False) -> tuple[Any, Any]:
    """The checkpoint as it learns: with the configuration's adapters, on the device, in fp32; and its tokenizer.

    With `scores`, as a reward model, with a new head.
    """
    model, tokenizer = load_pretrained(folder)
    model = with_score_head(model, tokenizer) if scores else model
    add_adapters(config, model)
    return to_device_fp32(model, config.hardware), tokenizer


def load_sampling(config: TrainConfig, folder: Path) -> tuple[Any, Any]:
    """The checkpoint as it samples: with the configuration's adapters, on the device, rounded to the precision."""
    model, tokenizer = load_pretrained(folder)
    add_adapters(config, model)
    return to_device(model, config.hardware), tokenizer


def load_frozen(config: TrainConfig, folder: Path) -> tuple[Any, Any]:
    """A checkpoint that is only read, on the device, and its tokenizer."""
    model, tokenizer = load_pretrained(folder)
    return to_device(model, config.hardware), tokenizer


def cache_bytes(config: TrainConfig, device: Any) -> int:
    """Bound of what one of the run's samplers caches."""
    return int(config.cache_gib * 2**30) or memory_of(device) // (2 * max(config.shards, config.processes))


def import_adapters() -> Any:
    """The module of low-rank adapters. Raises UsageError where the extra is missing."""
    with needs_extra("lora"):
        from wanderlust.policies.local import lora
    return lora


def add_adapters(config: TrainConfig, model: Any) -> None:
    """Add low-rank adapters to the model where `lora` is above 0."""
    if config.lora:
        import_adapters().adapt(model, rank=config.lora, alpha=config.lora_alpha, seed=config.seed)


def merge_adapters(config: TrainConfig, model: Any) -> Any:
    """The model as `transformers` loads it, adapters merged into its weights."""
    return import_adapters().merge_adapter(model) if config.lora else model


def save_model(folder: Path, config: TrainConfig, *, model: Any, tokenizer: Any) -> None:
    """Save a model that learnt as a Hugging Face folder, adapters merged."""
    save_pretrained(folder, merge_adapters(config, model), tokenizer)


def rendering_of(config: TrainConfig) -> Rendering:
    """How the run renders conversations: in the warm-up, in rollouts and in evaluations, and later where it is used."""
    return Rendering(keeps_answers=config.earlier_answers == "sampled", text_calls=config.tool_calls == "text")


def algorithm_context(config: TrainConfig, folder: Path, tokenizer: Any) -> AlgorithmContext:
    """What a run gives to its algorithm: copies of the checkpoint in `folder`, the teacher, the sampling options."""
    return make_context(
        config, lambda: load_frozen(config, folder)[0], load_teacher=partial(load_teacher, config, tokenizer)
    )


def make_context(
    config: TrainConfig, load_initial_model: Callable[[], Any], *, load_teacher: Callable[[], Any]
) -> AlgorithmContext:
    """The models and sampling that algorithms may use; `load_initial_model` makes a new copy at each call."""
    return AlgorithmContext(
        max_tokens=config.max_tokens,
        temperature=config.temperature,
        load_initial_model=load_initial_model,
        load_teacher=load_teacher,
    )


def load_teacher(config: TrainConfig, tokenizer: Any) -> Any:
    """The stronger model. Raises UsageError when there is none, or when the tokenizers differ."""
    if not config.teacher:
        raise UsageError("this algorithm learns from a teacher: set `teacher` to a stronger checkpoint")
    model, theirs = load_frozen(config, Path(config.teacher))
    if theirs.get_vocab() != tokenizer.get_vocab():
        raise UsageError(f"the teacher {config.teacher} has another tokenizer than the policy: ids would not agree")
    return model


def gradient_settings(config: TrainConfig) -> dict[str, Any]:
    """What a `GradientComputer` takes of a configuration."""
    return {
        "temperature": config.temperature,
        "micro_batch": config.micro_batch,
        "micro_batch_tokens": config.micro_batch_tokens,
        "recompute": config.recompute_activations,
        "fast": config.fast,
    }


class Scorer:
    """A frozen model with the policy's tokenizer; it reads the very ids that were sampled."""

    def __init__(self, model: Any, *, temperature: float = 1.0, micro_batch: int = 64):
        self._reads = GradientComputer(
            model.eval(), loss=losses.IMITATION_LOSS, temperature=temperature, micro_batch=micro_batch
        )

    def logprobs(self, trajectories: Sequence[Trajectory]) -> list[list[list[float]]]:
        """Per trajectory and turn, the log-probability of every sampled token at the scorer's temperature."""
        rows = [to_samples(trajectory) for trajectory in trajectories]
        read = iter(self._reads.compute_logprobs([sample for row in rows for sample in row]))
        return [values_by_turn(row, [next(read) for _ in row]) for row in rows]


def likelihood(model: Any, renderer: Renderer) -> Callable[[Sequence[Message], str], Awaitable[float]]:
    """Mean log-probability per token of a text as the answer to a conversation."""
    scorer = Scorer(model)

    async def of(talk: Sequence[Message], text: str) -> float:
        ids = renderer.render_answer(assistant(text))
        tokens = Tokens(prompt=renderer.start(talk), completion=ids, logprobs=(0.0,) * len(ids))
        turn = Turn(observation=tuple(talk), action=assistant(text), tokens=tokens)
        ((logprobs,),) = scorer.logprobs([Trajectory(turns=[turn])])
        return fsum(logprobs) / len(logprobs)

    return of
