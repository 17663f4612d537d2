"""Worlds of Gymnasium (https://gymnasium.farama.org, 1.x) as text, with a finite set of actions.

A world without a text view is shown by its observations, where these are a few numbers.

Needs the extra `gymnasium`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from wanderlust._lazy import needs_extra
from wanderlust.environment import Environment, Episode, Limits
from wanderlust.errors import UsageError, one_line
from wanderlust.rubrics.parsing import XmlFields
from wanderlust.types import Message, Task, system, user

COLOUR_CODE = re.compile("\x1b\\[(?:4[0-9])m(.)\x1b\\[0m|\x1b\\[[0-9;]*m")
"""Escape sequences of colours in a terminal: coloured grounds, and others."""
MAX_OBSERVATION_NUMBERS, OBSERVATION_DIGITS = 256, 3


class GymnasiumWorld:
    """One episode in a world."""

    def __init__(self, name: str, settings: dict[str, Any]):
        """Raises UsageError in one line when the world cannot be made or has no finite set of actions."""
        with needs_extra("gymnasium"):
            import gymnasium
            from gymnasium.spaces import Discrete, flatdim
        try:
            made = gymnasium.make(name, **settings)
            self.has_view = "ansi" in made.metadata.get("render_modes", ())
            self.env = gymnasium.make(name, render_mode="ansi", **settings) if self.has_view else made
        except (gymnasium.error.Error, TypeError, ImportError) as error:
            raise UsageError(f"Gymnasium cannot make {name!r}: {one_line(str(error))}") from error
        if not isinstance(self.env.action_space, Discrete):
            raise UsageError(f"{name!r} has no finite set of actions, but {self.env.action_space}")
        if not self.has_view and flatdim(self.env.observation_space) > MAX_OBSERVATION_NUMBERS:
            raise UsageError(f"{name!r} has neither a text view nor a small observation: {self.env.observation_space}")
        self._observation: Any = None
        self.actions = range(
            int(self.env.action_space.start), int(self.env.action_space.start + self.env.action_space.n)
        )

    def reset(self, seed: int) -> str:
        """Begin; what is seen."""
        self._observation, _ = self.env.reset(seed=seed)
        return self.view()

    def step(self, action: int) -> tuple[str, float, bool]:
        """Act; what is seen, the reward, and whether it is over."""
        self._observation, reward, ended, cut, _ = self.env.step(action)
        return self.view(), float(reward), bool(ended or cut)

    def view(self) -> str:
        """The world as text; what a terminal would colour stands in brackets. Else its last observation as JSON."""
        if not self.has_view:
            return json.dumps(_plain(self._observation))
        return COLOUR_CODE.sub(lambda found: f"[{found[1]}]" if found[1] else "", str(self.env.render())).strip("\n")

    def close(self) -> None:
        """Free what it holds."""
        self.env.close()


def _plain(value: Any) -> Any:
    """An observation as lists of numbers, with OBSERVATION_DIGITS digits."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return round(value, OBSERVATION_DIGITS) if isinstance(value, float) else value


GYMNASIUM_RULES = (
    "{} Each turn you see the world and choose one action: {}. End with it in tags, like this: <action>{}</action>"
)

ACTION_FIELD = XmlFields("action").field("action")


def parse_action(text: str) -> str:
    """The last action in a message; empty when there is none."""
    return (ACTION_FIELD(text) or "").lower()


class GymnasiumText(Environment):
    """Any world of Gymnasium with a finite set of actions, by its name: `gymnasium,world=CliffWalking-v1`.

    In Python it also takes names for the actions in their order, and a sentence about the world.

    Without names the actions are called by their numbers.

    The reward `return` is the sum of the world's rewards. An answer without an action moves nothing and uses up a turn;
    the next message says so. The state has the number of `steps`, and of `invalid` answers.
    """

    def __init__(
        self,
        world: str = "CliffWalking-v1",
        *,
        actions: Sequence[str] = (),
        about: str = "",
        turns: int = 100,
        **settings: Any,
    ):
        """`settings` go to Gymnasium; `turns` are answers at most."""
        self.world, self.actions, self.about, self.settings = world, tuple(actions), about, settings
        self.limits = Limits(max_turns=turns)

    def tasks(self, split: str = "train") -> Iterator[Task]:
        """Endless worlds of different seeds in each split."""
        return (Task(id=f"{self.world}-{split}-{n}", info={"seed": 2 * n + (split == "eval")}) for n in count())

    async def run(self, episode: Episode) -> None:
        """Play until the world is over."""
        world = GymnasiumWorld(self.world, self.settings)
        try:
            names = self.actions or tuple(map(str, world.actions))
            if len(names) != len(world.actions):
                raise UsageError(f"{self.world} has {len(world.actions)} actions, and {len(names)} names were passed")
            state, news, over = episode.state, "", False
            state.update(steps=0, invalid=0)
            view = world.reset(episode.rng(episode.task.info["seed"]).randrange(2**31))
            rules = GYMNASIUM_RULES.format(self.about, ", ".join(names), names[0]).strip()
            head: tuple[Message, ...] = (system(rules),)
            while not over:
                action = parse_action((await episode.agent.act(*head, user(f"{news}{view}"))).content)
                head, is_action = (), action in names
                news = "" if is_action else f"That is no action: one of {', '.join(names)}.\n"
                state["steps" if is_action else "invalid"] += 1
                if is_action:
                    view, reward, over = world.step(world.actions[names.index(action)])
                    episode.reward("return", reward)
        finally:
            world.close()


class FrozenLake(GymnasiumText):
    """Gymnasium's frozen lake: cross it without falling into a hole."""

    def __init__(self, *, slippery: bool = False, size: int = 4):
        """`slippery` ice moves one sideways two times out of three; `size` is 4 or 8."""
        about = "You stand on the bracketed cell of a lake. S is the start, F ice, H a hole, and G the goal."
        names = ("left", "down", "right", "up")
        super().__init__(
            "FrozenLake-v1", actions=names, about=about, turns=100, is_slippery=slippery, map_name=f"{size}x{size}"
        )


class Taxi(GymnasiumText):
    """Gymnasium's taxi: pick up a passenger and bring them to their hotel."""

    def __init__(self, *, world: str = "Taxi-v4"):
        """`world` is the version that is installed."""
        about = (
            "You drive the bracketed taxi. Your passenger waits at R, G, Y or B and wants to another; | is a wall. "
            "Moves cost 1, a wrong pickup or dropoff 10, and the right dropoff earns 20."
        )
        names = ("south", "north", "east", "west", "pickup", "dropoff")
        super().__init__(world, actions=names, about=about, turns=200)
