"""Live progress on stderr: a few lines that stay in place on a terminal, one line every few seconds elsewhere.

What every long command shares: quiet libraries, progress, and a clean end whenever it is stopped.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from wanderlust.cli.main import end_on_signal
from wanderlust.cli.output import print_note
from wanderlust.errors import WanderlustError, one_line
from wanderlust.store.run_folder import CONFIG_FILE, open_folder

OUTCOME_SHARES = ("win", "draw", "loss")
METRIC_FORMATS = {
    "rollouts_per_s": "{:.1f} episodes/s",
    "reward": "reward {:.3f}",
    "loss": "loss {:.3f}",
}
EVAL_STAGE = "eval"
"""The stage whose figures are exact and stay shown until the next examination."""


@dataclass(slots=True)
class _State:
    stage: str = ""
    step: int = 0
    of: int = 1
    metrics: dict[str, float] = field(default_factory=dict)
    exact_metrics: dict[str, float] = field(default_factory=dict)
    first: int = 0
    """The step that was shown first, at the time `since`: what came before it was start-up."""
    since: float = 0.0


class Progress:
    """A `Watch` that people read. `close`, or leaving the block, gives the terminal back."""

    def __init__(
        self,
        console: Console | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        every: float = 5.0,
    ):
        """`every`: seconds between two lines where there is no terminal."""
        self.console = console or Console(file=sys.stderr, highlight=False)
        self.clock, self.every = clock, every
        self.began = self.stages_seen = clock()
        self.last_printed = self.began - every
        self.state = _State(since=self.began)
        self.live: Live | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.live = Live(get_renderable=self._screen, console=self.console, refresh_per_second=4)
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop drawing; what was shown last stays."""
        if self.live is not None:
            live, self.live = self.live, None
            live.stop()

    def log_step(self, stage: str, step: int, *, of: int, metrics: Mapping[str, float]) -> None:
        """Take in the newest figures."""
        now, state = self.clock(), self.state
        if stage == EVAL_STAGE:
            state.exact_metrics = dict(metrics)
            self._say(f"{stage} {step}/{of}  {_exact_metrics(state.exact_metrics)}")
            return
        if stage != state.stage:
            state = self.state = _State(stage=stage, first=step, since=now, exact_metrics=state.exact_metrics)
        state.step, state.of, state.metrics = step, of, dict(metrics)
        self.stages_seen = now
        if now - self.last_printed >= self.every or step >= of:
            self.last_printed = now
            self._say(self._line())

    def log_line(self, line: str) -> None:
        """A line that stays, above what is drawn."""
        self.console.print(f"wander: {one_line(line, 500)}", markup=False, soft_wrap=True)

    def _say(self, line: str) -> None:
        if self.live is None:
            self.console.print(line, markup=False, soft_wrap=True)

    def _line(self) -> str:
        state = self.state
        return "  ".join([f"{state.stage} {state.step}/{state.of}", *self._times(), *_headline_metrics(state.metrics)])

    def _times(self) -> Iterator[str]:
        state, now = self.state, self.clock()
        yield f"{_clock(now - self.began)} elapsed"
        done = state.step - state.first
        if done > 0 and state.step < state.of:
            yield f"{_clock((self.stages_seen - state.since) / done * (state.of - state.step))} left"

    def _screen(self) -> Group:
        state = self.state
        head = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=state.of, completed=state.step, width=30)
        head.add_row(Text(state.stage or "starting", "bold"), bar, Text(f"{state.step}/{state.of}"), *self._times())
        lines = [Text("  ".join(_headline_metrics(state.metrics)))] if state.metrics else []
        if state.exact_metrics:
            lines.append(Text(f"evaluated: {_exact_metrics(state.exact_metrics)}"))
        return Group(head, *lines)


def _headline_metrics(metrics: Mapping[str, float]) -> list[str]:
    """The figures that people want first."""
    out = []
    for name, form in METRIC_FORMATS.items():
        if name in metrics and not (name == "loss" and ("reward" in metrics or "win" in metrics)):
            out.append(form.format(metrics[name]))
    if "low" in metrics:
        out.append(f"[{metrics['low']:.3f}, {metrics['high']:.3f}]")
    counted = [metrics.get(f"metric/{name}", metrics.get(name)) for name in OUTCOME_SHARES]
    if counted[0] is not None:
        out.append(f"{'/'.join(OUTCOME_SHARES)} " + "/".join(f"{100 * (share or 0.0):.0f}" for share in counted))
    if "frac_groups_with_signal" in metrics:
        out.append(f"groups with non-zero advantage {100 * metrics['live']:.0f}%")
    if metrics.get("rollouts_failed"):
        out.append(f"failed rollouts {metrics['failed']:.0f}")
    return out


def _exact_metrics(metrics: Mapping[str, float]) -> str:
    """`opponent/share` figures by opponent; others as they are."""
    by: dict[str, list[str]] = {}
    for key, value in metrics.items():
        against, _, name = key.rpartition("/")
        rendered = f"{name} {100 * value:.1f}%" if against else f"{name} {value:.3f}"
        by.setdefault(against, []).append(rendered)
    return "  ".join((f"vs {against}: " if against else "") + " ".join(rendered) for against, rendered in by.items())


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


QUIET_LIBRARY_SETTINGS = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    # Threads that wait for work by spinning take a core from the workers.
    "GOMP_SPINCOUNT": "0",
    "KMP_BLOCKTIME": "0",
    "OMP_WAIT_POLICY": "PASSIVE",
}
ONE_THREAD_SETTINGS = {"MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Parallel work is done by worker processes, one core each."""


def set_library_environment(*, one_thread: bool = False) -> None:
    """Settings of other libraries, for this process and its workers; must come before they are imported."""
    for name, value in {**QUIET_LIBRARY_SETTINGS, **(ONE_THREAD_SETTINGS if one_thread else {})}.items():
        os.environ.setdefault(name, value)
    warnings.showwarning = _print_warning


def _print_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    if category.__module__.startswith("wanderlust"):
        print_note(str(message))


@contextmanager
def stoppable(farewell: Callable[[], str]) -> Iterator[Progress]:
    """Progress on stderr; SIGINT and SIGTERM end the process at once, with the line that `farewell` returns."""
    set_library_environment()
    progress = Progress()

    def leave() -> None:
        progress.close()
        print_note(farewell())

    with end_on_signal(leave), progress:
        yield progress


@contextmanager
def resumable(folder: Path, resume_command: str) -> Iterator[Progress]:
    """Like `stoppable`, for a run that the command `resume_command` goes on with; whatever stops it, the command is named."""

    def farewell() -> str:
        exists = (folder / CONFIG_FILE).is_file()
        return (
            f"stopped; everything finished is kept; go on with: {resume_command}"
            if exists
            else "stopped before it began"
        )

    set_library_environment(one_thread=True)
    with stoppable(farewell) as progress:
        try:
            yield progress
        except WanderlustError:
            progress.close()
            run = open_folder(folder)
            if run is not None and not run.finished:
                print_note(f"the run can be gone on with: {resume_command}")
            raise


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
