"""The source of a worker that plays one game of the official engine.

Imports nothing of ours: `official_process.py` sends this file's text. The first request has the `source` and name of a
class, and a `seed`; the next ones a `number`, `x` and `y`. The game's own output goes nowhere.
"""

from __future__ import annotations

import inspect
import os
from typing import Any

from arcengine import ActionInput, GameAction

HEX = "0123456789abcdef"


def describe_frame(data: Any) -> dict[str, Any]:
    """What a frame of the official engine says, as plain data; of several frames the last one."""
    frames = [one.tolist() for one in data.frame[-1:]]
    return {
        "frame": "".join(HEX[pixel] for row in frames[0] for pixel in row) if frames else "",
        "state": data.state.value,
        "levels": data.levels_completed,
        "actions": list(data.available_actions),
    }


_GAMES: list[Any] = []
"""The game, when it is made."""


def answer(request: dict[str, Any]) -> dict[str, Any] | None:
    """Make the game, then take actions."""
    if not _GAMES:
        os.environ["ONLY_RESET_LEVELS"] = "true"  # as in official competitions
        space: dict[str, Any] = {"__name__": "game"}
        exec(compile(request["source"], "game.py", "exec"), space)
        make = space[request["name"]]
        seeded = "seed" in inspect.signature(make).parameters
        _GAMES.append(make(seed=request["seed"]) if seeded else make())
        return None
    number, place = request["number"], {"x": request["x"], "y": request["y"]}
    data = place if number == GameAction.ACTION6.value else {}
    taken = ActionInput(id=GameAction.from_id(number), data=data)
    return describe_frame(_GAMES[0].perform_action(taken, raw=True))
