"""The conformance suite: does an environment keep the promises that rollouts, training and resuming rest on?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import isfinite
from random import Random
from typing import Any

import msgspec

from wanderlust.core.contracts import Environment, Limits, Policy, Tool
from wanderlust.core.errors import UsageError
from wanderlust.core.messages import Message, ToolCall, assistant
from wanderlust.core.types import Completion, Rollout, Status, Task, Trajectory
from wanderlust.policies.recorded import Recorded
from wanderlust.policies.scripted import Scripted
from wanderlust.policies.wire import message_to_wire
from wanderlust.rollout.engine import rollout
from wanderlust.rubrics.asked import SPENT

LISTED = 200
"""Tasks of each split whose ids are compared."""
PATIENCE = 30.0
"""Wall-clock seconds that one short episode may take, unless the environment's own limit is shorter."""

HOSTILE: Sequence[Message] = (
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
"""Answers that no environment may stumble over."""
GARBAGE = "lorem ipsum"


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise."""

    rule: str
    """`tasks`, `failure`, `hostile`, `timeout`, `repeat`, `concurrent`, `state`, `reward`, `mutation`, `prompt`,
    `replay` or `oracle`."""
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail}"


async def check_environment(env: Environment, policy: Policy | None = None, *, count: int = 4) -> list[Finding]:
    """Play a few tasks several times over; return one finding per broken promise, none when all is well.

    The promises: ids are unique, and asking for the tasks again gives the same ones; the same task, seed and
    policy give the same rollout, alone or beside others; playing changes no task; state is plain data; rewards
    are finite; what is said to a policy can be sent; a recorded rollout can be replayed; nothing that a policy says
    makes the environment fail or hang. Where the environment has an `oracle(task)`, a policy that masters the task, it
    must score higher than garbage does.

    `policy` must answer the same for the same conversation and key; without one, random short texts are said,
    which may not get far into the game.
    """
    findings, tasks = [*_tasks(env)], list(islice(env.tasks(), count))
    talker = policy or Scripted(_babble)
    before = [_encoded(task) for task in tasks]
    alone = [await _play(env, task, talker) for task in tasks]
    again = [await _play(env, task, talker) for task in tasks]
    beside = await asyncio.gather(*(_play(env, task, _Hesitant(talker)) for task in tasks))
    for first, second, third in zip(alone, again, beside, strict=True):
        findings += [*_rollout(first), *_prompts(first)]
        if _print(first) != _print(second):
            findings.append(Finding("repeat", f"task {first.task.id!r} played twice gave two rollouts"))
        elif _print(first) != _print(third):
            detail = f"task {first.task.id!r} went otherwise beside other episodes: state is kept on the object"
            findings.append(Finding("concurrent", detail))
    for task, was in zip(tasks, before, strict=True):
        if _encoded(task) != was:
            findings.append(Finding("mutation", f"playing changed the info of task {task.id!r}"))
    for one in alone:
        findings += await _replayed(env, one)
    findings += await _mastered(env, tasks)
    for task in tasks[:1]:
        findings += [found for answer in HOSTILE for found in await _provoke(env, task, answer)]
    return findings


def _tasks(env: Environment) -> Iterator[Finding]:
    """Findings about the listing of tasks."""
    for split in ("train", "eval"):
        first, second = _listed(env, split), _listed(env, split)
        if not first and split == "train":
            yield Finding("tasks", "the split 'train' is empty")
        if [t.id for t in first] != [t.id for t in second]:
            yield Finding("tasks", f"the split {split!r} differs when asked for again")
        if len({t.id for t in first}) < len(first):
            yield Finding("tasks", f"ids repeat in the split {split!r}")
        yield from (Finding("tasks", f"task {task.id!r} is not plain data") for task in first if _encoded(task) is None)


def _listed(env: Environment, split: str) -> list[Task]:
    try:
        return list(islice(env.tasks(split), LISTED))
    except UsageError:  # an environment need not have every split
        return []


def _rollout(result: Rollout) -> Iterator[Finding]:
    """Findings about one rollout of an ordinary policy."""
    yield from _mishap(result, "failure", f"task {result.task.id!r}")
    if _encoded(result.state) is None:
        yield Finding("state", f"the state of task {result.task.id!r} is not plain data")
    for trajectory in result.trajectories:
        score = trajectory.score
        if score and not all(map(isfinite, (score.reward, *score.parts.values(), *score.metrics.values()))):
            yield Finding("reward", f"task {result.task.id!r}, seat {trajectory.seat!r}: {score}")


def _mishap(result: Rollout, rule: str, where: str) -> Iterator[Finding]:
    if result.status is Status.ERROR and result.stop != "PolicyFailure":
        yield Finding("reward" if result.stop == "RubricFailure" else rule, f"{where}: {result.stop}: {result.error}")
    if result.stop == "timeout":
        yield Finding("timeout", f"{where}: no end within the time limit")


def _prompts(result: Rollout) -> Iterator[Finding]:
    """Findings about what the policy was told."""
    for trajectory in result.trajectories:
        for number, turn in enumerate(trajectory.turns, 1):
            try:
                msgspec.json.encode([message_to_wire(message) for message in turn.observation])
            except (TypeError, ValueError, AttributeError) as error:
                where = f"task {result.task.id!r}, turn {number}"
                yield Finding("prompt", f"{where}: what is said to the policy cannot be sent: {error}")


async def _replayed(env: Environment, first: Rollout) -> list[Finding]:
    """Findings about playing a record again."""
    if first.status is Status.ERROR or not first.trajectories:
        return []
    again = await _play(env, first.task, Recorded(first))
    if _print(again) == _print(first):
        return []
    why = again.error or "the record and its replay differ"
    return [Finding("replay", f"task {first.task.id!r}: {why}")]


async def _mastered(env: Environment, tasks: Sequence[Task]) -> list[Finding]:
    """Findings about what the rewards are worth."""
    oracle = getattr(env, "oracle", None)
    if oracle is None or not tasks:
        return []
    best = [await _play(env, task, oracle(task)) for task in tasks]
    worst = [await _play(env, task, Scripted(lambda _messages, _rng: GARBAGE)) for task in tasks]
    high, low = (sum(_reward(one) for one in played) / len(tasks) for played in (best, worst))
    if high > low:
        return []
    return [Finding("oracle", f"the oracle's mean reward is {high:g}, and garbage has {low:g}")]


def _reward(result: Rollout) -> float:
    scores = [seat.score for seat in result.trajectories if seat.score is not None]
    return scores[0].reward if scores else 0.0


async def _provoke(env: Environment, task: Task, answer: Message) -> list[Finding]:
    result = await _play(env, task, Scripted(lambda _messages, _rng: answer))
    said = repr(answer.content[:40]) if answer.content else "an empty message"
    return list(_mishap(result, "hostile", f"answered {said}"))


async def _play(env: Environment, task: Task, policy: Policy) -> Rollout:
    turns, timeout = env.limits.max_turns, env.limits.timeout
    limits = Limits(max_turns=min(turns, 32), timeout=min(timeout or PATIENCE, PATIENCE))
    return await rollout(env, task, policy, limits=limits)


class _Hesitant:
    """Answers like another policy, after letting other episodes go first now and then."""

    def __init__(self, policy: Policy):
        self.policy = policy

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        for _ in range(1 + Random(f"{key}/{len(messages)}").randrange(3)):
            await asyncio.sleep(0)
        return await self.policy.complete(messages, tools, key=key)


def _babble(_messages: Sequence[Message], rng: Random) -> str:
    """Something short that a policy might say."""
    digit = rng.randrange(10)
    return rng.choice((str(digit), f"<think>so</think><move>{digit}</move>", "yes", "no", '{"answer": 1}'))


def _print(result: Rollout) -> bytes | str:
    """Everything about a rollout that must not differ between two plays."""
    timeless = replace(result, seconds=0.0, trajectories=[_unspent(one) for one in result.trajectories])
    return _encoded(timeless) or repr(timeless)


def _unspent(trajectory: Trajectory) -> Trajectory:
    """Without what judging took: a judge that remembers is asked once."""
    score = trajectory.score
    if score is None:
        return trajectory
    metrics = {name: value for name, value in score.metrics.items() if name.rpartition("/")[2] not in (*SPENT, "cost")}
    return replace(trajectory, score=replace(score, metrics=metrics))


def _encoded(value: Any) -> bytes | None:
    """The value as bytes; None when it is not plain data."""
    try:
        return msgspec.msgpack.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
