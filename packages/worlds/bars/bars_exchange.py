"""What a scenario of ARE's form and Gaia2's size costs: read once, then played by its oracle again and again.

Processor time of this process. The file is written by our own export, from a life of 1.7 MB that is made of random
words: twelve apps, two thirds of it mails, messages, appointments and contacts. A cycle is a world made, the oracle's
events played in it, and every line of its log looked at for failures; verification is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random, SystemRandom
from typing import Any

from benchmarks.bar import Bar
from benchmarks.unseen import family_files, graph_file

from bars_worlds import spent
from wanderlust.errors import UsageError
from wanderlust_worlds.apps import app_classes
from wanderlust_worlds.engine.app import App
from wanderlust_worlds.engine.scenario import Scenario, capture, play_oracle
from wanderlust_worlds.exchange.read import import_scenario
from wanderlust_worlds.exchange.write import export_scenario
from wanderlust_worlds.verification.oracle import Oracle
from wanderlust_worlds.verification.verify import verify

START = 1_728_975_600.0
CYCLES, WRITES = 200, 20
GRAPHS = 100
ME = "me@example.org"


def made(rng: Random) -> list[App]:
    """The apps, with what is in them."""
    words = [f"{rng.getrandbits(24):x}" for _ in range(2_000)]

    def text(count: int) -> str:
        return " ".join(rng.choices(words, k=count))

    def mail(number: int) -> dict[str, Any]:
        return {
            "email_id": f"m{number}",
            "sender": "a@example.org",
            "recipients": [ME],
            "subject": text(5),
            "content": text(175),
            "timestamp": START - number,
        }

    def talk(number: int) -> dict[str, Any]:
        said = [{"sender_id": "u1", "message_id": f"{n}", "timestamp": 1.0 * n, "content": text(40)} for n in range(12)]
        people = ["me", f"u{number % 50}"]
        return {"conversation_id": f"t{number}", "participant_ids": people, "title": text(3), "messages": said}

    contacts = {
        f"c{n}": {"first_name": text(1), "last_name": f"{n}", "contact_id": f"c{n}", "description": text(40)}
        for n in range(110)
    }
    appointments = {
        f"e{n}": {"event_id": f"e{n}", "start_datetime": START + n, "end_datetime": START + n, "description": text(40)}
        for n in range(410)
    }
    products = {
        f"p{n}": {"product_id": f"p{n}", "name": text(4), "variants": {f"i{n}": {"item_id": f"i{n}", "price": 1.0}}}
        for n in range(500)
    }
    talks = {"names": {f"u{n}": text(2) for n in range(50)}, "conversations": {f"t{n}": talk(n) for n in range(100)}}
    states: dict[str, tuple[str, dict[str, Any]]] = {
        "AgentUserInterface": ("AgentUserInterface", {}),
        "SystemApp": ("SystemApp", {}),
        "Emails": ("EmailClientV2", {"user_email": ME, "inbox": {f"m{n}": mail(n) for n in range(350)}}),
        "Messages": ("MessagingAppV2", talks | {"mode": "PHONE_NUMBER"}),
        "Chats": ("MessagingAppV2", talks),
        "Contacts": ("ContactsApp", {"contacts": contacts}),
        "Calendar": ("CalendarApp", {"events": appointments}),
        "Shopping": ("ShoppingApp", {"products": products}),
        "RentAFlat": ("RentAFlat", {}),
        "Cabs": ("CabApp", {}),
        "City": ("CityApp", {}),
        "Files": ("SandboxLocalFileSystem", {}),
    }
    return [app_classes()[kind].load(name, state) for name, (kind, state) in states.items()]


def scenario() -> Scenario:
    """A request, twenty writes that do not wait for each other, and an answer."""
    apps = made(Random("life"))
    ui: Any = apps[0]
    mail: Any = apps[2]
    with capture(*apps) as story:
        asked = story.user(ui).send_message_to_agent("Write to everybody.")
        sent = [
            story.agent(mail, after=asked, delay=1).send_email(recipients=["a@example.org"], subject=f"To {n}")
            for n in range(WRITES)
        ]
        story.agent(ui, after=sent).send_message_to_user("It is done.")
    return Scenario(id="letters", apps=apps, events=story.events)


def bars() -> Iterator[Bar]:
    """Reading, then cycles."""
    file = export_scenario(scenario())
    note = f"of {len(file) / 1e6:.2f} MB, unknown fields looked for"
    took = spent(lambda: import_scenario(file)) * 1e3
    yield Bar(name="worlds: import of a scenario, CPU", figure=took, bar=200, aim=60, unit="ms", note=note)
    yield unseen_bar()
    read = import_scenario(file).scenario

    def play() -> None:
        for seed in range(CYCLES):
            play_oracle(read, seed)

    yield Bar(
        name="worlds: oracle cycles per CPU second",
        figure=CYCLES / spent(play),
        bar=200,
        aim=1_000,
        unit="/s",
        better="higher",
        note=f"{len(read.events)} events in {len(file) / 1e6:.2f} MB, without verification",
    )


def unseen(seed: int, graphs: int) -> tuple[int, list[str]]:
    """How many files of that seed are imported, played by their oracle and accepted, and what is wrong with others."""
    right, wrong = 0, list[str]()
    files = [*family_files(seed), *(graph_file(seed + n) for n in range(graphs))]
    for name, file in files:
        try:
            read = import_scenario(file).scenario
            verdict = verify(play_oracle(read).log, Oracle.of(read))
        except UsageError as error:
            wrong.append(f"{name}: {error}")
            continue
        if verdict.accepted:
            right += 1
        else:
            wrong.append(f"{name}: {verdict}")
    return right, wrong


def unseen_bar() -> Bar:
    """Scenarios of a seed that is drawn now, and printed."""
    seed = SystemRandom().randrange(10**9)
    right, wrong = unseen(seed, GRAPHS)
    note = f"of {right + len(wrong)} files, seed {seed}" + (f"; the first that does not: {wrong[0]}" if wrong else "")
    share = 100 * right / (right + len(wrong))
    name = "worlds: new scenarios of ARE's schema that pass"
    return Bar(name=name, figure=share, bar=100, aim=100, unit="%", better="higher", note=note)
