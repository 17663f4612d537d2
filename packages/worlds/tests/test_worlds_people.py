"""Apps about people: messages and chats, the calendar, contacts; and branches of worlds with them."""

from __future__ import annotations

import base64
import json

import pytest

from are_scenarios import START, state_of
from wanderlust.tools.function import ToolError
from wanderlust_worlds.apps import check_app
from wanderlust_worlds.apps._safe_regex import MAX_REGEX_STEPS, close_names, safe_regex_search
from wanderlust_worlds.apps.calendar import Calendar, CalendarV2
from wanderlust_worlds.apps.contacts import Contacts
from wanderlust_worlds.apps.files import Files
from wanderlust_worlds.apps.messages import Messages
from wanderlust_worlds.engine.app import format_time
from wanderlust_worlds.engine.argument_checks import (
    ATTENDEES_CHECK,
    FREE_CHECK,
    PHONE_CHECK,
    STRIPPED_CHECK,
    TIME_CHECK,
)
from wanderlust_worlds.engine.replay import snapshot
from wanderlust_worlds.engine.world import World


@pytest.fixture
def world():
    return World(
        [
            Messages.from_are("Messages", state_of("Messages")),
            Messages.from_are("Chats", state_of("Chats")),
            CalendarV2.from_are("Calendar", state_of("Calendar")),
            Contacts.from_are("Contacts", state_of("Contacts")),
            Files(),
        ],
        start=START,
    )


@pytest.fixture
def use(world):
    def call(name, /, by="agent", **args):
        app, _, action = name.partition(".")
        return world.call(app, action, args, by=by)

    return call


def refused(use, words, name, /, by="agent", **args):
    with pytest.raises(ToolError, match=words):
        use(name, by=by, **args)


def talk(world, name, app="Chats"):
    return world.apps[app].conversations[name]


def test_people_are_looked_up(use):
    assert use("Chats.get_user_id", user_name="Ana Berg") == "u1"
    assert use("Chats.get_user_id", user_name="ana berg") is None
    assert use("Chats.get_user_name_from_id", user_id="u2") == "Bo Cruz"
    assert use("Messages.get_user_name_from_id", user_id="u2") is None
    assert use("Chats.lookup_user_id", user_name="Ana Bergh") == {"Ana Berg": "u1"}
    assert use("Chats.lookup_user_id", user_name="cleo") == {"Cleo Dahl": "u3"}
    assert use("Chats.lookup_user_id", user_name="Zacharias") == {}


def test_a_message_goes_to_the_conversation_with_that_person(world, use):
    assert use("Chats.send_message", user_id="u1", content="Hi") == "t1"
    assert talk(world, "t1").messages[-1].content == "Hi"
    assert talk(world, "t1").last_updated == START
    new = use("Chats.send_message", user_id="u3")
    assert (talk(world, new).participant_ids, talk(world, new).title) == (("u0", "u3"), "Cleo Dahl")
    assert use("Chats.send_message", user_id="u3") == new
    use("Chats.change_conversation_title", conversation_id=new, title="Plans")
    assert use("Chats.send_message", user_id="u3") not in ("t1", new)
    assert use("Messages.send_message", user_id="+49 30 123") in world.apps["Messages"].conversations
    refused(use, "no user 'u9'", "Chats.send_message", user_id="u9")
    refused(use, "not a phone number: 'Ana'", "Messages.send_message", user_id="Ana")


def test_groups(world, use):
    name = use("Chats.create_group_conversation", user_ids=["u1", "u2"])
    assert talk(world, name).title == "Ana Berg, Bo Cruz"
    use("Chats.add_participant_to_conversation", conversation_id=name, user_id="u3")
    assert talk(world, name).title == "Ana Berg, Bo Cruz, Cleo Dahl"
    use("Chats.remove_participant_from_conversation", conversation_id=name, user_id="u1")
    assert (talk(world, name).title, talk(world, name).participant_ids) == ("Bo Cruz, Cleo Dahl", ("u0", "u2", "u3"))
    assert use("Chats.send_message_to_group_conversation", conversation_id=name, content="All?") == name
    assert use("Chats.get_existing_conversation_ids", user_ids=["u3", "u2"]) == [name]
    refused(use, "at least two others", "Chats.create_group_conversation", user_ids=["u1", "u0"])
    refused(use, "not one of a group", "Chats.send_message_to_group_conversation", conversation_id="t1")
    refused(use, "already", "Chats.add_participant_to_conversation", conversation_id=name, user_id="u2")
    refused(use, "is not in", "Chats.remove_participant_from_conversation", conversation_id=name, user_id="u1")
    refused(use, "no conversation 't9'", "Chats.change_conversation_title", conversation_id="t9", title="x")


def test_conversations_are_read_in_parts(use):
    first, second = use("Chats.list_recent_conversations")
    assert (first.conversation_id, second.conversation_id) == ("t1", "t2")
    assert [said.content for said in first.messages][:2] == ["word11", "word10"]
    assert len(first.messages) == 10
    (only,) = use("Chats.list_conversations_by_participant", user_id="u2", limit_recent_messages_per_conversation=1)
    assert only.conversation_id == "t2"
    page = use("Chats.read_conversation", conversation_id="t1", offset=10, limit=5)
    assert [said.content for said in page["messages"]] == ["word1", "word0"]
    assert page["metadata"]["message_range"] == (10, 12)
    since = format_time(START - 90)
    assert use("Chats.read_conversation", conversation_id="t1", min_date=since)["metadata"]["conversation_length"] == 2
    refused(use, "limit must be at most 5", "Chats.list_recent_conversations", limit=6)
    refused(use, "offset must be at most 2", "Chats.list_recent_conversations", offset=3)
    refused(use, "min_date must be written as", "Chats.read_conversation", conversation_id="t1", min_date="today")


def test_conversations_are_searched(use):
    assert use("Chats.search", query="WORD11") == ["t1"]
    assert use("Chats.search", query="lunch") == ["t2"]
    assert use("Chats.search", query="word0", min_date=format_time(START)) == []
    assert use("Chats.regex_search", query=r"^WORD\d$|lunch") == ["t1", "t2"]
    for pattern in ("(a+)+b", "(a|b)*c", r"(a)\1", "(", "a" * 300, "(?P<x>a)(?P=x)"):
        refused(use, "regular expression|group", "Chats.regex_search", query=pattern)


@pytest.mark.parametrize(
    "pattern", ["a*" * 20 + "b", "(a|a)" * 30 + "b", "a?" * 40 + "a" * 40, ".*.*.*.*x", "a{1,50}" * 9]
)
def test_no_regular_expression_takes_long(pattern):
    search = safe_regex_search(pattern)
    with pytest.raises(ToolError, match="takes too long"):
        all(search("a" * 300) or True for _ in range(100_000))
    assert MAX_REGEX_STEPS < 10**9


def test_close_names_have_all_words_or_are_much_alike():
    names = ["Ana Berg", "Anna Berg", "Bo Berg"]
    assert close_names("anna berg", names) == ["Anna Berg", "Ana Berg"]
    assert close_names("berg", names) == names
    assert close_names("", names) == []


def test_others_write_and_the_agent_is_told(world, use):
    said = {"conversation_id": "t1", "sender_id": "u1", "content": "Yes"}
    use("Chats.create_and_add_message", by="env", **said)
    assert [notice.text for notice in world.deliver()] == ["New message received in conversation ID: t1"]
    refused(use, "u3 is not in", "Chats.create_and_add_message", by="env", **{**said, "sender_id": "u3"})


def test_attachments_are_sent_named_and_saved(world, use):
    world.app("Files").write_bytes("Documents/a.txt", b"abc")
    use("Chats.send_message", user_id="u1", attachment_path="/Documents/a.txt")
    said = use("Chats.read_conversation", conversation_id="t1", limit=1)["messages"][0]
    assert (said.attachment, said.attachment_name) == (None, "a.txt")
    assert talk(world, "t1").messages[-1].attachment == base64.b64encode(b"abc").decode()
    where = {"conversation_id": "t1", "message_id": said.message_id}
    assert use("Chats.download_attachment", **where) == "Downloads/a.txt"
    assert world.app("Files").read_bytes("Downloads/a.txt") == b"abc"
    refused(use, "no attachment", "Chats.download_attachment", conversation_id="t1", message_id="s0")
    refused(use, "there is no 'nowhere'", "Chats.send_message", user_id="u1", attachment_path="nowhere")
    assert Messages.from_are("Chats", world.apps["Chats"].to_are()).state() == world.apps["Chats"].state()


def test_events_are_added_changed_and_deleted(world, use):
    when = {"start_datetime": "2024-10-16 13:00:00", "end_datetime": "2024-10-16 14:00:00"}
    name = use("Calendar.add_calendar_event", title="Lunch", attendees=["Ana Berg"], tag="food", **when)
    event = use("Calendar.get_calendar_event", event_id=name)
    assert (event.start_strftime, event.attendees) == ("Wednesday, 2024-10-16 13:00:00", ("Ana Berg",))
    use("Calendar.edit_calendar_event", event_id=name, end_datetime="2024-10-16 15:00:00", location="Alby")
    changed = use("Calendar.get_calendar_event", event_id=name)
    assert (changed.title, changed.end_strftime, changed.location) == (
        "Lunch",
        "Wednesday, 2024-10-16 15:00:00",
        "Alby",
    )
    plain = world.apps["Calendar"].events[use("Calendar.add_calendar_event")]
    assert (plain.title, plain.end_datetime - plain.start_datetime) == ("Event", 3600)
    use("Calendar.delete_calendar_event", event_id=name)
    refused(use, "there is no event", "Calendar.delete_calendar_event", event_id=name)
    backwards = {"start_datetime": when["end_datetime"], "end_datetime": when["start_datetime"]}
    refused(use, "the start is after the end", "Calendar.add_calendar_event", **backwards)
    refused(use, "start_datetime must be written", "Calendar.add_calendar_event", start_datetime="at one")


def test_events_are_found(world, use):
    page = use(
        "Calendar.get_calendar_events_from_to", start_datetime=format_time(START), end_datetime=format_time(START + 9e5)
    )
    assert ([event.event_id for event in page["events"]], page["total"]) == ([f"e{n}" for n in range(10)], 14)
    touching = {"start_datetime": format_time(START + 1800), "end_datetime": format_time(START + 3600)}
    assert use("Calendar.get_calendar_events_from_to", **touching)["total"] == 0
    assert len(use("Calendar.read_today_calendar_events")) == 14
    world.advance(17.5 * 3600)
    assert use("Calendar.read_today_calendar_events") == []
    assert use("Calendar.get_all_tags") == ["fun", "work"]
    assert len(use("Calendar.get_calendar_events_by_tag", tag="fun")) == 7
    assert len(use("Calendar.search_events", query="ANA")) == 14
    assert len(use("Calendar.search_events", query="meeting 1")) == 5
    refused(use, "must not be empty", "Calendar.get_calendar_events_by_tag", tag="")


def test_attendees_add_and_delete_events(world, use):
    name = use("Calendar.add_calendar_event_by_attendee", by="env", who_add="Bo Cruz", title="Tea", description="hot")
    event = world.apps["Calendar"].events[name]
    assert (event.title, event.attendees) == ("Event created by Bo Cruz: Tea", ("Bo Cruz",))
    assert event.description == "Event created by Bo Cruz: hot"
    refused(use, "no attendee", "Calendar.delete_calendar_event_by_attendee", by="env", event_id=name, who_delete="Ana")
    use("Calendar.delete_calendar_event_by_attendee", by="env", event_id=name, who_delete="Bo Cruz")
    told = ["New calendar event added by Bo Cruz", "Calendar event deleted by Bo Cruz"]
    assert [notice.text for notice in world.deliver()] == told
    assert "edit_calendar_event" not in Calendar.actions


def test_contacts_are_listed_found_and_read(use):
    page = use("Contacts.get_contacts")
    assert [one.contact_id for one in page["contacts"]] == ["c0", "c1", "c2"]
    assert page["metadata"] == {"range": (0, 3), "total": 4}
    assert [one.contact_id for one in use("Contacts.get_contacts", offset=3)["contacts"]] == ["c3"]
    assert use("Contacts.get_current_user_details").first_name == "Kim"
    for query in ("ana berg", "BERG ANA", "0001", "ana@"):
        assert [one.contact_id for one in use("Contacts.search_contacts", query=query)] == ["c1"]
    refused(use, "there is no contact 'c9'", "Contacts.get_contact", contact_id="c9")
    assert use("Contacts.get_contacts", offset=9) == {"contacts": [], "metadata": {"range": (9, 9), "total": 4}}
    refused(use, "must not be negative", "Contacts.get_contacts", offset=-1)


def test_contacts_are_added_changed_and_deleted(use):
    name = use("Contacts.add_new_contact", first_name="Dag", last_name="Ek", gender="male", age=44, phone="1")
    made = use("Contacts.get_contact", contact_id=name)
    assert (made.gender, made.age, made.status, made.job, made.is_user) == ("Male", 44, "Unknown", None, False)
    use("Contacts.edit_contact", contact_id=name, updates={"job": "Cook", "status": "RETIRED"})
    assert (use("Contacts.get_contact", contact_id=name).job, made.job) == ("Cook", None)
    refused(use, "of this name already", "Contacts.add_new_contact", first_name="DAG", last_name="ek")
    refused(use, "age must be from 1", "Contacts.add_new_contact", first_name="A", last_name="B", age=300)
    refused(use, "cannot be like this: .*gender", "Contacts.edit_contact", contact_id=name, updates={"gender": "x"})
    refused(use, "hobby cannot be changed", "Contacts.edit_contact", contact_id=name, updates={"hobby": "x"})
    refused(use, "contact_id cannot", "Contacts.edit_contact", contact_id=name, updates={"contact_id": "x"})
    refused(use, "missing required field `last_name`", "Contacts.add_new_contact", first_name="A")
    use("Contacts.delete_contact", contact_id=name)
    refused(use, "there is no contact", "Contacts.delete_contact", contact_id=name)
    with pytest.raises(ToolError, match="none of the contacts is the user"):
        World([Contacts()]).call("Contacts", "get_current_user_details", {})


def test_arguments_are_compared_as_the_judge_does():
    new = Contacts.actions["add_new_contact"]
    assert [new.check(name) for name in ("first_name", "phone", "job")] == [STRIPPED_CHECK, PHONE_CHECK, FREE_CHECK]
    assert new.complete({"first_name": "A", "last_name": "B"})["email"] is None
    event = Calendar.actions["add_calendar_event"]
    assert [event.check(name) for name in ("attendees", "start_datetime", "tag")] == [
        ATTENDEES_CHECK,
        TIME_CHECK,
        FREE_CHECK,
    ]
    assert event.check("title").same("Lunch", "Tea") is None
    assert ATTENDEES_CHECK.same([], ["Bo"]) is True
    assert ATTENDEES_CHECK.same(["Ana"], ["Kim", "ana"]) is False
    assert ATTENDEES_CHECK.without(["KIM"]).same(["Ana"], ["Kim", "ana"]) is True
    assert ATTENDEES_CHECK.without(["Kim"]).same(["Kim"], ["Bo"]) is True
    assert PHONE_CHECK.without(["Kim"]) is PHONE_CHECK
    assert TIME_CHECK.same("2024-10-16 13:00:00", " 2024-10-16T13:00:00") is True
    assert TIME_CHECK.same("2024-10-16 13:00:00", "2024-10-16 13:00:01") is False
    assert TIME_CHECK.same(None, "soon") is False
    assert STRIPPED_CHECK.same(None, " ") is True


def test_branches_and_snapshots(world, use):
    aside = world.branch()
    world.call("Chats", "send_message", {"user_id": "u1", "content": "here"})
    aside.call("Chats", "send_message", {"user_id": "u1", "content": "there"})
    aside.call("Contacts", "delete_contact", {"contact_id": "c1"})
    said = [[m.content for m in w.apps["Chats"].conversations["t1"].messages][-1] for w in (world, aside)]
    assert said == ["here", "there"]
    assert "c1" in world.apps["Contacts"].contacts
    json.dumps(snapshot(aside))
    assert [fault for app in world.apps.values() for fault in check_app(app)] == []
