"""This project's worlds: events that the engine plays, and calls that it logs.

`URL` is the kind (`at-once`, `timed` or `call`), `TURNS` how many events one world has; a rollout is an event or
a call.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.peers.rounds import Side, serve
from wanderlust_worlds.apps.contacts import Contact, Contacts
from wanderlust_worlds.apps.user_interface import System, UserInterface
from wanderlust_worlds.engine.cow_dict import CowDict
from wanderlust_worlds.engine.events import Plan, PlannedCall
from wanderlust_worlds.engine.world import World

PEOPLE = 20


@asynccontextmanager
async def opened(kind: str, events: int, concurrency: int) -> AsyncIterator[Side]:
    """The user says something to the agent, again and again; or the agent looks up a contact."""
    user = UserInterface("AgentUserInterface")
    known = {f"c{n}": Contact(contact_id=f"c{n}", first_name="A", last_name=f"B{n}") for n in range(PEOPLE)}
    apps = [user, Contacts("ContactsApp", contacts=CowDict(known)), System("SystemApp")]
    acts = [
        PlannedCall(
            id=f"e{n}",
            app=user.name,
            action="send_message_to_agent",
            args={"content": f"m{n}"},
            by="user",
            delay=float(n) if kind == "timed" else 1.0,
        )
        for n in range(events)
    ]
    plan = Plan.of(acts, apps)

    def live() -> int:
        world = World(apps, plan)
        world.advance(events + 2.0)
        return len(world.done)

    def call(count: int) -> int:
        world = World(apps)
        for number in range(count):
            world.call("ContactsApp", "get_contact", {"contact_id": f"c{number % PEOPLE}"})
        return len(world.log)

    async def play(count: int) -> int:
        return call(count) if kind == "call" else sum(live() for _ in range(count // events))

    yield play


if __name__ == "__main__":
    serve(opened)
