"""Any environment whose reward is a reward model's: `learned-reward,env=NAME,model=RUN`.

The environment's own reward is recorded beside it as the held-out metric `truth`. It is never trained on; monitors
compare the reward with it, and a run's report shows where the two part (over-optimisation).
"""

from __future__ import annotations

from typing import Any

from wanderlust.environment import Environment, WrappedEnvironment
from wanderlust.errors import RubricFailure, UsageError
from wanderlust.rubrics.label_free import TRUTH_METRIC
from wanderlust.rubrics.reward_model import RewardModel
from wanderlust.rubrics.rubric import RewardResult, Rubric, held_out
from wanderlust.tasks.registry import environment_within
from wanderlust.types import GroupRubric, Rollout, RubricLike, Trajectory


class LearnedReward(WrappedEnvironment):
    """Any environment whose reward is a reward model's; its own reward is the held-out metric `truth`.

    `LearnedReward("tictactoe", model="runs/reward-mine")`: settings that are not its own go to the environment. Tasks,
    seats and players are those of the environment; nothing but the rubric is another one. Bars of the environment's
    reward say nothing about a reward model's.
    """

    oracle_bar = chance_bar = None

    def __init__(self, env: Environment | str, *, model: str, device: str = "cpu", **settings: Any):
        """`model` is a run of `wander reward-model`, or a checkpoint folder.

        Raises UsageError where there is none, for settings that do not fit, and for an environment whose own reward
        compares the rollouts of a task.
        """
        self.env = environment_within(env, settings)
        if isinstance(self.env.rubric, GroupRubric) and self.env.rubric.compares:
            raise UsageError("the environment's own reward compares rollouts, so none of them has a truth of its own")
        self.model, self.device = model, device
        self.rubric = Rubric(RewardModel(model, device=device), held_out(OwnReward(self.env.rubric)))
        self.choose_by = self.env.choose_by and f"{TRUTH_METRIC}/{self.env.choose_by}"


class OwnReward:
    """A reward function: the score by another rubric, with its parts as metrics."""

    name = TRUTH_METRIC

    def __init__(self, rubric: RubricLike | None):
        """`rubric` is the environment's; None sums the rewards that it gave on the way."""
        self._rubric = rubric

    async def __call__(self, rollout: Rollout, trajectory: Trajectory) -> RewardResult:
        """The score. RubricFailure where the environment gave none."""
        score = trajectory.score if self._rubric is None else await self._rubric.score(rollout, trajectory)
        if score is None:
            raise RubricFailure("the environment gave no reward, and it has no rubric")
        return RewardResult(value=score.reward, metrics=score.parts)
