"""`wander check`: test whether an environment keeps its contract.

`wander probe`: does an environment's reward pay for what nobody wants?

`wander new`: an environment of one's own, as a package that can be installed.
"""

from __future__ import annotations

import asyncio
import keyword
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from json import dumps
from pathlib import Path

from wanderlust.cli.long_commands import stoppable
from wanderlust.cli.options import EnvironmentName, JsonFlag, PolicyName, PositiveInt
from wanderlust.cli.output import print_json, print_note, print_result, show_result
from wanderlust.errors import UsageError, nearest_names, one_line
from wanderlust.evals.gate import (
    CONTRACT_STEP,
    ORACLE,
    SPLITS,
    CheckReport,
    check_gate,
    draw_tasks,
    listing_error,
    probe_environment,
)
from wanderlust.evals.probe.battery import BATTERY
from wanderlust.evals.probe.probe import Probe
from wanderlust.evals.probe.report import ProbeReport, findings_record
from wanderlust.policies.resolve import PolicyOptions, open_policies, players_of, resolve_policy
from wanderlust.runner.terminal import Table
from wanderlust.store.run_folder import shell_command
from wanderlust.tasks.registry import resolve_environment, resolve_object
from wanderlust.tasks.selection import iter_tasks


def check_command(
    env: EnvironmentName,
    /,
    *,
    policy: PolicyName | None = None,
    num_tasks: PositiveInt = 4,
    no_probe: bool = False,
    card: Path | None = None,
    json: JsonFlag = False,
) -> int:
    """Check that an environment can be published, and report every violation; the exit code is 1 when there is one.

    Looked at: plain tasks with different ids, prompts that can be sent, equal rollouts for equal seeds (alone, beside
    others, and replayed from the record), plain state, finite rewards, hostile answers, agents that are never asked,
    a forgotten await, tasks that train and eval share, the oracle's reward, and whether a degenerate policy is paid.

    Parameters
    ----------
    num_tasks:
        How many tasks are played.
    no_probe:
        Leave out the degenerate policies, which play against the reward.
    card:
        A file for the card: digests, tasks, the reference players' rewards, the probe's findings, the cost, as JSON.
    """
    with stoppable(lambda: "stopped; nothing was kept") as progress:
        resolved = resolve_environment(env)
        for split in SPLITS:
            if listing_error(resolved.env, split) is not None:
                next(iter_tasks(resolved.env, split))  # raises what is wrong, in one line
        checked_policy = (
            None if policy is None else resolve_policy(policy, resolved.env, PolicyOptions(temperature=0.0)).policy
        )

        async def play_checks() -> CheckReport:
            async with open_policies([] if checked_policy is None else [checked_policy]):
                return await check_gate(
                    resolved.env,
                    checked_policy,
                    name=resolved.name,
                    count=num_tasks,
                    probes=None if no_probe else BATTERY,
                    on_progress=lambda what, number, of: progress.log_step(
                        what if what == CONTRACT_STEP else "check", number, of=of, metrics={}
                    ),
                )

        report = asyncio.run(play_checks())
    if card is not None:
        try:
            card.write_text(dumps(report.card(), indent=2, default=str) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"the card cannot be written to {card}: {error.strerror}") from None
    if json:
        problems = [asdict(one) for one in report.violations]
        print_json(
            {"env": resolved.target, "tasks": report.tasks_played, "probe": report.verdict, "problems": problems}
        )
        return 0 if report.ok else 1
    if report.verdict == "cannot tell" and report.probe is not None:
        print_note(f"whether the reward can be gamed cannot be told: {report.probe.coverage}")
    if report.violations:
        table = Table("check", "problem")
        for one in report.violations:
            table.add_row(one.rule, one_line(one.detail, 500))
        print_result(table)
    else:
        coverage = f"; probe: {report.verdict}, {report.probe.coverage}" if report.probe is not None else ""
        print_result(None, f"OK: {resolved.name} keeps its contract on {report.tasks_played} tasks{coverage}")
    return 0 if report.ok else 1


MAX_FLAWS_PRINTED = 12
"""Flaws in the table; the others are in `--json`."""
CANNOT_TELL = 3
"""Exit code of a probe without a verdict."""


def probe_command(
    env: EnvironmentName,
    /,
    *,
    num_tasks: PositiveInt = 32,
    split: str = "eval",
    oracle: str = "oracle",
    more: str | None = None,
    attack: PositiveInt | None = None,
    seed: int = 0,
    json: JsonFlag = False,
) -> int:
    """Play degenerate policies against an environment's reward, before a model finds out what they find.

    More than a hundred degenerate policies play the same tasks as random play and the oracle. Each that earns clearly
    more than chance is listed, with its best game; the exit code is 1 then. It is 3 when nothing can be
    told, because no probe could speak the form that the environment wants, or one crashed.

    Parameters
    ----------
    num_tasks:
        Tasks that each of them plays.
    split:
        Where the tasks come from.
    oracle:
        The environment's player that deserves the full reward; without such a one 1 counts as that.
    more:
        Probes of your own, package.module:NAME or file.py:NAME, a list of `Probe`.
    attack:
        Episodes from which a small attacker learns, for example 600; none without it.
    seed:
        Random seed.
    """
    resolved = resolve_environment(env)
    own, players = _own_probes(more), players_of(resolved.env)
    if oracle not in players and oracle != ORACLE:
        nearest = nearest_names(oracle, [*players], kind="players")
        raise UsageError(f"{resolved.name} has no player {oracle!r}; {nearest}")
    tasks = draw_tasks(resolved.env, split, num_tasks, seed=seed)
    with stoppable(lambda: "stopped; nothing was kept") as progress:
        findings = asyncio.run(
            probe_environment(
                resolved.env,
                tasks=tasks,
                oracle=oracle,
                battery=(*BATTERY, *own),
                attack=attack or 0,
                seed=seed,
                on_probe=lambda name, number, of: progress.log_step("probe", number, of=of, metrics={}),
            )
        )
    if json:
        print_json({"env": resolved.target, "tasks": len(tasks), **findings_record(findings)})
    else:
        _print_findings(resolved.name, findings, tasks=len(tasks))
    return {"nothing found": 0, "flaw found": 1, "cannot tell": CANNOT_TELL}[findings.verdict]


def _own_probes(target: str | None) -> tuple[Probe, ...]:
    if target is None:
        return ()
    target_object = resolve_object(target)
    if not isinstance(target_object, (list, tuple)) or not all(isinstance(one, Probe) for one in target_object):
        raise UsageError(f"{target} is no list of Probe (wanderlust.evals.probe.probe)")
    return tuple(target_object)


def _print_findings(name: str, findings: ProbeReport, *, tasks: int) -> None:
    chance, played = findings.chance, len(findings.results)
    if findings.oracle is None or findings.oracle_failure:
        error = findings.oracle_failure
        what = f"the oracle failed ({error})" if error else f"{name} has no such oracle"
        full = f"so {findings.top:g} counts as the full reward"
        print_note(f"{what}, {full if findings.oracle is None else 'and those episodes are in no figure'}")
    around = f"chance ({chance.name}) earns {chance.reward}, the oracle {findings.top:.3f}"
    failed = sum(earned.failed for earned in findings.results)
    if failed:
        first = f": {findings.failures[0]}" if findings.failures else ""
        print_note(f"{failed} episodes failed and are in no figure{first}")
    if findings.attack:
        print_note(findings.attack)
    for crash in findings.crashes:
        print_note(f"a probe crashed, which is a mistake of the battery: {crash}")
    if findings.verdict == "cannot tell":
        hint = "" if findings.oracle is not None else "; an oracle shows the form of answers"
        print_result(None, f"{name}: cannot tell: {findings.coverage}{hint}; {around}")
        return
    if findings.sound:
        line = f"{name}: {played} probes on {tasks} tasks earn nothing that they should not; {findings.coverage}"
        print_result(None, f"{line}; {around}")
        return
    if findings.blind and not findings.teaches_form:
        print_result(None, f"{name}: the reward hardly tells the oracle from chance: {around}")
    if findings.flaws:
        table = Table("probe", "what it does", "reward", "of the way up", title=f"{name}: {around}")
        for flaw in findings.flaws[:MAX_FLAWS_PRINTED]:
            table.add_row(flaw.result.name, flaw.result.description, str(flaw.result.reward), f"{flaw.share:.0%}")
        others = [flaw.result.name for flaw in findings.flaws[MAX_FLAWS_PRINTED:]]
        rest = [f"and {len(others)} more: {', '.join(others)}"] if others else []
        worst = findings.flaws[0].result
        best = worst.best
        turns = [f"  {m.role}: {one_line(m.content, 300)}" for m in best.trajectories[0].messages[:8]]
        reward = worst.by_task[best.task.id]
        print_result(table, *rest, "", f"{worst.name} on task {best.task.id}, reward {reward:g}:", *turns)


ENVIRONMENT_TEMPLATE = '''\
from wanderlust import Environment, Scripted, Task, user


class CLASS(Environment):
    """Doubling: say here what yours is about."""

    def tasks(self, split="train"):
        start = 0 if split == "train" else 1000
        asked = {n: user(f"What is {n} + {n}? End with the number.") for n in range(start, start + 20)}
        return [Task(id=f"{split}-{n}", prompt=(asked[n],), answer=str(2 * n)) for n in asked]

    async def run(self, episode):
        said = await episode.agent.act(*episode.task.prompt)
        episode.reward("right", float(said.content.split()[-1:] == [episode.task.answer]))

    def oracle(self, task):
        return Scripted([task.answer])
'''
TEST_TEMPLATE = """\
from MODULE import CLASS

from wanderlust import check


def test_it_passes_the_gate():
    report = check(CLASS())
    assert report.ok, report
"""


def new_command(name: str, /, *, json: JsonFlag = False) -> None:
    """Begin an environment of your own: a folder with one file of code, one test, and what makes it installable.

    Parameters
    ----------
    name:
        Name of the environment and of the new folder: letters, digits, hyphens and underscores.
    """
    write_package(
        name,
        "environments",
        "MODULE:CLASS",
        code=ENVIRONMENT_TEMPLATE,
        test=TEST_TEMPLATE,
        trial=partial(shell_command, "check"),
        json=json,
    )


PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "PROJECT"
version = "0.1.0"
dependencies = ["wanderlust"]
entry-points."wanderlust.GROUP".PROJECT = "TARGET"

[tool.hatch.build.targets.wheel]
only-include = ["MODULE.py"]
"""


def write_package(
    name: str, group: str, target: str, *, code: str, test: str, trial: Callable[[str], str], json: bool
) -> None:
    """Write the files, and print what comes next; `trial` is the command that tries what the package brings, by name.

    In the texts and in the target of the entry point stand MODULE, PROJECT and CLASS for the package's own names.
    Raises UsageError for what is no name, and where the folder exists.
    """
    module, folder = name.replace("-", "_").lower(), Path(name)
    if not module.isidentifier() or not module.isascii() or keyword.iskeyword(module) or module == "wanderlust":
        raise UsageError(f"{name!r} cannot be the name of a package: letters, digits, - and _, a letter first")
    if folder.exists():
        raise UsageError(f"{name} exists already")
    project, class_name = module.replace("_", "-"), module.title().replace("_", "")
    texts = {"pyproject.toml": PYPROJECT, f"{module}.py": code, f"test_{module}.py": test}
    own = {"TARGET": target, "GROUP": group, "MODULE": module, "PROJECT": project, "CLASS": class_name}
    for word, value in own.items():  # a target names the module
        texts = {file: text.replace(word, value) for file, text in texts.items()}
    folder.mkdir()
    for file, text in texts.items():
        (folder / file).write_text(text)
    steps = [f"pip install -e {folder}", trial(project), f"pytest {folder}"]
    body = {"folder": str(folder), "files": [*texts], "next": steps}
    show_result(body, f"{folder}/ has {', '.join(texts)}. Next:", *(f"  {step}" for step in steps), json=json)
