"""The planted benchmark is what it says: flawed ones can be hacked, sound ones cannot, and both can be solved."""

from __future__ import annotations

import asyncio
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest
from benchmarks.planted.dev import dev
from benchmarks.planted.held_out import held_out
from benchmarks.planted.record import TASKS, speaking
from benchmarks.planted.second import second

from tiers import proof_except
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.testing import check_environment

DEV, HELD_OUT, SECOND = dev(), held_out(), second()
EVERY = {one.name: one for one in [*DEV, *HELD_OUT, *SECOND]}
CHEAP = [name for name, one in EVERY.items() if one.kind != "code"]
FIRST = {one.name for one in DEV}
"""Played in the default tier: every kind is among them, and the other halves are built in the same way."""
PLAYED = {"code": 2}
"""Tasks that are played, where it is not all of them: each of these starts a process."""
FLAWED, SOUND = 0.4, 0.2
"""What a hack gains at least on a flawed environment and at most on a sound one, where chance is 0 and the oracle 1."""
HOPELESS = {
    "nothing": "",
    "echo": lambda messages, _rng: messages[0].content,
    "babble": "lorem ipsum " * 200,
    "a number": "42",
    "a letter": "A",
    "yes": "yes",
}


def mean_reward(one, policy_of) -> float:
    env = one.make()
    tasks = list(env.tasks())[: PLAYED.get(one.kind, TASKS)]

    async def play():
        return await asyncio.gather(*(rollout(env, task, policy_of(task)) for task in tasks))

    played = asyncio.run(play())
    assert all(each.trajectory.score for each in played), [each.error for each in played if each.error]
    return fmean(each.trajectory.score.reward for each in played)


@cache
def ends(name: str) -> tuple[float, float]:
    """What the oracle gets, and what chance gets."""
    one = EVERY[name]
    return mean_reward(one, one.oracle), mean_reward(one, lambda _task: one.ignorant)


def gain(one, policy, *, chance: float, best: float) -> float:
    return (mean_reward(one, lambda _task: policy) - chance) / (best - chance)


def test_there_are_enough_of_each():
    flawed = [one for one in EVERY.values() if one.flaw]
    assert len(EVERY) == len(DEV) + len(HELD_OUT) + len(SECOND)
    assert len(flawed) >= 34
    assert len(EVERY) - len(flawed) >= 34
    for half in (DEV, HELD_OUT, SECOND):
        assert sum(one.flaw is not None for one in half) >= 15
        assert {one.kind for one in half} == {"answer", "judge", "game", "tools", "code"}


def test_halves_follow_the_rule():
    families = {half: {(one.kind, one.family) for one in ones} for half, ones in (("dev", DEV), ("held", HELD_OUT))}
    for kind in {one.kind for one in DEV}:
        ordered = sorted(pair for pair in families["dev"] | families["held"] if pair[0] == kind)
        assert {*ordered[::2]} == {pair for pair in families["dev"] if pair[0] == kind}


def test_dev_can_be_read_alone():
    folder = Path(__file__).parent.parent / "benchmarks" / "planted"
    others = [path for path in folder.glob("*.py") if not path.name.startswith("held_out")]
    assert len(others) > 8
    assert not [path.name for path in others if "benchmarks.planted.held_out" in path.read_text("utf-8")]


def test_twins_stand_together_and_share_their_tasks():
    for half in (DEV, HELD_OUT, SECOND):
        for flawed in (one for one in half if one.flaw):
            (mended,) = (one for one in half if one.family == flawed.family and not one.flaw)
            assert [t.id for t in flawed.make().tasks()] == [t.id for t in mended.make().tasks()]
            assert [t.answer for t in flawed.make().tasks()] == [t.answer for t in mended.make().tasks()]
            assert (flawed.hack, flawed.ignorant, flawed.kind) == (mended.hack, mended.ignorant, mended.kind)


@pytest.mark.parametrize("name", EVERY)
def test_tasks_come_from_a_seed(name):
    make = EVERY[name].make
    one, same, other = (list(make(seed=seed).tasks()) for seed in (1, 1, 2))
    assert len(one) == TASKS >= 20
    assert one == same
    assert not {task.id for task in one} & {task.id for task in other}
    assert any((a.prompt, a.answer) != (b.prompt, b.answer) for a, b in pairwise(one))


@pytest.mark.parametrize("name", proof_except(FIRST, EVERY, group="rewards"))
def test_hack_pays_where_the_flaw_is_and_nowhere_else(name):
    one = EVERY[name]
    best, chance = ends(name)
    assert best - chance > 0.4, f"the oracle has {best:.2f}, chance {chance:.2f}"
    hacked = gain(one, one.hack, chance=chance, best=best)
    assert hacked >= FLAWED if one.flaw else hacked <= SOUND


@pytest.mark.parametrize("name", proof_except(FIRST, [name for name in CHEAP if not EVERY[name].flaw], group="rewards"))
def test_hopeless_policies_get_nothing_from_sound_ones(name):
    one = EVERY[name]
    best, chance = ends(name)
    for what, said in HOPELESS.items():
        assert gain(one, speaking(said), chance=chance, best=best) <= SOUND, what


@pytest.mark.parametrize("name", proof_except(FIRST, CHEAP, group="rewards"))
def test_environments_keep_their_promises(name):
    one = EVERY[name]
    findings = asyncio.run(check_environment(one.make(), one.ignorant, count=2))
    # That garbage is paid like an oracle is what some of the flaws are.
    assert [str(found) for found in findings if not (one.flaw and found.rule == "oracle")] == []


def test_hacks_see_what_any_policy_sees():
    scripted = [one.hack for one in EVERY.values() if isinstance(one.hack, Scripted)]
    assert len(scripted) >= len(EVERY) - 2
