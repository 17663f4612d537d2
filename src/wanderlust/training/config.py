"""The configuration of a training run: one flat record of everything that its figures depend on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from wanderlust._lazy import needs_extra
from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.policies.base import Hardware, Precision, SamplingOptions
from wanderlust.policies.local.device import to_device
from wanderlust.policies.local.pretrained import load_pretrained
from wanderlust.tasks.curriculum import Curriculum
from wanderlust.tasks.registry import environment_name, make_environment
from wanderlust.training.algorithms.base import Algorithm
from wanderlust.training.algorithms.presets import algorithm, with_loss
from wanderlust.training.group_source import RolloutConfig
from wanderlust.training.label_free_rewards import LabelFreeOptions, is_label_free
from wanderlust.training.losses import KL, KLEstimator, with_importance_correction
from wanderlust.training.optimizer import OptimizerConfig
from wanderlust.types import RubricLike

DEFAULT_PRECISION: Precision = "fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """Settings of a training run; the number of workers is not among them, since no figure depends on it.

    `wander train` has every field as an option of the same name.

    Example:
        >>> TrainConfig(steps=200, tasks_per_step=16, kl=0.01).replace(lr=3e-5)
    """

    env: Environment | str = ""
    """The environment, or its `package.module:Name`; `train` fills it in."""
    policy: str = ""
    """Initial policy: a checkpoint folder, `smollm2` or `fresh`, with settings; `train` fills it in."""

    # Rollouts
    tasks_per_step: int = 32
    """Tasks per step; each is one group."""
    group_size: int = 8
    """Rollouts per task, compared with each other."""
    temperature: float = 1.0
    """Sampling temperature of training rollouts."""
    max_tokens: int = 256
    """Tokens of one answer at most."""
    curriculum: str | Curriculum = ""
    """Which tasks are played next: uniform, stratified, band, learnability or exit, with settings as in
    `exit,share=0.3`; empty is the environment's own order."""
    max_staleness: int = 0
    """Policy versions that a rollout may be old; 0 is synchronous, with the same bits for the same seed."""

    # Algorithm and loss
    algorithm: str | Algorithm = "cispo"
    """Assigns the advantages and has the loss: cispo, grpo, dapo, ppo, dpo, distill, ..."""
    kl: float = 0.0
    """Weight of the KL divergence to the model that training starts from; 0 is off."""
    kl_into: Literal["loss", "reward"] = "loss"
    """Whether the KL divergence is added to the loss or to the reward."""
    kl_estimator: KLEstimator = "k3"
    """Estimator of the KL divergence (Schulman, http://joschu.net/blog/kl-approx.html)."""
    entropy: float = 0.0
    """Weight of the entropy bonus; 0 is off."""
    teacher: str = ""
    """Checkpoint folder of a stronger model with the same tokenizer, for sft and distill; or an estimator of
    `LabelFreeOptions` (majority, likeliest, mutual, synthesis), for training without labels."""

    # Model and optimizer
    steps: int = 100
    """Steps: each plays groups, assigns advantages and updates the weights."""
    lr: float = 1e-4
    """Learning rate of AdamW."""
    lora: int = 0
    """Rank of low-rank adapters that are trained instead of the weights; 0 trains the weights."""

    # Evaluation and checkpoints
    eval_every: int = 25
    """Steps between two evaluations on the `eval` split."""
    best_metric: str = "reward"
    """Metric by which the best checkpoint is chosen; a held-out reward, which is never trained on, is the one to take
    where the reward might be hacked."""
    keep_last: int = 1
    """Newest evaluated checkpoints that are kept besides the best one."""
    patience: int = 0
    """Evaluations in a row without improvement after which the run stops; 0 is never."""
    on_hack: Literal["note", "stop"] = "note"
    """Whether a warning of the reward-hacking monitors is only noted, or stops the run."""

    # Run
    seed: int = 0
    """Seed of everything random."""
    device: str = "cpu"
    """Device of the models: cpu, cuda, cuda:N, or auto: a GPU where there is one."""
    precision: Precision = "fp32"
    """bf16 lets the layers compute in bfloat16; logits, losses and weights stay in fp32."""

    def replace(self, **changes: Any) -> Self:
        """The same configuration with some fields changed."""
        return replace(self, **changes)

    @property
    def hardware(self) -> Hardware:
        """Device and precision."""
        return Hardware(device=self.device, precision=self.precision)

    @property
    def sampling(self) -> SamplingOptions:
        """Sampling options of training rollouts."""
        return SamplingOptions(temperature=self.temperature, max_tokens=self.max_tokens)

    @property
    def optimizer(self) -> OptimizerConfig:
        """AdamW over all steps; fused where the device or precision is not the default."""
        return OptimizerConfig(steps=self.steps, lr=self.lr, fused=self.hardware != Hardware())

    @property
    def rollout_config(self) -> RolloutConfig:
        """Options of the rollouts and their advantages."""
        return RolloutConfig(
            algorithm=self.build_algorithm(),
            sampling=self.sampling,
            group_size=self.group_size,
            seed=self.seed,
            fast=True,
        )

    @property
    def env_name(self) -> str:
        """The environment's name in the store."""
        return environment_name(self.env)

    def make_env(self) -> Environment:
        """The environment itself. Raises UsageError when there is none of that name."""
        return make_environment(self.env) if isinstance(self.env, str) else self.env

    def build_algorithm(self) -> Algorithm:
        """The algorithm with KL, entropy and precision of this configuration.

        Raises UsageError when they do not go together.
        """
        method = algorithm(self.algorithm) if isinstance(self.algorithm, str) else self.algorithm
        changes: dict[str, Any] = {}
        if self.kl:
            changes["kl"] = KL(weight=self.kl, estimator=self.kl_estimator, into=self.kl_into)
        if self.entropy:
            changes["entropy"] = self.entropy
        loss = replace(method.loss, **changes)
        loss = loss if self.precision == DEFAULT_PRECISION else with_importance_correction(loss)
        return with_loss(method, loss) if loss != method.loss else method

    def add_adapters(self, model: Any) -> None:
        """Add low-rank adapters to the model where `lora` is above 0."""
        if self.lora:
            with needs_extra("lora"):
                from wanderlust.policies.local.lora import adapt
            adapt(model, rank=self.lora, seed=self.seed)

    def merge_adapters(self, model: Any) -> Any:
        """The model as `transformers` loads it, adapters merged into its weights."""
        if not self.lora:
            return model
        with needs_extra("lora"):
            from wanderlust.policies.local.lora import merge_adapter
        return merge_adapter(model)

    def load_frozen(self, folder: Path) -> tuple[Any, Any]:
        """A checkpoint that is only read, on the device, and its tokenizer."""
        model, tokenizer = load_pretrained(folder)
        return to_device(model, self.hardware), tokenizer

    def teacher_loader(self, tokenizer: Any) -> Callable[[], Any] | None:
        """Loads the stronger model; None where there is none. It raises UsageError when the tokenizers differ."""
        return partial(self._load_teacher, tokenizer) if self.teacher and not is_label_free(self.teacher) else None

    def _load_teacher(self, tokenizer: Any) -> Any:
        model, theirs = self.load_frozen(Path(self.teacher))
        if theirs.get_vocab() != tokenizer.get_vocab():
            raise UsageError(f"the teacher {self.teacher} has another tokenizer than the policy: ids would not agree")
        return model

    def label_free_rubric(self, env: Environment, start: Path) -> RubricLike | None:
        """The rubric of a run without labels; None takes the environment's own."""
        if not is_label_free(self.teacher):
            return None
        options = LabelFreeOptions.of(self.teacher)
        return options.rubric(env, partial(self.load_frozen, start), max_tokens=self.max_tokens)

    def as_dict(self) -> dict[str, Any]:
        """JSON data for the run's folder; objects are named by their classes."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        named = {
            name: value if isinstance(value, str | int | float) else type(value).__name__
            for name, value in plain.items()
        }
        return {**named, "env": self.env_name}

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Self:
        """The configuration that `as_dict` wrote. Raises ValueError when a field is unknown or of another type."""
        defaults = {field.name: field.default for field in fields(cls)}
        for name, value in body.items():
            if name not in defaults:
                raise ValueError(f"there is no setting {name!r}")
            wanted = type(defaults[name])
            if not isinstance(value, (float, int) if wanted is float else wanted) or isinstance(value, bool):
                raise ValueError(f"{name} is {json.dumps(value)}, which is no {wanted.__name__}")  # noqa: TRY004
        return cls(**body)
