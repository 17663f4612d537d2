"""Ready-made apps, one file each, found by looking into this folder, and the check that every app must pass."""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from inspect import signature
from pkgutil import iter_modules

from wanderlust.errors import UsageError
from wanderlust_worlds.apps.apartments import Apartment, Apartments
from wanderlust_worlds.apps.cabs import Cabs, Ride
from wanderlust_worlds.apps.calendar import LONG_TIME_FORMAT, Calendar, CalendarEvent
from wanderlust_worlds.apps.city import City, CrimeDataPoint
from wanderlust_worlds.apps.contacts import Contacts
from wanderlust_worlds.apps.files import FOLDER_ENTRY, Entry, Files
from wanderlust_worlds.apps.mail import Email, Mail
from wanderlust_worlds.apps.messages import ChatMessage, Conversation, Messages
from wanderlust_worlds.apps.reminders import Reminders
from wanderlust_worlds.apps.shopping import CartItem, Item, Product, ShopOrder, Shopping
from wanderlust_worlds.engine.app import App

__all__ = [
    "FOLDER_ENTRY",
    "LONG_TIME_FORMAT",
    "Apartment",
    "Apartments",
    "Cabs",
    "Calendar",
    "CalendarEvent",
    "CartItem",
    "ChatMessage",
    "City",
    "Contacts",
    "Conversation",
    "CrimeDataPoint",
    "Email",
    "Entry",
    "Files",
    "Item",
    "Mail",
    "Messages",
    "Product",
    "Reminders",
    "Ride",
    "ShopOrder",
    "Shopping",
    "app_classes",
    "check_app",
]


@cache
def app_classes() -> dict[str, type[App]]:
    """Every ready-made app, by its class name and by its aliases. Raises UsageError when two share a name."""
    classes: dict[str, type[App]] = {}
    for module in iter_modules(__path__, f"{__name__}."):
        for kind in vars(import_module(module.name)).values():
            if not (isinstance(kind, type) and issubclass(kind, App) and kind.__module__ == module.name):
                continue
            for name in (kind.__name__, *vars(kind).get("aliases", ())):
                if classes.setdefault(name, kind) is not kind:
                    raise UsageError(f"two apps go by the name {name}: {classes[name].__name__} and {kind.__name__}")
    return classes


def check_app(app: App) -> list[str]:
    """Check that an app's tools can be described to a model, and its state saved and read again; one line per fault.

    Raises UsageError for what is no app.
    """
    if not isinstance(app, App):
        name = app.__name__ if isinstance(app, type) else ""
        what = f"the class {name}: pass an app, as in check_app({name}())" if name else f"{app!r}, expected an app"
        raise UsageError(f"check_app got {what}")
    kind, state = type(app).__name__, app.state()
    faults: list[str] = []
    for action in app.actions.values():
        tool, name = action.tool, f"{kind}.{action.name}"  # raises UsageError for types that JSON cannot be read as
        if not tool.description:
            faults.append(f"{name} has no docstring")
        if "agent" not in action.scopes:
            continue
        for argument, schema in tool.schema["properties"].items():
            if not any("description" in part for part in (schema, *schema.get("anyOf", ()))):
                faults.append(f"{name}: its docstring does not say what {argument} is")
        required = [key for key, one in signature(action.function).parameters.items() if one.default is one.empty][1:]
        if set(tool.schema.get("required", ())) != set(required):
            faults.append(f"{name}: its schema requires {tool.schema.get('required')}, and not {required}")
    try:
        again = type(app).load(app.name, json.loads(json.dumps(state))).state()
    except (TypeError, ValueError, UsageError) as error:
        return [*faults, f"{kind}: its state is not JSON that it can read: {error}"]
    # As text: 4 and 4.0 are equal, and a log tells them apart.
    return (
        faults
        if json.dumps(again) == json.dumps(state)
        else [*faults, f"{kind}: its state changes when it is saved and read"]
    )
