"""Games by key: mechanics, levels of rising difficulty, and the shortest solution of each.

Splits differ in mechanics, not in seeds: whoever trains on `train` has met none of those of `eval`. Private games have
the mechanics of `eval` and the keys that a secret gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random

from wanderlust.errors import UsageError
from wanderlust.tasks.private import secret_digests
from wanderlust_grids import puzzles, walking
from wanderlust_grids.board import Level, Mechanic, Rules
from wanderlust_grids.cells import UNDO
from wanderlust_grids.drafts import MAX_WALL_SHARE, Draft
from wanderlust_grids.search import Solution, TooLarge, shortest_solution

TRAIN_MECHANICS: tuple[type[Mechanic], ...] = (
    *(walking.Gems, walking.Keys, walking.Crates, walking.Ice, walking.Plates, walking.Energy, walking.Portals),
    *(walking.Controls, puzzles.Lights, puzzles.Tiles),
)
EVAL_MECHANICS: tuple[type[Mechanic], ...] = (
    *(walking.Paint, walking.Gravity, walking.Twins, walking.Patrols, walking.Crumble, walking.Belts, walking.Levers),
    *(puzzles.Flood, puzzles.Beams),
)
MECHANICS: Mapping[str, type[Mechanic]] = {one.name: one for one in (*TRAIN_MECHANICS, *EVAL_MECHANICS)}
LEVELS = 6
"""Of a game."""
MAX_ATTEMPTS = 3000
"""Boards that are drawn for one level."""
EASIER_AFTER = 60
"""Boards without success after which a level's difficulty, 1 to 3, falls by one."""
MIN_ACTIONS = (3, 4, 5, 6, 7, 8)
MAX_ACTIONS = (12, 16, 20, 28, 36, 44)
"""Of the shortest solution, by level."""
PUZZLE_ACTIONS = (1, 2, 2, 3, 3, 4)
"""The least for games without an avatar."""
UNDO_SHARE = 0.3
"""Of the games, those that have action 7."""


@dataclass(frozen=True, slots=True)
class GridGame:
    """A game: its rules, levels and their shortest solutions."""

    key: str
    mechanics: tuple[str, ...]
    levels: tuple[Level, ...]
    solutions: tuple[Solution, ...]
    undo: bool = False

    @property
    def rules(self) -> Rules:
        """What actions do."""
        return rules_of(self.mechanics)

    @property
    def actions(self) -> tuple[int, ...]:
        """Official numbers of the actions that it has, reset aside."""
        return (*self.rules.actions, UNDO) if self.undo else self.rules.actions

    @property
    def optimum(self) -> tuple[int, ...]:
        """Actions of the shortest solution, by level."""
        return tuple(len(one.actions) for one in self.solutions)


@lru_cache(maxsize=512)
def rules_of(mechanics: tuple[str, ...]) -> Rules:
    """The rules of some mechanics."""
    return Rules([MECHANICS[name](index) for index, name in enumerate(mechanics)])


def mechanics_of(split: str) -> tuple[type[Mechanic], ...]:
    """The mechanics of a split: `train`, or any other one, whose mechanics no training has met."""
    return TRAIN_MECHANICS if split == "train" else EVAL_MECHANICS


def game_keys(split: str, count: int, *, secret: str = "") -> list[str]:
    """Keys of the games of a split. Those of `private` depend on the secret, and none can be told without it.

    Raises UsageError for `private` without a secret.
    """
    if split != "private":
        return [f"{split}-{n}" for n in range(count)]
    if not secret:
        raise UsageError("private games need a secret")
    return [f"private-{digest[:24]}" for digest in secret_digests(secret, "grids", count)]


@lru_cache(maxsize=4096)
def mechanics_of_game(key: str) -> tuple[str, ...]:
    """The mechanics of a game: one of clicks, or two or three of walks."""
    rng = Random(f"grids/{key}")
    kinds = mechanics_of(key.partition("-")[0])
    first = rng.choice(kinds)
    others = [one.name for one in kinds if one.walks and one is not first] if first.walks else []
    return (first.name, *(rng.sample(others, rng.choice((1, 2))) if others else ()))


@lru_cache(maxsize=256)
def make_game(key: str) -> GridGame:
    """The game of a key, whose split stands before the first hyphen. Equal keys, equal games."""
    mechanics = mechanics_of_game(key)
    levels, solutions = zip(*(_make_level(key, mechanics, number) for number in range(LEVELS)), strict=True)
    return GridGame(key, mechanics, levels, solutions, Random(f"grids/{key}/undo").random() < UNDO_SHARE)


def active_mechanics(mechanics: Sequence[str], number: int) -> tuple[str, ...]:
    """The mechanics that a level has: each is introduced alone, then they are combined."""
    if len(mechanics) == 1:
        return tuple(mechanics)
    if len(mechanics) == 2:
        return tuple((mechanics[:1], mechanics[:1], mechanics[1:], mechanics, mechanics, mechanics)[number])
    a, b, c = mechanics
    return ((a,), (b,), (a, b), (c,), (a, c), (a, b, c))[number]


def _make_level(key: str, mechanics: tuple[str, ...], number: int) -> tuple[Level, Solution]:
    """A level with its shortest solution: long enough, and every mechanic of it makes a difference."""
    rules, active = rules_of(mechanics), active_mechanics(mechanics, number)
    low = (MIN_ACTIONS if rules.mechanics[0].walks else PUZZLE_ACTIONS)[number]
    for attempt in range(MAX_ATTEMPTS):
        rng = Random(f"grids/{key}/{number}/{attempt}")
        level = _draw_level(
            rng,
            rules,
            active=active,
            difficulty=max(1, 1 + number // 2 - attempt // EASIER_AFTER),
            game_key=f"grids/{key}",
        )
        if level is None:
            continue
        least = max(1, low - attempt // 100)
        try:
            if _plainly_unsolvable(rules, level, MAX_ACTIONS[number]):
                continue
            solution = shortest_solution(rules, level, max_actions=MAX_ACTIONS[number])
            if solution is None or len(solution.actions) < least:
                continue
            if rules.mechanics[0].walks and not _all_matter(rules, level, len(solution.actions)):
                continue
        except TooLarge:
            continue
        return level, solution
    raise RuntimeError(f"no level {number + 1} of {', '.join(active)} was found in {MAX_ATTEMPTS} boards of {key}")


def _draw_level(rng: Random, rules: Rules, *, active: Sequence[str], difficulty: int, game_key: str) -> Level | None:
    kinds = [one for one in rules.mechanics if one.name in active]
    walking_game = kinds[0].walks
    size = (rng.randint(5, 6) if walking_game else 5) + difficulty - 1
    barriers = sum(one.barriers(difficulty) for one in kinds)
    size = min(size + barriers, *(one.max_size for one in kinds))
    draft = Draft(rng, size=size, barriers=barriers, difficulty=difficulty, game_key=game_key)
    start = exit_cell = -1
    if walking_game:
        ends = draft.take(last=0), draft.take(first=draft.rooms - 1)
        if None in ends:
            return None
        start, exit_cell = ends  # type: ignore[assignment]
        draft.scatter_walls(rng.random() * MAX_WALL_SHARE)
    placed = tuple(one.place(draft) if one in kinds else None for one in rules.mechanics)
    if any(placed[one.index] is None for one in kinds):
        return None
    return Level(size=draft.size, walls=frozenset(draft.walls), start=start, exit=exit_cell, placed=placed)


def _plainly_unsolvable(rules: Rules, level: Level, max_actions: int) -> bool:
    """Whether a short look shows that a level has no solution of so many actions; most boards without one are seen."""
    present = [(one, placed) for one, placed in zip(rules.mechanics, level.placed, strict=True) if placed is not None]
    if any(one.hopeless(level, placed) for one, placed in present):
        return True
    if not any(one.bystander for one, _ in present):
        return False
    rest = tuple(None if one.bystander else level.placed[one.index] for one in rules.mechanics)
    try:
        return shortest_solution(rules, replace(level, placed=rest), max_actions=max_actions) is None
    except TooLarge:
        return False


def _all_matter(rules: Rules, level: Level, length: int) -> bool:
    """Whether without each mechanic the shortest solution has another length."""
    for one in rules.mechanics:
        if one.matters and level.placed[one.index] is not None:
            rest = tuple(None if n == one.index else placed for n, placed in enumerate(level.placed))
            easier = shortest_solution(rules, replace(level, placed=rest), max_actions=length)
            if easier is not None and len(easier.actions) == length:
                return False
    return True
