"""Scenarios as ARE writes them, for the tests: a small life in twelve apps, and events in its schema."""

from __future__ import annotations

import copy
import json

START = 1_728_975_600.0
"""2024-10-15 07:00 UTC."""
PEOPLE = {"c0": ("Kim", "Holm"), "c1": ("Ana", "Berg"), "c2": ("Bo", "Cruz"), "c3": ("Cleo", "Dahl")}


def _contact(number, first, last):
    return {
        "first_name": first, "last_name": last, "contact_id": f"c{number}", "is_user": number == 0, "gender": "Other",
        "age": 30 + number, "nationality": "Nowhere", "city_living": "Alby", "country": "Nowhere",
        "status": "Employed", "job": "Baker", "description": "", "phone": f"+1 555 000{number}",
        "email": f"{first.lower()}@x.org", "address": "Main Street",
    }  # fmt: skip


def _mail(number):
    return {
        "sender": "ana@x.org", "recipients": ["kim@x.org"], "subject": f"Subject {number}", "content": "Hi",
        "email_id": f"m{number}", "parent_id": None, "cc": [], "attachments": {}, "timestamp": START - 60 * number,
        "is_read": True,
    }  # fmt: skip


def _talks(mode):
    ids = {
        f"{a} {b}": f"+1555000{n}" if mode == "PHONE_NUMBER" else f"u{n}" for n, (a, b) in enumerate(PEOPLE.values())
    }
    users = list(ids.values())
    talk = {
        "participant_ids": users[:2], "title": "Ana Berg", "conversation_id": "t1", "last_updated": START - 5,
        "messages": [
            {"sender_id": users[n % 2], "message_id": f"s{n}", "timestamp": START - 100 + n, "content": f"word{n}"}
            for n in range(12)
        ],
    }  # fmt: skip
    group = {
        "participant_ids": users[:3], "title": "Lunch", "conversation_id": "t2", "last_updated": START - 50,
        "messages": [],
    }  # fmt: skip
    return {
        "conversations": {"t1": talk, "t2": group}, "messages_view_limit": 10, "conversation_view_limit": 5,
        "mode": mode, "name_to_id": ids, "id_to_name": {user: name for name, user in ids.items()},
        "current_user_id": users[0], "current_user_name": "Kim Holm",
    }  # fmt: skip


CALENDAR = {
    "events": {
        f"e{n}": {
            "event_id": f"e{n}", "title": f"Meeting {n}", "start_datetime": START + 3600 * n,
            "end_datetime": START + 3600 * n + 1800, "tag": "work" if n % 2 else "fun", "description": "talk",
            "location": "Alby", "attendees": ["Kim Holm", "Ana Berg"],
        }
        for n in range(14)
    }
}  # fmt: skip
SHOP = {
    "products": {
        f"p{n}": {
            "name": f"Shirt {n:02}", "product_id": f"p{n}",
            "variants": {
                f"i{n}{size}": {
                    "price": 10.0 + n, "available": size != "L", "item_id": f"i{n}{size}", "options": {"size": size}
                }
                for size in "SL"
            },
        }
        for n in range(12)
    },
    "cart": {}, "discount_codes": {"i0S": {"TEN": 10.0}}, "orders": {},
}  # fmt: skip
FLATS = {
    "apartments": {
        f"f{n}": {
            "name": f"Flat {n}", "location": "Alby",
            "zip_code": f"1000{n % 2}", "price": 500.0 + 100 * n,
            "bedrooms": n, "bathrooms": 1, "property_type": "Apartment", "square_footage": 300 + n,
            "furnished_status": "Furnished",
            "floor_level": "Ground floor", "pet_policy": "Pets allowed", "lease_term": "1 year",
            "apartment_id": f"f{n}", "amenities": ["Gym"] if n else [], "saved": False,
        }
        for n in range(4)
    },
    "saved_apartments": ["f1"],
}  # fmt: skip
CABS = {
    "ride_history": [
        {
            "ride_id": "r1", "status": "COMPLETED", "service_type": "Default", "start_location": "Alby",
            "end_location": "Bexby", "price": 12.0, "duration": 600.0, "time_stamp": START - 86400, "distance_km": 12.0,
            "delay": 0.0, "delay_history": [],
        }
    ],
    "quotation_history": [
        {"ride_id": "q1", "start_location": "Alby", "end_location": "Bexby", "distance_km": 12.0, "price": 12.0}
    ],
    "d_service_config": {"Default": {"nb_seats": 4, "price_per_km": 1.0, "base_delay_min": 5, "max_distance_km": 25}},
}  # fmt: skip
TREE = {
    "name": "", "type": "directory",
    "children": [{"name": "Documents", "type": "directory", "children": [{"name": "note.txt", "type": "file"}]}],
}  # fmt: skip
APPS = [
    {"name": "AgentUserInterface", "class_name": "AgentUserInterface", "app_state": {"messages": []}},
    {"name": "SystemApp", "class_name": "SystemApp", "app_state": {}},
    {
        "name": "Contacts", "class_name": "ContactsApp",
        "app_state": {
            "contacts": {key: _contact(n, *who) for n, (key, who) in enumerate(PEOPLE.items())}, "view_limit": 3
        },
    },
    {
        "name": "Emails", "class_name": "EmailClientV2",
        "app_state": {
            "user_email": "kim@x.org", "view_limit": 5,
            "folders": {
                key: {"folder_name": key, "emails": [_mail(n) for n in range(3)] if key == "INBOX" else []}
                for key in ("INBOX", "SENT", "DRAFT", "TRASH")
            },
        },
    },
    {"name": "Messages", "class_name": "MessagingAppV2", "app_state": _talks("PHONE_NUMBER")},
    {"name": "Chats", "class_name": "MessagingAppV2", "app_state": _talks("NAME")},
    {"name": "Calendar", "class_name": "CalendarApp", "app_state": CALENDAR},
    {"name": "Shopping", "class_name": "ShoppingApp", "app_state": SHOP},
    {"name": "RentAFlat", "class_name": "RentAFlat", "app_state": FLATS},
    {"name": "Cabs", "class_name": "CabApp", "app_state": CABS},
    {
        "name": "City", "class_name": "CityApp",
        "app_state": {"api_call_limit": 2, "crime_data": {"10000": {"violent_crime": 1.0, "property_crime": 2.0}}},
    },
    {"name": "Files", "class_name": "VirtualFileSystem", "app_state": {"files": TREE, "tmpdir": "/tmp/x"}},
]  # fmt: skip


def state_of(name):
    """ARE's state of one of the apps."""
    return copy.deepcopy(next(app["app_state"] for app in APPS if app["name"] == name))


def typed(value):
    """A value and a type as ARE's annotation tool writes them."""
    if value is None:
        return None, "str | None"
    if isinstance(value, list):
        return json.dumps(value), "list[str] | None"
    if isinstance(value, dict):
        return json.dumps(value), "dict[str, Any]"
    return str(value), type(value).__name__


def event(name, kind, does, /, after=(), delay=1.0, at=None, compare=None, **args):
    """One event; `does` is app and function with a dot between."""
    app, _, function = does.partition(".")
    listed = [{"name": key, "value": typed(v)[0], "value_type": typed(v)[1]} for key, v in args.items()]
    made = {
        "class_name": "OracleEvent" if kind == "AGENT" else "Event", "event_type": kind, "event_id": name,
        "event_time": at if at is not None else 0.0, "event_relative_time": None if at is not None else delay,
        "dependencies": list(after),
        "action": {
            "action_id": "", "app": app, "function": function,
            "operation_type": None if kind == "AGENT" else "WRITE", "args": listed,
        },
    }  # fmt: skip
    return made | ({"event_time_comparator": compare} if kind == "AGENT" else {})


def file(*events, apps=None, **definition):
    """A whole file, as data."""
    told = {"scenario_id": "test", "seed": 0, "duration": None, "start_time": START, "hints": [], "tags": ["Execution"]}
    return {
        "metadata": {"definition": told | definition, "simulation": None, "annotation": None, "execution": None},
        "world_logs": [], "apps": copy.deepcopy(APPS if apps is None else apps), "events": list(events),
        "completed_events": [], "version": "are_simulation_v1", "context": None, "augmentation": None,
    }  # fmt: skip


def asks(text="Please.", name="ask", **when):
    """The user's message to the agent."""
    return event(name, "USER", "AgentUserInterface.send_message_to_agent", content=text, **{"delay": 0.0} | when)


def tells(text, name, after, **when):
    """The agent's message to the user."""
    return event(name, "AGENT", "AgentUserInterface.send_message_to_user", after=after, content=text, **when)
