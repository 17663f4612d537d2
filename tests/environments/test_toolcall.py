"""One strict tool call: what counts, what is paid on the way, and what training never sees."""

import asyncio
import json
from itertools import islice
from random import Random

import pytest

from wanderlust.environments.tool_call import (
    MAX_CALL_CHARS,
    NAME_ONLY_CREDIT,
    OFFER_PATTERN,
    TRAIN_TOOLS,
    UNSEEN_TOOLS,
    VALUE_DRAWERS,
    ToolCallEnvironment,
    is_held_out_value,
    parse_call,
    strict,
    value_text,
)
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout

WANTED = {"name": "heat", "arguments": {"room": "attic", "degrees": 7, "share": 2.5, "on": True}}
RIGHT = json.dumps(WANTED)
ENV = ToolCallEnvironment()
TASKS = [*islice(ENV.tasks(), 2000)]
HELD = [*ENV.tasks("eval")]


def changed(**arguments):
    return json.dumps({"name": "heat", "arguments": {**WANTED["arguments"], **arguments}})


def scored(said, tasks):
    """Scores of answers to tasks: of one text, or of what a function of the conversation says."""
    script = said if callable(said) else lambda _messages, _rng: said

    async def play():
        return [(await rollout(ENV, task, Scripted(script))).trajectory.score for task in tasks]

    return asyncio.run(play())


@pytest.mark.parametrize(
    "said",
    [
        RIGHT,
        f"\n {RIGHT} ",
        json.dumps(WANTED, indent=2),
        '{"arguments": {"on": true, "share": 2.50, "degrees": 7, "room": "attic"}, "name": "heat"}',
        changed(room="attic").replace("attic", "\\u0061ttic"),
    ],
)
def test_the_right_call_is_strict_however_it_is_spelt(said):
    assert strict(said, WANTED) == 1.0


@pytest.mark.parametrize(
    "said",
    [
        "",
        f"{RIGHT} {RIGHT}",
        f"[{RIGHT}]",
        f"Sure: {RIGHT}",
        f"```json\n{RIGHT}\n```",
        f"<tool_call>{RIGHT}</tool_call>",
        RIGHT[:-1],
        RIGHT.replace('"', "'"),
        RIGHT.replace("heat", "Heat"),
        RIGHT[:-1] + ', "id": 1}',
        RIGHT[:-2] + ', "more": null}}',
        RIGHT[:-2] + ', "degrees": 7}}',
        json.dumps({"name": "heat", "arguments": {**WANTED["arguments"], "room": None}}),
        json.dumps({"name": "heat", "arguments": RIGHT}),
        json.dumps({"name": "heat", "parameters": WANTED["arguments"]}),
        json.dumps({"name": ["heat"], "arguments": WANTED["arguments"]}),
        changed(degrees="7"),
        changed(degrees=7.0),
        changed(degrees=True),
        changed(room="Attic"),
        changed(room="attic "),
        changed(share="2.5"),
        changed(share=float("nan")),
        changed(share=float("inf")),
        changed(on=1),
        changed(on="on"),
        '{"name": "heat", "arguments": {}}',
    ],
)
def test_anything_else_is_not(said):
    assert strict(said, WANTED) == 0.0


def test_a_whole_number_may_stand_for_a_number():
    assert strict('{"name": "f", "arguments": {"x": 3}}', {"name": "f", "arguments": {"x": 3.0}}) == 1.0


def test_answers_are_read_in_bounded_time():
    assert parse_call(" " * MAX_CALL_CHARS + RIGHT) is None
    assert parse_call("[" * MAX_CALL_CHARS) is None
    assert parse_call('{"a":' * (MAX_CALL_CHARS // 5)) is None


def test_what_is_paid_on_the_way_cannot_add_up_to_a_strict_call():
    task = next(t for t in TASKS if len(t.answer["arguments"]) == 2)
    call, first = task.answer, next(iter(task.answer["arguments"]))
    half = {**call, "arguments": {**call["arguments"], first: "?"}}
    extra = {**call, "arguments": {**call["arguments"], "more": 1, "yet": 2}}
    other, bare = {"name": "?", "arguments": call["arguments"]}, {**call, "arguments": {}}
    said = ["?", *map(json.dumps, (other, bare, half, extra)), f"{json.dumps(call)} ?", json.dumps(call)]
    rewards = [scored(one, [task])[0].reward for one in said]
    assert rewards == pytest.approx([0, 0.1, 0.3, 0.3 + 0.5 * (1 + NAME_ONLY_CREDIT) / 2, 0.3 + 0.5 / 2, 0.7, 1.8])


@pytest.mark.parametrize(
    ("name", "reward", "strict"), [("echo", (0.1, 0.1), 0), ("parrot", (0.1, 0.35), 0), ("guesser", (0.1, 0.5), 0.15)]
)
def test_shortcuts_earn_little(name, reward, strict):
    found = [asyncio.run(rollout(ENV, task, ENV.players[name]())).trajectory.score for task in HELD]
    low, high = reward
    assert low <= sum(one.reward for one in found) / len(found) <= high + 1e-9
    assert sum(one.parts["strict"] for one in found) / len(found) <= strict
    assert {one.parts["form"] for one in found} == {1.0}


def test_the_oracle_is_strict_everywhere():
    for task in HELD + TASKS[:100]:
        played = asyncio.run(rollout(ENV, task, ENV.oracle(task)))
        assert played.trajectory.score.parts["strict"] == 1.0


def test_everything_wanted_is_said_and_the_tool_is_offered_once():
    for task in HELD + TASKS:
        *offered, request = task.prompt[-1].content.splitlines()[1:]
        known = dict(OFFER_PATTERN.fullmatch(one).groups() for one in offered)
        assert 1 <= len(known) == len(offered) == task.info["tools"] <= 3
        takes = [one.split(": ")[0] for one in known[task.answer["name"]].split(", ")]
        assert takes == [*task.answer["arguments"]]
        assert all(value_text(value) in request for value in task.answer["arguments"].values())
        assert "{" not in request


def test_values_and_tools_are_held_out():
    def values(tasks):
        said = {repr(v) for t in tasks for v in t.answer["arguments"].values() if not isinstance(v, bool)}
        return said, {t.answer["name"] for t in tasks}

    trained, names = values(TASKS)
    for kind in ("values", "tools"):
        held, theirs = values([t for t in HELD if t.info["kind"] == kind])
        assert not trained & held
        assert (theirs <= names) is (kind == "values")
        assert theirs.isdisjoint(names) is (kind == "tools")
    assert "blink_lamp" not in names
    spelt = [{name for tool in pool for name in tool.names.split()} for pool in (TRAIN_TOOLS, UNSEEN_TOOLS)]
    assert names == spelt[0]
    assert spelt[0].isdisjoint(spelt[1])


@pytest.mark.parametrize("kind", sorted(VALUE_DRAWERS.keys() - {"switch"}))
def test_every_kind_of_value_has_some_for_both(kind):
    values = {VALUE_DRAWERS[kind](Random(str(n))) for n in range(500)}
    assert {is_held_out_value(value) for value in values} == {True, False}


def test_tasks_are_told_apart_and_counted():
    assert len({t.id for t in HELD + TASKS}) == len(HELD) + len(TASKS) == 2200
    assert [t.info["kind"] for t in ToolCallEnvironment(size=2).tasks("eval")] == ["values", "tools"] * 2
    with pytest.raises(UsageError, match="no split 'test': one of train, eval"):
        next(ENV.tasks("test"))
