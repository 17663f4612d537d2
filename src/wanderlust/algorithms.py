"""Algorithms, losses, curricula, trainers and offline training, by name or as objects (needs the extra `train`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanderlust._lazy import lazy_names

if TYPE_CHECKING:
    from wanderlust.evals.prompt_evolution import EvolutionConfig as EvolutionConfig
    from wanderlust.evals.prompt_evolution import PromptEvolution as PromptEvolution
    from wanderlust.evals.prompt_evolution import optimize_prompt as optimize_prompt
    from wanderlust.evals.self_revision import iterate_revisions as iterate_revisions
    from wanderlust.tasks.curriculum.exit import ExIt as ExIt
    from wanderlust.tasks.curriculum.exit import ExItOptions as ExItOptions
    from wanderlust.tasks.curriculum.learnability import Learnability as Learnability
    from wanderlust.tasks.curriculum.learnability import PassRateBand as PassRateBand
    from wanderlust.tasks.curriculum.learnability import UtilityCurriculum as UtilityCurriculum
    from wanderlust.tasks.curriculum.uniform import Curriculum as Curriculum
    from wanderlust.tasks.curriculum.uniform import TaskStream as TaskStream
    from wanderlust.tasks.curriculum.uniform import UniformCurriculum as UniformCurriculum
    from wanderlust.training.algorithms.base import Algorithm as Algorithm
    from wanderlust.training.algorithms.base import AlgorithmContext as AlgorithmContext
    from wanderlust.training.algorithms.base import scored_by_seat as scored_by_seat
    from wanderlust.training.algorithms.base import set_token_advantages as set_token_advantages
    from wanderlust.training.algorithms.base import tokens_per_turn as tokens_per_turn
    from wanderlust.training.algorithms.grpo import GroupRelative as GroupRelative
    from wanderlust.training.algorithms.grpo import OverlongPenalty as OverlongPenalty
    from wanderlust.training.algorithms.ppo import PPO as PPO
    from wanderlust.training.algorithms.presets import ALGORITHMS as ALGORITHMS
    from wanderlust.training.algorithms.presets import algorithm as algorithm
    from wanderlust.training.algorithms.presets import with_loss as with_loss
    from wanderlust.training.finetune import finetune as finetune
    from wanderlust.training.losses import CISPO_LOSS as CISPO_LOSS
    from wanderlust.training.losses import DAPO_LOSS as DAPO_LOSS
    from wanderlust.training.losses import DPO_LOSS as DPO_LOSS
    from wanderlust.training.losses import GRPO_LOSS as GRPO_LOSS
    from wanderlust.training.losses import GSPO_LOSS as GSPO_LOSS
    from wanderlust.training.losses import KL as KL
    from wanderlust.training.losses import PPO_LOSS as PPO_LOSS
    from wanderlust.training.losses import Correction as Correction
    from wanderlust.training.losses import PolicyLoss as PolicyLoss
    from wanderlust.training.presets import load_preset as load_preset
    from wanderlust.training.trainers.fsdp import ShardedConfig as ShardedConfig
    from wanderlust.training.trainers.fsdp import ShardedTrainer as ShardedTrainer
    from wanderlust.training.trainers.tinker import TinkerService as TinkerService
    from wanderlust.training.trainers.tinker import TinkerTrainer as TinkerTrainer
    from wanderlust.training.trainers.tinker import connect_tinker as connect_tinker

_MODULES = {
    "training.algorithms.base": "Algorithm AlgorithmContext set_token_advantages scored_by_seat tokens_per_turn",
    "training.algorithms.presets": "ALGORITHMS algorithm with_loss",
    "training.algorithms.grpo": "GroupRelative OverlongPenalty",
    "training.algorithms.ppo": "PPO",
    "training.losses": "KL PolicyLoss Correction PPO_LOSS GRPO_LOSS DAPO_LOSS CISPO_LOSS GSPO_LOSS DPO_LOSS",
    "tasks.curriculum.uniform": "Curriculum TaskStream UniformCurriculum",
    "tasks.curriculum.learnability": "PassRateBand Learnability UtilityCurriculum",
    "tasks.curriculum.exit": "ExIt ExItOptions",
    "training.presets": "load_preset",
    "training.finetune": "finetune",
    "evals.prompt_evolution": "EvolutionConfig PromptEvolution optimize_prompt",
    "evals.self_revision": "iterate_revisions",
    "training.trainers.fsdp": "ShardedConfig ShardedTrainer",
    "training.trainers.tinker": "TinkerService TinkerTrainer connect_tinker",
}
"""The names of each module that are public here."""

__all__, __getattr__, __dir__ = lazy_names(__name__, _MODULES)
