"""A game of the official engine in a sandbox: its code is a stranger's, and what it answers is checked.

The sandbox has no network, no file of this machine but the engine's packages, and bounds on memory and time. Not
covered: the truth of frames and scores, which the game itself makes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path

from wanderlust.errors import EnvironmentFailure, UsageError
from wanderlust.tools.process import Child
from wanderlust.tools.sandbox import Sandbox, SandboxBounds, open_sandbox
from wanderlust.tools.sandbox.bubblewrap import find_python
from wanderlust.tools.worker import NoReply, Worker, encode_request, worker_command
from wanderlust_grids.cells import FRAME, RESET, UNDO
from wanderlust_grids.game import GameState, GridAction, Observation
from wanderlust_grids.official_folder import GameFiles

PACKAGES = (
    "arcengine",
    "numpy",
    "pydantic",
    "pydantic-core",
    "annotated-types",
    "typing-extensions",
    "typing-inspection",
)
"""What the engine needs."""
ANSWER_SECONDS = 20.0
"""Wall-clock seconds for an answer of a game, the start of Python left aside."""
START_SECONDS = 60.0
MAX_ANSWER_BYTES = 1 << 16
MAX_SOURCE_BYTES = 4 << 20
BOUNDS = SandboxBounds(memory=2 << 30, processes=16)
_WORKER = files(__package__).joinpath("official_worker.py").read_text(encoding="utf-8")
_ACTIONS = range(RESET + 1, UNDO + 1)


def engine_paths() -> list[Path]:
    """Folders that hold the engine and what it needs. Raises UsageError where one is not installed."""
    return [*dict.fromkeys(_places(PACKAGES))]


def _places(packages: Iterable[str]) -> Iterator[Path]:
    for name in packages:
        try:
            yield Path(str(distribution(name).locate_file(""))).resolve()
        except PackageNotFoundError:
            raise UsageError(
                f"games of the official engine need the package {name!r}: pip install 'wanderlust[arc]', and before "
                "Python 3.12 pip install --no-deps --ignore-requires-python arcengine"
            ) from None


class OfficialProcess:
    """One play of a game of the official engine, with the counts of its scorecard. Only levels are reset."""

    def __init__(self, sandbox: Sandbox, child: Child, files: GameFiles):
        self.files, self._sandbox = files, sandbox
        self._worker = Worker(child, max_bytes=MAX_ANSWER_BYTES)
        self.level_actions: list[int] = []
        """Actions of each solved level, lost tries included."""
        self.actions = 0
        self._seen: Observation | None = None

    @classmethod
    async def open(cls, game: GameFiles, *, seed: int) -> OfficialProcess:
        """Start a game.

        Raises UsageError without the engine or the source, SandboxFailure without a sandbox, EnvironmentFailure for
        a game that does not start.
        """
        paths = engine_paths()
        source = game.source.read_bytes()
        if len(source) > MAX_SOURCE_BYTES:
            raise UsageError(f"{game.source} has more than {MAX_SOURCE_BYTES:,} bytes")
        sandbox = await open_sandbox(BOUNDS, readable=[path / one for path in paths for one in _packages(path)])
        async with AsyncExitStack() as failing:  # a cancellation too
            failing.push_async_callback(sandbox.close)
            variables = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "OPENBLAS_NUM_THREADS": "1"}
            child = await sandbox.start([str(find_python()), "-sB", *worker_command(_WORKER)], env=variables)
            self = cls(sandbox, child, game)
            await self._ask(b"", START_SECONDS)
            make = {"source": source.decode("utf-8", "replace"), "name": game.class_name, "seed": seed}
            await self._ask(encode_request(make), START_SECONDS)
            failing.pop_all()
        return self

    @property
    def open_actions(self) -> int:
        """Actions since the last solved level."""
        return self.actions - sum(self.level_actions)

    async def begin(self) -> Observation:
        """Show the first level."""
        return await self._perform(GridAction(number=RESET))

    async def perform(self, action: GridAction) -> Observation:
        """Take an action. One after a lost level, other than a reset, does nothing and does not count."""
        before = self._seen
        if before is not None and action.number != RESET and before.state is not GameState.NOT_FINISHED:
            return before
        self.actions += 1
        seen = await self._perform(action)
        if before is not None and seen.levels_completed > before.levels_completed:
            self.level_actions.append(self.open_actions)
        return seen

    def waste(self) -> None:
        """Count an action that could not be read, or came after a lost level."""
        self.actions += 1

    async def close(self) -> None:
        """End the game."""
        await self._sandbox.close()

    async def _perform(self, action: GridAction) -> Observation:
        request = {"number": action.number, "x": action.x, "y": action.y}
        self._seen = _observation(await self._ask(encode_request(request), ANSWER_SECONDS))
        if self._seen is None:
            raise self._failure("answered with something else than a frame")
        return self._seen

    async def _ask(self, request: bytes, seconds: float) -> bytes:
        try:
            return await self._worker.ask(request, seconds=seconds)
        except NoReply as none:
            late = f"did not answer within {seconds:g} s"
            raise self._failure({"time": late, "died": "ended"}.get(none.why, "answered too much")) from None

    def _failure(self, what: str) -> EnvironmentFailure:
        last = self._worker.child.last_words
        return EnvironmentFailure(f"the game {self.files.id} {what}{': ' if last else ''}{last}")


def _packages(path: Path) -> Iterator[str]:
    """What of a folder of packages the engine needs, and may be seen."""
    wanted = {name.replace("-", "_") for name in PACKAGES} | {"numpy.libs", "typing_extensions.py"}
    return (one.name for one in path.iterdir() if one.name in wanted)


def _observation(line: bytes) -> Observation | None:
    """The frame in an answer; None for anything else."""
    try:
        data = json.loads(line)
        state, frame = GameState(data["state"]), bytes.fromhex("".join(f"0{pixel}" for pixel in data["frame"]))
        levels, actions = data["levels"], data["actions"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    fits = len(frame) == FRAME * FRAME and type(levels) is int and 0 <= levels <= 254 and isinstance(actions, list)
    if not fits or not all(type(one) is int and one in _ACTIONS for one in actions):
        return None
    return Observation(frame=frame, state=state, levels_completed=levels, available_actions=tuple(actions))
