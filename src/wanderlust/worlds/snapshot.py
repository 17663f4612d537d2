"""A world as plain data, and back: for disks, other processes, and readers. `World.branch` is the fast way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

import msgspec

from wanderlust.core.errors import UsageError
from wanderlust.worlds.app import App
from wanderlust.worlds.flow import Notice
from wanderlust.worlds.log import Happened, Log
from wanderlust.worlds.plan import Plan
from wanderlust.worlds.schedule import Schedule
from wanderlust.worlds.world import Gate, World


def snapshot(world: World) -> dict[str, Any]:
    """Everything that the world's future depends on, as JSON data: apps, clock, queue, random streams, log.

    The events themselves are in the plan, which is code as well as data, and is not in it.
    """
    return {
        "now": world.now,
        "end": None if world.end == inf else world.end,
        "seed": world.seed,
        "rank": world._rank,
        "stopped": world.stopped,
        "most_events": world.most_events,
        "failures": world.failures,
        "counts": world._counts.copy(),
        "inbox": msgspec.to_builtins(world._inbox),
        "schedule": world._schedule.state(),
        "apps": {name: app.state() for name, app in world.apps.items()},
        "log": msgspec.to_builtins(list(world.log)),
    }


def restore(
    state: Mapping[str, Any], apps: Iterable[App], plan: Plan | None = None, *, gate: Gate | None = None
) -> World:
    """The world that `snapshot` told of. `apps` say of which class each is; `plan` is the one it was playing.

    Raises UsageError when they are not those of the snapshot.
    """
    kinds = {app.name: type(app) for app in apps}
    if kinds.keys() != state["apps"].keys():
        raise UsageError(f"the snapshot has the apps {', '.join(state['apps'])}, and not {', '.join(kinds)}")
    world = World([kinds[name].load(name, saved) for name, saved in state["apps"].items()], plan, gate=gate)
    try:
        world._schedule = Schedule.load(world.plan, state["schedule"], world)
    except KeyError as unknown:
        raise UsageError(f"the snapshot was made with another plan: this one has no event {unknown}") from unknown
    world.now, world.end, world.seed = state["now"], inf if state["end"] is None else state["end"], state["seed"]
    world.stopped, world.most_events, world._rank = state["stopped"], state["most_events"], state["rank"]
    world.failures = state["failures"]
    world._counts = dict(state["counts"])
    world._inbox = msgspec.convert(state["inbox"], tuple[Notice, ...])
    world.log = Log(msgspec.convert(state["log"], list[Happened]))
    return world
