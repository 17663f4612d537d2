"""Failures of rollouts: what a rollout keeps of its own, and the end of a run whose server refuses every request."""

from __future__ import annotations

import asyncio
import os
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from traceback import FrameSummary, extract_tb

from wanderlust.errors import (
    BLOCKED,
    EnvironmentFailure,
    Failure,
    FailureDetails,
    PolicyFailure,
    PolicyRefused,
    RubricFailure,
    SandboxFailure,
    ToolFailure,
    WanderlustError,
    WorkerFailure,
    one_line,
)
from wanderlust.policies.base import API_KEY_VARIABLE
from wanderlust.policies.refusals import MAX_REFUSALS, NO_CREDIT
from wanderlust.types import Rollout, Status

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
KEY_ADVICE = f"check the key: {API_KEY_VARIABLE}, or the variable that --api-key names"
REFUSAL_ADVICE = {
    "HTTP 401": KEY_ADVICE,
    "HTTP 403": KEY_ADVICE,
    NO_CREDIT: "the account has nothing left to pay with: add credit, or use another key",
    "HTTP 404": "check the URL and the model's name (--model)",
}
"""What to do, by refusal."""
OTHER_ADVICE = "check the model's name and the options that are sent (--max-tokens, --temperature, --extra-body)"


def unscore(result: Rollout, error: WanderlustError, kind: type[Failure] | None = None) -> None:
    """Mark a rollout as failed, and remove its scores; `kind` is the failure's class, where it is not the error's."""
    for trajectory in result.trajectories:
        trajectory.score = None
    kind = kind or (type(error) if isinstance(error, Failure) else EnvironmentFailure)
    result.status, result.stop_reason, result.error = Status.ERROR, kind.__name__, str(error)
    result.transient, result.refusal, result.failure = error.transient, error.refusal, failure_details(error, kind)


def failure_details(error: WanderlustError, kind: type[Failure]) -> FailureDetails:
    """Read an error and its causes. Frames are those of the user's own files, of the innermost cause with any."""
    chain: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in chain:
        chain.append(following)
        following = following.exceptions[0] if isinstance(following, BaseExceptionGroup) else following.__cause__
    tracebacks = (extract_tb(one.__traceback__) for one in reversed(chain))
    own = ([frame for frame in frames if not frame.filename.startswith(_FOREIGN)] for frames in tracebacks)
    frames = next(filter(None, own), [])[-MAX_FRAMES:]
    written = next((text for one in chain if (text := getattr(one, "output", ""))), "").rstrip().splitlines()
    advice = next((text for one, text in ADVICE.items() if issubclass(kind, one)), "")
    return FailureDetails(
        place=_place(frames[-1]) if frames else "",
        traceback="\n".join(f"{_place(frame)}\n    {frame.line}" for frame in frames),
        output="\n".join(one_line(line, MAX_LINE_CHARS) for line in written[-MAX_OUTPUT_LINES:]),
        advice=REFUSAL_ADVICE.get(error.refusal, advice),
    )


def _place(frame: FrameSummary) -> str:
    path = Path(frame.filename)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown}:{frame.lineno} in {frame.name}"


@dataclass(slots=True, kw_only=True)
class RefusalGuard:
    """Counts rollouts that failed because a server refused a request for good.

    After MAX_REFUSALS equal ones in a row, while no rollout has succeeded, no further one starts. When those under way
    have ended without a success, that is a PolicyRefused; one success, and the guard lets everything pass for good.
    Failures that may pass by themselves (429, 5xx, a lost connection) do not count. A block by a provider's filter is
    the server's answer to one conversation, and so counts as a success.
    """

    succeeded: bool = False
    count: int = 0
    first: Rollout | None = None
    """The first refused rollout of the row."""
    live: int = 0
    waiting: list[asyncio.Future[None]] = field(default_factory=list)

    async def start(self) -> None:
        """Wait until a rollout may start; each must `finish`. Raises PolicyRefused."""
        while self.is_closed:
            self.check()
            place = asyncio.get_running_loop().create_future()
            self.waiting.append(place)
            await place
        self.live += 1

    def finish(self, rollout: Rollout | None) -> None:
        """Count a rollout that has ended; None where it was cancelled."""
        self.live -= 1
        if rollout is None:
            pass
        elif rollout.status is not Status.ERROR or rollout.refusal.startswith(BLOCKED):
            self.succeeded = True
        elif rollout.refusal:
            if self.first is None or self.first.refusal != rollout.refusal:
                self.count, self.first = 0, rollout
            self.count += 1
        else:
            self.count, self.first = 0, None
        waiting, self.waiting = self.waiting, []
        for place in waiting:
            if not place.done():
                place.set_result(None)

    @property
    def is_closed(self) -> bool:
        """Whether no further rollout starts for now."""
        return not self.succeeded and self.count >= MAX_REFUSALS

    def check(self) -> None:
        """Raise PolicyRefused where the server refuses everything."""
        if self.is_closed and not self.live and self.first is not None:
            advice = REFUSAL_ADVICE.get(self.first.refusal, OTHER_ADVICE)
            raise PolicyRefused(f"stopped, as every request is refused: {self.first.error}; {advice}")
