"""Curricula by name: `--curriculum NAME[,setting=value...]`. docs/curricula.md says when to take which."""

from __future__ import annotations

from dataclasses import asdict

from wanderlust import plugins
from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.store.run_folder import FRESH_POLICY
from wanderlust.tasks.curriculum import Curriculum, NamedCurriculum, TaskStream
from wanderlust.tasks.registry import parse_settings_like
from wanderlust.tasks.selection import iter_tasks
from wanderlust.training.config import TrainConfig

ENTRY_POINTS, STREAM = "wanderlust.curricula", "stream"


def run_curriculum(config: TrainConfig, env: Environment) -> Curriculum:
    """The curriculum of a run: the object in the configuration, or the one of that name."""
    if not isinstance(config.curriculum, str):
        return config.curriculum
    after = 0 if config.policy == FRESH_POLICY else config.sft_episodes
    return resolve_curriculum(config.curriculum, env, seed=config.seed, after=after)


def resolve_curriculum(text: str, env: Environment, *, seed: int, after: int = 0) -> Curriculum:
    """The curriculum of that name over the environment's `train` split; without a name the environment's own order.

    `stream` begins after the first `after` tasks, which a warm-up has used already; all others are entry points.
    Raises UsageError for an unknown name or setting, and for an environment that the curriculum does not suit.
    """
    name = text.partition(",")[0] or STREAM
    if name == STREAM:
        parse_settings_like(text, {})
        return TaskStream(lambda: iter_tasks(env, "train"), taken=after)
    points = plugins.declared(ENTRY_POINTS)
    if name not in points:
        guess = plugins.how_to_install(ENTRY_POINTS, name) or f"there are {', '.join([STREAM, *points])}"
        raise UsageError(f"unknown curriculum {name!r}; {guess}")
    found = plugins.load(points[name])
    if not isinstance(found, NamedCurriculum):
        raise UsageError(f"{points[name].value} is no NamedCurriculum, but a {type(found).__name__}")
    settings = parse_settings_like(text, asdict(found.settings()) if found.settings else {})
    return found.make(env, seed, found.settings(**settings) if found.settings else None)
