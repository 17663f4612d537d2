"""Scenarios of ARE's schema that nobody has seen: our families' in new universes, and random graphs of events.

The graphs are written in the schema directly, by none of our exporter's code but for the apps' state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

from wanderlust_life.families.family import LEVELS, all_families
from wanderlust_life.universes.generate import Universe, make_universe
from wanderlust_worlds.engine.scenario import Scenario
from wanderlust_worlds.exchange.write import export_scenario

START = 1_728_975_600.0
KINDS = {"AGENT": "OracleEvent", "ENV": "Event", "USER": "Event"}


def family_files(seed: int) -> Iterator[tuple[str, bytes]]:
    """The scenario of every family at every level but the largest, as our exporter writes it."""
    for name, one in all_families().items():
        for level in (1, 2):
            yield f"{name}/{seed}/{level}", export_scenario(one.scenario(seed, LEVELS[level]))


def graph_file(seed: int) -> tuple[str, bytes]:
    """A random graph of events of the user, the environment and the agent, some with others' results."""
    rng = Random(f"unseen/{seed}")
    place = make_universe(rng.randrange(10**9), "small")
    raw = json.loads(export_scenario(Scenario(id=f"graph-{seed}", apps=tuple(place.apps.values()), duration=1e6)))
    events: list[dict[str, Any]] = [
        _event(rng, "asked", "USER", does=("Interface", "send_message_to_agent"), content="Do.")
    ]
    for number in range(rng.randint(1, 40)):
        events.append(_any(rng, place, f"{rng.getrandbits(64):016x}-{number}", before=events))
    for one in events:  # names of apps are those of the universe
        if one["action"]["app"] == "Interface":
            one["action"]["app"] = _interface(place)
    rng.shuffle(events)
    raw["metadata"].pop("wanderlust")
    raw |= {"events": events}
    raw["metadata"]["definition"] |= {"tags": ["Execution"], "duration": 1e6}
    return f"graph/{seed}", json.dumps(raw).encode()


def _interface(place: Universe) -> str:
    return next(name for name, app in place.apps.items() if type(app).__name__ == "UserInterface")


def _any(rng: Random, place: Universe, name: str, *, before: list[dict[str, Any]]) -> dict[str, Any]:
    """An event after some of those before."""
    after = [one["event_id"] for one in rng.sample(before, min(len(before), rng.randint(1, 3)))]
    mails = [one for one in before if one["event_id"] in after and one["action"]["function"] == "send_email"]
    contact = rng.choice([*place.apps["Contacts"].contacts.values()])  # type: ignore[attr-defined]
    text, kind = f"{rng.getrandbits(40):x} ä\n{{no placeholder}}", rng.choice(("AGENT", "AGENT", "ENV"))
    mail = {"recipients": [contact.email], "subject": text[:4], "content": text}
    if mails and rng.random() < 0.5:
        (to,) = json.loads(mails[0]["action"]["args"][0]["value"])
        args = {"sender": to, "email_id": "{{" + mails[0]["event_id"] + "}}", "content": text}
        return _event(rng, name, "ENV", does=("Emails", "reply_to_email_from_user"), after=after, **args)
    if kind == "ENV":
        sent = {"sender": contact.email, "subject": text[:5], "content": text}
        return _event(rng, name, "ENV", does=("Emails", "send_email_to_user_only"), after=after, **sent)
    does: list[tuple[tuple[str, str], dict[str, Any]]] = [
        (("Emails", "send_email"), mail),
        (("Contacts", "edit_contact"), {"contact_id": contact.contact_id, "updates": {"job": text[:6]}}),
        (("Calendar", "add_calendar_event"), {"title": text, "attendees": [contact.first_name], "tag": None}),
        (("Interface", "send_message_to_user"), {"content": text}),
    ]
    does_what, args = rng.choice(does)
    return _event(rng, name, "AGENT", does=does_what, after=after, **args)


def _event(
    rng: Random, name: str, kind: str, *, does: tuple[str, str], after: list[str] | None = None, **args: Any
) -> dict[str, Any]:
    at = START + 10 * rng.randrange(1_000) if after and rng.random() < 0.1 else None
    told = {
        "class_name": KINDS[kind],
        "event_type": kind,
        "event_id": name,
        "dependencies": after or [],
        "event_time": at if at is not None else 0.0,
        "event_relative_time": None if at is not None else float(rng.choice((0, 1, 1, 1, 2, 65, 180))),
        "action": {
            "action_id": "",
            "app": does[0],
            "function": does[1],
            "operation_type": None if kind == "AGENT" else "WRITE",
            "args": [_argument(key, value) for key, value in args.items()],
        },
    }
    return told | ({"event_time_comparator": rng.choice((None, "EQUAL"))} if kind == "AGENT" else {})


def _argument(name: str, value: Any) -> dict[str, Any]:
    if value is None or isinstance(value, str):
        return {"name": name, "value": value, "value_type": "str" if value is not None else "str | None"}
    kind = "list[str] | None" if isinstance(value, list) else "dict[str, Any]"
    return {"name": name, "value": json.dumps(value), "value_type": kind}
