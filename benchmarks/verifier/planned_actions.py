"""What an agent does in a world, as data: the oracle's acts to begin with, to be changed and then really done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wanderlust.tools.function import ToolError
from wanderlust_worlds.engine.events import fill_placeholders, resolve_placeholder, result_part
from wanderlust_worlds.engine.log import LogEntry
from wanderlust_worlds.engine.scenario import Scenario, play_oracle
from wanderlust_worlds.engine.world import Gate, World
from wanderlust_worlds.verification.online import TurnGate
from wanderlust_worlds.verification.oracle import Oracle, plain_value


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAction:
    """A call that an agent is going to make."""

    id: str
    """The act of the oracle that it is meant to be; of its own where it is none."""
    app: str
    action: str
    args: Mapping[str, Any]
    """With placeholders for what other deeds and events gave."""
    time: float
    """When, on the world's clock; what is due at the same time is done in the order given."""


def oracle_actions(scenario: Scenario, seed: int = 0) -> list[PlannedAction]:
    """What a perfect agent does, when it does it."""
    log = play_oracle(scenario, seed).log
    acts = {act.id: act for act in scenario.oracle}
    return [
        PlannedAction(id=line.event, app=line.app, action=line.action, args=acts[line.event].args, time=line.time)
        for line in log
        if line.event in acts
    ]


def run_actions(
    scenario: Scenario, actions: Iterable[PlannedAction], *, seed: int = 0, gate: Gate | None = None
) -> World:
    """The world after these deeds have been done in it, one after the other; those that fail, fail.

    Without a `gate` it goes on whatever is done, as far as what was done is recognised.
    """
    gate = gate or TurnGate(oracle=Oracle.of(scenario), stops=False)
    world = scenario.world(seed, gate=gate)
    world.advance(0)
    lines: dict[str, int] = {}

    def result(name: str) -> Any:
        origin = resolve_placeholder(name, lines) or resolve_placeholder(name, world.done)
        if origin is None:
            return "nothing"
        line = lines.get(origin[0], world.done.get(origin[0], -1))
        return plain_value(result_part(world.log[line].result, origin[1]))

    for deed in sorted(actions, key=lambda one: one.time):
        world.deliver()
        if world.stopped:
            break
        if deed.time > world.now:
            world.advance(deed.time - world.now)
        at = len(world.log)
        try:
            world.call(deed.app, deed.action, fill_placeholders(deed.args, result))
            lines[deed.id] = at
        except ToolError:
            continue  # its line says so
    world.deliver()
    return world


def log_of_actions(scenario: Scenario, actions: Sequence[PlannedAction], *, seed: int = 0) -> list[LogEntry]:
    """The log that is left when these deeds have been done."""
    return list(run_actions(scenario, actions, seed=seed).log)
