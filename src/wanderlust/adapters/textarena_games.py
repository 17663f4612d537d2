"""Games of TextArena (https://github.com/LeonGuertler/TextArena, 0.7.4), made deterministic.

They draw from the one generator that the whole process shares. Here each game has its own, which takes its place while
the game computes; numpy's is not replaced.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import textarena

from wanderlust.errors import UsageError


class TextArenaMatch:
    """A game in progress, without TextArena's wrappers: each player gets what is new, and plays as the rules say."""

    def __init__(self, game: str, *, players: int, seed: int):
        """Raises UsageError in one line when there is no such game, or it cannot start with what is installed."""
        self._draws = random.Random(seed).getstate()
        try:
            with self._own():
                self.env = textarena.make(f"{game}-raw")
                self.env.reset(num_players=players, seed=seed)
        except (ImportError, LookupError, OSError, SyntaxError, ValueError, AssertionError, TypeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UsageError(f"TextArena cannot start {game!r} with {players} players: {reason}") from error

    def turn(self) -> tuple[int, str]:
        """The player to move, and the messages for it except its own."""
        with self._own():
            player, updates = self.env.get_observation()
        roles = self.env.state.role_mapping
        texts = [
            text if sender == textarena.GAME_ID else f"[{roles.get(sender, f'Player {sender}')}] {text}"
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


def registered_games() -> dict[str, Any]:
    """The registered games, by name."""
    return dict(textarena.envs.registration.ENV_REGISTRY)
