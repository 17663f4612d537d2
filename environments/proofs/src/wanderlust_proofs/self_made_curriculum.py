"""Tasks that the policy makes for itself: proposals, and practice of those that were accepted (arXiv 2505.03335).

A buffer holds accepted tasks with the share of answers that were right. A share of the groups propose a task beside
some of the buffer; the others practise one of it, drawn by what it teaches and by how rare tasks of its shape are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from statistics import fmean
from typing import Any, Protocol, runtime_checkable

from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.tasks.curriculum.uniform import Curriculum, NamedCurriculum, TaskPool, UniformCurriculum
from wanderlust.tasks.selection import iter_tasks
from wanderlust.types import Group, Task

MADE_KEY = "made"
"""Key of `Task.info` with the made task that is to be solved, and of `Rollout.state` with one that was proposed."""
PROPOSALS_REMEMBERED = 64
"""Proposals that the metrics are about."""
NEWEST_GROUP_WEIGHT = 0.5
LEAST_WEIGHT = 0.02
"""Of a task that all or none can do, before its shape counts; one that half can do has 0.25."""


@runtime_checkable
class MakesTasks(Protocol):
    """An environment in which tasks are proposed and solved."""

    task_kinds: Sequence[str]
    """Kinds of tasks, proposed in turn."""

    def proposal_task(
        self, number: int, *, kind: str, beside: Sequence[Mapping[str, Any]], known: Sequence[str]
    ) -> Task:
        """The task of proposing one; `beside` are shown, `known` the functions of all that must not be repeated."""
        ...

    def practice_task(self, made: Mapping[str, Any]) -> Task:
        """The task of solving one that was proposed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfMadeOptions:
    """Settings of the curriculum."""

    capacity: int = 256
    """Tasks in the buffer."""
    min_tasks: int = 32
    """Tasks in the buffer before any is practised; the environment's own are meanwhile."""
    propose: float = 0.25
    """Share of the groups that propose a task."""
    beside: int = 2
    """Tasks of the buffer that a proposer is shown."""
    diversity: float = 1.0
    """A task counts 1 / n to this power, where n tasks of the buffer have its shape."""

    def __post_init__(self) -> None:
        if not (0 < self.min_tasks <= self.capacity and 0 < self.propose < 1 and min(self.beside, self.diversity) >= 0):
            raise UsageError(
                "self-made: 0 < min_tasks <= capacity, propose is between 0 and 1, beside and diversity are at least 0"
            )


@dataclass(slots=True, kw_only=True)
class BufferedTask:
    """An accepted task."""

    made: dict[str, Any]
    """With `kind`, `function` and `shape`."""
    rate: float
    """Share of the answers that were right, the newest counting most."""


@dataclass(slots=True, kw_only=True)
class SelfMade:
    """Proposals and practice. Equal observations give equal buffers and equal choices."""

    env: MakesTasks
    pool: TaskPool
    seed: int
    settings: SelfMadeOptions = SelfMadeOptions()
    buffer: dict[str, BufferedTask] = field(default_factory=dict)
    """By the function that a task is about."""
    taken: int = 0
    """Number of tasks handed out so far."""
    proposed: int = 0
    """Of them, proposals."""
    recent: list[float | None] = field(default_factory=list)
    """Of the latest proposals the share of right answers; None for one that was refused."""
    _own: UniformCurriculum = field(init=False)

    def __post_init__(self) -> None:
        self._own = UniformCurriculum(pool=self.pool, seed=self.seed)

    def next(self, step: int, count: int) -> list[Task]:
        """`count` tasks; a buffered one comes once, where there are enough."""
        weights = self._weights() if len(self.buffer) >= self.settings.min_tasks else {}
        chosen = []
        for _ in range(count):
            rng = Random(f"self-made/{self.seed}/{self.taken}")
            self.taken += 1
            if rng.random() < self.settings.propose:
                chosen.append(self._proposal(rng))
            elif weights:
                function = rng.choices([*weights], [*weights.values()])[0]
                del weights[function]
                chosen.append(self.env.practice_task(self.buffer[function].made))
            else:
                chosen += self._own.next(step, 1)
        return chosen

    def _proposal(self, rng: Random) -> Task:
        kind = self.env.task_kinds[self.proposed % len(self.env.task_kinds)]
        self.proposed += 1
        known = {function: one.made for function, one in self.buffer.items() if one.made["kind"] == kind}
        beside = [known[function] for function in rng.sample([*known], min(self.settings.beside, len(known)))]
        return self.env.proposal_task(self.proposed, kind=kind, beside=beside, known=[*known])

    def _weights(self) -> dict[str, float]:
        """What each buffered task counts in the draw."""
        shapes = Counter(one.made["shape"] for one in self.buffer.values())
        return {
            function: (one.rate * (1 - one.rate) + LEAST_WEIGHT) / shapes[one.made["shape"]] ** self.settings.diversity
            for function, one in self.buffer.items()
        }

    def observe(self, group: Group) -> None:
        """Take in accepted tasks that some answers solve and others do not, or how a practised one went."""
        if practised := group.task.info.get(MADE_KEY):
            rewards, known = group.rewards, self.buffer.get(practised.get("function", ""))
            if rewards and known is not None:
                known.rate += NEWEST_GROUP_WEIGHT * (fmean(rewards) - known.rate)
            return
        for rollout in group.rollouts:
            made = rollout.state.get(MADE_KEY)
            if made is None:  # the rollout failed, or is none of a proposal
                continue
            rate = made["rate"]
            self.recent = [*self.recent, rate][-PROPOSALS_REMEMBERED:]
            if rate is not None and 0 < rate < 1:
                self._insert(BufferedTask(made={key: one for key, one in made.items() if key != "rate"}, rate=rate))

    def _insert(self, task: BufferedTask) -> None:
        """Enter a task; a full buffer gives up the one that counts least, unless that is the new one."""
        if task.made["function"] in self.buffer:
            return
        self.buffer[task.made["function"]] = task
        if len(self.buffer) > self.settings.capacity:
            weights = self._weights()
            del self.buffer[min(weights, key=lambda function: weights[function])]

    def metrics(self) -> dict[str, float]:
        """Size of the buffer and its shapes; of the latest proposals the accepted, their pass rate, those at 20-80%."""
        accepted = [rate for rate in self.recent if rate is not None]
        return {
            "curriculum_buffer": float(len(self.buffer)),
            "curriculum_shapes": float(len({one.made["shape"] for one in self.buffer.values()})),
            "curriculum_accepted": len(accepted) / max(len(self.recent), 1),
            "curriculum_pass": fmean(accepted) if accepted else 0.0,
            "curriculum_in_band": fmean(0.2 <= rate <= 0.8 for rate in accepted) if accepted else 0.0,
        }

    def state(self) -> dict[str, Any]:
        """The buffer, and how many tasks were handed out."""
        return {
            "buffer": [asdict(one) for one in self.buffer.values()],
            "taken": self.taken,
            "proposed": self.proposed,
            "recent": list(self.recent),
            "own": self._own.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.buffer = {one["made"]["function"]: BufferedTask(**one) for one in state["buffer"]}
        self.taken, self.proposed, self.recent = state["taken"], state["proposed"], list(state["recent"])
        self._own.restore(state["own"])


def _self_made(env: Environment, seed: int, settings: SelfMadeOptions) -> Curriculum:
    maker = env.unwrapped
    if not isinstance(maker, MakesTasks):
        raise UsageError(
            f"{type(maker).__name__} makes no tasks for a curriculum: that takes `proposal_task` and "
            "`practice_task`, as in the environment self-made"
        )
    pool = TaskPool.of(task for task in iter_tasks(env, "train") if MADE_KEY in task.info)
    return SelfMade(env=maker, pool=pool, seed=seed, settings=settings)


SELF_MADE = NamedCurriculum(make=_self_made, settings=SelfMadeOptions)
