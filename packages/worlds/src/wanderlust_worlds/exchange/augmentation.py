"""What a file's `augmentation` makes of its scenario: other names and descriptions of tools, calls that fail, and
distractors from its own material. ARE plays the phase `noise` of Gaia2 so.

Not as there: distractors come at the rate that is asked for as long as the material lasts, of whichever app they are,
and what ARE would refuse or cannot find (a conversation that the scenario does not have) is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import msgspec

from wanderlust.errors import UsageError
from wanderlust.tools.function import TOOL_NAME_PATTERN, WrongArguments
from wanderlust_worlds.apps import Apartments, Mail, Messages, Shopping
from wanderlust_worlds.apps.apartments import NewApartment
from wanderlust_worlds.apps.messages_v1 import MessagesV1
from wanderlust_worlds.apps.user_interface import System, UserInterface
from wanderlust_worlds.engine.app import App
from wanderlust_worlds.engine.events import DISTRACTOR_MARK, PlannedCall, ScenarioError
from wanderlust_worlds.engine.scenario import Scenario
from wanderlust_worlds.wrap.distractions import Distraction
from wanderlust_worlds.wrap.world_environment import TOOL_NAME_SEPARATOR

NOISE_FAILURES, NOISE_PER_MINUTE = 0.1, 10.0
"""The share of calls that fail and the distractors a minute in Gaia2's own run."""
MESSAGES_OF_A_CONVERSATION = 4
"""Messages of one conversation that are used, at most, as in ARE."""
Note = Callable[[str, str], None]
"""Takes what is odd, and where."""


def agent_actions(apps: Iterable[App]) -> dict[str, tuple[App, str]]:
    """The agent's actions by the name of their tool in ARE: the app, and the action's name."""
    return {
        f"{app.name}{TOOL_NAME_SEPARATOR}{action.name}": (app, action.name)
        for app in apps
        for action in app.actions.values()
        if "agent" in action.scopes
    }


def _mapping(augmentation: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    mapping = augmentation.get(key) or {}
    if not isinstance(mapping, Mapping):
        raise ScenarioError(f"augmentation.{key} is {type(mapping).__name__}, expected an object")
    return mapping


def tool_names_of(augmentation: Mapping[str, Any], tools: Mapping[str, tuple[App, str]], note: Note) -> dict[str, str]:
    """The new names of tools by `App.action`, from a file's `augmentation`.

    Tools of the user's and the system's apps keep their names; unknown tools are noted. Raises ScenarioError for a name
    that no endpoint takes, and for one that two tools would have.
    """
    where = "augmentation.tool_names_mapping"
    names: dict[str, str] = {}
    for old, new in _mapping(augmentation, "tool_names_mapping").items():
        if not isinstance(new, str) or not TOOL_NAME_PATTERN.fullmatch(new):
            raise ScenarioError(
                f"{where}: {old!r} is to be called {new!r}, expected a name of letters, digits, _ and -"
            )
        if old not in tools:
            note("there is no such tool to be called otherwise", f"{where}, {old!r}")
            continue
        app, action = tools[old]
        if not isinstance(app, System | UserInterface):
            names[f"{app.name}.{action}"] = new
    first: dict[str, str] = {}
    for old, (app, action) in tools.items():
        new = names.get(f"{app.name}.{action}", old)
        if first.setdefault(new, old) != old:
            raise ScenarioError(f"{where}: {first[new]!r} and {old!r} would both be called {new!r}")
    return names


def tool_descriptions_of(
    augmentation: Mapping[str, Any], tools: Mapping[str, tuple[App, str]], note: Note
) -> dict[str, str]:
    """The new descriptions of tools by `App.action`; unknown tools are noted. Raises ScenarioError for no text."""
    where = "augmentation.tool_descriptions_mapping"
    texts: dict[str, str] = {}
    for old, text in _mapping(augmentation, "tool_descriptions_mapping").items():
        if not isinstance(text, str) or not text.strip():
            raise ScenarioError(f"{where}: {old!r} is to be described by {text!r}, expected a text")
        if old not in tools:
            note("there is no such tool to be described otherwise", f"{where}, {old!r}")
            continue
        app, action = tools[old]
        if not isinstance(app, System | UserInterface):
            texts[f"{app.name}.{action}"] = text
    return texts


def distractions_of(augmentation: Mapping[str, Any], apps: Iterable[App]) -> dict[str, list[Distraction]]:
    """What a file's `augmentation.apps` has to distract the agent with, by app, in the file's order.

    Raises ScenarioError for material that its app cannot take.
    """
    own = {app.name: app for app in apps}
    found: dict[str, list[Distraction]] = {}
    material = augmentation.get("apps") or []
    if not isinstance(material, list):
        raise ScenarioError(f"augmentation.apps is {type(material).__name__}, expected a list")
    for number, raw in enumerate(material):
        where = f"augmentation.apps, number {number}"
        if not isinstance(raw, Mapping) or not isinstance(raw.get("app_state"), Mapping):
            raise ScenarioError(f"{where}: expected an object with name and app_state")
        app = own.get(str(raw.get("name")))
        made = next((make for kind, make in _MATERIAL.items() if isinstance(app, kind)), None)
        if app is None or made is None:
            continue
        try:
            again = type(app).from_are(app.name, raw["app_state"])
            found[app.name] = [_checked(app, *one) for one in made(app, again)]
        except (KeyError, AttributeError, TypeError, ValueError, UsageError) as error:
            raise ScenarioError(f"{where}: its material does not fit {app.name}: {error}") from error
    return {name: one for name, one in found.items() if one}


def _checked(app: App, action: str, args: dict[str, Any]) -> Distraction:
    """A distraction whose arguments its action takes."""
    try:
        app.actions[action].tool.parse_arguments(args)
    except WrongArguments as error:
        raise UsageError(str(error)) from error
    return Distraction(app=app.name, action=action, args=args)


Material = Iterator[tuple[str, dict[str, Any]]]


def _mails(app: Mail, more: Mail) -> Material:
    for mail in more.inbox.values():
        args = {"sender": mail.sender, "recipients": list(mail.recipients)}
        yield "create_and_add_email", args | {"subject": mail.subject, "content": mail.content, "folder_name": "INBOX"}


def _messages(app: Messages, more: Messages) -> Material:
    for key, talk in more.conversations.items():
        here = app.conversations.get(key)
        for one in talk.messages[:MESSAGES_OF_A_CONVERSATION]:
            if here is not None and one.sender_id in here.participant_ids:
                args = {"conversation_id": key, "sender_id": one.sender_id, "content": one.content}
                yield "create_and_add_message", args


def _named_messages(app: MessagesV1, more: MessagesV1) -> Material:
    for key, talk in more.conversations.items():
        here = app.conversations.get(key)
        for one in talk.messages[:MESSAGES_OF_A_CONVERSATION]:
            if here is not None and one.sender in here.participants:
                yield "create_and_add_message", {"conversation_id": key, "sender": one.sender, "content": one.content}


def _products(app: Shopping, more: Shopping) -> Material:
    for product in more.products.values():
        yield "add_product", {"name": product.name}


def _apartments(app: Apartments, more: Apartments) -> Material:
    for one in more.apartments.values():
        fields = msgspec.structs.asdict(one)
        fields |= {"number_of_bedrooms": one.bedrooms, "number_of_bathrooms": one.bathrooms}
        wanted = {key: value for key, value in fields.items() if key in NewApartment.__struct_fields__}
        yield "add_new_apartment", {**wanted, "amenities": list(one.amenities or ())}


_MATERIAL: Mapping[type[App], Callable[[Any, Any], Material]] = {
    Mail: _mails,
    Messages: _messages,
    MessagesV1: _named_messages,
    Shopping: _products,
    Apartments: _apartments,
}


def with_augmentation(
    scenario: Scenario,
    augmentation: Mapping[str, Any],
    *,
    failures: float = NOISE_FAILURES,
    per_minute: float = NOISE_PER_MINUTE,
    seed: int = 0,
) -> Scenario:
    """The scenario with the noise that its file has: names and descriptions of tools, failing calls, distractors.

    Distractors are a Poisson process of `per_minute`, each app of the material as likely as another, each piece of an
    app once. The task, the oracle and the verification stay the same. Raises ScenarioError for material that does not
    fit, and UsageError for a share that is none.
    """
    if not 0 <= failures < 1 or per_minute < 0:
        raise UsageError(
            f"noise of failures {failures} and {per_minute} distractors a minute: expected a share, a rate"
        )
    tools = agent_actions(scenario.apps)
    rng = Random(f"{scenario.id}/{seed}/augmentation")
    left = {name: rng.sample(found, len(found)) for name, found in distractions_of(augmentation, scenario.apps).items()}
    time, more = 0.0, list[PlannedCall]()
    while per_minute and left and (time := time + rng.expovariate(per_minute / 60)) < scenario.duration:
        app = rng.choice([*left])
        one = left[app].pop()
        if not left[app]:
            del left[app]
        name = f"{DISTRACTOR_MARK}_{len(more) + 1}"
        more.append(PlannedCall(id=name, app=one.app, action=one.action, args=one.args, delay=time, by="env"))
    return replace(
        scenario,
        failures=failures,
        names={**scenario.names, **tool_names_of(augmentation, tools, _unheard)},
        descriptions={**scenario.descriptions, **tool_descriptions_of(augmentation, tools, _unheard)},
        events=(*scenario.events, *more),
    )


def _unheard(what: str, where: str) -> None:
    """Import has said it already."""
