"""What every long command shares: quiet libraries, progress, and a clean end whenever it is stopped."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wanderlust.core.errors import WanderlustError
from wanderlust.recipes.folder import CONFIG, open_folder
from wanderlust.studio.interrupt import leaving
from wanderlust.studio.output import note
from wanderlust.studio.progress import Progress

QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    # Threads that wait for work by spinning take a core from the workers.
    "GOMP_SPINCOUNT": "0",
    "KMP_BLOCKTIME": "0",
    "OMP_WAIT_POLICY": "PASSIVE",
}
ONE_THREAD = {"MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Parallel work is done by worker processes, one core each."""


def hush(*, one_thread: bool = False) -> None:
    """Settings of other libraries, for this process and its workers; must come before they are imported."""
    for name, value in {**QUIET, **(ONE_THREAD if one_thread else {})}.items():
        os.environ.setdefault(name, value)
    warnings.showwarning = _told


def _told(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    if category.__module__.startswith("wanderlust"):
        note(str(message))


@contextmanager
def stoppable(farewell: Callable[[], str]) -> Iterator[Progress]:
    """Progress on stderr; SIGINT and SIGTERM end the process at once, with the line that `farewell` returns."""
    hush()
    progress = Progress()

    def leave() -> None:
        progress.close()
        note(farewell())

    with leaving(leave), progress:
        yield progress


@contextmanager
def resumable(folder: Path, again: str) -> Iterator[Progress]:
    """Like `stoppable`, for a run that the command `again` goes on with; whatever stops it, the command is named."""

    def farewell() -> str:
        begun = (folder / CONFIG).is_file()
        return f"stopped; everything finished is kept; go on with: {again}" if begun else "stopped before it began"

    hush(one_thread=True)
    with stoppable(farewell) as progress:
        try:
            yield progress
        except WanderlustError:
            progress.close()
            run = open_folder(folder)
            if run is not None and not run.finished:
                note(f"the run can be gone on with: {again}")
            raise


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
