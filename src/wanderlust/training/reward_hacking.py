"""Reward-hacking monitors of a training run: their state, and how warnings are logged."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from wanderlust.environment import Environment
from wanderlust.errors import WanderlustError
from wanderlust.rubrics.moments import change_of
from wanderlust.rubrics.monitors import MONITORS, Monitor, MonitorAlert, run_monitors
from wanderlust.rubrics.rubric import Rubric
from wanderlust.rubrics.step_statistics import Contributions, StepStatistics, compute_step_statistics
from wanderlust.rubrics.swaps import BASELINE_SWAPS, swap_answers
from wanderlust.runner.progress import Logger, ProgressLogger
from wanderlust.store.store import RunStore
from wanderlust.types import Group, GroupRubric

WARNING_EVENT = "reward_hacking_warning"
"""Kind of the store's events."""
QUIET_STEPS = 5
"""Steps of silence after which a monitor that speaks again is heard again."""


SWAP_EVERY = 5
"""Steps between two such trials."""
MIN_RISE_ERRORS = 2.0
"""Standard errors by which the reward must be higher than in the first steps for one."""
DOUBTED = ("phrase", "length", "alike", "collapse")
"""Monitors whose finding such a trial can refute."""


class RewardHackingDetected(WanderlustError):
    """A monitor spoke, and the run was to stop then."""


def truth_names(env: Environment) -> list[str]:
    """The held-out parts of an environment's rubric: they stand for what is wanted, and are never trained on."""
    return [part.name for part in env.rubric.parts if part.role == "held_out"] if isinstance(env.rubric, Rubric) else []


@dataclass(slots=True, kw_only=True)
class RewardHackingMonitors:
    """Shows every step's groups to the monitors, and hears each of them when it begins to speak.

    The memory is a few numbers a step: `state` and `restore` keep all of it, so that a resumed run finds what an
    unbroken one would have found.
    """

    truths: Collection[str] | None = ()
    """The hidden figures that stand for what is wanted; None: all that is recorded."""
    stop_on_warning: bool = False
    """Whether the run stops at a new finding."""
    monitors: Mapping[str, Monitor] = field(default_factory=lambda: MONITORS)
    contributions: Contributions = dict
    """What each part of a score adds to the reward."""
    env: Environment | None = None
    """Where answers are given to other tasks; None: nowhere, so that monitors go by what was played."""
    history: list[StepStatistics] = field(default_factory=list)
    last_warning_step: dict[str, int] = field(default_factory=dict)
    """The last step at which each monitor spoke."""

    @classmethod
    def for_environment(
        cls, env: Environment, *, stop_on_warning: bool = False, is_own_reward: bool = True
    ) -> RewardHackingMonitors:
        """With the held-out parts and the weights of the environment's rubric; without `is_own_reward` another reward
        is trained on, so that answers are not scored again."""
        contributions = env.rubric.contributions if isinstance(env.rubric, Rubric) else dict
        compares = isinstance(env.rubric, GroupRubric) and env.rubric.compares
        again = is_own_reward and len(env.seats) == 1 and not compares
        return cls(
            truths=truth_names(env),
            contributions=contributions,
            env=env if again else None,
            stop_on_warning=stop_on_warning,
        )

    def check(self, groups: Sequence[Group], step: int) -> list[MonitorAlert]:
        """Warnings of monitors that had none before, by what was played alone."""
        self.history.append(self._statistics(groups, step))
        return self._new_warnings()

    async def watch(self, groups: Sequence[Group], step: int) -> list[MonitorAlert]:
        """The same; in the first steps, every few steps while the reward is higher than then, and before a warning
        about wording or length, answers are also given to other tasks."""
        self.history.append(self._statistics(groups, step))
        if self.env is not None and self._is_due():
            swaps = await swap_answers(self.env, groups, self.contributions)
            self.history[-1] = replace(self.history[-1], swaps=swaps)
        return self._new_warnings()

    def _statistics(self, groups: Sequence[Group], step: int) -> StepStatistics:
        return compute_step_statistics(groups, step=step, held_out_names=self.truths, contributions=self.contributions)

    def _is_due(self) -> bool:
        """Whether answers of the newest step are to be given to other tasks."""
        if len(self.history) <= BASELINE_SWAPS:
            return True
        if not all(step.swaps for step in self.history[:BASELINE_SWAPS]):
            return False
        change = change_of([step.reward for step in self.history[:BASELINE_SWAPS]], [self.history[-1].reward])
        if change.size > MIN_RISE_ERRORS * change.error and len(self.history) % SWAP_EVERY == 0:
            return True
        return bool(
            run_monitors(self.history, {name: self.monitors[name] for name in DOUBTED if name in self.monitors})
        )

    def _new_warnings(self) -> list[MonitorAlert]:
        step = self.history[-1].step
        warnings = run_monitors(self.history, self.monitors)
        new = [
            one for one in warnings if step - self.last_warning_step.get(one.monitor, -QUIET_STEPS - 1) > QUIET_STEPS
        ]
        self.last_warning_step.update((one.monitor, step) for one in warnings)
        return new

    @property
    def warning_count(self) -> int:
        """Number of monitors with a warning at the newest step."""
        newest = self.history[-1].step if self.history else -1
        return sum(step == newest for step in self.last_warning_step.values())

    def state(self) -> dict[str, Any]:
        """Plain data that `restore` takes back."""
        return {"history": msgspec.to_builtins(self.history), "spoke": dict(self.last_warning_step)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Remember exactly that; what another version saved begins a new baseline."""
        try:
            self.history = msgspec.convert(state["history"], list[StepStatistics])
        except msgspec.ValidationError:
            self.history = []
        self.last_warning_step = dict(state["spoke"])


def log_warnings(findings: Sequence[MonitorAlert], store: RunStore, logger: Logger, *, stage: str) -> None:
    """Keep findings as events of the run, with the rollouts to read by their numbers in the store; tell each."""
    for one in findings:
        rows = store.rollouts({"stage": stage, "step": one.step})
        ids = {(row.group, row.sample_index): row.id for row in rows}
        read = [ids[place] for place in one.examples if place in ids]
        place = {"stage": stage, "step": one.step, "monitor": one.monitor}
        store.add_event(WARNING_EVENT, {**place, "text": one.message, "evidence": read, "figure": one.value})
        if isinstance(logger, ProgressLogger):
            hint = f"; read rollouts {', '.join(map(str, read))}" if read else ""
            logger.log_line(f"{stage} {one.step}: {one.monitor}: {one.message}{hint}")


def hacking_error(findings: Sequence[MonitorAlert]) -> RewardHackingDetected:
    """The error of a run that stops at a warning."""
    description = "; ".join(f"{one.monitor}: {one.message}" for one in findings)
    return RewardHackingDetected(f"step {findings[0].step} looks like gaming, so the run stopped there: {description}")
