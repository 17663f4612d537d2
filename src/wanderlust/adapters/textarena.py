"""Games of TextArena for one seat or two; needs the extra `textarena`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import ClassVar

from wanderlust._lazy import needs_extra
from wanderlust.environment import Environment, Episode, Limits
from wanderlust.types import Task, user

MAX_ACTION_CHARS = 10_000
"""Characters of an answer that the game is given."""


class TextArena(Environment):
    """A game of TextArena for one: `TextArena("TowerOfHanoi-v0")`.

    Endless tasks, told apart by the game's seed. The reward `result` is the game's own. The state has the `reason` it
    ended. Most games ask for moves in brackets.
    Games that need word lists of NLTK, a judge or other files say so in one line.
    """

    limits = Limits(max_turns=50)
    game: ClassVar[str] = "TowerOfHanoi-v0"

    def __init__(self, game: str = ""):
        self.name = game or self.game

    def tasks(self, split: str = "train") -> Iterator[Task]:
        """Endless games of different seeds in each split."""
        return (Task(id=f"{self.name}-{split}-{n}", info={"seed": 2 * n + (split == "eval")}) for n in count())

    async def run(self, episode: Episode) -> None:
        """One game."""
        with needs_extra("textarena"):
            from wanderlust.adapters.textarena_games import TextArenaMatch
        seed = 1_000_003 * episode.seed + episode.task.info["seed"]
        match = TextArenaMatch(self.name, players=len(self.seats), seed=seed)
        over = False
        while not over:
            player, observation = match.turn()
            action = await episode.agents[self.seats[player]].act(user(observation))
            over = match.play(action.content[:MAX_ACTION_CHARS])
        rewards, episode.state["reason"] = match.result()
        for player, reward in rewards.items():
            episode.reward("result", reward, self.seats[player])


class TextArenaDuel(TextArena):
    """A game of TextArena for two: `TextArenaDuel("ConnectFour-v0")`."""

    seats = ("player-0", "player-1")
    game = "TicTacToe-v0"
