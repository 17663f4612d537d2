"""ARE's scenarios: read, played by the oracle, written and read again, refused when malformed."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from are_scenarios import APPS, START, asks, event, file, tells
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.types import ToolCall, assistant
from wanderlust_worlds.engine.app import App
from wanderlust_worlds.engine.events import ConditionEvent, Milestone, ScenarioError, StopEvent
from wanderlust_worlds.engine.replay import replay_log
from wanderlust_worlds.engine.scenario import Scenario, play_oracle
from wanderlust_worlds.exchange.read import import_scenario
from wanderlust_worlds.exchange.values import decode_argument, encode_argument
from wanderlust_worlds.exchange.write import export_scenario
from wanderlust_worlds.wrap.world_environment import WorldEnvironment, log_of


def told(scenario):
    """All that makes scenarios equal: apps are compared by class and state."""
    fields = {key: getattr(scenario, key) for key in Scenario.__dataclass_fields__ if key != "apps"}
    return fields | {"apps": [(app.name, type(app), app.state()) for app in scenario.apps]}


def again(scenario):
    return import_scenario(export_scenario(scenario))


LUNCH = file(
    asks(),
    event("sent", "AGENT", "Emails.send_email", after=["ask"], delay=2.0, compare="LESS_THAN", recipients=["ana@x.org"],
          subject="Lunch", content=""),
    tells("I asked.", "told", ["sent"]),
    event("reply", "ENV", "Emails.reply_to_email_from_user", after=["told"], delay=60.0, sender="ana@x.org",
          email_id="{{sent}}", content="At one?"),
    event("put", "AGENT", "Calendar.add_calendar_event", after=["reply"], title="Lunch",
          start_datetime="2024-10-16 13:00:00", end_datetime="2024-10-16 14:00:00", attendees=["Ana Berg"], tag=None),
    tells("Done.", "end", ["put"]),
)  # fmt: skip


def test_a_scenario_of_two_turns_is_read_and_played():
    got = import_scenario(json.dumps(LUNCH))
    assert got.warnings == ()
    scenario = got.scenario
    assert (scenario.id, scenario.start, scenario.duration) == ("test", START, 1_000.0)
    assert [act.id for act in scenario.oracle] == ["sent", "told", "put", "end"]
    assert [act.timing for act in scenario.oracle] == ["by", "", "", ""]
    world = play_oracle(scenario)
    assert [(line.event, line.time - START) for line in world.log if line.event] == [
        ("ask", 0.0), ("sent", 2.0), ("told", 3.0), ("reply", 63.0), ("put", 64.0), ("end", 65.0)
    ]  # fmt: skip
    assert world.apps["Emails"].inbox[world.log[world.done["reply"]].result].parent_id is not None


def test_the_next_turn_waits_for_the_agent():
    scenario = import_scenario(LUNCH).scenario
    args = json.dumps({"recipients": ["ana@x.org"], "subject": "Lunch", "content": "?"})
    sent = assistant("", ToolCall(id="1", name="Emails__send_email", arguments=args))
    env = WorldEnvironment([scenario])
    played = asyncio.run(rollout(env, env.tasks()[0], Scripted([sent, "I asked.", "It is done."])))
    read = [message.content for turn in played.trajectories[0].turns for message in turn.observation]
    assert read[0] == "Please."
    assert "New email received" in read[-1]
    happened = [line.event for line in log_of(played) if line.event]
    assert happened == ["ask", "reply"]


def test_writing_and_reading_gives_an_equal_scenario():
    scenario = import_scenario(LUNCH).scenario
    assert told(again(scenario).scenario) == told(scenario)
    assert again(scenario).warnings == ()
    assert play_oracle(again(scenario).scenario).digest() == play_oracle(scenario).digest()


def test_what_is_written_has_ares_form():
    raw = json.loads(export_scenario(import_scenario(LUNCH).scenario, {"apps": []}))
    assert {
        "metadata",
        "world_logs",
        "apps",
        "events",
        "completed_events",
        "version",
        "context",
        "augmentation",
    } == set(raw)
    assert raw["version"] == "are_simulation_v1"
    assert [(app["name"], app["class_name"]) for app in raw["apps"]] == [(a["name"], a["class_name"]) for a in APPS]
    sent = raw["events"][1]
    assert (sent["class_name"], sent["event_type"], sent["event_time_comparator"]) == (
        "OracleEvent",
        "AGENT",
        "LESS_THAN",
    )
    assert sent["action"]["args"] == [
        {"name": "recipients", "value": '["ana@x.org"]', "value_type": "list"},
        {"name": "subject", "value": "Lunch", "value_type": "str"},
    ]
    assert raw["events"][3]["action"]["operation_type"] == "WRITE"
    for written, read in zip(raw["apps"], APPS, strict=True):
        assert set(read["app_state"]) <= set(written["app_state"]), read["name"]


def test_rows_of_data_sets_are_unwrapped():
    whole = json.dumps(LUNCH)
    for row in ({"id": "1", "scenario_id": "test", "data": whole}, {"scenario_id": "test", "scenario": LUNCH}):
        assert import_scenario(json.dumps(row)).scenario.id == "test"


def test_what_is_not_known_is_left_out_and_told():
    raw = file(asks(), colour="red")
    raw |= {"version": "2.0", "owner": "me", "completed_events": [{}]}
    raw["events"][0] |= {"mood": "good"}
    raw["apps"][6]["app_state"]["events"]["e1"]["colour"] = "red"
    raw["apps"][6]["app_state"]["events"]["e2"]["colour"] = "blue"
    raw["apps"].append({"name": "Old", "class_name": "MessagingAppV0", "app_state": {}})
    got = import_scenario(raw)
    assert got.warnings == (
        "the file: the field 'owner' is not known and left out",
        "version '2.0': read as are_simulation_v1",
        "completed_events: what tells of a run is left out",
        "event 'ask': the field 'mood' is not known and left out",
        "app 'Calendar', events.e2.colour (and 1 more): 'colour' is not known and left out",
        "app 'Old' (MessagingAppV0): its class is not known, and it is left out",
    )
    assert got.scenario.info["are"]["definition"] == {"colour": "red"}


def test_a_file_may_lack_almost_everything():
    got = import_scenario({"events": [asks()]})
    assert [type(app).__name__ for app in got.scenario.apps] == ["System", "UserInterface"]
    assert play_oracle(got.scenario).log[1].event == "ask"


def broken(change):
    raw = json.loads(json.dumps(LUNCH))
    change(raw, {one["event_id"]: one for one in raw["events"]})
    return raw


REFUSED = [
    (lambda raw, e: e["sent"]["action"].update(app="Mailbox"), "event 'sent': there is no app 'Mailbox'; there are: "),
    (lambda raw, e: raw["apps"][3].update(class_name="MailV9"),
     "event 'sent': there is no app 'Emails'; .*; its class 'MailV9' is not known"),
    (lambda raw, e: e["sent"]["action"].update(function="send_mail"),
     "event 'sent': Emails has no action 'send_mail'; it"),
    (lambda raw, e: e["sent"].update(dependencies=["end"]), "event 'sent': it waits for itself: sent < end < "),
    (lambda raw, e: e["sent"].update(dependencies=["nobody"]),
     "event 'sent': it comes after 'nobody', and there is no"),
    (lambda raw, e: e["sent"].update(dependencies="ask"), "event 'sent': dependencies is 'ask', expected a list of ev"),
    (lambda raw, e: e["sent"].update(event_relative_time="soon"),
     "event 'sent': event_relative_time is 'soon', expected"),
    (lambda raw, e: e["sent"].update(event_relative_time=-1),
     "event 'sent': delay is -1.0, expected seconds from 0 on"),
    (lambda raw, e: e["sent"].update(event_type="ROBOT"),
     "event 'sent': its event_type is 'ROBOT', expected USER, ENV"),
    (lambda raw, e: e["sent"].update(event_type="CONDITION"), "event 'sent': 'send_email' is no condition, expected"),
    (lambda raw, e: e["sent"].update(event_id="ask"), "event 'ask': there are two with this id"),
    (lambda raw, e: e["sent"].pop("event_id"), "event number 1: expected an object with an event_id"),
    (lambda raw, e: e["sent"].pop("action"),
     "event 'sent': it has no action, expected an object with app and function"),
    (lambda raw, e: e["sent"]["action"]["args"][0].update(value="ana"),
     r"event 'sent': argument 'recipients' is 'ana', expected list\[str\] \| None"),
    (lambda raw, e: e["sent"]["action"]["args"][0].update(value="[1]"), "event 'sent': Emails: .*recipients"),
    (lambda raw, e: e["sent"]["action"]["args"][1].update(value=None),
     "event 'sent': argument 'subject' is null, expected"),
    (lambda raw, e: e["sent"]["action"]["args"][1].update(value_type="widget"),
     "'subject' is of the type 'widget', exp"),
    (lambda raw, e: e["sent"]["action"]["args"][1].update(name="topic"), "event 'sent': Emails: .*topic"),
    (lambda raw, e: e["sent"]["action"]["args"].append(e["sent"]["action"]["args"][0]), "'recipients' is given twice"),
    (lambda raw, e: e["reply"]["action"]["args"][1].update(value="{{gone}}"), "event 'reply': {{gone}} has no source"),
    (lambda raw, e: e["reply"]["action"]["args"][1].update(value="{{end}}"),
     "event 'reply': {{end}} may not have happen"),
    (lambda raw, e: raw["apps"][3]["app_state"].pop("user_email"),
     r"app 'Emails' \(Mail\): its state lacks 'user_email'"),
    (lambda raw, e: raw["apps"][2]["app_state"].update(contacts=[1]),
     r"app 'Contacts' \(Contacts\): its state does not"),
    (lambda raw, e: raw["apps"].append(raw["apps"][3]), "the app 'Emails': there is another one"),
    (lambda raw, e: raw.update(events={}), "the file is no scenario: it has apps and no events"),
    (lambda raw, e: raw.update(events={"a": 1}), "events is dict, expected a list"),
    (
        lambda raw, e: raw["metadata"].update(wanderlust={"level": "loud"}),
        "metadata.wanderlust: Invalid enum value 'loud'",
    ),
    (lambda raw, e: raw["metadata"]["definition"].update(duration="long"),
     "metadata.definition.duration is 'long', exp"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), REFUSED, ids=range(len(REFUSED)))
def test_malformed_scenarios_are_refused_in_one_line(change, words):
    raw = broken(change)
    with pytest.raises(ScenarioError, match=words) as refused:
        import_scenario(raw)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', b"\xff", "[" * 100_000])
def test_what_is_no_scenario_is_refused(text):
    with pytest.raises(ScenarioError, match="the file is"):
        import_scenario(text)


def test_turns_that_a_trace_counts_become_conditions():
    name = "wrapped_condition__turn_idx_1__scenario_id_test"
    turn = {
        "class_name": "ConditionCheckEvent", "event_type": "CONDITION", "event_id": "turn", "event_time": None,
        "event_relative_time": 0.0, "dependencies": ["ask"],
        "action": {"action_id": "x", "app": None, "function": name, "operation_type": None, "args": None},
    }  # fmt: skip
    late = event("late", "ENV", "Emails.send_email_to_user_only", after=["turn"], delay=5.0, sender="bo@x.org")
    scenario = import_scenario(file(asks(), turn, late)).scenario
    world = scenario.world()
    world.advance(100)
    assert "late" not in world.done
    world.call("AgentUserInterface", "send_message_to_user", {"content": "Well."})
    world.advance(5)
    assert "late" in world.done
    assert told(again(scenario).scenario) == told(scenario)


def test_absolute_times_hold_only_without_a_delay():
    first, second = asks(at=START + 40.0), asks(name="two", delay=3.0)
    second["event_time"] = START + 500.0
    scenario = import_scenario(file(first, second)).scenario
    world = play_oracle(scenario)
    assert [line.time - START for line in world.log if line.event] == [3.0, 40.0]
    assert told(again(scenario).scenario) == told(scenario)


def never(world):
    return False


@pytest.mark.parametrize("odd", [
    StopEvent(id="odd"), Milestone(id="odd", holds=never), ConditionEvent(id="odd", holds=never),
])  # fmt: skip
def test_what_are_cannot_say_is_refused(odd):
    with pytest.raises(ScenarioError, match="event 'odd': ARE's JSON has no way to tell of a"):
        export_scenario(Scenario(id="x", apps=(), events=(odd,)))


def test_our_own_fields_come_back():
    raw = import_scenario(LUNCH).scenario
    ours = Scenario(id="x", apps=raw.apps, events=raw.events, level="high", seed=7, info={"family": "lunch"})
    assert told(again(ours).scenario) == told(ours)


@pytest.mark.parametrize(("value", "kind", "read"), [
    ("3", "int", 3), ("3", "int | float", 3), ("2.5", "float", 2.5), ("True", "bool", True), ("no", "bool", False),
    ("", "str | None", None), ("", "str", ""), (None, None, None), (None, "Optional[str]", None), ("a", None, "a"),
    ("{{x}}", "list[str]", "{{x}}"), ("5", "Optional[int]", 5), ('{"a": 1}', "dict[str, Any]", {"a": 1}), (4, "int", 4),
])  # fmt: skip
def test_values_are_read_by_the_first_type(value, kind, read):
    assert decode_argument(value, kind) == read


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(min_size=1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(PLAIN)
def test_any_plain_value_is_read_as_it_was_written(value):
    assert decode_argument(*encode_argument(value)) == value


MENU = [
    ("AGENT", "Emails.send_email", {"recipients": ["ana@x.org"], "subject": "a", "content": "Hi\n{{not an id}} there"}),
    ("AGENT", "Messages.send_message", {"user_id": "+15550001", "content": "a"}),
    ("AGENT", "Chats.send_message_to_group_conversation", {"conversation_id": "t2", "content": "ä"}),
    ("AGENT", "Calendar.add_calendar_event", {"title": "a", "attendees": ["Ana Berg"], "tag": None}),
    ("AGENT", "RentAFlat.save_apartment", {"apartment_id": "f2"}),
    ("AGENT", "Shopping.add_to_cart", {"item_id": "i0S", "quantity": 2}),
    ("AGENT", "Contacts.edit_contact", {"contact_id": "c1", "updates": {"age": 31}}),
    ("AGENT", "AgentUserInterface.send_message_to_user", {"content": "a"}),
    ("ENV", "Emails.create_and_add_email", {"sender": "bo@x.org", "recipients": ["kim@x.org"], "content": ""}),
    ("ENV", "Chats.create_and_add_message", {"conversation_id": "t1", "sender_id": "u1", "content": "a"}),
    ("ENV", "Calendar.add_calendar_event_by_attendee", {"who_add": "Ana Berg", "title": "a"}),
    ("ENV", "Shopping.add_product", {"name": "a"}),
    ("ENV", "RentAFlat.update_apartment", {"apartment_id": "f3", "new_price": 1.5}),
    ("ENV", "City.add_crime_rate", {"zip_code": "9", "violent_crime_rate": 1.0, "property_crime_rate": 2.0}),
    ("USER", "AgentUserInterface.send_message_to_agent", {"content": "a"}),
]
PARTS = {
    "Shopping.add_product": ("ENV", "Shopping.add_item_to_product", "product_id", {"price": 2.5, "options": {}}),
    "Emails.send_email": ("ENV", "Emails.reply_to_email_from_user", "email_id", {"sender": "ana@x.org"}),
}


@st.composite
def files(draw):
    """Any DAG in ARE's schema whose acts can succeed in any order, some with results of others."""
    made, does = [], {}
    for number in range(draw(st.integers(1, 14))):
        name = f"{draw(st.sampled_from(['OracleEvent-AGENT', 'Event', 'e.v']))}-{number}"
        known = [one["event_id"] for one in made]
        after = draw(st.lists(st.sampled_from(known), max_size=3, unique=True)) if known else []
        sources = [one for one in after if does[one] in PARTS]
        if sources and draw(st.booleans()):
            kind, call, argument, args = PARTS[does[sources[0]]]
            args = {**args, argument: "{{" + sources[0] + "}}"}
        else:
            kind, call, args = draw(st.sampled_from(MENU))
        at = draw(st.sampled_from([None, None, START + 30.0]))
        compare = draw(st.sampled_from([None, "EQUAL"])) if kind == "AGENT" else None
        delay = draw(st.sampled_from([0.0, 1.0, 19.0]))
        made.append(event(name, kind, call, after=after, delay=delay, at=at, compare=compare, **args))
        does[name] = call
    return file(*draw(st.permutations(made)), seed=draw(st.integers(0, 3)), tags=["Time"], duration=10_000.0)


@settings(max_examples=100)
@given(files())
def test_any_scenario_of_the_schema_is_played_written_and_lived_again(raw):
    got = import_scenario(json.dumps(raw))
    scenario = got.scenario
    assert got.warnings == ()
    world = play_oracle(scenario)
    assert set(world.done) == {one["event_id"] for one in raw["events"]}
    for one in raw["events"]:
        line = world.log[world.done[one["event_id"]]]
        assert line.error is None
        assert all(world.done[parent] < world.done[one["event_id"]] for parent in one["dependencies"])
    assert replay_log(scenario, list(world.log), oracle=True).digest() == world.digest()
    assert told(again(scenario).scenario) == told(scenario)


JSON = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.just([]) | st.just({}) | st.just([[1], {}])


@st.composite
def damaged(draw):
    """A file in which one thing, anywhere, is something else, or is gone."""
    raw = json.loads(json.dumps(LUNCH))
    at = raw[draw(st.sampled_from(["metadata", "apps", "events", "events"]))]
    while True:
        keys = list(at) if isinstance(at, dict) else range(len(at))
        key = draw(st.sampled_from(keys))
        inner = at[key]
        if not isinstance(inner, dict | list) or not inner or draw(st.integers(0, 3)) == 0:
            break
        at = inner
    if draw(st.booleans()):
        at[key] = draw(JSON)
    else:
        del at[key]
    return raw


@settings(max_examples=200, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # too large to shrink
@given(damaged())
def test_any_damage_is_refused_in_one_line_or_does_no_harm(raw):
    said = ""
    try:
        scenario = import_scenario(raw).scenario
        assert told(again(scenario).scenario) == told(scenario)
    except ScenarioError as error:
        said = str(error)
    assert "\n" not in said


def test_every_app_offers_what_it_adopts():
    for app in import_scenario(file(asks())).scenario.apps:
        twin = type(app).from_are(app.name, json.loads(json.dumps(app.to_are())))
        assert twin.state() == app.state(), app.name
    assert App.from_are("A", {"anything": 1}).state() == {}


@pytest.mark.parametrize("foreign", [b"{}", b'{"a": 1}', b'{"apps": [], "events": null}'])
def test_foreign_json_is_no_empty_scenario(foreign: bytes) -> None:
    with pytest.raises(ScenarioError, match="the file is no scenario: it has neither apps nor events"):
        import_scenario(foreign)
