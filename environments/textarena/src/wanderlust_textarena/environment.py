"""Games of TextArena (https://github.com/LeonGuertler/TextArena, 0.7.4) for one seat or two; extra `textarena`."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import ClassVar

from wanderlust._lazy import needs_extra
from wanderlust.environment import Environment, Episode, Limits
from wanderlust.errors import UsageError, one_line
from wanderlust.policies.scripted import Scripted
from wanderlust.types import Message, Policy, Task, user


class TextArenaMatch:
    """A game in progress, without TextArena's wrappers: each player gets what is new, and plays as the rules say.

    TextArena's games draw from the one generator that the whole process shares. Here each game has its own, which takes
    its place while the game computes; numpy's is not replaced.
    """

    def __init__(self, game: str, *, players: int, seed: int):
        """Raises UsageError in one line when there is no such game, or it cannot start with what is installed."""
        with needs_extra("textarena"):
            import textarena
        self._draws, self._game_id = random.Random(seed).getstate(), textarena.GAME_ID
        try:
            with self._own():
                self.env = textarena.make(f"{game}-raw")
                self.env.reset(num_players=players, seed=seed)
        except (ImportError, LookupError, OSError, SyntaxError, ValueError, AssertionError, TypeError) as error:
            why = one_line(str(error))
            raise UsageError(f"TextArena cannot start {game!r} with {players} players: {why}") from error

    def turn(self) -> tuple[int, str]:
        """The player to move, and the messages for it except its own."""
        with self._own():
            player, updates = self.env.get_observation()
        roles = self.env.state.role_mapping
        texts = [
            text if sender == self._game_id else f"[{roles.get(sender, f'Player {sender}')}] {text}"
            for sender, text, _ in updates
            if sender != player
        ]
        return player, "\n".join(texts).strip() or "Your turn."

    def play(self, action: str) -> bool:
        """Make a move; True when the game is over."""
        with self._own():
            over, _ = self.env.step(action)
        return bool(over)

    def result(self) -> tuple[dict[int, float], str]:
        """Rewards by player, and why the game ended."""
        rewards, info = self.env.close()
        return {int(p): float(r) for p, r in (rewards or {}).items()}, str(info[0].get("reason", ""))

    @contextmanager
    def _own(self) -> Iterator[None]:
        """Draws of the game come from its own generator."""
        shared = random.getstate()
        random.setstate(self._draws)
        try:
            yield
        finally:
            self._draws = random.getstate()
            random.setstate(shared)


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


def draw_listed_move(messages: Sequence[Message], rng: random.Random) -> str:
    """A random one of the moves in brackets that the newest message lists as available; else of all in it."""
    newest = messages[-1].content
    listed = newest.rpartition("Available Moves:")[2]
    moves: list[str] = re.findall(r"\[[^\[\]\n]{1,40}\]", listed) or ["[0]"]
    return rng.choice(moves)


class TextArenaDuel(TextArena):
    """A game of TextArena for two: `TextArenaDuel("ConnectFour-v0")`.

    What a seat earns depends on the other one. `check` and `probe` therefore play against the player `random`: against
    somebody who makes no legal move, everybody wins.
    """

    seats = ("player-0", "player-1")
    game = "TicTacToe-v0"
    players: Mapping[str, Callable[[], Policy]] = {"random": partial(Scripted, draw_listed_move)}
    """Scripted policies: a random one of the moves that the game lists."""
