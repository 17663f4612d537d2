"""The only condition that ARE's JSON can tell of: that the agent has finished a turn."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wanderlust.worlds.apps.user_interface import UserInterface

if TYPE_CHECKING:
    from wanderlust.worlds.world import World

_NAME = re.compile(r"wrapped_condition__turn_idx_(\d+)__scenario_id_(.*)")


@dataclass(frozen=True, slots=True)
class TurnsDone:
    """Holds once the agent has spoken to the user so many times."""

    count: int

    def __call__(self, world: World) -> bool:
        """Whether it has."""
        interface = next((app for app in world.apps.values() if isinstance(app, UserInterface)), None)
        said = interface.messages.values() if interface else ()
        return sum(one.sender == "Agent" for one in said) >= self.count


def turns_done(function: str) -> TurnsDone | None:
    """The condition of this name; None when ARE knows none."""
    found = _NAME.fullmatch(function)
    return TurnsDone(int(found[1])) if found else None


def condition_name(turns: TurnsDone, scenario: str) -> str:
    """What ARE calls the condition."""
    return f"wrapped_condition__turn_idx_{turns.count}__scenario_id_{scenario}"
