"""Games from the start, and games from positions that the policy runs into and could play better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from statistics import fmean
from typing import Any

from wanderlust.core.types import Group, Rollout, Task
from wanderlust.environments.tictactoe.rules import outcome, played
from wanderlust.environments.tictactoe.tasks import stratified_tasks


@dataclass(slots=True, kw_only=True)
class Position:
    """What is known of a board on which X is to move."""

    moves: Sequence[str]
    """How the latest game came there."""
    said: Sequence[str]
    """What X said in it."""
    reach: float = 0.0
    """How many games ran into it lately."""
    regret: float = 0.0
    """By how much the best sibling did better than the policy's mean, averaged over the groups started here."""
    worth: float = 0.0
    """The policy's mean reward from here."""
    started: int = 0

    def learn(self, regret: float, worth: float) -> None:
        """Take in what one more group came to."""
        old = 0.5 if self.started else 0.0
        self.regret += (1 - old) * (regret - self.regret)
        self.worth += (1 - old) * (worth - self.worth)
        self.started += 1


@dataclass(slots=True, kw_only=True)
class Starts:
    """Some groups play whole games, the others start where the policy comes by and has something to learn.

    They start with the conversation of a game that came there (as ExIt does, arXiv 2509.04575), because a model that
    reads the same board without what was said before may answer otherwise.

    A position's weight is how often recent games ran into it, times the regret of the groups that started there:
    the best sibling's reward less the mean of those that the policy played alone (as MaxMC in robust prioritised
    level replay, arXiv 2110.02439). One that was only passed through counts as `unseen`, a settled one keeps
    `floor`, so that it is looked at again. Opponents are stratified over 0 to `high` in both kinds of groups,
    those met half-way being stronger by the factor `late`.
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
    short: float = 0.1
    """What a reward lost counts, beside 1 for regret."""
    keep: float = 0.9
    """Share of `reach` that is left after a step."""
    passing: float = 0.25
    """What a game from a position counts in `reach`, beside 1 for a whole game."""
    given: str = "given"
    """Finish of a first answer that was not the policy's own."""
    best: float = 0.0
    """Highest reward met."""
    known: dict[str, Position] = field(default_factory=dict)
    """By board."""

    def next(self, step: int, count: int) -> list[Task]:
        """`count` tasks; before any position is known all of them are whole games."""
        rng = Random(f"starts/{self.seed}/{step}")
        tasks = stratified_tasks(self.seed, step, count, high=self.high)
        count_late = round(count * (1 - self.whole))
        for index, board in zip(rng.sample(range(count), count_late), self._choose(rng, count_late), strict=False):
            met = tasks[index].info
            at = self.known[board]
            start = {"random": self.late * met["random"], "moves": at.moves, "said": at.said}
            tasks[index] = Task(id=tasks[index].id, info={**met, **start})
        for position in self.known.values():
            position.reach *= self.keep
        return tasks

    def _choose(self, rng: Random, count: int) -> list[str]:
        """Weighted draws without replacement (Efraimidis & Spirakis 2006)."""
        weights = {board: at.reach * self._room(at) for board, at in self.known.items()}
        keys = {board: rng.random() ** (1 / weight) for board, weight in weights.items() if weight > 1e-6}
        return sorted(keys, key=lambda board: keys[board], reverse=True)[:count]

    def _room(self, at: Position) -> float:
        return max(at.regret + self.short * (self.best - at.worth), self.floor) if at.started else self.unseen

    def observe(self, group: Group) -> None:
        """Enter every position the policy ran into, and what the group says of the one it started from."""
        own = [rollout for rollout in group.rollouts if not self._given(rollout)] or group.rollouts
        moves = group.task.info.get("moves")
        for rollout in own:
            self._enter(rollout, (self.passing if moves else 1.0) / len(own))
        rewards = [t.score.reward for r in own for t in r.trajectories if t.score is not None]
        self.best = max([self.best, *group.rewards])
        if moves and rewards:
            self.known[played(moves)].learn(max(group.rewards) - fmean(rewards), fmean(rewards))

    def _given(self, rollout: Rollout) -> bool:
        return any(t.turns and t.turns[0].finish == self.given for t in rollout.trajectories)

    def _enter(self, rollout: Rollout, weight: float) -> None:
        """Games with a refused answer are left out: what was said in them is not to be gone on with."""
        moves = rollout.state.get("moves", ())
        if rollout.state.get("invalid", 0):
            return
        said = [*rollout.task.info.get("said", ()), *(turn.action.content for turn in rollout.trajectory.turns)]
        for end in range(rollout.state["given"] + 1, len(moves) + 1):
            board = played(moves[:end])
            if moves[end - 1][0] == "O" and outcome(board) is None:
                at = self.known.setdefault(board, Position(moves=(), said=()))
                at.moves, at.reach = list(moves[:end]), at.reach + weight
                at.said = said[: board.count("X")]

    def state(self) -> dict[str, Any]:
        """What is known of the positions."""
        return {"best": self.best, "known": {board: asdict(at) for board, at in self.known.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from saved knowledge."""
        self.best = state["best"]
        self.known = {board: Position(**at) for board, at in state["known"].items()}
