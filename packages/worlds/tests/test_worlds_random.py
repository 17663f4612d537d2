"""Any plan, any deeds: order and delays are kept, nothing is lost, and every log can be lived again."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from wanderlust.tools.function import ToolError
from wanderlust_worlds.engine.events import ConditionEvent, Milestone, PlannedCall, StopEvent, result_ref
from wanderlust_worlds.engine.replay import replay_log
from wanderlust_worlds.engine.scenario import Scenario
from wanderlust_worlds.engine.world import match_first
from world_apps import Notes

APPS = (Notes(limit=12), Notes("Others"))
TIMES = st.sampled_from([0.0, 0.5, 1.0, 3.0])


def enough(world):
    return len(world.apps["Notes"].notes) > 3


@st.composite
def events(draw):
    """Events of all kinds, each after some of those before it, some with their results as text."""
    made = []
    for number in range(draw(st.integers(0, 12))):
        after = tuple(draw(st.lists(st.sampled_from(made), max_size=3, unique_by=lambda e: e.id))) if made else ()
        when = {"id": f"e{number}", "after": tuple(e.id for e in after), "delay": draw(TIMES)}
        kind = draw(st.sampled_from(["note", "note", "agent", "tick", "explode", "condition", "stop"]))
        app, by = draw(st.sampled_from(["Notes", "Others"])), "agent" if kind == "agent" else "env"
        if kind == "condition":
            made.append(draw(st.sampled_from([ConditionEvent, Milestone]))(holds=enough, within=draw(TIMES), **when))
        elif kind == "stop":
            made.append(StopEvent(at=draw(st.sampled_from([2.0, 30.0])), **when))
        elif kind == "tick":
            made.append(PlannedCall(app=app, action="tick", args={"seconds": draw(TIMES), "times": 3}, **when))
        elif kind == "explode":
            made.append(PlannedCall(app=app, action="explode", **when))
        else:
            source = next((result_ref(e.id) for e in after if isinstance(e, PlannedCall)), "a text")
            made.append(PlannedCall(app=app, action="add_note", args={"text": source}, by=by, **when))
    return made


DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.sampled_from(["Notes", "Others"]), st.sampled_from(["add_note", "explode"])),
        st.tuples(st.sampled_from(["advance", "wait"]), TIMES),
        st.tuples(st.just("deliver")),
    ),
    max_size=10,
)


def live(world, deeds):
    for what, *args in deeds:
        if what == "call":
            try:
                world.call(*args, {"text": "mine"} if args[1] == "add_note" else {})
            except ToolError:
                continue
        else:
            getattr(world, what)(*args)
    return world


@settings(max_examples=200)
@given(events(), DEEDS, st.booleans())
def test_any_world_keeps_its_order_and_can_be_lived_again(plan, deeds, oracle):
    scenario = Scenario(id="any", apps=APPS, events=plan, start=0.0, level="high")
    world = live(scenario.world(oracle=oracle, gate=match_first), deeds)
    world.advance(100)
    times = [line.time for line in world.log]
    assert times == sorted(times)
    assert replay_log(scenario, list(world.log), oracle=oracle).digest() == world.digest()
    for name in world.done.keys() & {event.id for event in plan}:
        event = scenario.plan.events[name]
        assert set(event.after) <= world.done.keys()
        if not isinstance(event, PlannedCall) or event.by == "env" or oracle:
            due = max((world.log[world.done[parent]].time for parent in event.after), default=0.0) + event.delay
            assert world.log[world.done[name]].time >= due
    if not world.stopped:
        left = {event.id for event in plan} - world.done.keys()
        given_up = {line.event for line in world.log if line.app == "world" and line.error}
        expected = {act.id for act in world.expected}
        assert all(set(scenario.plan.events[name].after) & left for name in left - given_up - expected)
