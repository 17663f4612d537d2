"""The configuration of the recipe `reasoner`: one record of everything that its figures depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from wanderlust.errors import UsageError, nearest_names
from wanderlust.store.run_folder import FRESH_POLICY, RUNS_FOLDER
from wanderlust.training.config import TrainConfig
from wanderlust.training.finetune_config import FinetuneConfig

DEFAULTS: Mapping[bool, Mapping[str, Mapping[str, Any]]] = {
    True: {
        "sft": {"epochs": 12, "batch_tokens": 2048, "optimizer": "muon", "lr": 5e-3},
        "rl": {"steps": 60, "tasks_per_step": 32, "lr": 5e-4, "max_tokens": 48},
    },
    False: {
        "sft": {"lora": 16, "epochs": 3, "lr": 3e-4, "batch_tokens": 1024},
        "rl": {"lora": 16, "steps": 12, "tasks_per_step": 8, "lr": 1e-4, "max_tokens": 20},
    },
}
"""Settings of SFT and RL of a fresh model, and of a checkpoint, where nothing else is given."""
THINKING_TOKENS = 40
"""Tokens of an answer from which on there is room for working, which is then asked for and taught."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonerConfig:
    """Everything that the figures of the recipe depend on."""

    policy: str = FRESH_POLICY
    """The base: `fresh` (a new small model), `smollm2`, or a run or checkpoint folder."""
    datasets: tuple[str, ...] = ()
    """Sets to choose from. Empty: all of reasoning-gym."""
    level: int = 0
    """Of the sets' curricula, where they have one."""
    max_question_chars: int = 240
    """Characters of a question; sets with longer ones are left out."""
    max_answer_chars: int = 24
    """The same of answers."""
    held_out: int = 10
    """Sets that are never trained on."""
    draw_seed: int = 0
    """Of the draw of the held-out sets and of the base's rates, so that runs of several seeds share both."""
    rate_questions: int = 4
    """Questions of each set for the base's rate, one sampled answer each."""
    questions: int = 40
    """Questions of each training set for SFT, and as many for RL."""
    difficulty_samples: int = 4
    """Answers to each question for RL: those that are always or never right are left out. 0: no such filter."""
    exam: int = 60
    """Questions of each held-out set, at most."""
    continual_steps: int = 10
    """RL steps of each phase of continual training. 0: leaves it out."""
    continual_exam: int = 100
    """Questions of each half, of the split `eval`."""
    sft: Mapping[str, Any] = field(default_factory=dict)
    """Settings of `wander sft`: epochs, lr, fresh_width, ..."""
    rl: Mapping[str, Any] = field(default_factory=dict)
    """Settings of `wander train`: steps, lr, max_tokens, ..."""
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.held_out, self.rate_questions, self.questions, self.exam, self.continual_exam) < 1:
            raise UsageError("held_out, rate_questions, questions, exam and continual_exam must be at least 1")
        if min(self.difficulty_samples, self.continual_steps, self.level) < 0:
            raise UsageError("difficulty_samples, continual_steps and level must be at least 0")
        for kind, given in ((FinetuneConfig, self.sft), (TrainConfig, self.rl)):
            known = [one.name for one in fields(kind)]
            for name in given.keys() - known:
                raise UsageError(f"there is no setting {name!r}; {nearest_names(name, known, kind='settings')}")
            kind(**given)

    @property
    def rl_config(self) -> TrainConfig:
        """Of the RL stage. It chooses nothing by results, and holds the policy to its start."""
        own = {"seed": self.seed, "kl": 0.01, "result_samples": 0, "eval_tasks": 20}
        made = TrainConfig(**{**own, **DEFAULTS[self.policy == FRESH_POLICY]["rl"], **self.rl})
        return made if "eval_every" in self.rl else made.replace(eval_every=made.steps)

    @property
    def sft_settings(self) -> dict[str, Any]:
        """Of the SFT stage."""
        return {"seed": self.seed, "eval_share": 0.05, **DEFAULTS[self.policy == FRESH_POLICY]["sft"], **self.sft}

    @property
    def thinks(self) -> bool:
        """Whether answers have room for working."""
        return self.rl_config.max_tokens >= THINKING_TOKENS


def reasoner_folder(config: ReasonerConfig) -> Path:
    """Where a run of the recipe is kept."""
    return RUNS_FOLDER / f"train-reasoner-seed{config.seed}"
