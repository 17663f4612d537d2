"""Before an environment is used: does it keep its contract, and can its reward be exploited?"""

from __future__ import annotations

from functools import partial

from wanderlust.environment import Environment
from wanderlust.evals.gate import CheckReport, check_gate
from wanderlust.evals.probe.battery import BATTERY, run_probes, sample_tasks
from wanderlust.evals.probe.report import ProbeReport
from wanderlust.policies.resolve import players_of
from wanderlust.runner.engine import run_blocking
from wanderlust.tasks.registry import resolve_environment
from wanderlust.tasks.selection import choose_tasks, iter_tasks
from wanderlust.types import Policy

MAX_TASKS_CONSIDERED = 2_000
"""Tasks of an endless split among which some are drawn."""
RANDOM_POLICY = "random"
"""Name of the player that an environment takes for chance."""


def check(env: Environment | str, policy: Policy | None = None, *, n: int = 4, probe: bool = True) -> CheckReport:
    """Check that an environment can be published: its contract, its keys, its splits and its reward.

    Args:
        env: The environment, or its name.
        policy: Plays the episodes of the contract; it must answer equally for equal conversations. Default: random
            short texts.
        n: Tasks on which the contract is checked.
        probe: Whether degenerate policies play against the reward.

    Returns:
        The report: `.ok`, `.violations` with `rule` and `detail`, `.probe`, `.players`, and `.card()` for a file.

    Example:
        >>> check("calculator").ok
        True
    """
    environment = resolve_environment(env).env if isinstance(env, str) else env
    name = env if isinstance(env, str) else type(env).__name__
    probes = BATTERY if probe else None
    return run_blocking(partial(check_gate, environment, policy, name=name, count=n, probes=probes))


def probe(env: Environment | str, *, n: int = 32, split: str = "eval", attack: int = 0, seed: int = 0) -> ProbeReport:
    """Play degenerate policies against the reward; one that earns clearly more than chance has found an exploit.

    Args:
        env: The environment, or its name.
        n: Tasks that each policy plays.
        split: Split that the tasks come from.
        attack: Episodes from which a small attacker learns, on half of the tasks; 0 is none.
        seed: Seed of everything random.

    Returns:
        The report: `.sound`, `.flaws`, what chance and the oracle earn.

    Example:
        >>> probe("connections", n=8).sound
        True
    """
    environment = resolve_environment(env).env if isinstance(env, str) else env
    players = players_of(environment)
    tasks = sample_tasks(choose_tasks(iter_tasks(environment, split), MAX_TASKS_CONSIDERED), n, seed=seed)
    oracle = players["oracle"]() if "oracle" in players else None
    random = players[RANDOM_POLICY]() if RANDOM_POLICY in players else None
    others = next((players[name]() for name in ("oracle", *players) if name in players), None)
    run = partial(run_probes, environment, tasks=tasks, oracle=oracle, random=random, others=others)
    return run_blocking(partial(run, attack=attack, seed=seed))
