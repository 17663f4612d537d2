"""Games from the start, and games from positions that the policy itself ran into and is still unsure about."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from wanderlust.core.types import Group, Task
from wanderlust.environments.tictactoe.lint import boards_of
from wanderlust.environments.tictactoe.rules import EMPTY
from wanderlust.environments.tictactoe.tasks import stratified_tasks


@dataclass(slots=True, kw_only=True)
class Starts:
    """Half the groups play whole games, the others start where siblings last disagreed, or were never compared.

    A position's priority is the variance of its group's rewards when it was last started from (what can be learnt
    there, as in ExIt, arXiv 2509.04575); a position that was only passed through has the priority `unseen`, one
    that was found settled keeps `floor`, so that it is looked at again. Opponents are stratified in both halves.
    """

    seed: int
    low: float = 0.0
    high: float = 1.0
    whole: float = 0.5
    """Share of the groups that play whole games."""
    unseen: float = 0.1
    floor: float = 0.005
    priority: dict[str, float] = field(default_factory=dict)
    """By X-to-move board."""

    def next(self, step: int, count: int) -> list[Task]:
        """`count` tasks; before any position is known all of them are whole games."""
        rng = Random(f"starts/{self.seed}/{step}")
        tasks = stratified_tasks(self.seed, step, count, low=self.low, high=self.high)
        late = round(count * (1 - self.whole))
        for place, board in zip(rng.sample(range(count), late), self._choose(rng, late), strict=False):
            tasks[place] = Task(id=tasks[place].id, info={**tasks[place].info, "board": board})
        return tasks

    def _choose(self, rng: Random, count: int) -> list[str]:
        """Weighted draws without replacement (Efraimidis & Spirakis 2006)."""
        keys = {board: rng.random() ** (1 / weight) for board, weight in self.priority.items()}
        return sorted(keys, key=lambda board: keys[board], reverse=True)[:count]

    def observe(self, group: Group) -> None:
        """Enter every position the siblings met, and what the group says of the one it started from."""
        for rollout in group.rollouts:
            for board in boards_of(rollout.state.get("moves", ()), rollout.state.get("start", EMPTY)):
                if board != EMPTY:
                    self.priority.setdefault(board, self.unseen)
        start, rewards = group.task.info.get("board"), group.rewards
        if start is not None and rewards:
            mean = sum(rewards) / len(rewards)
            variance = sum((r - mean) ** 2 for r in rewards) / len(rewards)
            self.priority[str(start)] = max(variance, self.floor)

    def state(self) -> dict[str, Any]:
        """The priorities."""
        return {"priority": dict(self.priority)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from saved priorities."""
        self.priority = dict(state["priority"])
