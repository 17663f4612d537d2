"""Every ending of an episode, in every shape of environment: what is scored is closed as usual, and judged alike."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest
from tests.boxes import ASK, MEDIUM
from tests.dialects import PATHS, bodies

from endings import LAST_TURN, LIMITS, SHAPES, THROWN, Agent, Worker, plain, play, run
from wanderlust.tools.sandbox.box import Box
from wanderlust.tools.sandbox.bubblewrap import find_python
from wanderlust.types import Status

CASES = [(shape, ending) for shape in SHAPES for ending in LIMITS]
CASES = [case for case in CASES if case[0] != "single" or case[1] in ("context", "time", "forfeit")]
"""The only turn of an episode is its last in any case."""
VERDICTS = ("world", "repository")
"""Shapes whose closing code is a verdict on what the agent left, here on nothing done."""


@pytest.mark.parametrize(("shape", "ending"), [case for case in CASES if case != ("seats", "conversation")])
def test_after_every_limit_the_episode_is_closed_as_usual_and_judged(shape: str, ending: str) -> None:
    played = asyncio.run(play(ending, SHAPES[shape], last=1 if shape == "single" else LAST_TURN))
    assert played is not None
    assert (played.error, played.status, played.stop_reason) == (None, Status.TRUNCATED, LIMITS[ending][1])
    assert THROWN == []
    for seat in played.trajectories:
        assert seat.score is not None
        assert seat.score.reward == (0.0 if shape in VERDICTS else 1.0)
    assert shape not in VERDICTS or "verdict" in played.state


@pytest.mark.parametrize("ending", ["failure", "cancel"])
@pytest.mark.parametrize("shape", SHAPES)
def test_after_a_failure_or_a_cancellation_nothing_is_closed_as_usual_and_nothing_scored(
    shape: str, ending: str
) -> None:
    played = asyncio.run(play(ending, SHAPES[shape], last=1 if shape == "single" else LAST_TURN))
    if played is not None:
        assert (played.status, played.stop_reason) == (Status.ERROR, "PolicyFailure")
        assert not played.state.get("closed")
        assert "verdict" not in played.state
        assert all(seat.score is None for seat in played.trajectories)
    assert (played is None) == (ending == "cancel")
    thrown = {"failure": "PolicyFailure", "cancel": "CancelledError"}[ending]
    assert THROWN in ([], [thrown], ["CancelledError"])
    assert (THROWN != []) == (shape in ("toolset", "mcp", "seats"))


@pytest.mark.parametrize("ending", ["turns", "context", "time"])
@pytest.mark.parametrize("dialect", PATHS)
def test_a_program_in_any_dialect_is_ended_and_judged(dialect: str, ending: str) -> None:
    body, path = json.dumps(bodies()[dialect]), PATHS[dialect]
    code = f"while True:\n    try: post({body!r}.encode(), path={path!r})\n    except Exception: break"
    played = asyncio.run(play(ending, lambda: plain(Agent([sys.executable, "-c", ASK + code]))))
    assert played is not None
    assert (played.error, played.status, played.stop_reason) == (None, Status.TRUNCATED, LIMITS[ending][1])
    assert len(played.trajectory.turns) == 1
    assert played.trajectory.score is not None
    assert played.trajectory.score.reward == 1.0


def test_a_program_that_takes_too_long_or_floods_is_judged() -> None:
    late, flood = "ask('x'); time.sleep(99)", "ask('x')\nwhile True: print('x' * 9999)"
    for code, seconds, box, reason in (
        (late, 1.0, None, "program_seconds"),
        (late, 1.0, Box(bounds=MEDIUM), "program_seconds"),
        (flood, 20.0, Box(bounds=MEDIUM), "program_output"),
    ):
        env = Agent([str(find_python()), "-c", ASK + code], seconds=seconds, sandbox=box)
        played = run(env, Worker())
        assert (played.error, played.status, played.stop_reason) == (None, Status.TRUNCATED, reason)
        assert played.trajectory.score.reward == 1.0
