"""Worlds of Gymnasium (https://gymnasium.farama.org, 1.x) with a finite set of actions, as text."""

from __future__ import annotations

import re
from typing import Any

import gymnasium
from gymnasium.spaces import Discrete

from wanderlust.errors import UsageError

COLOUR_CODE = re.compile("\x1b\\[(?:4[0-9])m(.)\x1b\\[0m|\x1b\\[[0-9;]*m")
"""Escape sequences of colours in a terminal: coloured grounds, and others."""


class GymnasiumWorld:
    """One episode in a world."""

    def __init__(self, name: str, settings: dict[str, Any]):
        """Raises UsageError in one line when the world cannot be made or has no finite set of actions."""
        try:
            self.env = gymnasium.make(name, render_mode="ansi", **settings)
        except (gymnasium.error.Error, TypeError, ImportError) as error:
            raise UsageError(
                f"Gymnasium cannot make {name!r} with a text view: {' '.join(str(error).split())[:200]}"
            ) from error
        if not isinstance(self.env.action_space, Discrete):
            raise UsageError(f"{name!r} has no finite set of actions, but {self.env.action_space}")
        self.actions = range(
            int(self.env.action_space.start), int(self.env.action_space.start + self.env.action_space.n)
        )

    def reset(self, seed: int) -> str:
        """Begin; what is seen."""
        self.env.reset(seed=seed)
        return self.view()

    def step(self, action: int) -> tuple[str, float, bool]:
        """Act; what is seen, the reward, and whether it is over."""
        _, reward, ended, cut, _ = self.env.step(action)
        return self.view(), float(reward), bool(ended or cut)

    def view(self) -> str:
        """The world as text; what a terminal would colour stands in brackets."""
        return COLOUR_CODE.sub(lambda found: f"[{found[1]}]" if found[1] else "", str(self.env.render())).strip("\n")

    def close(self) -> None:
        """Free what it holds."""
        self.env.close()
