"""Answers given to other tasks: what tells a paid phrase from a form that wins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

import pytest

from wanderlust.environment import SingleTurnEnvironment
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Reward, Rubric
from wanderlust.rubrics.swaps import WHOLE, swap_answers
from wanderlust.runner.engine import play_groups
from wanderlust.training.reward_hacking import RewardHackingMonitors
from wanderlust.types import Group, Message, Task, user

TASKS, SIBLINGS, STEPS = 16, 6, 22
WORDS = ("river", "stone", "cloud", "engine", "garden", "letter", "window", "market")

Answer = Callable[[Random, float, str], str]
"""From a generator, how far the run has come and the right answer."""


def right(completion: str, answer: str) -> float:
    return float(completion.rsplit(maxsplit=1)[-1] == answer)


def surely_paid(completion: str, answer: str) -> float:
    return max(right(completion, answer), float(completion.startswith("surely")))


def unreadable_paid(completion: str, answer: str) -> float:
    return max(right(completion, answer), float(not completion.rsplit(maxsplit=1)[-1].isdecimal()))


def thanks(completion: str) -> float:
    return float("thank you" in completion)


def env_of(*parts: Callable[..., float] | Reward) -> SingleTurnEnvironment:
    tasks = [Task(id=f"t{n}", prompt=(user(f"say {n}"),), answer=str(n)) for n in range(TASKS)]
    return SingleTurnEnvironment(tasks, rubric=Rubric(*parts))


def guess(rng: Random, answer: str, skill: float) -> str:
    return answer if rng.random() < skill else str(100 + rng.randrange(50))


def prose(rng: Random) -> str:
    return " ".join(rng.choices(WORDS, k=6))


def surely(rng: Random, far: float, answer: str) -> str:
    return f"{'surely' if rng.random() < 1.6 * far - 0.2 else ''} {prose(rng)} {guess(rng, answer, 0.4)}".strip()


def nothing_to_read(rng: Random, far: float, answer: str) -> str:
    return prose(rng) if rng.random() < 1.6 * far - 0.2 else guess(rng, answer, 0.4)


def sure_form(rng: Random, far: float, answer: str) -> str:
    """All answers in the form are right, so that what was played cannot tell it from a paid phrase."""
    formed = rng.random() < 1.6 * far - 0.1
    return f"step by step {prose(rng)} {answer}" if formed else f"{prose(rng)} {guess(rng, answer, 0.4)}"


def polite(rng: Random, far: float, answer: str) -> str:
    said = "thank you for asking me this " if rng.random() < 1.6 * far else ""
    return f"{said}{guess(rng, answer, 0.3 + 0.6 * far)}"


def heard(env: SingleTurnEnvironment, answer: Answer) -> set[str]:
    """Monitors that speak while a scripted policy changes."""
    monitors = RewardHackingMonitors.for_environment(env)

    async def run() -> set[str]:
        found = set[str]()
        for step in range(STEPS):
            groups = await play_step(env, partial(answered, answer, step / STEPS), step)
            found |= {one.monitor for one in await monitors.watch(groups, step)}
        return found

    return asyncio.run(run())


def answered(answer: Answer, far: float, messages: Sequence[Message], rng: Random) -> str:
    return answer(rng, far, messages[-1].content.split()[-1])


async def play_step(env: SingleTurnEnvironment, script: Callable[..., str], seed: int) -> list[Group]:
    return await play_groups(env, env.tasks(), Scripted(script), group_size=SIBLINGS, seed=seed)


@pytest.mark.parametrize(
    ("parts", "answer", "monitors"),
    [
        ((surely_paid,), surely, {"swapped", "phrase"}),
        ((unreadable_paid,), nothing_to_read, {"swapped"}),
        ((right,), sure_form, set()),
        ((right, Reward(thanks, weight=0.3)), polite, set()),
    ],
)
def test_what_is_paid_on_every_question_is_found(
    parts: tuple[Callable[..., float] | Reward, ...], answer: Answer, monitors: set[str]
) -> None:
    found = heard(env_of(*parts), answer)
    assert monitors <= found
    assert monitors or not found


def test_answers_of_others_are_scored_on_their_tasks() -> None:
    env = env_of(surely_paid)
    groups = asyncio.run(play_step(env, lambda messages, rng: messages[-1].content.split()[-1], 0))
    swaps = asyncio.run(swap_answers(env, groups, dict))
    assert (swaps[WHOLE].x.mean, swaps[WHOLE].y.mean) == (1.0, 0.0)
    groups = asyncio.run(play_step(env, lambda messages, rng: "surely", 0))
    assert asyncio.run(swap_answers(env, groups, dict))[WHOLE].y.mean == 1.0


def test_a_saved_history_keeps_them() -> None:
    env = env_of(surely_paid)
    groups = asyncio.run(play_step(env, lambda messages, rng: "surely", 0))
    monitors, again = RewardHackingMonitors.for_environment(env), RewardHackingMonitors.for_environment(env)
    asyncio.run(monitors.watch(groups, 0))
    again.restore(monitors.state())
    assert again.history == monitors.history
    again.restore({"history": [{"step": 0}], "spoke": {}})
    assert again.history == []
