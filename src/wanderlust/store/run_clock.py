"""How long a run took: the wall-clock seconds of all its parts together, kept in its store as it goes."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic

from wanderlust.store.store import RunStore

SECONDS_KEY = "seconds"
"""The fact of a store that holds the seconds."""
RECORD_SECONDS = 1.0
"""A kill loses at most the time since a step or, of an evaluation, this many seconds."""


@dataclass(slots=True)
class RunClock:
    """Counts from now on, beginning with what earlier parts of the run took."""

    store: RunStore
    before: float = field(init=False)
    """Seconds of the parts before."""
    _began: float = field(init=False)
    _recorded: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self.before, self._began = float(self.store.meta().get(SECONDS_KEY, 0.0)), monotonic()

    def record(self, *, at_once: bool = True) -> float:
        """Keep what the run took so far, and return it; unless `at_once`, only now and then."""
        part = monotonic() - self._began
        if at_once or part - self._recorded >= RECORD_SECONDS:
            self._recorded = part
            self.store.set_meta(SECONDS_KEY, round(self.before + part, 3))
        return self.before + part
