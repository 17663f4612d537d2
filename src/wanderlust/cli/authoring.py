"""`wander check`: test whether an environment keeps its contract.

`wander probe`: does an environment's reward pay for what nobody wants?

`wander new`: an environment of one's own, as a package that can be installed.
"""

from __future__ import annotations

import asyncio
import keyword
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from wanderlust.cli.long_commands import stoppable
from wanderlust.cli.options import EnvironmentName, JsonFlag, PolicyName, PositiveInt
from wanderlust.cli.output import print_json, print_note, print_result
from wanderlust.errors import UsageError, one_line
from wanderlust.evals.probe.battery import BATTERY, ProbeReport, ProbeResult, run_probes, sample_tasks
from wanderlust.evals.probe.probe import Probe
from wanderlust.policies.resolve import PolicyOptions, open_policies, players_of, resolve_policy
from wanderlust.store.run_folder import shell_command
from wanderlust.tasks.registry import resolve_environment, resolve_object
from wanderlust.tasks.selection import choose_tasks, iter_tasks
from wanderlust.testing import check_environment


def check_command(
    env: EnvironmentName, /, *, policy: PolicyName | None = None, num_tasks: PositiveInt = 4, json: JsonFlag = False
) -> int:
    """Play a few tasks several times and report every violation of the contract; the exit code is 1 when there is one.

    Looked at: plain tasks with different ids, prompts that can be sent, equal rollouts for equal seeds (alone, beside
    others, and replayed from the record), plain state, finite rewards, hostile answers, and where the environment has
    an oracle, that it scores higher than garbage.

    Parameters
    ----------
    num_tasks:
        How many tasks are played.
    """
    with stoppable(lambda: "stopped; nothing was kept"):
        resolved = resolve_environment(env)
        checked_policy = (
            None if policy is None else resolve_policy(policy, resolved.env, PolicyOptions(temperature=0.0)).policy
        )

        async def play_checks() -> list[dict[str, str]]:
            async with open_policies([] if checked_policy is None else [checked_policy]):
                return [asdict(one) for one in await check_environment(resolved.env, checked_policy, count=num_tasks)]

        findings = asyncio.run(play_checks())
    if json:
        print_json({"env": resolved.target, "problems": findings})
    elif findings:
        table = Table("check", "problem")
        for one in findings:
            table.add_row(one["rule"], Text(one_line(one["detail"], 500)))
        print_result(table)
    else:
        played = len(list(islice(iter_tasks(resolved.env, "train"), num_tasks)))
        print_result(None, f"OK: {resolved.name} keeps its contract on {played} tasks")
    return 1 if findings else 0


MAX_TASKS_CONSIDERED = 2_000
"""Tasks of an endless split among which some are drawn."""
MAX_FLAWS_PRINTED = 12
"""Flaws in the table; the others are in `--json`."""
RANDOM_POLICY = "random"


def probe_command(
    env: EnvironmentName,
    /,
    *,
    num_tasks: PositiveInt = 32,
    split: str = "eval",
    oracle: str = "oracle",
    more: str | None = None,
    seed: int = 0,
    json: JsonFlag = False,
) -> int:
    """Play degenerate policies against an environment's reward, before a model finds out what they find.

    More than a hundred policies that deserve nothing play the same tasks as ignorant ones and the oracle. Each that
    earns clearly more than chance is listed, with its best game; the exit code is 1 then.

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
    seed:
        Of everything random.
    """
    resolved = resolve_environment(env)
    players, own = players_of(resolved.env), _own_probes(more)
    tasks = sample_tasks(choose_tasks(iter_tasks(resolved.env, split), MAX_TASKS_CONSIDERED), num_tasks, seed=seed)
    with stoppable(lambda: "stopped; nothing was kept") as progress:
        findings = asyncio.run(
            run_probes(
                resolved.env,
                tasks=tasks,
                oracle=players[oracle]() if oracle in players else None,
                random=players[RANDOM_POLICY]() if RANDOM_POLICY in players else None,
                others=next((players[name]() for name in (oracle, *players) if name in players), None),
                battery=(*BATTERY, *own),
                seed=seed,
                on_probe=lambda name, number, of: progress.log_step("probe", number, of=of, metrics={}),
            )
        )
    if json:
        print_json({"env": resolved.target, "tasks": len(tasks), **findings_record(findings)})
    else:
        _print_findings(resolved.name, findings, tasks=len(tasks))
    return 0 if findings.sound else 1


def _own_probes(target: str | None) -> tuple[Probe, ...]:
    if target is None:
        return ()
    target_object = resolve_object(target)
    if not isinstance(target_object, (list, tuple)) or not all(isinstance(one, Probe) for one in target_object):
        raise UsageError(f"{target} is no list of Probe (wanderlust.evals.probe.probe)")
    return tuple(target_object)


def _print_findings(name: str, findings: ProbeReport, *, tasks: int) -> None:
    chance, played = findings.chance, len(findings.results)
    if findings.oracle is None:
        print_note(f"{name} has no such oracle, so {findings.top:g} counts as the full reward")
    around = f"chance ({chance.name}) earns {chance.reward}, the oracle {findings.top:.3f}"
    failed = sum(earned.failed for earned in findings.results)
    if failed:
        print_note(f"{failed} episodes failed and are in no figure: wander check says more")
    if findings.sound:
        print_result(None, f"{name}: {played} probes on {tasks} tasks earn nothing that they should not; {around}")
        return
    if findings.blind:
        print_result(None, f"{name}: the reward hardly tells the oracle from chance: {around}")
    if findings.flaws:
        table = Table(
            "probe", "what it does", "reward", "of the way up", title=f"{name}: {around}", title_justify="left"
        )
        for flaw in findings.flaws[:MAX_FLAWS_PRINTED]:
            table.add_row(flaw.result.name, flaw.result.description, str(flaw.result.reward), f"{flaw.share:.0%}")
        others = [flaw.result.name for flaw in findings.flaws[MAX_FLAWS_PRINTED:]]
        rest = [f"and {len(others)} more: {', '.join(others)}"] if others else []
        worst = findings.flaws[0].result
        best = worst.best
        turns = [str(Text(f"  {m.role}: {one_line(m.content, 300)}")) for m in best.trajectories[0].messages[:8]]
        reward = worst.by_task[best.task.id]
        print_result(table, *rest, "", f"{worst.name} on task {best.task.id}, reward {reward:g}:", *turns)


def findings_record(findings: ProbeReport) -> dict[str, Any]:
    """JSON data."""
    return {
        "sound": findings.sound,
        "blind": findings.blind,
        "top": findings.top,
        "chance": _earnings_record(findings.chance),
        "flaws": [
            {
                **_earnings_record(flaw.result),
                "share": flaw.share,
                "transcript": [
                    {"role": m.role, "content": m.content[:4_000]} for m in flaw.result.best.trajectories[0].messages
                ],
            }
            for flaw in findings.flaws
        ],
        "played": [_earnings_record(earned) for earned in findings.results],
        "skipped": findings.skipped,
    }


def _earnings_record(earned: ProbeResult) -> dict[str, Any]:
    reward = earned.reward
    return {
        "probe": earned.name,
        "what": earned.description,
        "kind": earned.kind,
        "reward": {"value": reward.value, "low": reward.low, "high": reward.high},
        "failed": earned.failed,
    }


PYPROJECT_TEMPLATE = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1.0"
dependencies = ["wanderlust"]
entry-points."wanderlust.environments".{name} = "{module}:{kind}"

[tool.hatch.build.targets.wheel]
only-include = ["{module}.py"]
"""
ENVIRONMENT_TEMPLATE = '''\
from wanderlust.environment import Environment
from wanderlust.types import user
from wanderlust.types import Task
from wanderlust.policies.scripted import Scripted


class {kind}(Environment):
    """Doubling: say here what yours is about."""

    def tasks(self, split="train"):
        start = 0 if split == "train" else 1000
        asked = {{n: user(f"What is {{n}} + {{n}}? End with the number.") for n in range(start, start + 20)}}
        return [Task(id=f"{{split}}-{{n}}", prompt=(asked[n],), answer=str(2 * n)) for n in asked]

    async def run(self, episode):
        said = await episode.agent.act(*episode.task.prompt)
        episode.reward("right", float(said.content.split()[-1:] == [episode.task.answer]))

    def oracle(self, task):
        return Scripted([task.answer])
'''
TEST_TEMPLATE = """\
import asyncio

from {module} import {kind}
from wanderlust.testing import check_environment


def test_it_keeps_its_promises():
    assert asyncio.run(check_environment({kind}())) == []
"""


def new_command(name: str, /, *, json: JsonFlag = False) -> None:
    """Begin an environment of your own: a folder with one file of code, one test, and what makes it installable.

    Parameters
    ----------
    name:
        Name of the environment and of the new folder: letters, digits, hyphens and underscores.
    """
    module, folder = name.replace("-", "_").lower(), Path(name)
    if not module.isidentifier() or not module.isascii() or keyword.iskeyword(module) or module == "wanderlust":
        raise UsageError(f"{name!r} cannot be the name of a package: letters, digits, - and _, a letter first")
    if folder.exists():
        raise UsageError(f"{folder} exists already")
    words = {"name": module.replace("_", "-"), "module": module, "kind": module.title().replace("_", "")}
    texts = {
        "pyproject.toml": PYPROJECT_TEMPLATE,
        f"{module}.py": ENVIRONMENT_TEMPLATE,
        f"test_{module}.py": TEST_TEMPLATE,
    }
    folder.mkdir()
    for file, text in texts.items():
        (folder / file).write_text(text.format(**words))
    steps = [f"pip install -e {folder}", shell_command("check", words["name"]), f"pytest {folder}"]
    if json:
        print_json({"folder": str(folder), "files": [*texts], "next": steps})
        return
    print_result(None, f"{folder}/ has {', '.join(texts)}. Next:", *(f"  {step}" for step in steps))
