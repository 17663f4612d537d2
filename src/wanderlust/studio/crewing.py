"""Who plays an evaluation: this process, or the workers of Ray."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

from wanderlust.core.contracts import Policy
from wanderlust.core.extras import load
from wanderlust.environments.named import environment
from wanderlust.rollout.engine import Crew, Play
from wanderlust.studio.arguments import opened
from wanderlust.studio.options import Hands
from wanderlust.studio.resolve import SCRIPT, Found, Voice, policy_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The policy of an evaluation as it was named: all that a worker needs to make it."""

    policy: str
    voice: Voice


@asynccontextmanager
async def at_work(hands: Hands, policy: Policy, *, most: int) -> AsyncIterator[int | Crew]:
    """Whoever plays at most so many episodes at once: this process, or a crew that leaves with the block.

    Raises UsageError or WorkerFailure of one line when there is no Ray, or its workers do not start.
    """
    if hands.ray is None:
        async with opened([policy]):
            yield most
        return
    crew = load("wanderlust.rollout.ray_crew:ray_crew", extra="ray")
    async with crew(hands.ray, each=ceil(most / hands.ray), address=hands.ray_address) as workers:
        yield workers


def sendable(play: Play, found: Found, named: Named, *, workers: int) -> Play:
    """The same play, whose environment and policy are made where it is played."""
    remade = load("wanderlust.rollout.ray_sending:Remade", extra="ray")
    voice = replace(named.voice, concurrency=ceil(named.voice.concurrency / workers))
    policy = remade(policy_of, _anywhere(named.policy), found.target, voice)
    return replace(play, env=remade(environment, found.target), policy=policy)


def _anywhere(policy: str) -> str:
    """The same policy from any folder."""
    file, colon, member = policy.rpartition(":")
    if SCRIPT.fullmatch(policy) and file.endswith(".py"):
        return f"{Path(file).resolve()}{colon}{member}"
    return str(Path(policy).resolve()) if Path(policy).exists() else policy
