"""ARE's worlds, driven as `our_world` drives ours: a scenario of its own in oracle mode, and an app's tool."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from are.simulation.apps import AgentUserInterface, ContactsApp, SystemApp
from are.simulation.apps.contacts import Contact
from are.simulation.environment import Environment, EnvironmentConfig
from are.simulation.scenarios.scenario import Scenario
from are.simulation.types import EventRegisterer

from benchmarks.peers.rounds import Side, serve

PEOPLE = 20


class Messages(Scenario):
    """The user says something to the agent, so many times: all after a second, or one a second."""

    scenario_id: str = "messages"
    start_time: float | None = 0
    duration: float | None = None
    count: int = 1
    timed: bool = False

    def init_and_populate_apps(self, *args: object, **options: object) -> None:
        """The same three apps as ours."""
        self.apps = [AgentUserInterface(), ContactsApp(), SystemApp()]

    def build_events_flow(self) -> None:
        """None of them waits for another one."""
        user = self.get_typed_app(AgentUserInterface)
        user.wait_for_user_response = False
        with EventRegisterer.capture_mode():
            self.events = [user.send_message_to_agent(content=f"m{n}") for n in range(self.count)]
        for number, event in enumerate(self.events):
            event.depends_on(None, delay_seconds=number if self.timed else 1)


def environment() -> Environment:
    """One whose loop goes from event to event, which is the fast one of its two."""
    return Environment(EnvironmentConfig(oracle_mode=True, queue_based_loop=True, start_time=0, duration=None))


def live(count: int, timed: bool) -> int:
    """Events that happened."""
    scenario = Messages(count=count, timed=timed)
    scenario.initialize()
    world = environment()
    world.run(scenario)
    return len(world.event_log)


def call(count: int) -> int:
    """Calls that were logged."""
    world, app = environment(), ContactsApp()
    known = [app.add_contact(Contact(first_name="A", last_name=f"B{n}")) for n in range(PEOPLE)]
    world.register_apps([app, AgentUserInterface(), SystemApp()])
    (tool,) = [one for one in app.get_tools() if one.name.endswith("__get_contact")]
    before = len(world.event_log)
    for number in range(count):
        tool(contact_id=known[number % PEOPLE])
    return len(world.event_log) - before


@asynccontextmanager
async def opened(kind: str, events: int, concurrency: int) -> AsyncIterator[Side]:
    """`kind` and `events` as for our side."""
    logging.disable(logging.CRITICAL)

    async def play(count: int) -> int:
        if kind == "call":
            return call(count)
        return sum(live(events, kind == "timed") for _ in range(count // events))

    yield play


if __name__ == "__main__":
    serve(opened)
