"""A benchmark of worlds: one policy played several times, beside the environment's players, as one report.

Figures are by capability: pass@1, pass@k and pass^k with intervals, and the success within budgets. The expected cost
is told before anything is asked, from what the oracle reads and writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from wanderlust.errors import UsageError, one_line
from wanderlust.evals.comparison import require_one_version
from wanderlust.evals.evaluate import evaluate_sync
from wanderlust.evals.report import Report, render_text
from wanderlust.policies.base import TokenPrices
from wanderlust.policies.resolve import PolicyOptions, resolve_policy
from wanderlust.runner.engine import suspended_loop
from wanderlust.runner.progress import Logger
from wanderlust.runner.terminal import Table
from wanderlust.store.run import load_run
from wanderlust.store.run_folder import EVALUATION_STAGE
from wanderlust.store.whole_files import write_whole
from wanderlust.tasks.registry import resolve_environment
from wanderlust.types import Group, Policy, Rollout, Task
from wanderlust_life.assistant_life import AssistantLife
from wanderlust_life.brief_worlds import BriefWorlds
from wanderlust_life.world_calibration import Calibration, calibrate, remark_on
from wanderlust_worlds.engine.events import PlannedCall
from wanderlust_worlds.success_curve import MEASURES, budget_grid, budget_outcomes, success_curve
from wanderlust_worlds.wrap.world_environment import agent_tools, log_of

ROLLOUTS, PLAYERS = "rollouts", "players"
"""Folders of a benchmark: the policy's rollouts, and one for each further player."""
REPORT_FILE, PAGE_FILE, ROW_FILE = "bench.json", "bench.md", "leaderboard.json"
CHARS_PER_TOKEN = 4
NO_OPTIONS = PolicyOptions()
NO_PLAYERS: Mapping[str, str | Policy] = MappingProxyType({})
TRAINING_TASKS = 300
"""Tasks of training that the requests of the benchmark are compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCost:
    """What a run takes for a policy that plays like the oracle; one that looks around more takes more."""

    rollouts: int
    tokens_in: int
    """Every turn reads the whole conversation and the tools again."""
    tokens_out: int
    dollars: float | None
    """None without prices."""

    def __str__(self) -> str:
        cost = "" if self.dollars is None else f", ${self.dollars:,.2f}"
        return (
            f"{self.rollouts:,} rollouts; playing as the oracle does they read about {self.tokens_in:,} tokens and "
            f"write {self.tokens_out:,}{cost}; a policy that looks around takes more"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldBenchmark:
    """The report."""

    env: str
    policy: str
    samples: int
    expected: ExpectedCost
    report: Report
    players: Mapping[str, Report]
    """The environment's own players, weakest first, the oracle, then those that were named."""
    calibration: Calibration
    """How hard the tasks are, by these players and the policy."""
    curves: Mapping[str, Sequence[tuple[float, float]]]
    """By measure: budget and the share of rollouts that passed within it."""
    repeated: int
    """Tasks whose request stands word for word among the first tasks of training."""
    disagreements: int | None
    """Rollouts whose facts are right and which the judge refused; None without a judge."""
    code: str
    """Digest of the code and tasks that made the rollouts."""

    def table(self) -> Table:
        """By capability: the figures of the policy, then what the players pass."""
        names = [one for one in (f"pass@{self.samples}", f"pass^{self.samples}") if one in self.report.passes]
        table = Table(title=f"{self.policy} in {self.env}, {self.samples} runs", title_justify="left")
        for name in ("", "tasks", "pass@1", *names, *self.players):
            table.add_column(one_line(name, 24), justify="left" if not name else "right")
        for value, part in [*self.report.breakdown.items(), ("all", self.report)]:
            passes = [f"{part.passes[one].value:.2f}" if one in part.passes else "" for one in names]
            others = [_reward(one.breakdown.get(value, one)) for one in self.players.values()]
            table.add_row(one_line(value, 24), str(part.tasks), str(part.reward or "unknown"), *passes, *others)
        return table

    def tables(self) -> list[Table]:
        """The figures, the players, and how many of them solve the tasks."""
        return [self.table(), self.calibration.table(), self.calibration.task_table()]

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "env": self.env,
            "policy": self.policy,
            "samples": self.samples,
            "code": self.code,
            "expected": asdict(self.expected),
            "figures": self.report.as_dict(),
            "by_capability": {name: part.as_dict() for name, part in self.report.breakdown.items()},
            "calibration": self.calibration.as_dict(),
            "curves": {name: [list(point) for point in points] for name, points in self.curves.items()},
            "repeated_requests": self.repeated,
            "judge_disagreements": self.disagreements,
        }

    def row(self) -> dict[str, Any]:
        """The line of a leaderboard."""
        whole = self.report.reward
        return {
            "env": self.env,
            "policy": self.policy,
            "code": self.code,
            "samples": self.samples,
            "tasks": self.report.tasks,
            "scored": self.report.scored,
            "pass@1": None if whole is None else [whole.value, whole.low, whole.high],
            "by_capability": _by_value(self.report),
        }

    def page(self) -> str:
        """The card, as Markdown."""
        judged = (
            "no judge" if self.disagreements is None else f"{self.disagreements} right by facts, refused by the judge"
        )
        lines = [
            f"# {one_line(self.env, 120)}: {one_line(self.policy, 80)}",
            "",
            "```text",
            *(render_text(one) for one in self.tables()),
            "```",
            "",
            f"- Scored: {self.report.scored} of {self.report.played}. Failed rollouts are in no figure.",
            f"- Expected beforehand: {self.expected}.",
            f"- Requests that training has word for word: {self.repeated} of {self.report.tasks}.",
            f"- Judge: {judged}.",
            f"- Code and tasks: `{self.code or 'unknown'}`.",
            *(f"- {line}" for line in self.calibration.lines()),
        ]
        for measure, points in self.curves.items():
            steps = ", ".join(f"{share:.2f} within {_budget(budget)}" for budget, share in points)
            lines.append(f"- Success by {measure.replace('_', ' ')}: {steps}.")
        return "\n".join(lines) + "\n"


def expected_cost(env: AssistantLife, *, samples: int, prices: TokenPrices | None = None) -> ExpectedCost:
    """What `samples` rollouts of every task take, from the oracle's rollouts."""
    played: list[Rollout] = []

    def keep(groups: Sequence[Group]) -> None:
        played.extend(one for group in groups for one in group.rollouts)

    evaluate_sync(env, _policy_named("oracle", env), observers=[keep], progress=False)
    amounts = [_amount(env, one) for one in played]
    read, written = (samples * sum(one[n] for one in amounts) // CHARS_PER_TOKEN for n in (0, 1))
    dollars = None if prices is None else prices.cost(read, written)
    return ExpectedCost(rollouts=samples * len(played), tokens_in=read, tokens_out=written, dollars=dollars)


def _amount(env: AssistantLife, rollout: Rollout) -> tuple[int, int]:
    """Characters read and written; each turn reads all that was said before it, and the tools."""
    tools = [] if isinstance(env, BriefWorlds) else agent_tools(env.scenario(rollout.task).world())
    context = sum(len(tool.description) + len(json.dumps(tool.schema)) for tool in tools)
    read = written = 0
    for turn in rollout.trajectories[0].turns:
        context += sum(len(message.content) for message in turn.observation)
        said = len(turn.action.content) + sum(len(str(call)) for call in turn.action.tool_calls)
        read, written, context = read + context, written + said, context + said
    return read, written


@suspended_loop()
def run_world_benchmark(
    env: str,
    policy: str | Policy,
    *,
    out: Path,
    samples: int = 3,
    options: PolicyOptions = NO_OPTIONS,
    prices: TokenPrices | None = None,
    players: Mapping[str, str | Policy] = NO_PLAYERS,
    announce: Callable[[ExpectedCost], None] = lambda expected: None,
    progress: Logger | bool = True,
) -> WorldBenchmark:
    """Play the `eval` split of `env` (a name with settings) `samples` times, and its players once; keep all in `out`.

    `players` are further ones, each a policy or the name of one: an endpoint, a run, a checkpoint, a script. The same
    call goes on where it was stopped. `announce` gets the expected cost, that of `players` included, before any of them
    is asked. Raises UsageError for an environment without generated scenarios, for another benchmark in `out`, and for
    a player that the environment has already.
    """
    made = resolve_environment(env).env
    if not isinstance(made, AssistantLife):
        raise UsageError(f"{env} is no environment of generated scenarios: life, life-team, or these with settings")
    asked = _policy_named(policy, made, options) if isinstance(policy, str) else policy
    own = (*made.players, "oracle")
    further = _further_players(players, made, options)
    expected = expected_cost(made, samples=samples + len(further), prices=prices)
    announce(expected)
    label = policy if isinstance(policy, str) else type(policy).__name__
    settings = {"env": env, "policy": label, "samples": samples, "seed": options.seed, "model": options.model}
    common: dict[str, Any] = {"seed": options.seed, "prices": prices, "progress": progress}
    report = evaluate_sync(made, asked, samples=samples, out=out / ROLLOUTS, settings=settings, **common)
    reports = {name: evaluate_sync(made, _policy_named(name, made), progress=False) for name in own}
    rollouts, remarks = _rollouts_in(out / ROLLOUTS), dict[str, str]()
    for name, player in further.items():
        folder = out / PLAYERS / name
        reports[name] = evaluate_sync(
            made, player, out=folder, settings={**settings, "policy": name, "samples": 1}, **common
        )
        remarks[name] = remark_on(name, _rollouts_in(folder))
    if label not in own:
        remarks[label] = remark_on(label, rollouts)
    counted = reports if label in reports else {**reports, label: report}
    result = WorldBenchmark(
        env=env,
        policy=label,
        samples=samples,
        expected=expected,
        report=report,
        players=reports,
        calibration=calibrate(
            [*made.tasks("eval")], counted, own=own, remarks={name: line for name, line in remarks.items() if line}
        ),
        curves=_curves(rollouts, prices),
        repeated=_repeated_requests(made),
        disagreements=None if made.judge is None else _disagreements(made, rollouts),
        code=next((one.provenance for one in rollouts if one.provenance), ""),
    )
    write_whole(out / PAGE_FILE, result.page())
    for file, body in ((REPORT_FILE, result.as_dict()), (ROW_FILE, result.row())):
        write_whole(out / file, json.dumps(body, indent=1, ensure_ascii=False) + "\n")
    return result


def _further_players(
    players: Mapping[str, str | Policy], env: AssistantLife, options: PolicyOptions
) -> dict[str, Policy]:
    for name in players:
        if name in (*env.players, "oracle") or not re.fullmatch(r"[\w.-]+", name):
            raise UsageError(f"a further player cannot be called {name!r}: take another word, without / and spaces")
    return {name: _policy_named(one, env, options) if isinstance(one, str) else one for name, one in players.items()}


def _rollouts_in(folder: Path) -> list[Rollout]:
    with closing(load_run(folder)) as run:
        require_one_version(run)
        return [*run.rollouts(f'stage == "{EVALUATION_STAGE}"')]


def _policy_named(name: str, env: AssistantLife, options: PolicyOptions = NO_OPTIONS) -> Policy:
    return resolve_policy(name, env, options).policy


def _curves(rollouts: Sequence[Rollout], prices: TokenPrices | None) -> dict[str, list[tuple[float, float]]]:
    curves = {}
    for measure in MEASURES:
        points, _ = budget_outcomes(rollouts, measure, prices=prices)
        if points:
            curves[measure] = [(one.budget, one.success.value) for one in success_curve(points, budget_grid(points))]
    return curves


def _budget(amount: float) -> str:
    """A budget as the card shows it: dollars of a small model are far below one."""
    return f"{amount:,.0f}" if amount >= 10 or not amount else f"{amount:.2g}"


def _repeated_requests(env: AssistantLife) -> int:
    """Tasks of `eval` whose first request one of the first tasks of `train` has too."""

    def requests(tasks: Iterable[Task]) -> list[str]:
        return [str(_first_request(env, task)) for task in tasks]

    known = {*requests(islice(env.tasks("train"), TRAINING_TASKS))}
    return sum(one in known for one in requests(env.tasks("eval")))


def _first_request(env: AssistantLife, task: Task) -> Any:
    calls = [one for one in env.scenario(task).events if isinstance(one, PlannedCall) and one.by == "user"]
    return calls[0].args.get("content") if calls else None


def _disagreements(env: AssistantLife, rollouts: Sequence[Rollout]) -> int:
    """Scored rollouts that the facts accept and the judge did not."""
    scored = [(one, one.trajectories[0].score) for one in rollouts if one.trajectories]
    right = [
        (score, env.scenario_and_grader(one.task.id)[1].verdict(log_of(one)).accepted)
        for one, score in scored
        if score is not None
    ]
    return sum(accepted and score.reward < 1 for score, accepted in right)


def _reward(report: Report) -> str:
    return f"{report.reward.value:.2f}" if report.reward is not None else "unknown"


def _by_value(report: Report) -> dict[str, float | None]:
    return {name: None if part.reward is None else part.reward.value for name, part in report.breakdown.items()}
