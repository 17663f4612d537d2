"""Self-revision: a model reads its last answer and answers again, for any number of rounds.

It reads its latest answer, the environment's `state["feedback"]` (text, or nothing), and a request for a better answer,
or for another one. Earlier answers are not shown, so the context does not grow (ExIt, arXiv 2509.04575). For
environments whose tasks may begin with any prefix of a conversation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.runner.engine import play_groups
from wanderlust.tasks.revision import History, build_history, resolve_revision, revision_task
from wanderlust.types import Group, Policy, Rollout, Task


async def iterate_revisions(
    env: Environment,
    tasks: Sequence[Task],
    policy: Policy,
    *,
    rounds: int,
    seed: int = 0,
    concurrency: int = 64,
) -> list[dict[str, Rollout]]:
    """Play every task, then revise the last answer `rounds` times: the rollouts after each round, by the task's id.

    A failed rollout is not revised again. Raises UsageError when tasks have the same id, or the environment cannot
    start from a conversation prefix.
    """

    async def play(now: Sequence[Task]) -> list[Group]:
        return await play_groups(env, now, policy, seed=seed, concurrency=concurrency)

    return await revise_answers(env, tasks, play, rounds=rounds)


async def revise_answers(
    env: Environment, tasks: Sequence[Task], play: Callable[[Sequence[Task]], Awaitable[list[Group]]], *, rounds: int
) -> list[dict[str, Rollout]]:
    """The same where `play` plays tasks once each, in their order."""
    revision, tasks_by_id = resolve_revision(env), {task.id: task for task in tasks}
    if len(tasks_by_id) < len(tasks):
        raise UsageError("task ids must be unique: two tasks have the same id")
    pending, so_far, out = dict(tasks_by_id), dict[str, History](), list[dict[str, Rollout]]()
    for depth in range(rounds + 1):
        now = dict(out[-1]) if out else {}
        groups = await play([*pending.values()]) if pending else []
        played = {id: group.rollouts[0] for id, group in zip(pending, groups, strict=True)}
        out.append(now | played)
        histories = {id: build_history(one, so_far.get(id, ()), is_revision=depth > 0) for id, one in played.items()}
        so_far = {id: made for id, made in histories.items() if made}
        pending = {
            id: revision_task(tasks_by_id[id], made, revision, id=f"{id}~{depth + 1}") for id, made in so_far.items()
        }
    return out


def groups_of_answers(tasks: Sequence[Task], samples: Sequence[Mapping[str, Rollout]]) -> list[Group]:
    """Rollouts by the task's id, one mapping for each sample, as groups of the tasks that they began with."""
    return [
        Group(task=task, index=index, rollouts=[replace(one[task.id], task=task) for one in samples])
        for index, task in enumerate(tasks)
    ]
