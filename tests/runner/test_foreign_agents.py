"""Agents of other projects play in boxes, unmodified, and a model is trained through them.

Runs where `make peers` has installed them.
"""

from __future__ import annotations

import asyncio

import pytest
from benchmarks.boxed_training import Writer, WritesFile, start_model, train_in_box
from benchmarks.foreign_agents import AGENTS, COMMANDS, boxed

from wanderlust.runner.engine import rollout

QUICK = ("codex", "pi", "mini-swe-agent")
"""One for each language, which play in the default tier."""


def installed(*, quick):
    """The agents as parameters, skipped where they are not installed; only the quick ones stay in the default tier."""
    for agent in AGENTS:
        marks = [pytest.mark.skipif(not agent.installed, reason=f"{agent.name} is not installed: make peers")]
        if agent.name not in quick:
            marks.append(pytest.mark.proof("agents"))
        yield pytest.param(agent, id=agent.name, marks=marks)


@pytest.mark.parametrize("agent", [*installed(quick=QUICK)])
def test_an_agent_does_its_task_in_a_box(agent):
    env = boxed(agent, WritesFile)
    played = asyncio.run(rollout(env, env.tasks()[0], Writer()))
    assert (played.error, played.trajectory.score.parts["written"]) == (None, 1.0)
    assert played.state["door"]["requests"] >= len(played.trajectory.turns) >= 1


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start")
    start_model(folder)
    return folder


@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
@pytest.mark.parametrize("agent", [*installed(quick=())])
def test_a_model_is_trained_through_an_agent_in_a_box(agent, start, tmp_path):
    trained = train_in_box(agent, tmp_path / "run", start=start)
    assert trained.met, trained


def test_the_commands_among_them():
    assert len(COMMANDS) >= 3
    assert len({agent.language for agent in AGENTS}) >= 3
