"""An environment for evaluations in processes of their own: written into their folder, played by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from patience import PATIENCE

WANDER = (sys.executable, "-m", "wanderlust.cli.main")
WORLD = '''
import asyncio
import sys
from pathlib import Path

from wanderlust.environment import Environment
from wanderlust.types import user
from wanderlust.types import Task
from wanderlust.policies.scripted import Scripted


class World(Environment):
    """Odd tasks are won; the bridge of t7 is down until somebody mends it."""

    players = {"me": lambda: Scripted(["1"]), "other": lambda: Scripted(["2"])}

    def tasks(self, split="train"):
        first = 0 if split == "eval" else 60
        return [Task(id=f"t{n}", answer=n) for n in range(first, first + 60)]

    async def run(self, episode):
        said = await episode.agent.act(user("?"))
        sys.stderr.write(f"plays {episode.task.id}\\n")
        sys.stderr.flush()
        await asyncio.sleep(float(Path("seconds").read_text()))
        if episode.task.id == "t7" and not Path("mended").exists():
            raise OSError("the bridge is down")
        episode.state["noise"] = episode.rng().randbytes(5000).hex()
        won = episode.task.answer % 2 if said.content == "1" else episode.task.answer % 3 == 0
        episode.reward("right", float(won))
'''


def found(folder: Path, *, seconds: float = 0.0, mended: bool = True) -> Path:
    """A folder with the world in it."""
    (folder / "world.py").write_text(WORLD)
    (folder / "seconds").write_text(str(seconds))
    if mended:
        (folder / "mended").touch()
    return folder


def wander(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command, run to its end."""
    command = [*WANDER, *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE, check=False)


def plays(stderr: str) -> list[str]:
    """The tasks that were played, in their order."""
    return [line.split()[1] for line in stderr.splitlines() if line.startswith("plays ")]
