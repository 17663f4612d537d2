"""Worlds of Gymnasium that draw themselves as text; needs the extra `gymnasium`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from wanderlust._lazy import needs_extra
from wanderlust.environment import Environment, Episode, Limits
from wanderlust.errors import UsageError
from wanderlust.rubrics.parsing import XmlFields
from wanderlust.types import Message, Task, system, user

GYMNASIUM_RULES = (
    "{} Each turn you see the world and choose one action: {}. End with it in tags, like this: <action>{}</action>"
)

ACTION_FIELD = XmlFields("action").field("action")


def parse_action(text: str) -> str:
    """The last action in a message; empty when there is none."""
    return (ACTION_FIELD(text) or "").lower()


class GymnasiumText(Environment):
    """A world by its name in Gymnasium, names for its actions in their order, and a sentence about it.

    The reward `return` is the sum of the world's rewards. An answer without an action moves nothing and uses up a turn;
    the next message says so. The state has the number of `steps`, and of `invalid` answers.
    """

    def __init__(self, world: str, *, actions: Sequence[str], about: str = "", turns: int = 100, **settings: Any):
        """`settings` go to Gymnasium; `turns` are answers at most."""
        self.world, self.actions, self.about, self.settings = world, tuple(actions), about, settings
        self.limits = Limits(max_turns=turns)

    def tasks(self, split: str = "train") -> Iterator[Task]:
        """Endless worlds of different seeds in each split."""
        return (Task(id=f"{self.world}-{split}-{n}", info={"seed": 2 * n + (split == "eval")}) for n in count())

    async def run(self, episode: Episode) -> None:
        """Play until the world is over."""
        with needs_extra("gymnasium"):
            from wanderlust.adapters.gymnasium_worlds import GymnasiumWorld
        world = GymnasiumWorld(self.world, self.settings)
        try:
            if len(self.actions) != len(world.actions):
                raise UsageError(
                    f"{self.world} has {len(world.actions)} actions, and {len(self.actions)} names were passed"
                )
            state, news, over = episode.state, "", False
            state.update(steps=0, invalid=0)
            view = world.reset(episode.rng(episode.task.info["seed"]).randrange(2**31))
            rules = GYMNASIUM_RULES.format(self.about, ", ".join(self.actions), self.actions[0]).strip()
            head: tuple[Message, ...] = (system(rules),)
            while not over:
                action = parse_action((await episode.agent.act(*head, user(f"{news}{view}"))).content)
                head, is_action = (), action in self.actions
                news = "" if is_action else f"That is no action: one of {', '.join(self.actions)}.\n"
                state["steps" if is_action else "invalid"] += 1
                if is_action:
                    view, reward, over = world.step(world.actions[self.actions.index(action)])
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
