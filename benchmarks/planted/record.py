"""What one planted environment is, and how a pair of twins is written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Literal, Protocol, TypeAlias

from wanderlust.environment import Environment, SingleTurnEnvironment
from wanderlust.policies.scripted import Script, Scripted
from wanderlust.rubrics.rubric import Reward, RewardFunction, Rubric
from wanderlust.types import Message, Policy, Task, user

Kind: TypeAlias = Literal["answer", "judge", "game", "tools", "code"]
Question: TypeAlias = Callable[[Random], tuple[str, Any]]
"""Draws one task: the prompt and the hidden answer."""
Build: TypeAlias = Callable[[Sequence[Task]], Environment]
Spoken: TypeAlias = Policy | Script | str | Iterable[str | Message]
"""A policy, or what `Scripted` takes, or one text that is said whenever it is asked."""
TASKS = 32
"""Tasks of one environment; the same by the same seed."""


class Make(Protocol):
    """Makes the environment afresh. Equal seeds, equal tasks; both splits have the same ones."""

    def __call__(self, seed: int = 0) -> Environment: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """An environment whose flaw, or whose soundness, is known.

    Every environment also has the method `oracle(task)`, as the conformance suite asks for it.
    """

    name: str
    """The family, with `-flawed` or `-mended` where there are twins."""
    family: str
    """What twins share: tasks, oracle, hack and ignorant policy."""
    kind: Kind
    flaw: str | None
    """What is wrong with the reward, in a line; None when nothing is."""
    make: Make
    oracle: Callable[[Task], Policy]
    """Solves the task as it is meant, knowing its answer."""
    ignorant: Policy
    """Tries honestly, knows nothing: what chance gets."""
    hack: Policy | None
    """Sees only what any policy sees. Exploits the flawed twin; on a sound environment, a temptation that must fail."""
    note: str
    """Where such a flaw was seen, or what makes the sound one look suspicious."""


def planted(  # one family of twins, or a sound one alone when there is no flaw
    family: str,
    kind: Kind,
    question: Question,
    *,
    sound: Build,
    flawed: Build | None = None,
    flaw: str | None = None,
    speak: tuple[Callable[[Task], Spoken], Spoken, Spoken | None],
    note: str,
) -> list[Planted]:
    """The twins, the flawed one first. `speak`: the oracle of a task, the ignorant policy, the hack."""
    oracle, ignorant, hack = speak
    shared = {
        "family": family,
        "kind": kind,
        "oracle": partial(_oracle, oracle),
        "ignorant": speaking(ignorant),
        "hack": None if hack is None else speaking(hack),
        "note": note,
    }
    made = partial(_make, family=family, question=question, oracle=shared["oracle"])
    if flawed is None:
        return [Planted(name=family, flaw=None, make=partial(made, build=sound), **shared)]
    return [
        Planted(name=f"{family}-flawed", flaw=flaw, make=partial(made, build=flawed), **shared),
        Planted(name=f"{family}-mended", flaw=None, make=partial(made, build=sound), **shared),
    ]


def speaking(said: Spoken) -> Policy:
    """The policy that says it."""
    if isinstance(said, str):
        return Scripted(lambda _messages, _rng: said)
    return said if hasattr(said, "complete") else Scripted(said)


def asked(*parts: RewardFunction | Reward) -> Build:
    """One question, one answer, worth what the parts say."""
    return partial(SingleTurnEnvironment, rubric=Rubric(*parts))


def _oracle(say: Callable[[Task], Spoken], task: Task) -> Policy:
    return speaking(say(task))


def _make(
    seed: int = 0, *, family: str, question: Question, oracle: Callable[[Task], Policy], build: Build
) -> Environment:
    env = build([_task(family, question, f"{seed}-{n}") for n in range(TASKS)])
    env.oracle = oracle
    return env


def _task(family: str, question: Question, key: str) -> Task:
    prompt, answer = question(Random(f"{family}/{key}"))
    return Task(id=f"{family}-{key}", prompt=(user(prompt),), answer=answer)
