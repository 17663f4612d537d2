"""What a rollout keeps of its failure: where it was raised, what the program behind it wrote last, what to do."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from traceback import FrameSummary, extract_tb

from wanderlust.errors import (
    EnvironmentFailure,
    Failure,
    PolicyFailure,
    RubricFailure,
    SandboxFailure,
    ToolFailure,
    WanderlustError,
    WorkerFailure,
)
from wanderlust.types import FailureDetails, Rollout, Status

MAX_FRAMES, MAX_OUTPUT_LINES, MAX_LINE_CHARS = 20, 20, 1_000
"""Frames of a traceback and lines of a program's output that are kept, the last ones, and characters of such a line."""
_PYTHON = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_FOREIGN = ("<frozen ", *(f"{folder}{os.sep}" for folder in (Path(__file__).parents[1], *_PYTHON)))
"""Beginnings of the names of files that are not the user's own."""
ADVICE = {
    PolicyFailure: "see what the model's server says; the same command with --out plays failed rollouts again",
    ToolFailure: "start the tool's server by hand and read what it writes, or start fewer at once (--concurrency)",
    RubricFailure: "mend the reward or the judge; `wander rescore RUN` scores again and plays nothing",
    SandboxFailure: "open a sandbox by hand (`open_sandbox`): it says what this machine lacks",
    WorkerFailure: "give the workers more memory, or start fewer (--ray-workers, --concurrency)",
    EnvironmentFailure: "mend the environment there; `wander check` plays its tasks and names such faults",
}
"""What to do, by the class of the failure."""


def unscore(result: Rollout, error: WanderlustError, kind: type[Failure] | None = None) -> None:
    """Mark a rollout as failed, and remove its scores; `kind` is the failure's class, where it is not the error's."""
    for trajectory in result.trajectories:
        trajectory.score = None
    kind = kind or (type(error) if isinstance(error, Failure) else EnvironmentFailure)
    result.status, result.stop_reason, result.error = Status.ERROR, kind.__name__, str(error)
    result.transient, result.refusal, result.failure = error.transient, error.refusal, failure_details(error, kind)


def failure_details(error: WanderlustError, kind: type[Failure]) -> FailureDetails:
    """Read an error and what caused it. Frames are those of the user's own files, of the innermost cause with any."""
    chain = _causes(error)
    own = ([frame for frame in extract_tb(one.__traceback__) if _is_own(frame)] for one in reversed(chain))
    frames = next(filter(None, own), [])[-MAX_FRAMES:]
    written = next((text for one in chain if (text := getattr(one, "output", ""))), "")
    return FailureDetails(
        place=_place(frames[-1]) if frames else "",
        traceback="\n".join(f"{_place(frame)}\n    {frame.line}" for frame in frames),
        output="\n".join(map(_cut, written.rstrip().splitlines()[-MAX_OUTPUT_LINES:])),
        advice=next((text for one, text in ADVICE.items() if issubclass(kind, one)), ""),
    )


def _causes(error: BaseException) -> list[BaseException]:
    """The error, its cause, the cause of that, and so on; of a group the first error."""
    chain: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in chain:
        chain.append(following)
        following = following.exceptions[0] if isinstance(following, BaseExceptionGroup) else following.__cause__
    return chain


def _is_own(frame: FrameSummary) -> bool:
    return not frame.filename.startswith(_FOREIGN)


def _place(frame: FrameSummary) -> str:
    path = Path(frame.filename)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown}:{frame.lineno} in {frame.name}"


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE_CHARS else line[:MAX_LINE_CHARS] + "…"
