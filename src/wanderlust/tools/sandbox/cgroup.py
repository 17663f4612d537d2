"""Control groups that bound the memory and the processes of a whole sandbox, where this process may make them.

A sandbox whose group has the processor's controller has one share of it, however many threads it runs: as much as any
other sandbox, and as one thread outside.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from wanderlust.tools.sandbox.base import SandboxBounds

SPARE_PROCESSES = 16
"""Processes besides the command's own: those around it, and commands side by side."""
_numbers = itertools.count()
_NAME = re.compile(r"wanderlust-(\d+)-\d+")


def _own() -> Iterator[tuple[Path, str]]:
    """This process's groups and what they control (`unified` is version 2)."""
    mounts: dict[str, tuple[str, str]] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            names = ["unified"] if kind == "cgroup2" else re.split("[ ,]", options)
            root, place = before.split(" ")[3:5]
            mounts |= dict.fromkeys(names, (root, place))
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(",") if controllers else ["unified"]:
            if name in mounts and name in ("memory", "pids", "cpu", "unified"):
                root, place = mounts[name]
                yield Path(place) / os.path.relpath(path, root), name


class ControlGroup:
    """Groups made for one sandbox; none where none can be made, and then the sandbox has no bounds as a whole."""

    def __init__(self, bounds: SandboxBounds):
        self.places: list[Path] = []
        name = f"wanderlust-{os.getpid()}-{next(_numbers)}"
        memory, processes = bounds.memory + bounds.disk, bounds.processes + SPARE_PROCESSES
        settings = {
            "memory": {"memory.limit_in_bytes": memory},
            "pids": {"pids.max": processes},
            "cpu": {},
            "unified": {"memory.max": memory, "memory.swap.max": 0, "pids.max": processes},
        }
        with suppress(OSError):
            for parent, controller in _own():
                self._make(parent, name, settings[controller])

    def _make(self, parent: Path, name: str, settings: dict[str, int]) -> None:
        """One group with its settings; none where the controller is not handed down or not ours to use."""
        place = parent / name
        try:
            _sweep(parent)
            place.mkdir()
        except OSError:
            return
        try:
            for setting, value in settings.items():
                (place / setting).write_text(str(value))
            self.places.append(place)
        except OSError:
            place.rmdir()

    @property
    def memory(self) -> bool:
        """Whether the memory of the whole sandbox is bounded."""
        return any((place / name).exists() for place in self.places for name in ("memory.max", "memory.limit_in_bytes"))

    @property
    def processor(self) -> bool:
        """Whether the sandbox as a whole has one share of the processor."""
        return any((place / name).exists() for place in self.places for name in ("cpu.weight", "cpu.shares"))

    def join_command(self) -> list[str]:
        """Words before a command that put it into the groups."""
        if not self.places:
            return []
        joins = "".join(f"echo 0 > {shlex.quote(str(place / 'cgroup.procs'))} && " for place in self.places)
        return ["/bin/sh", "-c", joins + 'exec "$@"', "sh"]

    async def close(self) -> None:
        """Remove the groups, whose processes have ended."""
        for place in self.places:
            for _ in range(200):
                try:
                    place.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    await asyncio.sleep(0.005)  # The kernel takes the last dead process out a moment after its end.
                else:
                    break
        self.places.clear()


def _sweep(parent: Path) -> None:
    """Remove groups of wanderlust processes that were killed."""
    for place in parent.glob("wanderlust-*"):
        named = _NAME.fullmatch(place.name)
        if named and not Path(f"/proc/{named[1]}").exists():
            with suppress(OSError):
                place.rmdir()
