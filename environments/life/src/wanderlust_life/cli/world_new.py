"""`wander world new`: a folder with a family of scenarios, an app or a persona of your own, and its test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from wanderlust.cli.authoring import write_package
from wanderlust.cli.options import JsonFlag
from wanderlust.store.run_folder import shell_command

FAMILY = '''\
"""A family of scenarios: each is made from a universe and a seed."""

from wanderlust_worlds.verification.facts import Says
from wanderlust_life.families.builder import plant_mail
from wanderlust_life.families.family import family


@family("execution", asks="Text a friend what a neighbour's mail says.", hard="Other neighbours mail other words.")
def MODULE(stage):
    """Find the mail, send its word on, and report."""
    friend, writer = stage.one("friend"), stage.one("neighbour")
    password, *others = stage.rng.sample(["cobalt", "lantern", "meadow", "saffron", "thimble", "walnut"], 3)
    said = {writer: ("gate", password)}
    said |= {other: ("cellar", word) for other, word in zip(stage.some("neighbour", count=stage.decoys), others)}
    for who, (where, word) in said.items():
        text = f"The new word for the {where} is {word}."
        plant_mail(stage, who, subject=f"The {where}", text=text, at=stage.ago(1, 5))
    request = stage.asks("Text {who} the new word for the gate. It came by mail.", who=friend.name)
    sent = stage.agent(stage.texts, after=request).send_message(user_id=friend.phone, content=f"It is {password}.")
    stage.expects(sent, "content", Says(ways=(password,), rivals=tuple(others)))
    stage.reports(sent, f"I have told {friend.first}.")
'''
APP = '''\
"""An app beside those of a life, and a family of scenarios that uses it."""

from wanderlust import ToolError
from wanderlust_worlds import App, CowDict, FrozenRecord, action
from wanderlust_worlds.engine.argument_checks import judged_text
from wanderlust_worlds.verification.facts import Says
from wanderlust_life.families.family import family


class Ticket(FrozenRecord):
    """Something that is to be done."""

    id: str
    title: str
    owner: str
    note: str = ""


class Tickets(App):
    """Tickets of a firm."""

    tickets: CowDict[Ticket] = CowDict()

    @action("agent")
    def list_tickets(self) -> list[Ticket]:
        """List all tickets."""
        return list(self.tickets.values())

    @action("agent", writes=True, checks={"note": judged_text("what was done")})
    def close_ticket(self, ticket_id: str, note: str) -> str:
        """Close a ticket.

        Args:
            ticket_id: Its id.
            note: What was done.
        """
        if ticket_id not in self.tickets:
            raise ToolError(f"there is no ticket {ticket_id}")
        one = self.tickets[ticket_id]
        self.tickets[ticket_id] = Ticket(id=one.id, title=one.title, owner=one.owner, note=note)
        return f"{ticket_id} is closed"


def apps(universe, rng):
    """The apps of a scenario: colleagues of this universe own the tickets."""
    owners = [one.name for one in universe.people.values() if one.tie == "colleague"]
    titles = ["printer is out of ink", "door does not lock", "lamp flickers", "screen stays dark", "tap drips"]
    rows = [Ticket(id=f"T{n}", title=title, owner=rng.choice(owners)) for n, title in enumerate(titles)]
    return [Tickets("Tickets", tickets=CowDict({one.id: one for one in rows}))]


@family("execution", asks="Close a ticket and say why.", hard="Others have similar titles.", apps=apps)
def MODULE(stage):
    """Close the right one, with a note, and report."""
    tickets = stage.apps["Tickets"]
    one = stage.rng.choice(list(tickets.tickets.values()))
    request = stage.asks("Close the ticket about this: {title}. Note that it is repaired.", title=one.title)
    closed = stage.agent(tickets, after=request).close_ticket(ticket_id=one.id, note="It is repaired.")
    stage.expects(closed, "note", Says(ways=("repaired",)))
    stage.reports(closed, "The ticket is closed.")
'''
SCENARIO_TEST = """\
import asyncio

from wanderlust import rollout
from wanderlust_life.assistant_life import AssistantLife


def test_the_oracle_passes_and_doing_nothing_does_not():
    env = AssistantLife("TARGET")
    for task in env.tasks("eval"):
        best = asyncio.run(rollout(env, task, env.oracle(task)))
        idle = asyncio.run(rollout(env, task, env.players["nothing"]()))
        assert [one.trajectories[0].score.reward for one in (best, idle)] == [1.0, 0.0], task.id
"""
PERSONA = '''\
"""Names of your own for generated lives. Every second name of each kind is held out for evaluation."""

from itertools import product

from wanderlust_life.universes.personas import Persona

FIRST = "Bal Dor Fen Gar Hol Jor Kel Lun Mor Nor Pel Ros Sul Tor Vel".split()
LAST = "aki ano ari eda ela ento ero esi ida ilo ina ira odo olo ona ori osa uma una uro".split()
WOMEN = "Ad Al An Ar Av Br Cam Cl Del El Em Fl Gl Hel Il Jul Kam Lav Lyd Mar Nad Oct Sof Val".split()
MEN = "Aid Ang Att Cass Dar Fab Gal Hon Jan Kry Lin Mag Mil Ner Oct Paul Quint Ruf Sev Tib Urb Vin Wal Yv".split()
STREETS = "Abbey Barn Cedar Dover Easel Forge Glade Hedge Inlet Jetty Kiln Lodge Mint Nook Oxbow Plume".split()
FIRMS = "Alto Brava Certo Dalia Enzio Forta Grava Helio Indigo Jaspe Kobalt Lumina Marga Novia Opala Presto".split()

PERSONA = Persona(
    name="PROJECT",
    women=[f"{name}ia" for name in WOMEN],
    men=[f"{name}us" for name in MEN],
    surnames=["".join(pair) for pair in product(FIRST, LAST)],
    towns="Askerby Brandholm Coldwater Dunmoor Eastvale Fallowfield Greenhithe Highcross".split(),
    streets=[f"{name} Walk" for name in STREETS],
    places="Amber Brass Coral Dusty Early Faded Gentle Humble".split(),
    firms=[f"{name}co" for name in FIRMS],
    brands="Avento Brisko Cadoro Delvin Elmira Fjordo Gravis Hypno".split(),
)
'''
PERSONA_TEST = """\
import asyncio

from MODULE import PERSONA

from wanderlust import rollout
from wanderlust_life.assistant_life import AssistantLife


def test_the_oracle_passes_with_these_names():
    env = AssistantLife(["invite", "who-said"], persona=PERSONA)
    for task in env.tasks("eval"):
        best = asyncio.run(rollout(env, task, env.oracle(task)))
        assert best.trajectories[0].score.reward == 1.0, task.id
"""
KINDS: Mapping[str, tuple[str, str, str, str]] = {
    "family": ("families", "MODULE:MODULE", FAMILY, SCENARIO_TEST),
    "app": ("families", "MODULE:MODULE", APP, SCENARIO_TEST),
    "persona": ("personas", "MODULE:PERSONA", PERSONA, PERSONA_TEST),
}
"""By kind: the group of its entry point, what the point names, the code, and its test."""


def new_world_command(kind: Literal["family", "app", "persona"], name: str, /, *, json: JsonFlag = False) -> None:
    """Write a folder that works, with a family, an app or a persona of your own, and its test."""
    group, target, code, test = KINDS[kind]
    setting = "persona" if kind == "persona" else "families"

    def trial(project: str) -> str:
        return shell_command("eval", f"life,{setting}={project}", "--policy", "oracle", "-n", "6")

    write_package(name, group, target, code=code, test=test, trial=trial, json=json)
