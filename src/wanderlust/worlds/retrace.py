"""A world's past, made again from its log: how its apps stood after any line, and worlds to go on from there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from wanderlust.core.errors import EnvironmentFailure, UsageError, WanderlustError, boundary
from wanderlust.worlds.app import App
from wanderlust.worlds.changes import Change, changes
from wanderlust.worlds.log import Happened
from wanderlust.worlds.scenario import Scenario, repeat, retraced
from wanderlust.worlds.world import World


class Retraced:
    """A log, and the world that left it at every moment. A moment is a number of lines: 0 is before anything happened.

    The log is replayed once, and a branch of the world is kept wherever something came from outside; what lies between
    two of these is played again when it is asked for. A log that another scenario or an older app left is known as far
    as it can be replayed (`known`), and `problem` says in one line why not further.
    """

    def __init__(self, scenario: Scenario, lines: Sequence[Happened], seed: int = 0):
        self.lines = list(lines)
        self.problem = ""
        self._kept: list[World] = []
        try:
            with boundary(EnvironmentFailure):  # a log may be anybody's
                for world in retraced(scenario, self.lines, seed):
                    self._kept.append(world.branch())
        except WanderlustError as error:
            self.problem = str(error)
        self._ends = [len(world.log) for world in self._kept]

    @property
    def known(self) -> int:
        """The last moment that can be shown."""
        return self._ends[-1]

    def world(self, moment: int) -> World:
        """A world of one's own, to look at: its apps are as they were at that moment, also where it was not at rest."""
        at = bisect_right(self._ends, self._valid(moment)) - 1
        world = self._kept[at].branch()
        if self._ends[at] < moment:
            world.log.append = _Until(world, moment)
            with suppress(_Reached):
                repeat(world, self.lines[self._ends[at]])
        return world

    def apps(self, moment: int) -> Mapping[str, App]:
        """The apps as they were at that moment."""
        return self.world(moment).apps

    def changes(self, before: int, after: int) -> list[Change]:
        """What is different between two moments, in either order."""
        return changes(self.apps(before), self.apps(after))

    def each(self) -> Iterator[list[Change]]:
        """What each line changed, in order, as far as the world is known; takes as long as one replay."""
        for world, start in zip(self._kept[:-1], self._ends, strict=False):
            twin = world.branch()
            before: Mapping[str, App] = dict(twin.apps)
            watch = _Watch(twin)
            repeat(twin, self.lines[start])
            for after in watch.seen:
                yield changes(before, after)
                before = after

    def _valid(self, moment: int) -> int:
        if not 0 <= moment <= len(self.lines):
            raise UsageError(f"the log has {len(self.lines)} lines: there is no moment {moment}")
        if moment > self.known:
            raise UsageError(f"this world can be shown up to line {self.known} only: {self.problem}")
        return moment


class _Reached(Exception):
    """No error: it ends a replay where somebody wants to look."""


class _Watch:
    """Sees the apps after every line of a world from now on. The world goes on with twins of what was seen."""

    def __init__(self, world: World):
        self.seen: list[Mapping[str, App]] = []
        self._world, self._append = world, world.log.append
        world.log.append = self

    def __call__(self, line: Happened) -> None:
        self._append(line)
        apps = self._world._apps
        self.seen.append(dict(apps))
        apps.update({name: app.bound(self._world) for name, app in apps.items() if app.place is self._world})


class _Until:
    """Appends lines up to a moment, and no further."""

    def __init__(self, world: World, moment: int):
        self.log, self.moment, self._append = world.log, moment, world.log.append

    def __call__(self, line: Happened) -> None:
        self._append(line)
        if len(self.log) >= self.moment:
            raise _Reached
