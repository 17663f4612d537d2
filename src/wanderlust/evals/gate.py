"""The gate before an environment is published: its contract, keys, splits and reward, and a card of its figures.

Not covered: whether tasks are worth learning, and rewards that only a clever policy can exploit.
"""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice, repeat
from math import fsum
from typing import Any

from wanderlust.environment import Environment, declaration_error
from wanderlust.errors import EnvironmentFailure, PolicyFailure, UsageError, WanderlustError, boundary, one_line
from wanderlust.evals.probe.battery import BATTERY, run_probes, sample_tasks
from wanderlust.evals.probe.probe import Probe
from wanderlust.evals.probe.report import ProbeReport, findings_record
from wanderlust.evals.splits import shared_tasks
from wanderlust.evals.statistics import Estimate, mean
from wanderlust.policies.resolve import players_of
from wanderlust.runner.engine import rollout, run_blocking, suspended_loop
from wanderlust.store.provenance import provenance_of, tasks_digest
from wanderlust.tasks.registry import resolve_environment
from wanderlust.tasks.selection import choose_tasks, iter_tasks
from wanderlust.testing import ContractViolation, check_environment
from wanderlust.types import Policy, Rollout, Score, Task

SPLITS = ("train", "eval")
MAX_TASKS_COMPARED = 2_000
"""Tasks of each split that are compared with the other, hashed, or drawn from."""
PROBE_TASKS = 16
"""Tasks that each probe and each reference player plays."""
RANDOM_POLICY, ORACLE = "random", "oracle"
CONTRACT_STEP = "contract"
"""What is done while the contract is checked: its episodes are counted apart from players and probes."""

OnProgress = Callable[[str, int, int], None]
"""Called with what is done, its number, and the number of all steps."""


@dataclass(slots=True, kw_only=True)
class CheckReport:
    """Everything that the gate found."""

    environment: str
    tasks_played: int
    """Different tasks that the contract was checked on."""
    violations: list[ContractViolation]
    probe: ProbeReport | None = None
    """None where no task could be played, or it was not asked for."""
    players: dict[str, Estimate] = field(default_factory=dict)
    """Mean reward of the first seat that learns, by the scripted player."""
    digests: dict[str, str] = field(default_factory=dict)
    """As in `wander.lock`: of own files, packages, rubric and settings; of each split's tasks; Python's version."""
    task_counts: dict[str, int] = field(default_factory=dict)
    """By split, at most MAX_TASKS_COMPARED."""
    episodes: int = 0
    """Episodes of the reference players and the probe."""
    cpu_seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing is broken. A probe that cannot tell is no violation; `verdict` says so."""
        return not self.violations

    @property
    def verdict(self) -> str:
        """The probe's verdict; `not probed` without one."""
        return self.probe.verdict if self.probe is not None else "not probed"

    def __str__(self) -> str:
        """One line, or one for each violation."""
        if self.ok:
            return f"OK: {self.environment} keeps its contract on {self.tasks_played} tasks; probe: {self.verdict}"
        return "\n".join(map(str, self.violations))

    def card(self) -> dict[str, Any]:
        """JSON data: what a reader of the environment's page wants to know."""
        return {
            "format": 1,
            "environment": self.environment,
            "ok": self.ok,
            "violations": [asdict(one) for one in self.violations],
            "tasks_played": self.tasks_played,
            "tasks": self.task_counts,
            "digests": self.digests,
            "ceilings": {
                "oracle": self.players[ORACLE].value if ORACLE in self.players else None,
                "chance": self.probe.chance.reward.value if self.probe is not None else None,
            },
            "players": {
                name: {"reward": one.value, "low": one.low, "high": one.high, "tasks": one.clusters}
                for name, one in self.players.items()
            },
            "probe": None if self.probe is None else findings_record(self.probe),
            "cost": {"episodes": self.episodes, "cpu_seconds": round(self.cpu_seconds, 2)},
        }


async def check_gate(
    env: Environment,
    policy: Policy | None = None,
    *,
    name: str = "",
    count: int = 4,
    probes: Sequence[Probe] | None = BATTERY,
    seed: int = 0,
    on_progress: OnProgress = lambda what, number, of: None,
) -> CheckReport:
    """Check the contract on `count` tasks, the splits, the oracle's keys, and the reward by `probes` (None: not that).

    Mistakes of the environment are violations of the report, and raise nothing.
    """
    began, wrong = time.process_time(), declaration_error(env)
    if wrong:
        violations = [ContractViolation("declaration", wrong)]
        return CheckReport(environment=name, tasks_played=0, violations=violations)
    splits, report = dict[str, list[Task]](), CheckReport(environment=name, tasks_played=0, violations=[])
    for split in SPLITS:
        error = listing_error(env, split)
        if error is not None:
            report.violations.append(ContractViolation("tasks", f"tasks({split!r}): {error}"))
            continue
        with suppress(UsageError):  # an environment need not have every split
            splits[split] = list(islice(iter_tasks(env, split), MAX_TASKS_COMPARED))
    code = {name: digest for name, digest in provenance_of(env).inputs.items() if name != "the tasks"}
    of_tasks = {f"tasks/{split}": tasks_digest(tasks) for split, tasks in splits.items()}
    report.digests = {"python": platform.python_version(), **code, **of_tasks}
    report.task_counts = {split: len(tasks) for split, tasks in splits.items()}
    playable = next((splits[split] for split in ("eval", "train") if splits.get(split)), [])
    if not playable and not report.violations:
        detail = "there are no tasks: `tasks(split)` has to return some for 'train', 'eval' or both"
        report.violations.append(ContractViolation("tasks", detail))
    if report.violations:
        return report
    shared = shared_tasks(splits["train"], splits["eval"]) if all(splits.get(split) for split in SPLITS) else ()
    report.violations += [ContractViolation("splits", f"eval and train overlap: {one}") for one in shared]
    with _unawaited(report.violations):
        report.violations += await check_environment(
            env, policy, count=count, on_episode=partial(on_progress, CONTRACT_STEP)
        )
        report.tasks_played = len({task.id for task in (splits.get("train") or playable)[:count]})
        tasks = sample_tasks(playable, PROBE_TASKS, seed=seed)
        if probes is not None:
            await _reward(env, tasks, report, probes=probes, seed=seed, on_progress=on_progress)
    unique = dict.fromkeys((one.rule, one.detail) for one in report.violations)
    report.violations = [ContractViolation(*one) for one in unique]
    report.cpu_seconds = time.process_time() - began
    return report


def listing_error(env: Environment, split: str) -> str | None:
    """Why the tasks of a split cannot be listed, in one line; None where they can, or there is no such split."""
    try:
        with boundary(EnvironmentFailure):
            for task in islice(env.tasks(split), MAX_TASKS_COMPARED):
                if not isinstance(task, Task):
                    return f"gave a {type(task).__name__}, and not a wanderlust.Task"
                if not isinstance(task.id, str):
                    return f"gave a task whose id is {task.id!r}, and not a text"
    except UsageError:
        return None
    except WanderlustError as error:
        return one_line(str(error), 300)
    return None


def draw_tasks(env: Environment, split: str, count: int, *, seed: int) -> list[Task]:
    """Draw tasks to probe with, the same for the same seed; of an endless split among its first ones."""
    return sample_tasks(choose_tasks(iter_tasks(env, split), MAX_TASKS_COMPARED), count, seed=seed)


async def probe_environment(
    env: Environment, *, tasks: Sequence[Task], oracle: str = ORACLE, **options: Any
) -> ProbeReport:
    """`run_probes`, which takes the options, with the environment's own players.

    `oracle` earns the full reward, `random` what chance earns.
    """
    players = players_of(env)
    return await run_probes(
        env,
        tasks=tasks,
        oracle=players[oracle]() if oracle in players else None,
        random=players[RANDOM_POLICY]() if RANDOM_POLICY in players else None,
        others=next((players[name]() for name in (oracle, *players) if name in players), None),
        **options,
    )


@contextmanager
def _unawaited(violations: list[ContractViolation]) -> Iterator[None]:
    """Turn Python's warning about a forgotten `await` into a violation."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    told = dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, RuntimeWarning))
    violations += [
        ContractViolation("await", f"{one_line(message, 200)}: put `await` before the call")
        for message in told
        if "never awaited" in message
    ]


async def _reward(
    env: Environment,
    tasks: Sequence[Task],
    report: CheckReport,
    *,
    probes: Sequence[Probe],
    seed: int,
    on_progress: OnProgress,
) -> None:
    """The reference players and the probe; what they find goes into the report."""
    makers, played = players_of(env), dict[str, list[Rollout]]()
    for number, (name, make) in enumerate(makers.items(), 1):
        on_progress(name, number, len(makers))
        try:
            with boundary(PolicyFailure):
                own = name == ORACLE and env.has_oracle
                solvers = [(t, env.oracle(t)) for t in tasks] if own else [*zip(tasks, repeat(make()), strict=False)]
        except WanderlustError as error:
            report.violations.append(ContractViolation("players", one_line(f"{name}: {error}", 300)))
            continue
        played[name] = [await rollout(env, task, one, seed=seed) for task, one in solvers if one is not None]
        failed = [r for r in played[name] if r.error is not None]
        if failed and (name == ORACLE or len(failed) == len(played[name])):
            detail = f"{name} fails in {len(failed)} of {len(played[name])} episodes: {failed[0].error}"
            report.violations.append(ContractViolation("players", one_line(detail, 300)))
        scores = [[score.reward] for r in played[name] if (score := _score(r)) is not None]
        if scores:
            report.players[name] = mean(scores)
        report.episodes += len(played[name])
    report.violations += _keys(env, played.get(ORACLE, []))
    try:
        report.probe = await probe_environment(env, tasks=tasks, battery=probes, seed=seed, on_probe=on_progress)
    except (UsageError, EnvironmentFailure) as error:
        report.violations.append(ContractViolation("probe", one_line(str(error), 300)))
        return
    report.episodes += sum(len(one.by_task) + one.failed for one in report.probe.results)
    report.violations += _probed(report.probe)


def _score(played: Rollout) -> Score | None:
    scored = None if played.error is not None else played.main_trajectory
    return None if scored is None else scored.score


def _keys(env: Environment, played: Sequence[Rollout]) -> Iterator[ContractViolation]:
    """The oracle against the bar that the environment states; without one, single answers that are paid less."""
    rewards = {r.task.id: score.reward for r in played if (score := _score(r)) is not None}
    if not rewards:
        return
    average, best = fsum(rewards.values()) / len(rewards), max(rewards.values())
    if env.oracle_bar is not None:
        if average < env.oracle_bar - 1e-9:
            low = one_line(", ".join(task for task, reward in rewards.items() if reward < env.oracle_bar), 100)
            detail = f"it earns {average:g}, and oracle_bar says at least {env.oracle_bar:g}; less in {low}"
            yield ContractViolation("oracle", f"{detail}: is the answer of a task wrong, or the reward?")
        return
    single = all(len(seat.turns) == 1 for r in played if (seat := r.main_trajectory) is not None)
    wrong = [task for task, reward in rewards.items() if reward < best / 2]
    if single and best > 0 and wrong:
        detail = f"its answers earn {best:g}, but less than half of that in {len(wrong)} of {len(rewards)} tasks"
        hint = "a wrong answer in the data? (an oracle that is not perfect: state its least mean as oracle_bar)"
        yield ContractViolation("oracle", f"{detail}, such as {wrong[0]!r}: {hint}")


def _probed(found: ProbeReport) -> Iterator[ContractViolation]:
    if found.blind and not found.teaches_form:
        detail = f"chance ({found.chance.name}) earns {found.chance.reward.value:.3f}, and the most is {found.top:.3f}"
        if found.chance_bar is not None:
            detail += (
                f"; chance_bar says at most {found.chance_bar:g}, and a text without the form earns {found.formless:g}"
            )
        yield ContractViolation("reward", f"it hardly tells right from random: {detail}")
    for flaw in found.flaws[:3]:
        yield ContractViolation("probe", flaw.line)
    for failure in found.failures[:1]:
        yield ContractViolation("hostile", f"the environment failed under {len(found.failures)} probes: {failure}")
    for crash in found.crashes[:1]:
        yield ContractViolation("probe", f"{len(found.crashes)} probes crashed, so they say nothing: {crash}")


@suspended_loop()
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
    if n < 1:
        raise UsageError(f"n is {n}, and must be at least 1: without a task nothing is checked")
    environment = resolve_environment(env).env if isinstance(env, str) else env
    name = env if isinstance(env, str) else type(env).__name__
    probes = BATTERY if probe else None
    return run_blocking(partial(check_gate, environment, policy, name=name, count=n, probes=probes))


@suspended_loop()
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
    tasks = draw_tasks(environment, split, n, seed=seed)
    return run_blocking(partial(probe_environment, environment, tasks=tasks, attack=attack, seed=seed))
