"""The end of an episode's play: one place for what a limit does to the code around the turns.

A limit ends the play and not the episode: code that follows a block of the play runs as it does after the last answer,
and then the episode is judged. A failure or a cancellation is thrown into the block instead, and nothing is judged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from wanderlust.errors import EnvironmentFailure, StopEpisode

CLOSING_SECONDS = 60.0
"""Wall-clock seconds that the code after the play may take once a time limit has passed."""


class Play:
    """The part of an episode in which its seats take turns. One object per episode, shared by its seats.

    When the time is up, what still plays is cancelled: turns raise StopEpisode, blocks end. Code that closes an episode
    is not cancelled then; what takes `closing_seconds` more is an EnvironmentFailure.
    """

    __slots__ = ("_cancelled", "_main", "_playing", "_told", "closing_seconds", "cut", "stop")

    def __init__(self) -> None:
        self.stop: StopEpisode | None = None
        """Why there is no further turn."""
        self.cut = False
        """Whether that ended a block of the play: an error since then is that of the code after it."""
        self.closing_seconds = CLOSING_SECONDS
        """An environment whose verdict takes longer sets more."""
        self._main: asyncio.Task[Any] | None = None
        self._playing: dict[asyncio.Task[Any], bool] = {}
        """Tasks that may be cancelled when the time is up, and whether each is in a turn."""
        self._cancelled: dict[asyncio.Task[Any], int] = {}
        """Tasks that were cancelled for it and have not gone on, and how often others had cancelled them before."""
        self._told: set[asyncio.Task[Any]] = set()
        """All tasks that were cancelled for it, each once."""

    def turn(self) -> _Stretch:
        """A turn of a seat, for the time of the block: raises StopEpisode when the time is up."""
        return _Stretch(self)

    def block(self, interruption: Callable[[], Exception | None]) -> _Stretch:
        """A block that a limit ends in silence; `interruption` is what a seat met, which code may have replaced."""
        return _Stretch(self, interruption)

    def limited(self, seconds: float | None, reason: str = "timeout") -> _Clock:
        """Bound the block by wall-clock seconds; raises StopEpisode where no block of the play was ended by that."""
        return _Clock(self, seconds, StopEpisode(reason))

    def end(self, stop: StopEpisode) -> None:
        """End the play from outside, as a time limit does."""
        self.stop = self.stop or stop
        # The environment's own task hears of it from the turns that it awaits in other tasks, where there are any.
        beside = [task for task, in_turn in self._playing.items() if in_turn or task is not self._main]
        self._cancel(beside or [*self._playing])

    def _cancel(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        for task in tasks:
            if task not in self._told:
                self._told.add(task)
                self._cancelled[task] = task.cancelling()
                task.cancel()

    def _claim(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether the running task was cancelled because the time is up, and for no other reason; it goes on then."""
        before = self._cancelled.pop(task, None) if task is not None else None
        return task is not None and before is not None and task.uncancel() <= before


@dataclass(slots=True)
class _Stretch:
    """Code that may be cancelled when the time is up: a turn, or a block where there is an `interruption`."""

    play: Play
    interruption: Callable[[], Exception | None] | None = None
    task: asyncio.Task[Any] | None = None
    """None where no clock is set: then there need not be an event loop."""
    before: bool | None = None
    """As in Play: what the task was in before; None for code that is not cancelled."""

    def __enter__(self) -> None:
        play = self.play
        if play._main is not None and (task := asyncio.current_task()) is not None:
            self.task, self.before = task, play._playing.get(task)
            play._playing[task] = self.interruption is None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        play, task, interruption = self.play, self.task, self.interruption
        if task is not None:
            if interruption is not None or self.before is None:
                play._playing.pop(task, None)  # what follows a block closes the episode
            else:
                play._playing[task] = self.before
        if error is None and not play._cancelled:
            return False
        timed_out = play._claim(task)
        if interruption is None:
            if timed_out and error is not None and play.stop is not None:
                raise play.stop from error
            return False
        stop: BaseException | None = play.stop if timed_out else error
        if isinstance(stop, Exception) and not isinstance(stop, StopEpisode) and not play.cut:
            stop = interruption()
        if not isinstance(stop, StopEpisode):
            return False
        play.stop, play.cut = play.stop or stop, True
        return True


@dataclass(slots=True)
class _Clock:
    """A time limit of the running task."""

    play: Play
    seconds: float | None
    stop: StopEpisode
    task: asyncio.Task[Any] = field(init=False)
    outermost: bool = False
    timer: asyncio.TimerHandle | None = None
    rang: bool = False
    before: int = 0
    late: int = 0
    """How often the task was cancelled for not ending."""

    def __enter__(self) -> None:
        task, play = asyncio.current_task(), self.play
        if task is None:
            raise RuntimeError("an episode is played in a task")
        self.task, self.before, self.outermost = task, task.cancelling(), play._main is None
        if self.outermost:
            play._main, play._playing[task] = task, False
        self._wait(self.seconds)

    def _wait(self, seconds: float | None) -> None:
        if seconds is not None:
            self.timer = asyncio.get_running_loop().call_later(seconds, self._ring)

    def _ring(self) -> None:
        if not self.rang:
            self.play.end(self.stop)
        elif self.task in self.play._playing and self.task not in self.play._told:
            # It awaits something else than the turns that have ended.
            self.play._cancel([self.task])
        else:
            self.late += 1
            self.task.cancel()
        self.rang = True
        self._wait(self.play.closing_seconds)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        play = self.play
        if self.timer is not None:
            self.timer.cancel()
        if self.outermost:
            play._playing.pop(self.task, None)
        if play._claim(self.task) and play.stop is not None:
            raise play.stop from error
        cancelled = [self.task.uncancel() for _ in range(self.late)]
        if cancelled and cancelled[-1] <= self.before:
            why = f"did not end within {play.closing_seconds:g} s after {self.stop} had ended the play"
            raise EnvironmentFailure(f"the code after `yield`, in `finally` or after the loop {why}") from error
