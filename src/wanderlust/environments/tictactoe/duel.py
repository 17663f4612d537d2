"""The same game with both seats taken by policies: a person against a model, a model against a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from wanderlust.core.contracts import Environment, Episode, Limits
from wanderlust.core.errors import Stop
from wanderlust.core.types import Task
from wanderlust.environments.tictactoe.match import Match
from wanderlust.environments.tictactoe.reward import result
from wanderlust.environments.tictactoe.rules import Mark, other
from wanderlust.environments.tictactoe.tasks import duel_tasks
from wanderlust.environments.tictactoe.wording import Answer, read, read_typed, wording_named
from wanderlust.rubrics.rubric import Rubric

AGENT_TURNS = 7
SEAT: Mapping[Mark, str] = {"X": "agent", "O": "opponent"}
READ: Mapping[Mark, Callable[[str], Answer]] = {"X": read, "O": read_typed}


class TicTacToeDuel(Environment):
    """X sits at `agent` and reads exactly what it reads in the one-seat game; O sits at `opponent`.

    O may answer with a bare digit and may be refused as often as the limits allow; X has 7 answers, as in the
    one-seat game. `info` takes `first`, `board` and `last`. The last board and the winner stand in the state.
    """

    seats = ("agent", "opponent")
    limits = Limits(max_turns=64)
    rubric = Rubric(result)

    def __init__(self, *, wording: str = "compact"):
        self.wording = wording_named(wording)

    def tasks(self, split: str = "train") -> Iterable[Task]:
        """Endless games, opened by X and by O in turn."""
        return duel_tasks(split)

    async def run(self, episode: Episode) -> None:
        """Play one game."""
        match = Match(episode, "opponent")
        mark = match.turn
        while not match.over:
            await self._move(episode, match, mark)
            mark = other(mark)

    async def _move(self, episode: Episode, match: Match, mark: Mark) -> None:
        """One side's turn: asked again until the answer can be played."""
        agent = episode.agents[SEAT[mark]]
        event = match.last
        while True:
            if mark == "X" and match.state["turns"] >= AGENT_TURNS:
                raise Stop("max_turns")
            head = () if agent.trajectory.turns else (self.wording.role(mark),)
            answer = await agent.act(*head, self.wording.show(mark, event, match.board))
            refused = match.hear(READ[mark](answer.content), mark)
            if refused is None:
                return
            event = refused
