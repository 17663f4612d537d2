"""The configuration of a training run: one flat record of everything that its figures depend on.

It is plain data and needs no PyTorch; `setup.py` makes models, algorithms and trainers out of it.
"""
# No `from __future__ import annotations`: the command line reads these types, inherited ones too.

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from math import cos, pi
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, get_args, get_origin, get_type_hints

from wanderlust.environment import Environment
from wanderlust.errors import UsageError, nearest_names
from wanderlust.policies.base import Hardware, Precision, SamplingOptions, ToolCalls
from wanderlust.policies.resolve import PolicyOptions, resolve_seats
from wanderlust.store.run_folder import FRESH_POLICY
from wanderlust.tasks.curriculum import Curriculum
from wanderlust.tasks.registry import environment_name, resolve_environment
from wanderlust.training.algorithms.base import Algorithm

Engine: TypeAlias = Literal["local", "fsdp", "vllm", "vllm+fsdp", "tinker"]
FRESH_SFT = {"sft_episodes": 400, "sft_steps": 400, "sft_batch": 16, "sft_lr": 5e-3}
CHECKPOINT_SFT = {"sft_episodes": 0, "sft_steps": 60, "sft_batch": 8, "sft_lr": 1e-3}
MINIMA = {
    **dict.fromkeys(("tasks_per_step", "group_size", "max_tokens", "steps", "updates_per_step", "eval_every"), 1),
    **dict.fromkeys(("result_tasks", "epochs", "batch_tokens", "lora_alpha"), 1),
    **dict.fromkeys(("servers", "processes", "fresh_head_width", "shards", "critic_epochs", "context_parallel"), 1),
    **dict.fromkeys(("ratio_min", "ratio_max"), -1),
    **dict.fromkeys(("concurrency", "micro_batch", "fresh_width", "fresh_layers", "fresh_positions"), 1),
    **dict.fromkeys(
        (
            "max_staleness",
            "exploring_starts",
            "eval_tasks",
            "kl",
            "kl_target",
            "micro_batch_tokens",
            "entropy",
            "lora",
            "cache_gib",
            "weight_decay",
            "lr_warmup_steps",
            "keep_last",
            "result_samples",
        ),
        0,
    ),
    **dict.fromkeys(
        ("max_context", "patience", "sft_episodes", "sft_steps", "sft_batch", "sft_lr", "sft_context_weight"), 0
    ),
}
ADDRESSES = ("engine_url",)
"""Settings that say where something is: a run may go on with others."""
ABOVE_ZERO = ("temperature", "lr", "max_grad_norm", "critic_lr", "dpo_beta", "top_p")
SHARES = ("lr_end", "eval_share", "ema_decay", "label_dropout", "discount", "gae_lambda", "beta1", "beta2", "top_p")
"""Fields from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """AdamW (arXiv 1711.05101), or Muon with it, with warm-up and decay over a known number of steps."""

    steps: int
    lr: float
    method: Literal["adamw", "muon"] = "adamw"
    """`muon`: orthogonalised momentum (Jordan et al. 2024) for the hidden matrices, scaled to AdamW's step size
    (arXiv 2502.16982), and AdamW for embeddings and vectors."""
    warmup: int = 5
    decay: Literal["constant", "linear", "cosine"] = "linear"
    lr_end: float = 0.1
    """Share of `lr` left at the last step."""
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    max_norm: float = 1.0
    """Gradients longer than this are scaled down to it."""
    fused: bool = False
    """AdamW in one call of PyTorch's for all weights: a quarter of the time, and other last bits."""

    def lr_at(self, step: int) -> float:
        """Learning rate of step 0, 1, ..."""
        done = min(step / max(self.steps, 1), 1.0)
        shape = {"constant": 1.0, "linear": 1.0 - done, "cosine": 0.5 + 0.5 * cos(pi * done)}[self.decay]
        return self.lr * min(1.0, (step + 1) / max(self.warmup, 1)) * (self.lr_end + (1 - self.lr_end) * shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """Settings of a training run; the number of workers is not among them, since no figure depends on it.

    `wander train` has every field as an option of the same name. Raises UsageError when a number is out of range.

    Example:
        >>> TrainConfig(steps=200, tasks_per_step=16, kl=0.01).replace(lr=3e-5).lr
        3e-05
    """

    # Model
    env: Environment | str = ""
    """The environment, or its `package.module:Name`; `train` fills it in."""
    policy: str = ""
    """Initial policy: a run or checkpoint folder, smollm2 (a pretrained model), or fresh (a new small model)."""
    seats: str = ""
    """Seats that other policies play and that do not learn: SEAT=POLICY, several with spaces between."""
    fresh_width: int = 64
    """Width of a fresh model, a multiple of its heads' width."""
    fresh_head_width: int = 16
    """Width of an attention head of a fresh model. vLLM on processors needs 32 or more."""
    fresh_layers: int = 2
    """Layers of a fresh model."""
    fresh_positions: int = 1024
    """Longest context of a fresh model, in tokens."""
    lora: int = 0
    """Rank of low-rank adapters that are trained instead of the weights. 0: trains the weights."""
    lora_alpha: int = 32
    """Scale of the adapters, divided by their rank: the same learning rate then suits any rank."""
    device: str = "cpu"
    """Device of the models: cpu, cuda, cuda:N, or auto: a GPU where there is one."""
    precision: Precision = "fp32"
    """bf16: layers compute in bfloat16; logits, losses and weights stay in fp32. For GPUs."""
    implementation: Literal["own", "transformers"] = "own"
    """own: the Llama family by this project's forward pass, packed without padding. Or transformers."""

    # Supervised warm-up (SFT) on episodes of the environment's teacher, before reinforcement learning
    sft_episodes: int = 0
    """Episodes of the teacher that are imitated before RL. 0: 400 for a fresh model, else no SFT."""
    sft_teacher: str = ""
    """Player of the environment that is imitated. Empty: its `teacher`, or else its oracle."""
    sft_steps: int = 0
    """SFT steps. 0: 400 for a fresh model, else 60."""
    sft_batch: int = 0
    """Episodes per SFT step; of several seats, seats. 0: 16 for a fresh model, else 8."""
    sft_lr: float = 0.0
    """Learning rate of SFT. 0: 5e-3 for a fresh model, else 1e-3."""
    sft_context_weight: float = 0.3
    """Loss weight of context tokens in the SFT of a fresh model, where answer tokens have 1."""

    # Rollouts
    tasks_per_step: int = 32
    """Tasks per step; each is one group."""
    group_size: int = 8
    """Rollouts per task, compared with each other."""
    exploring_starts: int = 0
    """Rollouts of a task whose first answer the environment suggests, as a policy may never find it. For cispo-tree."""
    temperature: float = 1.0
    """Sampling temperature of training rollouts."""
    top_p: float = 1.0
    """Draw among the likeliest tokens that together reach this probability; log-probabilities are those before it."""
    max_tokens: int = 256
    """Tokens of one answer at most."""
    earlier_answers: Literal["sampled", "template"] = "sampled"
    """Where the template rewrites earlier turns: sampled keeps them as sampled, template renders each turn anew."""
    tool_calls: ToolCalls = "template"
    """template: the chat template's own form, or text where it has none that is known. text: always text."""
    curriculum: str | Curriculum = ""
    """Next tasks: uniform, band, learnability, ...; all: docs/curricula.md; settings: band,low=0.1. Empty: in order."""
    max_staleness: int = 0
    """Policy versions that a rollout may be old. 0: synchronous, with the same bits for the same seed."""
    concurrency: int = 512
    """Rollouts at once in one process, at most."""
    cache_gib: float = 0.0
    """GiB that a local sampler caches, at most; what does not fit is read again. 0: half of the memory, by shards."""

    # Algorithm and loss
    algorithm: str | Algorithm = "cispo"
    """Advantages and loss: cispo, grpo, dapo, ppo, dpo, distill, ...; all: docs/algorithms.md."""
    kl: float = 0.0
    """Weight of the KL divergence to the model that RL starts from. 0: off."""
    kl_target: float = 0.0
    """KL divergence per token to which that weight is adapted, step by step (arXiv 1909.08593). 0: it stays."""
    kl_into: Literal["loss", "reward"] = "loss"
    """Whether the KL divergence is added to the loss or to the reward."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of the KL divergence (Schulman, http://joschu.net/blog/kl-approx.html)."""
    entropy: float = 0.0
    """Weight of an entropy bonus. 0: off."""
    ratio_min: float = -1.0
    """Lower bound of the probability ratio p_new / p_old, as an absolute value. -1: the algorithm's own."""
    ratio_max: float = -1.0
    """Upper bound of the probability ratio. -1: the algorithm's own."""
    discount: float = 1.0
    """ppo: discount of later rewards."""
    gae_lambda: float = 0.95
    """ppo: lambda of generalized advantage estimation."""
    critic_lr: float = 1e-3
    """ppo: learning rate of the critic."""
    critic_epochs: int = 2
    """ppo: passes of the critic over a batch."""
    dpo_beta: float = 0.1
    """dpo: beta, the weight of the margin between winner and loser."""
    teacher: str = ""
    """Run or checkpoint folder of a stronger model with the same tokenizer, for sft, distill, distill-off-policy."""

    # Training without labels (docs/label-free-rl.md)
    label_estimator: Literal["none", "majority", "likeliest", "mutual", "synthesis"] = "none"
    """Estimates the reference answer from the rollouts of a task. none: the environment's own reward."""
    label_reward: Literal["match", "rubric"] = "match"
    """match: the reference's answer is rewarded. rubric: the share met of a rubric written from the reference."""
    label_question: bool = False
    """Whether synthesis sees the question besides the rollouts."""
    label_judge: str = ""
    """Judge by the rubric: module:Name, file.py:Name, a run, a checkpoint, smollm2. Empty: the initial model."""
    label_dropout: float = 0.0
    """Share of the rubric's criteria that is left out at each group."""

    # Optimizer and updates
    steps: int = 100
    """Steps; each plays groups, assigns advantages and updates the weights."""
    updates_per_step: int = 1
    """Updates per step, each on its own part of the episodes."""
    lr: float = 1e-4
    """Learning rate."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """adamw, or muon for the hidden matrices with AdamW for the rest."""
    lr_warmup_steps: int = 5
    """Updates over which the learning rate rises to its value."""
    lr_decay: Literal["constant", "linear", "cosine"] = "linear"
    """How the learning rate falls over the updates."""
    lr_end: float = 0.1
    """Share of the learning rate that is left at the last update."""
    beta1: float = 0.9
    """AdamW: decay of the mean of gradients."""
    beta2: float = 0.95
    """AdamW: decay of the mean of squared gradients."""
    weight_decay: float = 0.0
    """Decoupled weight decay."""
    max_grad_norm: float = 1.0
    """Longer gradients are scaled down to this norm."""
    ema_decay: float = 0.95
    """Share of the old in the moving average of the weights, which is evaluated and saved. 0: off."""
    micro_batch: int = 64
    """Samples per backward pass, at most; less needs less memory."""
    micro_batch_tokens: int = 0
    """Tokens per backward pass, at most, packed without padding where the model can read them so. 0: no such bound."""
    recompute_activations: bool = False
    """A layer's activations are computed again in the backward pass instead of being kept: less memory, more time."""

    # Evaluation and checkpoints
    eval_every: int = 25
    """Steps between two evaluations on the eval split."""
    eval_tasks: int = 300
    """Tasks of the eval split that are played at one evaluation, at most. 0: exact figures, as eval --exact has."""
    result_tasks: int = 100
    """Held-out tasks of the sampled evaluation before and after training that ends a run, at most."""
    result_samples: int = 4
    """Samples of each of those tasks. 0: no such evaluation."""
    best_metric: str = "reward"
    """Metric for checkpoint selection: a part, a metric, or reward; for reward the first held-out part, if any."""
    keep_last: int = 1
    """Number of newest evaluated checkpoints to keep besides the best one."""
    patience: int = 0
    """Stop after this many evaluations without improvement. 0: never."""
    on_hack: Literal["note", "stop"] = "note"
    """When a reward-hacking monitor warns: note it, or stop the run (it can be resumed)."""

    # Engine: who samples, and who computes gradients
    engine: Engine = "local"
    """local: this process. vllm: servers sample. fsdp: sharded weights. vllm+fsdp: both. tinker: a service does all."""
    engine_url: str = ""
    """Servers that run already: URLs ending in /v1, with commas between; empty starts them. tinker: the service."""
    weight_transfer: Literal["folder", "gloo", "nccl"] = "folder"
    """How whole weights reach servers: by a shared folder, or over the network, by nccl from GPU to GPU."""
    server_api: Literal["vllm", "sglang"] = "vllm"
    """API of the servers at engine_url. sglang was never run against a real server."""
    engine_model: str = ""
    """tinker: name by which the service knows the model. Empty: that of the initial policy."""
    engine_service: Literal["tinker", "skyrl-jax"] = "tinker"
    """tinker: whose service. skyrl-jax: SkyRL's, which divides losses by tokens and samples what learns."""
    servers: int = 1
    """vLLM servers to start."""
    server_command: str = "vllm serve"
    """The program that starts a vLLM server."""
    server_options: str = ""
    """Further options for each server, for instance "--tensor-parallel-size 2"."""
    max_context: int = 0
    """Longest conversation that a server takes, in tokens. 0: the model's own bound."""
    processes: int = 1
    """Processes that hold the sharded weights of fsdp."""
    context_parallel: int = 1
    """fsdp: processes that read a batch together, each a part of every sequence."""
    offload: bool = False
    """fsdp: weights, gradients and optimizer state lie in the machine's memory; the GPU has a layer at a time."""

    # Run
    seed: int = 0
    """Random seed."""
    shards: int = 2
    """Pieces that a batch is cut into; as many workers have work. Part of what a seed determines."""

    def __post_init__(self) -> None:
        for name, value in ((field.name, getattr(self, field.name)) for field in fields(self)):
            if wrong := wrong_value(name, value, _HINTS):
                raise UsageError(f"{name} is {value!r}, and must be {wrong}")
        if self.fresh_width % self.fresh_head_width:
            raise UsageError(f"fresh_width is {self.fresh_width}, and must be a multiple of {self.fresh_head_width}")

    def replace(self, **changes: Any) -> Self:
        """The same configuration with some fields changed."""
        return replace(self, **changes)

    def with_sft_defaults(self) -> Self:
        """The same configuration with every 0 of the SFT settings replaced by the default of the initial policy."""
        defaults = FRESH_SFT if self.policy == FRESH_POLICY else CHECKPOINT_SFT
        return self.replace(**{name: getattr(self, name) or value for name, value in defaults.items()})

    @property
    def hardware(self) -> Hardware:
        """Device and precision."""
        return Hardware(device=self.device, precision=self.precision)

    @property
    def fast(self) -> bool:
        """Whether this project's own forward pass is used where it can be (decision 0019)."""
        return self.implementation == "own"

    @property
    def sampling(self) -> SamplingOptions:
        """Sampling options of training rollouts."""
        return SamplingOptions(temperature=self.temperature, top_p=self.top_p, max_tokens=self.max_tokens)

    @property
    def rl_optimizer(self) -> OptimizerConfig:
        """Optimizer of RL over all updates; fused where the device or precision is not the default."""
        return OptimizerConfig(
            steps=self.steps * self.updates_per_step,
            lr=self.lr,
            method=self.optimizer,
            warmup=self.lr_warmup_steps,
            decay=self.lr_decay,
            lr_end=self.lr_end,
            betas=(self.beta1, self.beta2),
            weight_decay=self.weight_decay,
            max_norm=self.max_grad_norm,
            fused=self.hardware != Hardware(),
        )

    @property
    def sft_optimizer(self) -> OptimizerConfig:
        """Optimizer of SFT: Muon for a fresh model, AdamW for a checkpoint."""
        plain = OptimizerConfig(steps=self.sft_steps, lr=self.sft_lr, warmup=10)
        muon = replace(plain, method="muon", betas=(0.9, 0.98), weight_decay=0.1)
        return muon if self.policy == FRESH_POLICY else plain

    @property
    def env_name(self) -> str:
        """The environment's name in the store, as `environment_name` makes it."""
        return environment_name(self.env)

    def make_env(self) -> Environment:
        """The environment with its `seats`. Raises UsageError for a name or a seat that there is not."""
        env = resolve_environment(self.env).env if isinstance(self.env, str) else self.env
        return env.with_frozen_seats(resolve_seats(self.seats.split(), env, PolicyOptions(seed=self.seed)))

    def as_dict(self) -> dict[str, Any]:
        """JSON data for the run's folder; objects are named by their classes."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)} | {"env": self.env_name}
        return {n: v if isinstance(v, str | int | float) else type(v).__name__ for n, v in plain.items()}

    def to_toml(self) -> str:
        """Every setting as the text of a TOML file, which `load` reads."""
        return settings_as_toml(self.as_dict())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The configuration in a TOML file (docs/training.md); settings that it leaves out have their defaults.

        UsageError in one line, which names the file, for what is not TOML and for a setting or value there is not.
        """
        settings = read_settings(Path(path), [field.name for field in fields(cls)])
        try:
            return cls.from_dict(settings)
        except (UsageError, ValueError) as error:
            raise UsageError(f"{path}: {error}") from error

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Self:
        """The configuration that `as_dict` wrote. Raises ValueError when a field is unknown or of another type."""
        defaults = {field.name: field.default for field in fields(cls)}
        for name, value in body.items():
            if name not in defaults:
                raise ValueError(f"there is no setting {name!r}")
            wanted = type(defaults[name])
            fits = isinstance(value, (float, int) if wanted is float else wanted)
            if not fits or (isinstance(value, bool) and wanted is not bool):
                raise ValueError(f"{name} is {json.dumps(value)}, which is no {wanted.__name__}")
        return cls(**{**body, "env": environment_name(body["env"])} if body.get("env") else body)


_HINTS = get_type_hints(TrainConfig)


def wrong_value(name: str, value: Any, hints: Mapping[str, Any]) -> str:
    """What a field of a configuration must be instead of this value; empty where the value is right."""
    hint = hints.get(name)
    if get_origin(hint) is Literal and value not in get_args(hint):
        return f"one of {', '.join(map(repr, get_args(hint)))}"
    if hint in (int, float) and (isinstance(value, bool) or not isinstance(value, int if hint is int else int | float)):
        return "a whole number" if hint is int else "a number"
    if name in MINIMA and not value >= MINIMA[name]:
        return f"at least {MINIMA[name]}"
    if name in ABOVE_ZERO and not value > 0:
        return "above 0"
    if name in SHARES and not 0 <= value <= 1:
        return "from 0 to 1"
    return ""


def default_workers(device: str = "cpu") -> int:
    """Worker processes of a run that names no number: 2, or 1 on one core and on a GPU; no figure depends on it."""
    return 1 if device.startswith("cuda") else min(2, usable_cores())


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


CONFIG_TOML = "config.toml"
"""File of a run's folder with every setting."""
FIRST_SETTING = {
    "model": "env",
    "sft": "sft_episodes",
    "rollout": "tasks_per_step",
    "algorithm": "algorithm",
    "labels": "label_estimator",
    "optimizer": "steps",
    "checkpoints": "eval_every",
    "engine": "engine",
    "run": "seed",
}
"""First setting of each section, in the order of TrainConfig's fields."""


def settings_by_section(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The settings of each section, from their names in TrainConfig's order; a subclass's own are in the last one."""
    starts = [names.index(first) for first in FIRST_SETTING.values()]
    ends = pairwise([*starts, len(names)])
    return {section: tuple(names[start:end]) for section, (start, end) in zip(FIRST_SETTING, ends, strict=True)}


def read_settings(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """The settings in a TOML file, checked for their names, of which these are all.

    UsageError in one line, which names the file, when it cannot be read, and for sections and settings that are none.
    """
    try:
        body = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}") from error
    sections = settings_by_section(names)
    section_of = {name: section for section, own in sections.items() for name in own}
    settings: dict[str, Any] = {}
    for section, values in body.items():
        if section not in sections:
            if section in section_of:
                raise UsageError(f"{path}: {section} is in no section: it belongs in [{section_of[section]}]")
            hint = nearest_names(section, [*sections], kind="sections")
            raise UsageError(f"{path}: there is no section [{section}]; {hint}")
        if not isinstance(values, Mapping):
            raise UsageError(f"{path}: {section} must be a section, [{section}] with settings below it")
        for name, value in values.items():
            if name not in sections[section]:
                known = section_of.get(name)
                hint = f"it belongs in [{known}]" if known else nearest_names(name, [*section_of], kind="settings")
                raise UsageError(f"{path}: there is no setting {name!r} in [{section}]; {hint}")
            settings[name] = value
    return settings


def settings_as_toml(values: Mapping[str, Any]) -> str:
    """Settings, in TrainConfig's order, as TOML text that `read_settings` reads."""
    lines: list[str] = []
    for section, names in settings_by_section([*values]).items():
        lines += [f"[{section}]", *(f"{name} = {_toml_value(values[name])}" for name in names), ""]
    return "\n".join(lines)


def _toml_value(value: str | bool | float) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)
