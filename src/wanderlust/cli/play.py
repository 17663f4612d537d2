"""`wander play`: a person at the terminal, alone in an environment or against a policy."""

from __future__ import annotations

import asyncio
import json as json_format
import os
import sys
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from wanderlust.cli.options import Environments, Json, Policies, fresh
from wanderlust.cli.output import note, result, result_json
from wanderlust.cli.progress import hush
from wanderlust.environment import Environment
from wanderlust.errors import UsageError, one_line
from wanderlust.policies.human import Human
from wanderlust.policies.resolve import Voice, find_policy, opened, written
from wanderlust.runner.engine import rollout
from wanderlust.store.run_folder import HAND, STORE, keep
from wanderlust.tasks.registry import Found, find_environment, for_two
from wanderlust.types import Policy, Rollout, Status, Task


def play(
    env: Environments,
    /,
    *,
    policy: Policies | None = None,
    model: str | None = None,
    max_tokens: int | None = None,
    seed: int = 0,
    task: int = 0,
    out: Path | None = None,
    json: Json = False,
) -> int:
    """Play an environment at the terminal: by yourself, or with --policy against a model.

    With --policy you sit on the second seat of the environment's game for two; the policy always takes its likeliest
    answer. Ctrl-D ends the game. Nothing is stored unless you name a folder with --out.

    Parameters
    ----------
    model:
        Name of the model, where the policy is a URL.
    max_tokens:
        Bound of one answer of the policy.
    seed:
        Of everything random.
    task:
        Which task of the environment, from 0.
    out:
        New folder that keeps the game.
    """
    hush()
    found = find_environment(env)
    fresh(out)
    human = Human(ask=_ask, say=_say) if json else Human()
    voice = Voice(model=model, temperature=0.0, max_tokens=max_tokens, seed=seed)
    game, seats = _seated(found, policy, voice, human=human)
    played = _play(game, task_at(game, task), seats, seed=seed)
    if out is not None:
        keep(played, out, env=found.name, settings={"env": written(found), "policy": HAND})
        note(f"kept in {out / STORE}")
    _tell(played, json=json)
    return 1 if played.status is Status.ERROR else 0


def _seated(found: Found, policy: str | None, voice: Voice, *, human: Human) -> tuple[Environment, dict[str, Policy]]:
    """The game, and who sits where in it."""
    if policy is None:
        if voice.model is not None:
            raise UsageError("--model names a model of an endpoint: give its URL with --policy")
        return found.env, dict.fromkeys(found.env.seats, human)
    game = for_two(found)
    first, *others = game.seats
    return game, {first: find_policy(policy, found.env, voice).policy, **dict.fromkeys(others, human)}


def task_at(env: Environment, number: int, split: str = "train") -> Task:
    """A task by its position. Raises UsageError when there is none."""
    task = next(islice(env.tasks(split), number, None), None) if number >= 0 else None
    if task is None:
        raise UsageError(f"there is no task {number}")
    return task


def _play(env: Environment, task: Task, seats: Mapping[str, Policy], *, seed: int) -> Rollout:
    try:
        return asyncio.run(_hold(env, task, seats, seed=seed))
    except KeyboardInterrupt:
        sys.stdout.write("\n")
        note("left the game")
        sys.stdout.flush()
        os._exit(130)  # a thread still waits for a line, and the interpreter would wait for the thread


async def _hold(env: Environment, task: Task, seats: Mapping[str, Policy], *, seed: int) -> Rollout:
    async with opened(seats.values()):
        return await rollout(env, task, seats, seed=seed)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _ask(prompt: str) -> str:
    """Like `input`, with the prompt on stderr: stdout is for the result."""
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return input()


def _tell(played: Rollout, *, json: bool) -> None:
    rewards = {t.seat: t.score.reward for t in played.trajectories if t.score is not None}
    if played.error is not None:
        note(f"the game could not go on: {played.stop}: {played.error}")
    if json:
        body = {"task": played.task.id, "status": str(played.status), "stop": played.stop, "error": played.error}
        result_json({**body, "rewards": rewards, "state": dict(played.state)})
        return
    result(None, f"Ended: {played.stop}")
    for name, value in played.state.items():
        result(None, f"  {name}: {one_line(json_format.dumps(value, ensure_ascii=True, default=str), 500)}")
    for seat, reward in rewards.items():
        result(None, f"Reward of {seat}: {reward:g}")
