"""A trained reward model as a part of a rubric (`wander reward-model` trains one)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wanderlust._lazy import needs_extra
from wanderlust.errors import ContextFull, PolicyFailure, RubricFailure, UsageError
from wanderlust.policies.base import Hardware
from wanderlust.rubrics.rubric import RewardResult
from wanderlust.store.run_folder import checkpoints_of, is_reward_model
from wanderlust.types import Message

if TYPE_CHECKING:
    from wanderlust.policies.local.reward_model import RewardScorer


class RewardModel:
    """A reward: the probability that a conversation is preferred to a typical one, by a reward model.

    From 0 to 1; 1/2 is the mean of the answers that the model was calibrated on. The metric `score` has the log-odds,
    which do not saturate. The model is loaded when it is first asked, in each process. A conversation that does not fit
    its context, or that its chat template refuses, is a RubricFailure, and never a score.

    Example:
        >>> from wanderlust.rubrics.rubric import Rubric, held_out
        >>> def learned(folder, truth):
        ...     return Rubric(RewardModel(folder), held_out(truth))
    """

    def __init__(self, model: str | Path, *, device: str = "cpu", name: str = "reward_model"):
        """`model` is a run of `wander reward-model`, or a checkpoint folder. Raises UsageError where it is none."""
        folder = reward_model_folder(Path(model))
        if folder is None:
            raise UsageError(f"{model} is no reward model: train one with wander reward-model, and name its folder")
        self.model, self.device, self.name = str(folder.resolve()), device, name

    def __call__(self, messages: Sequence[Message]) -> RewardResult:
        """Score the conversation up to its last answer."""
        try:
            odds = self._scorer.log_odds(messages)
        except (ContextFull, PolicyFailure, UsageError) as error:
            raise RubricFailure(f"the reward model gives no score: {error}") from error
        return RewardResult(value=1 / (1 + exp(-odds)), metrics={"score": odds})

    def __getstate__(self) -> dict[str, Any]:
        """Without the weights, which each process loads itself."""
        return {name: getattr(self, name) for name in ("model", "device", "name")}

    @cached_property
    def _scorer(self) -> RewardScorer:
        with needs_extra("train"):
            from wanderlust.policies.local.reward_model import RewardScorer
        return RewardScorer.load(Path(self.model), Hardware(device=self.device))


def reward_model_folder(place: Path) -> Path | None:
    """The checkpoint folder of a reward model at a path, or the one that the run there hands out; None without any."""
    folders = [place, *checkpoints_of(place)] if place.is_dir() else []
    return next((folder for folder in folders if is_reward_model(folder)), None)
