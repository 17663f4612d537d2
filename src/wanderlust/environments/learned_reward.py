"""Any environment whose reward is a reward model's: `learned-reward,env=NAME,model=RUN`.

The environment's own reward is recorded beside it as the held-out metric `truth`. It is never trained on; monitors
compare the reward with it, and a run's report shows where the two part (over-optimisation).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wanderlust.environment import Environment, Episode
from wanderlust.errors import RubricFailure, UsageError
from wanderlust.rubrics.label_free import TRUTH_METRIC
from wanderlust.rubrics.reward_model import RewardModel
from wanderlust.rubrics.rubric import RewardResult, Rubric, held_out
from wanderlust.tasks.registry import load_environment
from wanderlust.types import Policy, Rollout, RubricLike, Task, Trajectory


class LearnedReward(Environment):
    """Any environment whose reward is a reward model's; its own reward is the held-out metric `truth`.

    `LearnedReward("tictactoe", model="runs/reward-mine")`: settings that are not its own go to the environment. Tasks,
    seats and players are those of the environment; nothing but the rubric is another one.
    """

    def __init__(self, env: Environment | str, *, model: str, device: str = "cpu", **settings: Any):
        """`model` is a run of `wander reward-model`, or a checkpoint folder.

        Raises UsageError where there is none, for settings that do not fit, and for an environment whose own reward
        compares the rollouts of a task.
        """
        if isinstance(env, str):
            env = load_environment(",".join([env, *(f"{name}={value}" for name, value in settings.items())]))
        elif settings:
            raise UsageError(f"there is no setting {next(iter(settings))!r} of an environment that is made already")
        if getattr(env.rubric, "compares", False):
            raise UsageError("the environment's own reward compares rollouts, so none of them has a truth of its own")
        self.env, self.model, self.device = env, model, device
        self.rubric = Rubric(RewardModel(model, device=device), held_out(OwnReward(env.rubric)))
        self.seats, self.prefixes = env.seats, env.prefixes  # type: ignore[misc]  # those of the environment
        for name in ("limits", "frozen_seats", "players", "graded_arguments", "group_by", "revision", "extract"):
            setattr(self, name, getattr(env, name))

    def tasks(self, split: str = "train") -> Iterable[Task]:
        """The environment's."""
        return self.env.tasks(split)

    async def run(self, episode: Episode) -> None:
        """As the environment does."""
        await self.env.run(episode)

    def oracle(self, task: Task) -> Policy | None:
        """The environment's, which the reward model may think little of."""
        return self.env.oracle(task)

    @property
    def has_oracle(self) -> bool:
        """Whether the environment has one."""
        return self.env.has_oracle

    @property
    def unwrapped(self) -> Environment:
        """The environment, whose code and settings a run's record is about; the reward model is in the rubric."""
        return self.env.unwrapped


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
