"""Games from the start, and games from positions that the policy itself ran into and is still unsure about."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from statistics import pstdev
from typing import Any

from wanderlust.core.types import Group, Task
from wanderlust.environments.tictactoe.rules import EMPTY, Mark, outcome, place
from wanderlust.environments.tictactoe.tasks import stratified_tasks


@dataclass(slots=True, kw_only=True)
class Starts:
    """Some groups play whole games, the others start where siblings disagreed, or were never compared.

    A position's priority is the spread (standard deviation) of its groups' rewards, averaged over the times it was
    started from: what can be learnt there, as in ExIt (arXiv 2509.04575). A position that was only passed through
    has the priority `unseen`, a settled one keeps `floor`, so that it is looked at again. Opponents are stratified
    over 0 to `high` in both kinds of groups, those met half-way being stronger by the factor `late`.
    """

    seed: int
    high: float = 1.0
    """Largest share of random moves."""
    late: float = 0.7
    """What that share is multiplied by in games from a position."""
    whole: float = 0.33
    """Share of the groups that play whole games."""
    unseen: float = 0.3
    floor: float = 0.02
    known: dict[str, list[float]] = field(default_factory=dict)
    """By X-to-move board: O's last move there, priority, times started from."""

    def next(self, step: int, count: int) -> list[Task]:
        """`count` tasks; before any position is known all of them are whole games."""
        rng = Random(f"starts/{self.seed}/{step}")
        tasks = stratified_tasks(self.seed, step, count, high=self.high)
        count_late = round(count * (1 - self.whole))
        for index, board in zip(rng.sample(range(count), count_late), self._choose(rng, count_late), strict=False):
            met = tasks[index].info
            start = {"random": self.late * met["random"], "board": board, "last": int(self.known[board][0])}
            tasks[index] = Task(id=tasks[index].id, info={**met, **start})
        return tasks

    def _choose(self, rng: Random, count: int) -> list[str]:
        """Weighted draws without replacement (Efraimidis & Spirakis 2006)."""
        keys = {board: rng.random() ** (1 / max(facts[1], self.floor)) for board, facts in self.known.items()}
        return sorted(keys, key=lambda board: keys[board], reverse=True)[:count]

    def observe(self, group: Group) -> None:
        """Enter every position the siblings met, and what the group says of the one it started from."""
        for rollout in group.rollouts:
            board = rollout.state.get("start", EMPTY)
            for move in rollout.state.get("moves", ()):
                mark: Mark = "X" if move[0] == "X" else "O"
                cell = int(move[1])
                board = place(board, cell, mark)
                if mark == "O" and outcome(board) is None:
                    self.known.setdefault(board, [cell, self.unseen, 0])
        start, rewards = group.task.info.get("board"), group.rewards
        if start is not None and len(rewards) > 1:
            facts = self.known[str(start)]
            spread = pstdev(rewards)
            facts[1] = (facts[1] + spread) / 2 if facts[2] else spread
            facts[2] += 1

    def state(self) -> dict[str, Any]:
        """What is known of the positions."""
        return {"known": {board: list(facts) for board, facts in self.known.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from saved knowledge."""
        self.known = {board: list(facts) for board, facts in state["known"].items()}
