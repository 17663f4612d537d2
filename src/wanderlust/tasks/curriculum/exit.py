"""ExIt: tasks that the policy makes for itself, out of what it did (arXiv 2509.04575, section 4).

A buffer holds conversations that the policy had. Some groups begin in one of them, where siblings lately differed most,
and revise the last answer there, or answer otherwise; what comes of it is a conversation again. Nothing is played for
the choice: a buffered conversation's score is the variance of the rewards of the group that began there.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain
from math import exp
from random import Random
from statistics import fmean, pvariance
from typing import Any

import msgspec

from wanderlust.environment import Revision
from wanderlust.errors import UsageError
from wanderlust.tasks.curriculum.uniform import NamedCurriculum, NoUsefulTasksWarning, TaskPool, UniformCurriculum
from wanderlust.tasks.revision import (
    History,
    RevisedTurn,
    build_history,
    resolve_revision,
    revision_task,
    rewind_task,
)
from wanderlust.types import Group, Message, Task

INFO_KEY = "exit"
"""Key of a made task's `info`: of which task it is, how, and how often each answer before it was revised."""
REVISED_KEY = "revised"
"""In it, of a task that asks for a better answer: the reward of the answer that is revised, and the highest so far."""
COUNTER_NAMES: tuple[str, ...] = ("tasks", "improve", "diverge", "again", "depth", "starved")
MEASURED_REVISIONS = 4
"""Revisions after which a run is measured, as in the paper's experiments with tools."""
MIN_SCORE_RANGE = 1e-9
"""Rewards that vary less than this are all alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExItOptions:
    """Settings of ExIt; those that the paper gives are as in its experiments on mathematics."""

    capacity: int = 512
    """Conversations in the buffer."""
    min_conversations: int = 128
    """Conversations in the buffer before any group begins in one."""
    share: float = 0.5
    """Of the groups that begin in one, p in the paper."""
    diverge: float = 0.2
    """Share of the revisions that are to be other answers rather than better ones, p_div."""
    kappa: float = 20.0
    """A conversation of score S is drawn in proportion to exp(kappa S); the paper does not tell its value."""
    revise: float = 1.0
    """Share of them in which the last answer is revised; in the others it is given anew, as in the paper's
    `curriculum only`."""

    def __post_init__(self) -> None:
        shares = (self.share, self.diverge, self.revise)
        if not (
            0 < self.min_conversations <= self.capacity and self.kappa >= 0 and all(0 <= one <= 1 for one in shares)
        ):
            raise UsageError(
                "exit: 0 < min_conversations <= capacity, kappa >= 0, and share, diverge and revise are 0 to 1"
            )


@dataclass(slots=True)
class BufferedConversation:
    """A conversation that a group can begin in."""

    task_id: str
    """Id of the environment's task."""
    history: History
    score: float
    """Variance of the rewards of the group that began here; until one did, of the group that it came out of."""
    played: bool = False
    """Whether one did."""


@dataclass(slots=True, kw_only=True)
class ExIt:
    """Grows a task space from the policy's own attempts; the environment's tasks come in shuffled passes meanwhile.

    One departure from the paper: a conversation is in the buffer once, however many siblings had it. Where nothing in
    a full enough buffer has siblings that differ, the environment's own tasks are played, the groups that should have
    begun in the buffer are counted as starved, and it is said once.
    """

    pool: TaskPool
    seed: int
    settings: ExItOptions = ExItOptions()
    revision: Revision = field(default_factory=Revision)
    buffer: dict[str, BufferedConversation] = field(default_factory=dict)
    """By the id of a task that begins there, without what is asked."""
    score_range: tuple[float, float] = (float("inf"), float("-inf"))
    """Lowest and highest reward so far: scores are of rewards scaled to 0 and 1 by it."""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTER_NAMES, 0))
    """Of the tasks handed out so far."""
    _own: UniformCurriculum = field(init=False)

    def __post_init__(self) -> None:
        self._own = UniformCurriculum(pool=self.pool, seed=self.seed)

    @property
    def revisions(self) -> int:
        """MEASURED_REVISIONS; 0 where answers are given anew."""
        return MEASURED_REVISIONS if self.settings.revise else 0

    def next(self, step: int, count: int) -> list[Task]:
        """`count` tasks, each the environment's or one that begins in the buffer."""
        weights: dict[str, float] | None = None
        if len(self.buffer) >= self.settings.min_conversations:
            width = max(self.score_range[1] - self.score_range[0], MIN_SCORE_RANGE) ** 2
            scores = {id: conversation.score / width for id, conversation in self.buffer.items()}
            most = max(scores.values())
            weights = {}  # empty where all of them are settled
            if most > MIN_SCORE_RANGE:
                weights = {id: exp(self.settings.kappa * (score - most)) for id, score in scores.items()}
        return [self._one(weights) for _ in range(count)]

    def _one(self, weights: Mapping[str, float] | None) -> Task:
        rng = Random(f"exit/{self.seed}/{self.counts['tasks']}")
        self.counts["tasks"] += 1
        if weights is not None and rng.random() < self.settings.share:
            if weights:
                conversation = self.buffer[rng.choices([*weights], [*weights.values()])[0]]
                prefix = conversation.history[: rng.randint(1, len(conversation.history))]
                task, id = self.pool.by_id[conversation.task_id], _id(conversation.task_id, prefix)
                depths = [one.depth for one in prefix]
                if rng.random() < self.settings.revise:
                    request = "diverge" if rng.random() < self.settings.diverge else "improve"
                    made = revision_task(
                        task, prefix, self.revision, id=f"{id}~{request}", diverge=request == "diverge"
                    )
                else:
                    request, made = "again", rewind_task(task, prefix, id=f"{id}~again")
                before = prefix[-1].reward if request == "improve" else None
                begun = {} if before is None else {REVISED_KEY: [before, self.score_range[1]]}
                self.counts[request] += 1
                self.counts["depth"] += depths[-1] + (request != "again")
                return replace(
                    made,
                    info={
                        **made.info,
                        INFO_KEY: {
                            "of": conversation.task_id,
                            "buffer_id": id,
                            "request": request,
                            "depths": depths,
                            **begun,
                        },
                    },
                )
            if not self.counts["starved"]:
                warnings.warn(
                    "siblings agree wherever a group began in a conversation of the buffer, as tasks are too hard or "
                    "too easy: the environment's own are played, and counted in `curriculum_starved` (said once)",
                    NoUsefulTasksWarning,
                    stacklevel=3,
                )
            self.counts["starved"] += 1
        return self._own.next(0, 1)[0]

    def observe(self, group: Group) -> None:
        """Score where the group began, and take in the conversations that its siblings had."""
        seats, task = [*group.seat_rewards.values()], group.task
        if not seats:
            return
        paid = [*chain.from_iterable(seats)]
        self.score_range = min(self.score_range[0], *paid), max(self.score_range[1], *paid)
        score, made = fmean(map(pvariance, seats)), task.info.get(INFO_KEY, {})
        of = made.get("of", task.id)
        if of not in self.pool.by_id:
            return
        if made and (conversation := self.buffer.get(made["buffer_id"])) is not None:
            conversation.score, conversation.played = score, True
        before = _before(self.pool.by_id[of], task) if made else ()
        for rollout in group.rollouts:
            turns = build_history(rollout, before, is_revision=made.get("request", "again") != "again")
            for end in range(1, len(turns) + 1):
                self._insert(BufferedConversation(of, turns[:end], score))

    def _insert(self, conversation: BufferedConversation) -> None:
        """Enter a conversation; a full buffer gives up the one of least score, unless that is the new one."""
        id = _id(conversation.task_id, conversation.history)
        if id in self.buffer:
            return
        if len(self.buffer) >= self.settings.capacity:
            least = min(self.buffer, key=lambda one: self.buffer[one].score)
            if conversation.score < self.buffer[least].score:
                return
            del self.buffer[least]
        self.buffer[id] = conversation

    def metrics(self) -> dict[str, float]:
        """Size of the buffer, and of all tasks so far: shares of made ones, mean number of revisions, starved ones."""
        made = self.counts["improve"] + self.counts["diverge"] + self.counts["again"]
        return {
            "curriculum_buffer": float(len(self.buffer)),
            "curriculum_made": made / max(self.counts["tasks"], 1),
            "curriculum_diverge": self.counts["diverge"] / max(made, 1),
            "curriculum_depth": self.counts["depth"] / max(made, 1),
            "curriculum_starved": float(self.counts["starved"]),
        }

    def state(self) -> dict[str, Any]:
        """The buffer, and how many tasks were handed out."""
        buffer = [
            [id, one.task_id, msgspec.to_builtins(one.history), one.score, one.played]
            for id, one in self.buffer.items()
        ]
        return {"buffer": buffer, "met": [*self.score_range], "counts": dict(self.counts), "own": self._own.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        histories = [msgspec.convert(saved[2], History) for saved in state["buffer"]]
        self.buffer = {
            id: BufferedConversation(of, turns, *rest)
            for (id, of, _, *rest), turns in zip(state["buffer"], histories, strict=True)
        }
        low, high = state["met"]
        self.score_range, self.counts = (low, high), dict(state["counts"])
        self._own.restore(state["own"])


def _id(of: str, turns: History) -> str:
    """Of a conversation: equal ones have equal ids."""
    words = msgspec.msgpack.encode([(one.observation, one.answer) for one in turns])
    return f"{of}~{blake2b(words, digest_size=6).hexdigest()}"


def _before(task: Task, made: Task) -> History:
    """The turns that a made task begins with, the one that is revised included."""
    request, depths = made.info[INFO_KEY]["request"], made.info[INFO_KEY]["depths"]
    messages = made.prompt if request == "again" else made.prompt[:-1]
    turns, begin = list[RevisedTurn](), 0
    for at, message in enumerate(messages):
        if at >= len(task.prompt) and message.role == "assistant":
            turns.append(RevisedTurn(observation=tuple(messages[begin:at]), answer=message))
            begin = at + 1
    if begin < len(messages):  # an answer that is missing is empty
        turns.append(RevisedTurn(observation=tuple(messages[begin:]), answer=Message("assistant", "")))
    return tuple(replace(turn, depth=depth) for turn, depth in zip(turns, depths, strict=True))


EXIT = NamedCurriculum(
    make=lambda env, seed, settings: ExIt(
        revision=resolve_revision(env), pool=TaskPool.of_environment(env), seed=seed, settings=settings
    ),
    settings=ExItOptions,
)
