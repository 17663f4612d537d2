"""Progress of long work: what a logger is, and the one that draws on a terminal.

On a terminal a few lines stay in place; elsewhere (a pipe, a log file) one line is written every few seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, Self, runtime_checkable

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar

from wanderlust.errors import one_line
from wanderlust.runner.terminal import Console, Table, plain


class Logger(Protocol):
    """Whoever shows progress."""

    def log_step(self, stage: str, step: int, *, of: int, metrics: Mapping[str, float]) -> None:
        """`step` of the steps `of` a stage are done; `metrics` are the newest ones, by name."""
        ...


class NullLogger:
    """Shows nothing."""

    def log_step(self, stage: str, step: int, *, of: int, metrics: Mapping[str, float]) -> None:
        """Nothing."""


@runtime_checkable
class ProgressLogger(Protocol):
    """A watch that can say a line, too."""

    def log_line(self, line: str) -> None:
        """Say something that stays to be read."""
        ...


OUTCOME_SHARES = ("win", "draw", "loss")
METRIC_FORMATS = {
    "rollouts_per_s": "{:.1f} episodes/s",
    "reward": "reward {:.3f}",
    "loss": "loss {:.3f}",
}
SHOWN_SAMPLER_KL = 1e-3
"""Gap between the sampler's and the trainer's log-probabilities from which on it is shown."""
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
    """Draws progress for people to read, on stderr or the console given. `close`, or leaving the block, ends it."""

    def __init__(
        self,
        console: Console | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        every: float = 5.0,
    ):
        """`every`: seconds between two lines where there is no terminal."""
        self.console = console or Console(file=sys.stderr)
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

    def __exit__(self, *_: object) -> None:
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
        new = stage != state.stage
        if new:
            state = self.state = _State(stage=stage, first=step, since=now, exact_metrics=state.exact_metrics)
        state.step, state.of, state.metrics = step, of, dict(metrics)
        self.stages_seen = now
        if new or now - self.last_printed >= self.every or step >= of:
            self.last_printed = now
            reached = f"{stage} {step}/{of}"
            self._say("  ".join([reached, *self._times(), *_headline_metrics(state.metrics)]))

    def log_line(self, line: str) -> None:
        """A line that stays, above what is drawn."""
        self.console.print(plain(f"wander: {one_line(line, 500)}"), soft_wrap=True)

    def _say(self, line: str) -> None:
        if self.live is None:
            self.console.print(plain(line), soft_wrap=True)

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
        head.add_row(plain(state.stage or "starting", "bold"), bar, f"{state.step}/{state.of}", *self._times())
        lines = [plain("  ".join(_headline_metrics(state.metrics)))] if state.metrics else []
        if state.exact_metrics:
            lines.append(plain(f"evaluated: {_exact_metrics(state.exact_metrics)}"))
        return Group(head, *lines)


def _headline_metrics(metrics: Mapping[str, float]) -> list[str]:
    """The figures that people want first."""
    out = []
    seats = [
        f"{name.removeprefix('reward/')} {value:.3f}" for name, value in metrics.items() if name.startswith("reward/")
    ]
    for name, form in METRIC_FORMATS.items():
        if name == "reward" and seats:
            out.append(f"reward {', '.join(seats)}")
        elif name in metrics and not (name == "loss" and ("reward" in metrics or "win" in metrics)):
            out.append(form.format(metrics[name]))
    if "low" in metrics:
        out.append(f"[{metrics['low']:.3f}, {metrics['high']:.3f}]")
    counted = [metrics.get(f"metric/{name}", metrics.get(name)) for name in OUTCOME_SHARES]
    if counted[0] is not None:
        out.append(f"{'/'.join(OUTCOME_SHARES)} " + "/".join(f"{100 * (share or 0.0):.0f}" for share in counted))
    if "frac_groups_with_signal" in metrics:
        out.append(f"groups with non-zero advantage {100 * metrics['frac_groups_with_signal']:.0f}%")
    if "reward" in metrics and metrics.get("sampler_kl_k3", 0.0) > SHOWN_SAMPLER_KL:
        out.append(f"sampler gap (k3) {metrics['sampler_kl_k3']:.2g}")
    if metrics.get("rollouts_failed"):
        out.append(f"failed rollouts {metrics['rollouts_failed']:.0f}")
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


@contextmanager
def open_progress(progress: Logger | bool) -> Iterator[Logger]:
    """The logger to use for the time of the block: one that draws for True, one that shows nothing for False."""
    if progress is True:
        with Progress() as drawn:
            yield drawn
    else:
        yield NullLogger() if progress is False else progress
