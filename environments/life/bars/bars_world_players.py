"""How hard the tasks of `life` are for players of different strength: what each passes, and by level.

Held-out scenarios of six seeds, a task of each family and level. The planner's bound of calls was chosen on `train`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from benchmarks.bar import Bar

from wanderlust.evals.evaluate import evaluate_sync
from wanderlust.evals.statistics import Estimate
from wanderlust.types import Policy
from wanderlust_life.assistant_life import AssistantLife
from wanderlust_life.planner.plan import HORIZON, planner_policy
from wanderlust_life.players import OraclePolicy
from wanderlust_life.world_calibration import PlayerFigures, calibrate

SEED_COUNT = 6
UNBOUNDED = 99
"""Calls of a plan that no task needs."""


def figures() -> Mapping[str, PlayerFigures]:
    """What each player passes."""
    env = AssistantLife()
    tasks = [*env.tasks_of_seeds("eval", range(SEED_COUNT))]
    players: dict[str, Policy] = {name: make() for name, make in env.players.items()}
    players |= {"oracle": OraclePolicy(), "unbounded": planner_policy(horizon=UNBOUNDED)}
    reports = {name: evaluate_sync(env, one, tasks=tasks, progress=False) for name, one in players.items()}
    return calibrate(tasks, reports, own=[*env.players, "oracle"], remarks={}).players


def bars() -> Iterator[Bar]:
    """Each player beside what it should pass, and the planner by level."""
    players = figures()

    def bar(name: str, limit: float, better: str, *, aim: float | None = None) -> Bar:
        whole, levels = players[name].whole, players[name].by_level
        return Bar(
            name=f"life: tasks that `{name}` passes, {'at least' if better == 'higher' else 'at most'}",
            figure=None if whole is None else 100 * whole.value,
            bar=limit,
            aim=limit if aim is None else aim,
            unit="%",
            better="higher" if better == "higher" else "lower",
            note=f"{_told(whole)} of {0 if whole is None else whole.count}; "
            + ", ".join(f"level {level} {_told(one)}" for level, one in sorted(levels.items())),
        )

    yield bar("oracle", 100, "higher")
    yield bar("nothing", 0, "lower")
    yield bar("greedy", 10, "lower")
    yield bar("planner", 20, "higher", aim=40)
    yield bar("planner", 60, "lower", aim=50)
    shares = [one.value for _, one in sorted(players["planner"].by_level.items())]
    yield Bar(
        name="life: least fall of `planner` from a level to the next",
        figure=100 * min(easy - hard for easy, hard in pairwise(shares)),
        bar=0.1,
        aim=10,
        unit="%",
        better="higher",
        note=f"with {HORIZON} calls for a plan; with {UNBOUNDED} it passes {_told(players['unbounded'].whole)}",
    )


def _told(share: Estimate | None) -> str:
    return "unknown" if share is None else f"{share.value:.2f} ({share.interval})"
