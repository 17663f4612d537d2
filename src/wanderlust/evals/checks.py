"""Before an environment is used: does it keep its contract, and can its reward be exploited?"""

from __future__ import annotations

from functools import partial

from wanderlust.environment import Environment
from wanderlust.evals.gate import CheckReport, check_gate, draw_tasks, probe_environment
from wanderlust.evals.probe.battery import BATTERY
from wanderlust.evals.probe.report import ProbeReport
from wanderlust.runner.engine import run_blocking
from wanderlust.tasks.registry import resolve_environment
from wanderlust.types import Policy


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


def probe(env: Environment | str, *, n: int = 32, split: str = "eval", seed: int = 0) -> ProbeReport:
    """Play degenerate policies against the reward; one that earns clearly more than chance has found an exploit.

    Args:
        env: The environment, or its name.
        n: Tasks that each policy plays.
        split: Split that the tasks come from.
        seed: Seed of everything random.

    Returns:
        The report: `.sound`, `.flaws`, what chance and the oracle earn.

    Example:
        >>> probe("connections", n=8).sound
        True
    """
    environment = resolve_environment(env).env if isinstance(env, str) else env
    tasks = draw_tasks(environment, split, n, seed=seed)
    return run_blocking(partial(probe_environment, environment, tasks=tasks, seed=seed))
