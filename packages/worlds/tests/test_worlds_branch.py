"""Branches, snapshots and tables: whatever one world does, no other sees."""

from __future__ import annotations

import gc
import json
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderlust.errors import UsageError
from wanderlust_worlds.engine.app import App
from wanderlust_worlds.engine.cow_dict import MIN_CHANGES_TO_FOLD, CowDict, FrozenRecord
from wanderlust_worlds.engine.events import ConditionEvent, Plan, PlannedCall
from wanderlust_worlds.engine.log import Log, LogEntry
from wanderlust_worlds.engine.replay import restore, snapshot
from wanderlust_worlds.engine.world import World
from world_apps import Note, Notes, texts

KEYS = st.integers(0, 12).map(str)
STEPS = st.lists(st.tuples(st.sampled_from(["set", "delete", "branch"]), KEYS, st.integers()), max_size=60)


@given(st.integers(0, 300), STEPS)
def test_a_table_is_a_dict_through_any_branches(rows, steps):
    first = {f"row {n}": n for n in range(rows)} | {str(n): n for n in range(4)}
    table, model, frozen = CowDict(first), dict(first), []
    for what, key, value in steps:
        if what == "branch":
            frozen.append((table, dict(model)))
            table = table.branch()
        elif what == "set":
            table[key] = model[key] = value
        elif key in model:
            del table[key], model[key]
        else:
            with pytest.raises(KeyError):
                del table[key]
        assert len(table) == len(model)
    for one, wanted in [*frozen, (table, model)]:
        assert list(one.items()) == list(wanted.items())
        assert list(one) == list(wanted)
        assert list(one.values()) == list(wanted.values())
        assert all((key in one) == (key in wanted) for key in map(str, range(13)))
        assert {key: one.get(key) for key in wanted} == wanted


def test_a_table_that_grows_folds_and_stays_a_dict():
    table, model = CowDict(), {}
    for n in range(20 * MIN_CHANGES_TO_FOLD):
        table[f"{n}"] = model[f"{n}"] = n
        if n % 3 == 0:
            del table[f"{n // 2}"], model[f"{n // 2}"]
            table[f"{n // 2}"] = model[f"{n // 2}"] = -n
    assert list(table.items()) == list(model.items())


@given(st.lists(st.integers(0, 9), max_size=40))
def test_a_log_is_a_list_through_any_branches(steps):
    log, model, others = Log(), [], []
    for number, step in enumerate(steps):
        if step == 0:
            others.append((log, list(model)))
            log = log.branch()
        line = LogEntry(float(number), "world", "", "", {})
        log.append(line)
        model.append(line)
    for one, wanted in [*others, (log, model)]:
        assert len(one) == len(wanted)
        assert list(one) == wanted
        assert [one[n] for n in range(len(wanted))] == wanted
        assert [one[-1 - n] for n in range(len(wanted))] == wanted[::-1]
        assert one[1:3] == wanted[1:3]
    with pytest.raises(IndexError):
        log[len(log)]


APPS = (Notes(notes=CowDict({f"n{n}": Note(id=f"n{n}", text=f"old {n}") for n in range(5)})),)
PLAN = Plan.of(
    [
        PlannedCall(id="t", app="Notes", action="tick", args={"seconds": 2.0, "times": 4}, delay=1),
        ConditionEvent(id="c", holds=lambda world: len(world.apps["Notes"].notes) > 7, within=30),
        PlannedCall(id="a", app="Notes", action="add_note", args={"text": "{{t}} at last"}, after=("c", "t"), delay=1),
    ],
    APPS,
)
DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.booleans()),
        st.tuples(st.just("drop"), st.integers(0, 9)),
        st.tuples(st.just("advance"), st.floats(0, 5)),
        st.tuples(st.sampled_from(["wait", "deliver"]), st.none()),
    ),
    max_size=8,
)


def begin():
    return World(APPS, PLAN, seed=1, level="high", duration=1_000)


def do(world, deeds):
    for what, value in deeds:
        if what == "add":
            world.call("Notes", "add_note", {"text": "new", "lucky": value})
        elif what == "drop":
            names = list(world.apps["Notes"].notes)
            if value < len(names):
                world.call("Notes", "drop_note", {"note_id": names[value]})
        elif what == "advance":
            world.advance(value)
        elif what == "wait":
            world.wait(5)
        else:
            world.deliver()
    return world


def whole(world):
    return json.dumps(snapshot(world))


@given(DEEDS, DEEDS, DEEDS)
def test_branches_live_as_if_alone(before, left, right):
    trunk = do(begin(), before)
    kept = whole(trunk)
    one, two = trunk.branch(), trunk.branch()
    do(one, left)
    do(two, right)
    assert whole(trunk) == kept
    assert whole(one) == whole(do(do(begin(), before), left))
    assert whole(two) == whole(do(do(begin(), before), right))
    do(trunk, right)
    assert whole(trunk) == whole(two)


@given(DEEDS, DEEDS)
def test_a_snapshot_goes_through_json_and_lives_on(before, after):
    world = do(begin(), before)
    again = restore(json.loads(json.dumps(snapshot(world))), APPS, PLAN)
    assert whole(again) == whole(world)
    do(again, after)
    do(world, after)
    assert whole(again) == whole(world)
    assert again.digest() == world.digest()


def test_worlds_of_one_universe_do_not_write_to_it():
    before = json.dumps(APPS[0].state())
    for _ in range(3):
        do(begin(), [("add", True), ("drop", 1), ("advance", 20.0)])
    assert json.dumps(APPS[0].state()) == before


def test_an_app_from_before_a_branch_says_so():
    world = begin()
    notes = world.app("Notes")
    notes.add_note("x")
    twin = world.branch()
    with pytest.raises(UsageError, match="ask the world for it"):
        notes.add_note("y")
    world.app("Notes").add_note("z")
    assert (texts(world)[-1], texts(twin)[-1]) == ("z", "x")


def test_a_world_is_not_branched_from_within():
    found = []
    plan = Plan.of(
        [
            ConditionEvent(id="c", holds=lambda world: bool(found.append(world.branch()))),
            PlannedCall(id="a", app="Notes", action="tick", args={"seconds": 1.0}),
        ],
        APPS,
    )
    with pytest.raises(UsageError, match="cannot be branched"):
        World(APPS, plan).advance(1)
    assert not found


def test_a_snapshot_wants_its_own_apps_and_plan():
    state = snapshot(begin())
    with pytest.raises(UsageError, match="not Other"):
        restore(state, [Notes("Other")], PLAN)
    with pytest.raises(UsageError, match="another plan"):
        restore(state, APPS)
    with pytest.raises(UsageError, match="does not fit Notes"):
        restore({**state, "apps": {"Notes": {"limit": "many"}}}, APPS, PLAN)


def test_a_world_that_nobody_keeps_goes_away():
    world = do(begin(), [("add", False)])
    seen = weakref.ref(world.app("Notes"))
    del world
    gc.collect()
    assert seen() is None


class Shares(App):
    """An app that branches would share."""

    items: list[str] = []  # noqa: RUF012


class Row(FrozenRecord):
    """A row with something in it that anybody could change."""

    counts: tuple[dict[str, int], ...] = ()


class Deep(App):
    """An app whose rows branches would share."""

    rows: CowDict[Row] = CowDict()


class Bare(App):
    """An app whose state does not say how it begins."""

    items: CowDict[str]


def test_state_that_cannot_branch_is_refused():
    with pytest.raises(UsageError, match=r"Shares\.items: branches would share a list\[str\]: use Table"):
        Shares()
    with pytest.raises(UsageError, match=r"Deep\.rows: branches would share a dict\[str, int\]"):
        Deep()
    with pytest.raises(UsageError, match=r"Bare\.items needs a default"):
        Bare()
    with pytest.raises(UsageError, match="no state colour"):
        Notes(colour="red")
