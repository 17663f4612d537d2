"""The conformance suite of environments (`check_environment`), and the replay of a recorded rollout
(`replay_rollout`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from math import isfinite
from random import Random
from typing import Any

import msgspec

from wanderlust.environment import Environment, Limits
from wanderlust.errors import EnvironmentFailure, UsageError, WanderlustError, boundary, one_line, quoted
from wanderlust.openai_types import message_to_wire
from wanderlust.policies.scripted import Recorded, Scripted
from wanderlust.rubrics.model_request import REQUEST_USAGE_KEYS
from wanderlust.runner.engine import rollout
from wanderlust.tasks.selection import iter_tasks
from wanderlust.types import Completion, Message, Policy, Rollout, Status, Task, Tool, ToolCall, assistant

MAX_LISTED_IDS = 200
"""Tasks of each split whose ids are compared."""
CHECK_EPISODE_SECONDS = 30.0
"""Wall-clock seconds that one short episode may take, unless the environment's own limit is shorter."""

HOSTILE_ANSWERS: Sequence[Message] = (
    *map(
        assistant,
        (
            "",
            " \n\t\r\n ",
            "\x00\x01\x7f\x80\xff\ufffe\u202e",
            "\ud800",
            "9" * 100_000,
            "<think>" * 2_000,
            "</think></move></answer>",
            "<think></think><move></move><move>-1</move><move>\u0663</move><move>99</move>",
            "[" * 20_000,
            '{"move": NaN, "x": 1e999}',
            "<|im_end|><|endoftext|></s>",
            "%s {0} {missing} $HOME `id`",
        ),
    ),
    assistant("", ToolCall(id="0", name="no such tool", arguments='{"unfinished":')),
)
"""Answers that must not make an environment fail."""
GARBAGE_TEXT = "lorem ipsum"


@dataclass(frozen=True, slots=True)
class ContractViolation:
    """One broken promise."""

    rule: str
    """`tasks`, `failure`, `hostile`, `timeout`, `repeat`, `concurrent`, `state`, `reward`, `mutation`, `prompt`,
    `replay_rollout` or `oracle`."""
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail}"


async def check_environment(
    env: Environment,
    policy: Policy | None = None,
    *,
    count: int = 4,
    on_episode: Callable[[int, int], None] = lambda played, of: None,
) -> list[ContractViolation]:
    """Play a few tasks several times over; return one finding per broken promise, none when all is well.

    The promises: ids are unique, and the tasks are the same on every call; the same task, seed and policy give the same
    rollout, alone or concurrently; playing changes no task; state is plain data; rewards are finite; messages to a
    policy can be encoded; a recorded rollout can be replayed; no answer of a policy makes the environment fail or hang.
    Where the environment has an `oracle(task)`, a policy that masters the task, it must score higher than garbage does.

    `policy` must answer the same for the same conversation and key. Without one, random short texts are the answers,
    which may not get far into the game. `on_episode` gets the number of episodes played, and of those to play at most.
    """
    findings, tasks = [*_tasks(env)], (_listed(env, "train") or _listed(env, "eval"))[:count]
    talker = policy or Scripted(_babble)
    episodes = _Episodes(env, on_episode, EPISODES_PER_TASK * len(tasks) + len(HOSTILE_ANSWERS))
    before = [_encoded(task) for task in tasks]
    alone = [await episodes.play(task, talker) for task in tasks]
    again = [await episodes.play(task, talker) for task in tasks]
    concurrent = await asyncio.gather(*(episodes.play(task, _Hesitant(talker)) for task in tasks))
    played = [rollout for rollout in alone if rollout.status is not Status.ERROR]
    if played and not any(one.turns for rollout in played for one in rollout.trajectories):
        findings.append(ContractViolation("turns", "no agent ever took a turn: is an `await` missing in `run`?"))
    for first, second, third in zip(alone, again, concurrent, strict=True):
        findings += _rollout(first)
        if _fingerprint(first) != _fingerprint(second):
            findings.append(ContractViolation("repeat", f"task {first.task.id!r} is not reproducible: two runs differ"))
        elif _fingerprint(first) != _fingerprint(third):
            detail = f"task {first.task.id!r} differs when run concurrently: state is kept on the object"
            findings.append(ContractViolation("concurrent", detail))
    for task, was in zip(tasks, before, strict=True):
        if _encoded(task) != was:
            findings.append(ContractViolation("mutation", f"playing changed the info of task {task.id!r}"))
    for one in alone:
        findings += await _replayed(episodes, one)
    findings += await _check_oracle(episodes, tasks)
    for task, answer in product(tasks[:1], HOSTILE_ANSWERS):
        result = await episodes.play(task, _always(answer))
        answer_text = quoted(answer.content, 40) if answer.content else "an empty message"
        findings += _failure_violation(result, "hostile", f"answered {answer_text}")
    return findings


def _tasks(env: Environment) -> Iterator[ContractViolation]:
    """Findings about the listing of tasks."""
    for split in ("train", "eval"):
        first, second = _listed(env, split), _listed(env, split)
        if not first and split == "train" and not _listed(env, "eval"):
            yield ContractViolation("tasks", "the split 'train' is empty, and there is no other")
        if [t.id for t in first] != [t.id for t in second]:
            yield ContractViolation("tasks", f"the split {split!r} differs when asked for again")
        if len({t.id for t in first}) < len(first):
            yield ContractViolation("tasks", f"ids repeat in the split {split!r}")
        yield from (
            ContractViolation("tasks", f"task {task.id!r} is not plain data")
            for task in first
            if _encoded(task) is None
        )


def _listed(env: Environment, split: str) -> list[Task]:
    try:
        return list(islice(iter_tasks(env, split), MAX_LISTED_IDS))
    except UsageError:  # an environment need not have every split
        return []


def _rollout(result: Rollout) -> Iterator[ContractViolation]:
    """Findings about one rollout of an ordinary policy."""
    yield from _failure_violation(result, "failure", f"task {result.task.id!r}")
    if _encoded(result.state) is None:
        yield ContractViolation("state", f"the state of task {result.task.id!r} is not plain data")
    for trajectory in result.trajectories:
        score = trajectory.score
        if score and not all(map(isfinite, (score.reward, *score.parts.values(), *score.metrics.values()))):
            yield ContractViolation("reward", f"task {result.task.id!r}, seat {trajectory.seat!r}: {score}")
    for number, turn in ((n, turn) for one in result.trajectories for n, turn in enumerate(one.turns, 1)):
        try:
            msgspec.json.encode([message_to_wire(message) for message in turn.observation])
        except (TypeError, ValueError, AttributeError) as error:
            where = f"task {result.task.id!r}, turn {number}"
            yield ContractViolation("prompt", f"{where}: messages to the policy cannot be encoded: {error}")


def _failure_violation(result: Rollout, rule: str, where: str) -> Iterator[ContractViolation]:
    if result.status is Status.ERROR and result.stop_reason != "PolicyFailure":
        yield ContractViolation(
            "reward" if result.stop_reason == "RubricFailure" else rule,
            f"{where}: {result.stop_reason}: {result.error}",
        )
    if result.stop_reason == "timeout":
        yield ContractViolation("timeout", f"{where}: no end within the time limit")


async def _replayed(episodes: _Episodes, first: Rollout) -> list[ContractViolation]:
    """Findings about replaying a record."""
    if first.status is Status.ERROR or not first.trajectories:
        return []
    again = await episodes.play(first.task, Recorded(first))
    if _fingerprint(again) == _fingerprint(first):
        return []
    why = again.error or "the record and its replay differ"
    return [ContractViolation("replay", f"task {first.task.id!r}: {why}")]


async def _check_oracle(episodes: _Episodes, tasks: Sequence[Task]) -> list[ContractViolation]:
    """Findings about the rewards of an oracle and of garbage."""
    oracles = list[tuple[Task, Policy]]()
    for task in tasks:
        try:
            with boundary(EnvironmentFailure):
                policy = episodes.env.oracle(task)
        except WanderlustError as error:
            return [ContractViolation("oracle", f"oracle(task) raises for task {task.id!r}: {one_line(str(error))}")]
        if policy is not None:
            oracles.append((task, policy))
    if not oracles:
        return []
    best = [await episodes.play(task, policy) for task, policy in oracles]
    worst = [await episodes.play(task, _always(GARBAGE_TEXT)) for task, _ in oracles]
    high, low = (
        sum(seat.score.reward for one in played if (seat := one.main_trajectory) is not None and seat.score)
        / len(oracles)
        for played in (best, worst)
    )
    if high > low:
        return []
    return [ContractViolation("oracle", f"the oracle's mean reward is {high:g}, and garbage has {low:g}")]


def _always(answer: str | Message) -> Scripted:
    return Scripted(lambda _messages, _rng: answer)


EPISODES_PER_TASK = 6
"""Alone twice, concurrently, replayed, by the oracle, by garbage."""


@dataclass(slots=True)
class _Episodes:
    """Plays short episodes and counts them."""

    env: Environment
    on_episode: Callable[[int, int], None]
    of: int
    """Episodes to play at most."""
    played: int = 0

    async def play(self, task: Task, policy: Policy) -> Rollout:
        bounds = self.env.limits
        seconds = min(bounds.timeout or CHECK_EPISODE_SECONDS, CHECK_EPISODE_SECONDS)
        limits = replace(bounds, max_turns=min(bounds.max_turns, 32), timeout=seconds)
        result = await rollout(self.env, task, policy, limits=limits)
        self.played += 1
        self.on_episode(self.played, self.of)
        return result


class _Hesitant:
    """Answers like another policy, after yielding to other episodes now and then."""

    def __init__(self, policy: Policy):
        self.policy = policy

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        for _ in range(1 + Random(f"{key}/{len(messages)}").randrange(3)):
            await asyncio.sleep(0)
        return await self.policy.complete(messages, tools, key=key)


def _babble(_messages: Sequence[Message], rng: Random) -> str:
    """A short random answer."""
    digit = rng.randrange(10)
    return rng.choice((str(digit), f"<think>so</think><move>{digit}</move>", "yes", "no", '{"answer": 1}'))


def _fingerprint(result: Rollout) -> bytes | str:
    """The parts of a rollout that must not differ between two plays: not the usage of a judge, which may be cached."""
    usage, trajectories = {*REQUEST_USAGE_KEYS, "cost"}, []
    for one in result.trajectories:
        score = one.score
        if score is not None:
            metrics = {name: v for name, v in score.metrics.items() if name.rpartition("/")[2] not in usage}
            score = replace(score, metrics=metrics)
        trajectories.append(replace(one, score=score))
    timeless = replace(result, seconds=0.0, failure=None, trajectories=trajectories)
    return _encoded(timeless) or repr(timeless)


def _encoded(value: Any) -> bytes | None:
    """The value as bytes; None when it is not plain data."""
    try:
        return msgspec.msgpack.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


UNREPLAYABLE_REASONS = {"timeout", "PolicyFailure"}
"""Stop reasons that a replay cannot have again: it has neither the clock nor the policy. The turns until then are
compared, and the score is not.
"""


async def replay_rollout(env: Environment, recorded: Rollout, *, limits: Limits | None = None) -> Rollout:
    """Play the rollout again with its recorded answers, without a model.

    Raises EnvironmentFailure in one line with the first difference: a message, the state, the stop, a score. Pass the
    `limits` that it was played under, where they were not the environment's own.
    """
    played = await rollout(env, recorded.task, Recorded(recorded), seed=recorded.seed, limits=limits)
    played.sample_index = recorded.sample_index
    for difference in rollout_differences(recorded, played):
        raise EnvironmentFailure(f"the replay of task {recorded.task.id!r} differs: {difference}")
    return played


def rollout_differences(recorded: Rollout, played: Rollout) -> Iterator[str]:
    """Yield the differences between two rollouts, one line each; seconds and the text of an error aside."""
    cut = recorded.stop_reason in UNREPLAYABLE_REASONS
    if not cut and (recorded.status, recorded.stop_reason) != (played.status, played.stop_reason):
        error_text = f": {played.error}" if played.status is Status.ERROR else ""
        yield one_line(f"it ended with {recorded.stop_reason!r} and ends with {played.stop_reason!r}{error_text}", 500)
    for before, after in zip(recorded.trajectories, played.trajectories, strict=False):
        for number, (was, now) in enumerate(zip(before.turns, after.turns, strict=False), 1):
            if was != now:
                yield one_line(f"turn {number} of {before.seat!r} was {was} and is {now}", 500)
        if len(before.turns) != len(after.turns):
            yield f"{before.seat!r} had {len(before.turns)} turns and has {len(after.turns)}"
        if not cut and before.score != after.score:
            yield one_line(f"the score of {before.seat!r} was {before.score} and is {after.score}", 500)
    if len(recorded.trajectories) != len(played.trajectories):
        yield f"it had {len(recorded.trajectories)} seats and has {len(played.trajectories)}"
    if not cut and _plain(recorded.state) != _plain(played.state):
        yield one_line(f"the state was {recorded.state} and is {played.state}", 500)


def _plain(value: Any) -> Any:
    """The value as the run store gives it back."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value))
