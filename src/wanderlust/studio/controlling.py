"""`wander ctl`: pause, resume or stop a run that another process is at work on."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from wanderlust.rollout.control import Deed, ask
from wanderlust.studio.arguments import Json, Run
from wanderlust.studio.output import result, result_json

SAID = {
    "running": "is running",
    "paused": "is paused; what was under way is finished first",
    "stopping": "stops; everything finished is kept",
}


def control(run: Run, deed: Deed, /, *, json: Json = False) -> None:
    """Pause, resume or stop an evaluation or a training run that is at work, or ask how it is.

    Parameters
    ----------
    deed:
        What is to be done. Stopping is one Ctrl-C: what is finished is kept, and the same command goes on.
    """
    folder: Path = run.parent if run.is_file() else run
    reached = ask(folder, deed, by="wander ctl")
    if json:
        result_json({"run": str(folder), **asdict(reached)})
        return
    result(None, f"{folder} {SAID[reached.state]} (process {reached.process})")
