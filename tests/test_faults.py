"""Rollouts against a server of which every third answer is a fault: all end, labelled, and no fault is a score of 0."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter

import pytest
from aiohttp.test_utils import TestServer

from faults import KINDS, Faults, app
from wanderlust.environment import Environment, Limits
from wanderlust.policies import endpoint
from wanderlust.policies.endpoint import Endpoint
from wanderlust.runner.engine import rollouts
from wanderlust.types import DeclaredTool, Status, Task, tool_message, user

ROLLOUTS = int(os.environ.get("FAULTY_ROLLOUTS", "300"))
ADD = DeclaredTool(
    name="add", schema={"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
)


class Sum(Environment):
    """A tool loop as one writes it: what a model gets wrong is told to it."""

    limits = Limits(max_turns=8)

    async def run(self, episode):
        said = await episode.agent.act(user("What is 40 + 2?"), tools=[ADD])
        while said.tool_calls:
            (call,) = said.tool_calls
            said = await episode.agent.act(tool_message(self.result(call), call), tools=[ADD])
        episode.reward("right", float(said.content == "42"))

    def result(self, call):
        if call.name != "add":
            return f"there is no tool {call.name!r}"
        try:
            given = json.loads(call.arguments)
        except ValueError as error:
            return f"the arguments are no JSON: {error}"
        return str(given["a"] + given["b"])


async def faulty(count):
    faults, ended, walls = Faults(), Counter(), Counter()
    async with TestServer(app(faults), handler_cancellation=True) as server:
        policy = Endpoint(str(server.make_url("/v1")), "m", timeout=1.0, concurrency=64)
        tasks = (Task(id=str(n)) for n in range(count))
        async with policy, rollouts(Sum(), tasks, policy, concurrency=128) as groups:
            async for group in groups:
                (played,) = group.rollouts
                ended[
                    played.status, played.stop_reason, played.trajectory.score and played.trajectory.score.reward
                ] += 1
                if played.error:
                    walls[played.error.partition("completions: ")[2][:20]] += 1
        return faults.told, ended, walls, policy.throttle.limit


def test_every_rollout_ends_completed_or_labelled_and_no_fault_is_a_score(monkeypatch):
    monkeypatch.setattr(endpoint, "FIRST_PAUSE_SECONDS", 0.02)
    told, ended, walls, limit = asyncio.run(faulty(ROLLOUTS))
    print(dict(told), dict(ended), dict(walls), limit)
    assert told.keys() == {kind.__name__ for kind in KINDS} | {"well"}
    assert sum(told.values()) - told["well"] == pytest.approx(0.3 * sum(told.values()), rel=0.2)
    done = ended[Status.DONE, "done", 1.0]
    labelled = ended[Status.ERROR, "PolicyFailure", None]
    truncated = ended[Status.TRUNCATED, "max_turns", 0.0]  # the model's own: eight wrong calls
    assert done + labelled + truncated == ROLLOUTS == sum(ended.values())
    assert done >= 0.98 * ROLLOUTS
    assert truncated <= 0.001 * ROLLOUTS
    assert sum(walls.values()) == labelled
