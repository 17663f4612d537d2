"""The engine of worlds: order, data flow, conditions, notices, waiting, and the same log everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wanderlust.errors import EnvironmentFailure, UsageError
from wanderlust.tools.function import ToolError, WrongArguments
from wanderlust_worlds.engine.events import ConditionEvent, Milestone, Minefield, Plan, PlannedCall, StopEvent
from wanderlust_worlds.engine.log import log_bytes
from wanderlust_worlds.engine.world import World
from world_apps import Notes, texts


def note(id, text, **when):
    return PlannedCall(id=id, app="Notes", action="add_note", args={"text": text}, **when)


def world_of(*events, **options):
    apps = [Notes()]
    return World(apps, Plan.of(events, apps), **options)


def shown(notices):
    return [(notice.time, notice.text) for notice in notices]


def test_events_come_by_time_and_then_by_the_order_in_which_they_became_due():
    world = world_of(*(note(f"e{n}", f"{n}", delay=t) for n, t in enumerate((5, 5, 1, 5, 1))))
    world.advance(10)
    assert texts(world) == ["2", "4", "0", "1", "3"]
    assert [line.time for line in world.log][1:] == [1, 1, 5, 5, 5]
    assert world.now == 10


def test_delay_counts_from_the_last_parent_and_at_is_a_floor():
    events = [
        note("a", "a", delay=2),
        note("b", "b", delay=7),
        note("c", "c", after=("a", "b"), delay=3),
        note("d", "d", after=("a",), at=50),
        note("e", "e", after=("d",), at=1),
    ]
    world = world_of(*events, start=100)
    world.advance(60)
    assert [(line.time, line.event) for line in world.log[1:]] == [
        (102, "a"),
        (102, "d"),
        (102, "e"),
        (107, "b"),
        (110, "c"),
    ]
    late = world_of(note("a", "a"), note("d", "d", after=("a",), at=150), start=100)
    late.advance(60)
    assert late.log[-1].time == 150


def test_a_long_chain_and_a_wide_join():
    chain = [note(f"e{n}", "x", after=(f"e{n - 1}",) if n else (), delay=1) for n in range(800)]
    join = note("join", "joined", after=tuple(e.id for e in chain))
    world = world_of(*chain, join)
    world.advance(10_000)
    assert texts(world)[-1] == "joined"
    assert world.log[-1].time == 800


def test_results_flow_by_placeholder():
    events = [
        PlannedCall(id="first.one", app="Notes", action="whisper", args={"text": "hello big world"}),
        note("second", "{{first.one.said.1}}", after=("first.one",)),
        note("third", "it said {{second}}, {{ and }} {{nothing}}", after=("second",)),
    ]
    world = world_of(*events)
    world.advance(0)
    id = world.log[2].result
    assert texts(world) == ["big", f"it said {id}, {{{{ and }}}} {{{{nothing}}}}"]


def test_a_placeholder_whose_part_is_missing_is_an_error_in_the_log():
    events = [
        PlannedCall(id="a", app="Notes", action="whisper", args={"text": "x"}),
        note("b", "{{a.said.7}}", after=("a",)),
        note("c", "goes on", after=("b",)),
    ]
    world = world_of(*events)
    world.advance(0)
    assert "IndexError" in world.log[2].error
    assert texts(world) == ["goes on"]


def test_an_agents_text_is_no_placeholder():
    world = world_of(PlannedCall(id="secret", app="Notes", action="whisper", args={"text": "the code"}))
    world.advance(0)
    world.call("Notes", "remember", {"text": "{{secret}} and {{secret.said}}"})
    world.advance(1)
    assert texts(world) == ["{{secret}} and {{secret.said}}"]


def test_what_an_app_raises_is_logged_and_shown_and_the_world_goes_on():
    world = world_of(PlannedCall(id="bad", app="Notes", action="explode"), note("b", "after", after=("bad",)))
    with pytest.raises(ToolError, match="ZeroDivisionError: boom"):
        world.call("Notes", "explode", {})
    with pytest.raises(ToolError, match="no note 'x'"):
        world.call("Notes", "drop_note", {"note_id": "x"})
    with pytest.raises(WrongArguments, match="text"):
        world.call("Notes", "add_note", {"text": 3})
    assert [line.error is None for line in world.log] == [False, False, True, False, False]
    assert [line.event for line in world.log] == [None, "bad", "b", None, None]
    assert texts(world) == ["after"]


def test_a_call_that_cannot_be_meant_leaves_no_line():
    world = world_of()
    for app, action, said in (
        ("Note", "x", "there are: Notes"),
        ("Notes", "x", "add_note"),
        ("Notes", "whisper", "not"),
    ):
        with pytest.raises(UsageError, match=said):
            world.call(app, action, {"text": ""})
    assert not world.log


def test_a_runaway_schedule_stops_at_its_limit_and_says_where():
    world = world_of(PlannedCall(id="t", app="Notes", action="tick", args={"seconds": 0.0, "times": 0}))
    world.max_events = 500
    with pytest.raises(EnvironmentFailure, match=r"'later \d+': more than 500 came due by 0"):
        world.advance(1)


def test_a_condition_waits_for_a_change_and_gives_up():
    full = ConditionEvent(id="two", holds=lambda world: len(world.apps["Notes"].notes) >= 2, within=100)
    never = ConditionEvent(id="never", holds=lambda world: False, within=5)
    world = world_of(full, never, note("x", "woken", after=("two",), delay=1), note("y", "no", after=("never",)))
    world.advance(10)
    world.call("Notes", "add_note", {"text": "a"})
    world.call("Notes", "add_note", {"text": "b"})
    world.advance(10)
    assert texts(world) == ["a", "b", "woken"]
    assert [(h.time, h.action, h.error) for h in world.log if h.event in ("two", "never")] == [
        (5, "condition", "given up"),
        (10, "condition", None),
    ]


@pytest.mark.parametrize(("kind", "within", "wrote", "expected"), [
    (Milestone, 5, True, (1, True, None)),
    (Milestone, 5, False, (5, None, "missed")),
    (Minefield, 5, True, (1, False, "stepped on a minefield")),
    (Minefield, 5, False, (5, True, None)),
])  # fmt: skip
def test_validation_leaves_its_verdict_in_the_log(kind, within, wrote, expected):
    world = world_of(kind(id="v", holds=lambda world: bool(world.apps["Notes"].notes), within=within))
    world.advance(1)
    if wrote:
        world.call("Notes", "add_note", {"text": "a"})
    world.advance(10)
    (line,) = (line for line in world.log if line.event == "v")
    assert (line.time, line.result, line.error) == expected
    assert world.stopped == ("minefield v" if kind is Minefield and wrote else "")


def test_stop_and_duration_end_time():
    world = world_of(note("a", "a"), StopEvent(id="s", after=("a",), delay=5, reason="enough"), note("b", "b", delay=6))
    world.advance(10)
    assert (world.now, world.stopped, texts(world)) == (5, "enough", ["a"])
    short = world_of(note("a", "a", delay=3), note("b", "b", delay=4), duration=3)
    short.wait(50)
    assert (short.now, short.stopped, shown(short.deliver())) == (3, "", [(3, "note a")])
    short.wait(50)
    assert (short.now, short.stopped, texts(short)) == (3, "duration", ["a"])


def test_notices_follow_the_level_and_come_once():
    events = [note("a", "a", delay=1), PlannedCall(id="t", app="Notes", action="tick", args={"seconds": 1.0}, delay=2)]
    for level, expected in (("low", []), ("medium", [(1, "note a")]), ("high", [(1, "note a"), (2, "tick")])):
        world = world_of(*events, level=level)
        world.advance(3)
        world.call("Notes", "add_note", {"text": "mine"})
        assert shown(world.deliver()) == expected
        assert world.deliver() == ()


def test_waiting_jumps_to_the_next_notice_and_takes_its_whole_moment():
    events = [
        PlannedCall(id="quiet", app="Notes", action="whisper", args={"text": ""}, delay=3),
        note("a", "a", delay=4),
        note("b", "b", delay=4),
        note("c", "c", delay=4.5),
    ]
    world = world_of(*events)
    world.wait(100)
    assert (world.now, shown(world.deliver())) == (4, [(4, "note a"), (4, "note b")])
    world.wait(0.25)
    assert shown(world.deliver()) == [(4.25, "0.25 seconds went by, nothing came")]
    world.wait()
    assert world.now == 4.5
    world.wait()
    assert world.now == 4.5, "who has not read what there is does not wait"
    world.deliver()
    world.wait()
    assert (world.now, world.deliver()) == (4.5, ()), "nothing will ever come: time does not move"


def test_draws_and_ids_have_names():
    def lived(*calls):
        world = World([Notes(), Notes("Others")], seed=7)
        for app, lucky in calls:
            world.call(app, "add_note", {"text": "x", "lucky": lucky})
        return [(note.id, note.lucky) for note in world.apps["Notes"].notes.values()]

    alone = lived(("Notes", False), ("Notes", True))
    assert lived(("Notes", False), ("Others", False), ("Notes", True)) == alone
    assert len({id for id, _ in lived(*[("Notes", True)] * 50)}) == 50


def story():
    """A world with some of everything, and its log."""
    events = [
        note("a", "a", delay=1),
        PlannedCall(id="t", app="Notes", action="tick", args={"seconds": 0.5, "times": 5}),
        note("c", "of {{a}}", after=("a",)),
        Milestone(id="m", holds=lambda world: len(world.apps["Notes"].notes) > 6, within=9),
    ]
    world = world_of(*events, seed=3, level="high")
    world.advance(2.5, "thinking")
    world.call("Notes", "add_note", {"lucky": True, "text": "ä\u2028"})
    world.deliver()
    world.wait(20)
    return world


def test_the_log_is_the_same_bytes_in_every_process():
    here = story()
    code = "from test_worlds_engine import story; print(story().digest())"
    here_too = Path(__file__).parent
    for seed in ("0", "1", "4711"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        told = subprocess.check_output([sys.executable, "-c", code], env=env, cwd=here_too, text=True)
        assert told.strip() == here.digest()
    assert log_bytes(here.log).count(b"\n") == len(here.log)
