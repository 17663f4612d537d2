"""Worlds of Gymnasium, played for real."""

import asyncio
from collections import deque
from itertools import islice

import pytest

from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.testing import check_environment
from wanderlust_gymnasium.environment import FrozenLake, GymnasiumText, Taxi, parse_action


def play(env, script, seed=0, task=None):
    policy = {seat: Scripted(s) for seat, s in script.items()} if isinstance(script, dict) else Scripted(script)
    return asyncio.run(rollout(env, task or next(iter(env.tasks())), policy, seed=seed))


def rewards(played):
    return [seat.score.reward for seat in played.trajectories]


@pytest.fixture
def gymnasium():
    return pytest.importorskip("gymnasium", reason="not installed: pip install 'wanderlust[gymnasium]'")


def crossing(messages, rng):
    """Walks the shortest way around the holes that it sees."""
    rows = messages[-1].content.splitlines()[-4:]
    here = next((r, row.index("[")) for r, row in enumerate(rows) if "[" in row)
    plain = [row.replace("[", "").replace("]", "") for row in rows]
    moves = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
    queue, seen = deque([(here, "")]), {here}
    while queue:
        (r, c), first = queue.popleft()
        if plain[r][c] == "G":
            return f"<action>{first}</action>"
        for name, (down, right) in moves.items():
            cell = (r + down, c + right)
            if cell not in seen and min(cell) >= 0 and max(cell) < 4 and plain[cell[0]][cell[1]] != "H":
                seen.add(cell)
                queue.append((cell, first or name))
    return "stuck"


def test_frozen_lake(gymnasium):
    played = play(FrozenLake(), crossing)
    assert (rewards(played), played.state) == ([1.0], {"steps": 6, "invalid": 0})
    assert played.trajectory.turns[0].observation[1].content.startswith("[S]FFF\nFHFH")
    assert rewards(play(FrozenLake(), lambda messages, rng: "<action>right</action>")) == [0.0]
    idle = play(FrozenLake(), lambda messages, rng: "right")
    assert (idle.stop_reason, idle.state["invalid"]) == ("max_turns", 100)
    slippery = [play(FrozenLake(slippery=True), crossing, seed=seed) for seed in (1, 1, 2)]
    assert slippery[0].trajectories == slippery[1].trajectories != slippery[2].trajectories


def test_taxi(gymnasium):
    env = Taxi()
    wrong = play(env, lambda messages, rng: "<action>dropoff</action>")
    assert rewards(wrong)[0] < -100
    first, second = (next(islice(env.tasks(), n, None)) for n in (0, 1))
    shown = [
        play(env, ["<action>south</action>"], task=t).trajectory.turns[0].observation[1].content
        for t in (first, second)
    ]
    assert shown[0] != shown[1]
    assert all(view.startswith("+---------+") and "\x1b" not in view for view in shown)


def test_worlds_keep_their_promises(gymnasium):
    for env in (FrozenLake(slippery=True), Taxi()):
        assert asyncio.run(check_environment(env, count=2)) == []
        walker = Scripted(lambda messages, rng, e=env: f"<action>{rng.choice(e.actions)}</action>")
        assert asyncio.run(check_environment(env, walker, count=2)) == []


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (GymnasiumText("NoSuchWorld-v1", actions=["a"]), "Gymnasium cannot make 'NoSuchWorld-v1'"),
        (GymnasiumText("FrozenLake-v1", actions=["a"]), "FrozenLake-v1 has 4 actions, and 1 names were passed"),
    ],
)
def test_worlds_that_cannot_be_made_are_one_line(gymnasium, env, says):
    played = play(env, ["x"])
    assert says in played.error
    assert "\n" not in played.error


def test_reading_takes_the_last_action():
    assert parse_action("<action>left</action> no: <action> Up </action>") == "up"
    assert parse_action("left") == ""
