"""The configuration of offline training: one flat record of everything that its figures depend on; plain data."""
# No `from __future__ import annotations`: the command line reads these types, inherited ones too.

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self, TypeAlias, get_args, get_type_hints

from wanderlust.errors import UsageError
from wanderlust.policies.base import Precision
from wanderlust.store.run_folder import FRESH_POLICY
from wanderlust.training.config import TrainConfig, wrong_value
from wanderlust.types import Role

Method: TypeAlias = Literal["sft", "dpo", "reward"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinetuneConfig:
    """Settings of offline training on stored conversations or pairs; `finetune` takes each by its name.

    `wander sft`, `wander dpo` and `wander reward-model` have the fields as options. A field that `TrainConfig` has as
    well means the same.
    Raises UsageError when a number is out of range.
    """

    method: Method = "sft"
    """sft: cross-entropy on the messages of some roles. dpo: the better of two answers made likelier. reward: a reward
    model, whose score is higher for the better of two answers."""
    data: str = ""
    """The file or the run; `finetune` fills it in."""
    data_digest: str = ""
    """SHA-256 of the rows, which a resumed run compares; `finetune` fills it in."""
    policy: str = ""
    """Initial policy: a run or checkpoint folder, smollm2 (a pretrained model), or fresh (a new small model)."""

    # Data
    roles: str = "assistant"
    """Roles whose messages are trained on, separated by commas: assistant, user, system, tool."""
    min_reward: float | None = None
    """Of a run: leave out rollouts with a lower reward; of dpo, pairs whose best has a lower one."""
    stage: str = ""
    """Of a run: only rollouts of this stage, for instance rl. Empty: all."""
    max_context: int = 0
    """Longest conversation in tokens; longer ones are left out and counted. 0: the model's own bound."""
    eval_data: str = ""
    """A file or run of held-out rows. Empty: `eval_share` of the data."""
    eval_share: float = 0.1
    """Share of the data that is held out; rows of one task, or with the same prompt, stay together. 0: none."""

    # The loss and a fresh model
    dpo_beta: float = 0.1
    """dpo: beta, the weight of the margin between winner and loser."""
    fresh_width: int = 64
    """Width of a fresh model, a multiple of its heads' width."""
    fresh_head_width: int = 16
    """Width of an attention head of a fresh model. vLLM on processors needs 32 or more."""
    fresh_layers: int = 2
    """Layers of a fresh model."""
    fresh_positions: int = 1024
    """Longest context of a fresh model, in tokens."""

    # Optimizer and updates
    epochs: int = 1
    """Passes over the data, each in an order of its own."""
    batch_tokens: int = 8192
    """Tokens of an update, context included, at most; a longer conversation is an update of its own."""
    lr: float = 0.0
    """Learning rate. 0: 3e-3 for a fresh model (a reward model: 1e-3), 1e-4 for sft of a checkpoint, 1e-5 for dpo and
    reward models; ten times that of the latter three with adapters."""
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
    lora: int = 0
    """Rank of low-rank adapters that are trained instead of the weights. 0: trains the weights."""
    lora_alpha: int = 32
    """Scale of the adapters, divided by their rank: the same learning rate then suits any rank."""
    micro_batch_tokens: int = 4096
    """Tokens per backward pass, at most, packed without padding where the model can read them so."""
    recompute_activations: bool = False
    """A layer's activations are computed again in the backward pass instead of being kept: less memory, more time."""

    # Evaluation, engine, run
    eval_every: int = 0
    """Updates between two evaluations on held-out rows. 0: one after each epoch."""
    engine: Literal["local", "fsdp"] = "local"
    """local: this process. fsdp: sharded weights in several processes."""
    processes: int = 1
    """Processes that hold the sharded weights of fsdp."""
    threads: int = 0
    """Threads of this process, which decide the last bits. 0: 1 for a model of under 20 million weights, else one a
    core."""
    seed: int = 0
    """Random seed."""
    device: str = "cpu"
    """Device of the model: cpu, cuda, cuda:N, or auto: a GPU where there is one."""
    precision: Precision = "fp32"
    """bf16: layers compute in bfloat16; logits, losses and weights stay in fp32. For GPUs."""
    implementation: Literal["own", "transformers"] = "own"
    """own: the Llama family by this project's forward pass, common prefixes read once. Or transformers."""

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            if not (name in ("lr", "eval_every") and value == 0) and (wrong := wrong_value(name, value, _HINTS)):
                raise UsageError(f"{name} is {value!r}, and must be {wrong}")
        if self.fresh_width % self.fresh_head_width:
            raise UsageError(f"fresh_width is {self.fresh_width}, and must be a multiple of {self.fresh_head_width}")
        if self.engine == "fsdp" and self.method == "reward":
            raise UsageError("the engine fsdp trains no reward models: take the engine local")
        if self.engine == "fsdp" and self.optimizer != "adamw":
            raise UsageError(f"the engine fsdp updates by adamw, not by {self.optimizer}")
        if self.engine != "fsdp" and self.processes > 1:
            raise UsageError("processes is not read by the engine local: leave it out, or take the engine fsdp")
        unknown = [role for role in self.trained_roles if role not in get_args(Role)]
        if unknown or not self.trained_roles:
            raise UsageError(f"roles is {self.roles!r}, and must be some of {', '.join(get_args(Role))}")

    @property
    def trained_roles(self) -> tuple[str, ...]:
        """The roles, in order."""
        return tuple(dict.fromkeys(role for role in map(str.strip, self.roles.split(",")) if role))

    def replace(self, **changes: Any) -> Self:
        """The same configuration with some fields changed."""
        return replace(self, **changes)

    def with_lr(self) -> Self:
        """The same configuration with an `lr` of 0 replaced by the default."""
        if self.policy == FRESH_POLICY:
            return self.replace(lr=self.lr or (1e-3 if self.method == "reward" else 3e-3))
        usual = {"sft": 1e-4, "dpo": 1e-5, "reward": 1e-5}[self.method] * (10 if self.lora else 1)
        return self.replace(lr=self.lr or usual)

    def for_engine(self, *, updates: int) -> TrainConfig:
        """What models and engines read of it."""
        names = {field.name for field in fields(TrainConfig)} & {field.name for field in fields(self)}
        own = {name: getattr(self, name) for name in names - {"eval_every", "max_context"}}
        return TrainConfig(**own, steps=updates)

    def as_dict(self) -> dict[str, Any]:
        """JSON data for the run's folder."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Self:
        """The configuration that `as_dict` wrote. Raises ValueError when a field is unknown or of another type."""
        for name in body.keys() - {field.name for field in fields(cls)}:
            raise ValueError(f"there is no setting {name!r}")
        return cls(**body)


_HINTS = get_type_hints(FinetuneConfig)
