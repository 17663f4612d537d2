"""Curricula by name: `--curriculum NAME[,setting=value...]`. docs/curricula.md says when to take which."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeAlias

from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.store.run_folder import FRESH_POLICY
from wanderlust.tasks.curriculum import Curriculum, TaskStream
from wanderlust.tasks.curriculum.exit import ExIt, ExItOptions
from wanderlust.tasks.curriculum.ladder import Ladder, LadderOptions
from wanderlust.tasks.curriculum.learnability import Learnability, PassRateBand, UtilityCurriculum
from wanderlust.tasks.curriculum.self_made import MADE_KEY, MakesTasks, SelfMade, SelfMadeOptions
from wanderlust.tasks.curriculum.uniform import StratifiedOptions, TaskPool, UniformCurriculum
from wanderlust.tasks.registry import parse_settings_like
from wanderlust.tasks.revision import resolve_revision
from wanderlust.tasks.selection import iter_tasks
from wanderlust.training.config import TrainConfig

CurriculumFactory: TypeAlias = Callable[[Environment, int, Any], Curriculum]


def _task_pool(env: Environment) -> TaskPool:
    return TaskPool.of(iter_tasks(env, "train"))


def _rated(env: Environment, seed: int, settings: Any) -> Curriculum:
    return UtilityCurriculum(pool=_task_pool(env), seed=seed, settings=settings)


def _self_made(env: Environment, seed: int, settings: Any) -> Curriculum:
    maker = env.unwrapped
    if not isinstance(maker, MakesTasks):
        raise UsageError(
            f"{type(maker).__name__} makes no tasks for a curriculum: that takes `proposal_task` and "
            "`practice_task`, as in the environment self-made"
        )
    pool = TaskPool.of(task for task in iter_tasks(env, "train") if MADE_KEY in task.info)
    return SelfMade(env=maker, pool=pool, seed=seed, settings=settings)


STREAM = "stream"
CURRICULA: Mapping[str, tuple[type[Any] | None, CurriculumFactory]] = {
    "uniform": (None, lambda env, seed, settings: UniformCurriculum(pool=_task_pool(env), seed=seed)),
    "stratified": (
        StratifiedOptions,
        lambda env, seed, settings: UniformCurriculum(pool=_task_pool(env), seed=seed, kinds=settings),
    ),
    "band": (PassRateBand, _rated),
    "learnability": (Learnability, _rated),
    "ladder": (
        LadderOptions,
        lambda env, seed, settings: Ladder(pool=_task_pool(env), seed=seed, settings=settings),
    ),
    "exit": (
        ExItOptions,
        lambda env, seed, settings: ExIt(
            revision=resolve_revision(env), pool=_task_pool(env), seed=seed, settings=settings
        ),
    ),
    "self-made": (SelfMadeOptions, _self_made),
}


def run_curriculum(config: TrainConfig, env: Environment) -> Curriculum:
    """The curriculum of a run: the object in the configuration, or the one of that name."""
    if not isinstance(config.curriculum, str):
        return config.curriculum
    after = 0 if config.policy == FRESH_POLICY else config.sft_episodes
    return resolve_curriculum(config.curriculum, env, seed=config.seed, after=after)


def resolve_curriculum(text: str, env: Environment, *, seed: int, after: int = 0) -> Curriculum:
    """The curriculum of that name over the environment's `train` split; without a name the environment's own order.

    `stream` begins after the first `after` tasks, which a warm-up has used already.
    Raises UsageError for an unknown name or setting, and for an environment that the curriculum does not suit.
    """
    name = text.partition(",")[0] or STREAM
    if name == STREAM:
        parse_settings_like(text, {})
        return TaskStream(lambda: iter_tasks(env, "train"), taken=after)
    if name not in CURRICULA:
        raise UsageError(f"unknown curriculum {name!r}; there are {', '.join([STREAM, *CURRICULA])}")
    kind, make = CURRICULA[name]
    settings = parse_settings_like(text, asdict(kind()) if kind is not None else {})
    return make(env, seed, kind(**settings) if kind is not None else None)
