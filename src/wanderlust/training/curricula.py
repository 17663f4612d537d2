"""Curricula by name: `--curriculum NAME[,setting=value...]`. docs/curricula.md says when to take which."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeAlias

from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.tasks.curriculum import Curriculum, Stream
from wanderlust.tasks.curriculum.base import Stock
from wanderlust.tasks.curriculum.exit import ExIt, Growth
from wanderlust.tasks.curriculum.learnability import Band, Learnability, Rated
from wanderlust.tasks.curriculum.uniform import Even, Kinds
from wanderlust.tasks.registry import settings_like
from wanderlust.tasks.revision import check

Make: TypeAlias = Callable[[Environment, int, Any], Curriculum]


def _stock(env: Environment) -> Stock:
    return Stock.of(env.tasks("train"))


def _rated(env: Environment, seed: int, settings: Any) -> Curriculum:
    return Rated(stock=_stock(env), seed=seed, settings=settings)


def _exit(env: Environment, seed: int, settings: Growth) -> Curriculum:
    return ExIt(revision=check(env), stock=_stock(env), seed=seed, settings=settings)


STREAM = "stream"
NAMES: Mapping[str, tuple[type[Any] | None, Make]] = {
    "uniform": (None, lambda env, seed, settings: Even(stock=_stock(env), seed=seed)),
    "stratified": (Kinds, lambda env, seed, settings: Even(stock=_stock(env), seed=seed, kinds=settings)),
    "band": (Band, _rated),
    "learnability": (Learnability, _rated),
    "exit": (Growth, _exit),
}


def curriculum(text: str, env: Environment, *, seed: int, after: int = 0) -> Curriculum:
    """What `text` names, over the environment's `train` split; nothing names `stream`, the environment's own order.

    The first tasks, so many as `after` says, come last in `stream`: they are known already.
    Raises UsageError for a name or a setting that there is not, and for an environment that it does not suit.
    """
    name = text.partition(",")[0] or STREAM
    if name == STREAM:
        settings_like(text, {})
        return Stream(lambda: env.tasks("train"), taken=after)
    if name not in NAMES:
        raise UsageError(f"unknown curriculum {name!r}; there are {', '.join([STREAM, *NAMES])}")
    kind, make = NAMES[name]
    given = settings_like(text, asdict(kind()) if kind is not None else {})
    return make(env, seed, kind(**given) if kind is not None else None)
