"""Runs in a process of its own: one game of the official engine, played by requests of a line of JSON each.

Imports nothing of ours: `official_process.py` sends this file's text. The first line has the `source` and name of a
class, and a `seed`; the next ones a `number`, `x` and `y`. The game's own output goes nowhere.
"""

from __future__ import annotations

import inspect
import json
import os
from typing import Any

from arcengine import ActionInput, GameAction

HEX = "0123456789abcdef"


def answer(data: Any) -> dict[str, Any]:
    """What a frame of the official engine says, as plain data; of several frames the last one."""
    frames = [one.tolist() for one in data.frame[-1:]]
    return {
        "frame": "".join(HEX[pixel] for row in frames[0] for pixel in row) if frames else "",
        "state": data.state.value,
        "levels": data.levels_completed,
        "actions": list(data.available_actions),
    }


def serve() -> None:
    """Make the game, then answer."""
    requests, responses = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    first = json.loads(requests.readline())
    os.environ["ONLY_RESET_LEVELS"] = "true"  # as in official competitions
    space: dict[str, Any] = {"__name__": "game"}
    exec(compile(first["source"], "game.py", "exec"), space)
    make = space[first["name"]]
    game = make(seed=first["seed"]) if "seed" in inspect.signature(make).parameters else make()
    for line in requests:
        action = json.loads(line)
        data = {"x": action["x"], "y": action["y"]} if action["number"] == GameAction.ACTION6.value else {}
        taken = ActionInput(id=GameAction.from_id(action["number"]), data=data)
        responses.write(f"{json.dumps(answer(game.perform_action(taken, raw=True)))}\n")
        responses.flush()


if __name__ == "__main__":
    serve()
