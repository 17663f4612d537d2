"""`wander watch`: one episode at the terminal, turn by turn, as it is played."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from wanderlust.agent import release_conversation
from wanderlust.cli.long_commands import stoppable
from wanderlust.cli.options import ANSWER_DEFAULTS, EnvironmentName, ModelOptions, PolicyName
from wanderlust.cli.play_command import print_episode_end, task_at_position
from wanderlust.environment import Environment
from wanderlust.errors import printable
from wanderlust.policies.resolve import open_policies, resolve_policy, resolve_seats
from wanderlust.runner.engine import RolloutJob, RolloutSettings
from wanderlust.tasks.registry import resolve_environment
from wanderlust.types import Completion, Message, Policy, Rollout, Status, SupportsStreaming, Task, Tool


def watch_command(
    env: EnvironmentName,
    /,
    *,
    policy: PolicyName,
    answer_options: ModelOptions = ANSWER_DEFAULTS,
    seats: str = "",
    split: str = "eval",
    task_index: int = 0,
    sample: int = 0,
) -> int:
    """Watch a policy play one task: every message, answer and tool call as it comes, then the reward.

    Nothing is stored; `wander eval --out` and the studio keep rollouts. The exit code is 1 when the rollout failed.

    Parameters
    ----------
    seats:
        Seats that other policies play: SEAT=POLICY, several with spaces between.
    split:
        Split of the environment.
    task_index:
        Which task of the split, from 0.
    sample:
        Which sample of the task, from 0: another one draws otherwise.
    """
    with stoppable(lambda: "left the game"):
        resolved = resolve_environment(env)
        options = replace(answer_options.policy_options(greedy=False), split=split)
        player = resolve_policy(policy, resolved.env, options).policy
        players = dict.fromkeys(resolved.env.seats, player) | resolve_seats(seats.split(), resolved.env, options)
        task = task_at_position(resolved.env, task_index, split)
        played = asyncio.run(_watch(resolved.env, task, players, seed=answer_options.seed, sample=sample))
    print_episode_end(played, json=False)
    return 1 if played.status is Status.ERROR else 0


async def _watch(env: Environment, task: Task, players: dict[str, Policy], *, seed: int, sample: int) -> Rollout:
    def say(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    watched = {seat: Watched(policy, say, seat=seat) for seat, policy in players.items()}
    async with open_policies(players.values()):
        return await RolloutSettings(env=env, policy=watched).run(RolloutJob(task, seed, sample_index=sample))


class Watched:
    """Answers as `policy` does, with the same draws, and says what is new in each turn.

    `say` gets texts without an end of line. Text is shown as it is written where the policy is SupportsStreaming.
    Control characters of environments and models are not printed.
    """

    def __init__(self, policy: Policy, say: Callable[[str], object], *, seat: str = "agent"):
        self.policy, self._say, self._seat = policy, say, seat
        self._shown: dict[str, list[Message]] = {}

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The policy's answer."""
        shown = self._shown.get(key, [])
        known = len(shown) if list(messages[: len(shown)]) == shown else 0
        for message in messages[known:]:
            self._say(f"\n[{message.role}]\n{printable(message.content)}\n")
        self._say(f"\n[{self._seat}]\n")
        written = ""
        if isinstance(self.policy, SupportsStreaming):

            def write(text: str) -> None:
                nonlocal written
                written += text
                self._say(printable(text))

            done = await self.policy.complete_streaming(write, messages, tools, key=key)
        else:
            done = await self.policy.complete(messages, tools, key=key)
        self._say(printable(done.message.content.removeprefix(written)) + "\n")
        for call in done.message.tool_calls:
            self._say(f"{printable(call.name)}({printable(call.arguments)})\n")
        self._shown[key] = [*messages, done.message]
        return done

    def release(self, key: str) -> None:
        """Forget what was shown of the conversation `key`."""
        self._shown.pop(key, None)
        release_conversation(self.policy, key)
