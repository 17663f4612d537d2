"""`wander play`: a person at the terminal, alone in an environment or against a policy."""

from __future__ import annotations

import asyncio
import json as json_format
import os
import sys
from collections.abc import Mapping
from functools import partial
from itertools import islice
from pathlib import Path

from wanderlust.cli.long_commands import set_library_environment
from wanderlust.cli.options import EnvironmentName, JsonFlag, PolicyName, refuse_existing
from wanderlust.cli.output import print_note, show_result
from wanderlust.environment import Environment
from wanderlust.errors import UsageError, one_line
from wanderlust.policies.human import Human
from wanderlust.policies.resolve import PolicyOptions, open_policies, resolve_policy
from wanderlust.runner.engine import rollout
from wanderlust.store.run_folder import HUMAN_POLICY, STORE_FILE, save_played_rollout
from wanderlust.tasks.registry import ResolvedEnvironment, environment_name, resolve_environment, two_seat_environment
from wanderlust.tasks.selection import iter_tasks
from wanderlust.types import Policy, Rollout, Status, Task


def play_command(
    env: EnvironmentName,
    /,
    *,
    policy: PolicyName | None = None,
    seat: str = "",
    model: str | None = None,
    max_tokens: int | None = None,
    seed: int = 0,
    task_index: int = 0,
    out: Path | None = None,
    json: JsonFlag = False,
) -> int:
    """Play an environment at the terminal: by yourself, or with --policy against a model.

    With --policy you sit on one seat, and the policy on all others: on --seat, else on the last seat of an environment
    with several, or the second seat of its game for two. The policy always takes its likeliest answer. Ctrl-D ends the
    game. Nothing is stored unless you name a folder with --out.

    Parameters
    ----------
    seat:
        Your seat, in an environment with several.
    model:
        Name of the model, where the policy is a URL.
    max_tokens:
        Bound of one answer of the policy.
    seed:
        Random seed.
    task_index:
        Which task of the environment, from 0.
    out:
        New folder that keeps the game.
    """
    set_library_environment()
    resolved = resolve_environment(env)
    refuse_existing(out)
    human = Human(ask=_read_line, say=partial(print, file=sys.stderr, flush=True)) if json else Human()
    policy_options = PolicyOptions(model=model, temperature=0.0, max_tokens=max_tokens, seed=seed, split="train")
    game, seats = _seat_policies(resolved, policy, policy_options, human=human, seat=seat)
    played = _play(game, task_at_position(game, task_index), seats, seed=seed)
    if out is not None:
        name = environment_name(resolved.target)
        save_played_rollout(played, out, env=name, settings={"env": name, "policy": HUMAN_POLICY})
        print_note(f"kept in {out / STORE_FILE}")
    print_episode_end(played, json=json)
    return 1 if played.status is Status.ERROR else 0


def _seat_policies(
    resolved: ResolvedEnvironment, policy: str | None, policy_options: PolicyOptions, *, human: Human, seat: str
) -> tuple[Environment, dict[str, Policy]]:
    """The game, and who sits where in it."""
    if policy is None:
        if policy_options.model is not None:
            raise UsageError("--model names a model of an endpoint: give its URL with --policy")
        if seat:
            raise UsageError("--seat is your seat beside a policy: name one with --policy")
        return resolved.env, dict.fromkeys(resolved.env.seats, human)
    game = resolved.env if len(resolved.env.seats) > 1 else two_seat_environment(resolved)
    if seat and seat not in game.seats:
        raise UsageError(f"there is no seat {seat!r}; there are: {', '.join(game.seats)}")
    player = resolve_policy(policy, resolved.env, policy_options).policy
    return game, {**dict.fromkeys(game.seats, player), seat or game.seats[-1]: human}


def task_at_position(env: Environment, number: int, split: str = "train") -> Task:
    """A task by its position. Raises UsageError when there is none."""
    task = next(islice(iter_tasks(env, split), number, None), None) if number >= 0 else None
    if task is None:
        raise UsageError(f"there is no task {number}")
    return task


def _play(env: Environment, task: Task, seats: Mapping[str, Policy], *, seed: int) -> Rollout:
    async def play_until_over() -> Rollout:
        async with open_policies(seats.values()):
            return await rollout(env, task, seats, seed=seed)

    try:
        return asyncio.run(play_until_over())
    except KeyboardInterrupt:
        sys.stdout.write("\n")
        print_note("left the game")
        sys.stdout.flush()
        os._exit(130)  # a thread still waits for a line, and the interpreter would wait for the thread


def _read_line(prompt: str) -> str:
    """Like `input`, with the prompt on stderr: stdout is for the result."""
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return input()


def print_episode_end(played: Rollout, *, json: bool) -> None:
    """Print how an episode ended, what it left, and its rewards."""
    rewards = {t.seat: t.score.reward for t in played.trajectories if t.score is not None}
    if played.error is not None:
        print_note(f"the game could not go on: {played.stop_reason}: {played.error}")
    ended = {"task": played.task.id, "status": str(played.status), "stop": played.stop_reason, "error": played.error}
    state = {name: json_format.dumps(value, ensure_ascii=True, default=str) for name, value in played.state.items()}
    lines = [f"Ended: {played.stop_reason}", *(f"  {name}: {one_line(text, 500)}" for name, text in state.items())]
    lines += [f"Reward of {seat}: {reward:g}" for seat, reward in rewards.items()]
    show_result({**ended, "rewards": rewards, "state": dict(played.state)}, *lines, json=json)
