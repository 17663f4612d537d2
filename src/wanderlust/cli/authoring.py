"""`wander check`: does an environment keep its promises?

`wander probe`: does an environment's reward pay for what nobody wants?

`wander new`: an environment of one's own, as a package that can be installed.
"""

from __future__ import annotations

import asyncio
import keyword
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from wanderlust.cli.options import Environments, Json, Policies, Positive
from wanderlust.cli.output import note, result, result_json
from wanderlust.cli.progress import stoppable
from wanderlust.errors import UsageError, one_line
from wanderlust.evals.probe.base import Probe
from wanderlust.evals.probe.run import BATTERY, Earned, Findings, Flaw, probe, sample
from wanderlust.policies.resolve import Voice, find_policy, opened, players_of
from wanderlust.store.run_folder import command
from wanderlust.tasks.registry import find_environment, named
from wanderlust.tasks.selection import choose
from wanderlust.testing import check_environment
from wanderlust.types import Rollout


def check(env: Environments, /, *, policy: Policies | None = None, count: Positive = 4, json: Json = False) -> int:
    """Play a few tasks several times over and report every broken promise; the exit code is 1 when there is one.

    Looked at: plain tasks with different ids, prompts that can be sent, equal rollouts for equal seeds (alone, beside
    others, and replayed from the record), plain state, finite rewards, hostile answers, and where the environment has
    an oracle, that it scores higher than garbage.

    Parameters
    ----------
    count:
        How many tasks are played.
    """
    with stoppable(lambda: "stopped; nothing was kept"):
        found = find_environment(env)
        asked = None if policy is None else find_policy(policy, found.env, Voice(temperature=0.0)).policy

        async def look() -> list[dict[str, str]]:
            async with opened([] if asked is None else [asked]):
                return [asdict(one) for one in await check_environment(found.env, asked, count=count)]

        findings = asyncio.run(look())
    if json:
        result_json({"env": found.target, "findings": findings})
    elif findings:
        table = Table("promise", "what was found")
        for one in findings:
            table.add_row(one["rule"], Text(one_line(one["detail"], 500)))
        result(table)
    else:
        result(None, f"{found.name} keeps its promises ({count} tasks)")
    return 1 if findings else 0


MOST = 2_000
"""Tasks of an endless split among which some are drawn."""
SHOWN = 12
"""Flaws in the table; the others are in `--json`."""
RANDOM = "random"


def probe_environment(
    env: Environments,
    /,
    *,
    count: Positive = 32,
    split: str = "eval",
    oracle: str = "oracle",
    more: str | None = None,
    seed: int = 0,
    json: Json = False,
) -> int:
    """Play degenerate policies against an environment's reward, before a model finds out what they find.

    More than a hundred policies that deserve nothing play the same tasks as ignorant ones and the oracle. Each that
    earns clearly more than chance is listed, with its best game; the exit code is 1 then.

    Parameters
    ----------
    count:
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
    found = find_environment(env)
    players, own = players_of(found.env), _own(more)
    tasks = sample(choose(found.env.tasks(split), MOST), count, seed=seed)
    with stoppable(lambda: "stopped; nothing was kept") as progress:
        findings = asyncio.run(
            probe(
                found.env,
                tasks=tasks,
                oracle=players[oracle]() if oracle in players else None,
                random=players[RANDOM]() if RANDOM in players else None,
                others=next((players[name]() for name in (oracle, *players) if name in players), None),
                battery=(*BATTERY, *own),
                seed=seed,
                show=lambda name, number, of: progress.show("probe", number, of=of, figures={}),
            )
        )
    if json:
        result_json({"env": found.target, "tasks": len(tasks), **as_dict(findings)})
    else:
        _tell(found.name, findings, tasks=len(tasks))
    return 0 if findings.sound else 1


def _own(target: str | None) -> tuple[Probe, ...]:
    if target is None:
        return ()
    found = named(target)
    if not isinstance(found, (list, tuple)) or not all(isinstance(one, Probe) for one in found):
        raise UsageError(f"{target} is no list of Probe (wanderlust.evals.probe.base)")
    return tuple(found)


def _tell(name: str, findings: Findings, *, tasks: int) -> None:
    chance, played = findings.chance, len(findings.played)
    if findings.oracle is None:
        note(f"{name} has no such oracle, so {findings.top:g} counts as the full reward")
    around = f"chance ({chance.name}) earns {chance.reward}, the oracle {findings.top:.3f}"
    failed = sum(earned.failed for earned in findings.played)
    if failed:
        note(f"{failed} episodes failed and are in no figure: wander check says more")
    if findings.sound:
        result(None, f"{name}: {played} probes on {tasks} tasks earn nothing that they should not; {around}")
        return
    if findings.blind:
        result(None, f"{name}: the reward hardly tells the oracle from chance: {around}")
    if findings.flaws:
        table = Table(
            "probe", "what it does", "reward", "of the way up", title=f"{name}: {around}", title_justify="left"
        )
        for flaw in findings.flaws[:SHOWN]:
            table.add_row(flaw.earned.name, flaw.earned.what, str(flaw.earned.reward), f"{flaw.share:.0%}")
        result(table, *_rest(findings.flaws), "", *_transcript(findings.flaws[0]))


def _rest(flaws: list[Flaw]) -> list[str]:
    others = [flaw.earned.name for flaw in flaws[SHOWN:]]
    return [f"and {len(others)} more: {', '.join(others)}"] if others else []


def _transcript(flaw: Flaw) -> list[str]:
    best = flaw.earned.best
    reward = flaw.earned.by_task[best.task.id]
    lines = [f"{flaw.earned.name} on task {best.task.id}, reward {reward:g}:"]
    return lines + [str(Text(f"  {m.role}: {one_line(m.content, 300)}")) for m in best.trajectories[0].messages[:8]]


def as_dict(findings: Findings) -> dict[str, Any]:
    """JSON data."""
    return {
        "sound": findings.sound,
        "blind": findings.blind,
        "top": findings.top,
        "chance": _earned(findings.chance),
        "flaws": [
            {**_earned(flaw.earned), "share": flaw.share, "transcript": _said(flaw.earned.best)}
            for flaw in findings.flaws
        ],
        "played": [_earned(earned) for earned in findings.played],
        "skipped": findings.skipped,
    }


def _earned(earned: Earned) -> dict[str, Any]:
    reward = earned.reward
    return {
        "probe": earned.name,
        "what": earned.what,
        "kind": earned.kind,
        "reward": {"value": reward.value, "low": reward.low, "high": reward.high},
        "failed": earned.failed,
    }


def _said(rollout: Rollout) -> list[Mapping[str, str]]:
    return [{"role": m.role, "content": m.content[:4_000]} for m in rollout.trajectories[0].messages]


PROJECT = """\
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
ENVIRONMENT = '''\
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
TEST = """\
import asyncio

from {module} import {kind}
from wanderlust.testing import check_environment


def test_it_keeps_its_promises():
    assert asyncio.run(check_environment({kind}())) == []
"""


def new(name: str, /, *, json: Json = False) -> None:
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
    texts = {"pyproject.toml": PROJECT, f"{module}.py": ENVIRONMENT, f"test_{module}.py": TEST}
    folder.mkdir()
    for file, text in texts.items():
        (folder / file).write_text(text.format(**words))
    steps = [f"pip install -e {folder}", command("check", words["name"]), f"pytest {folder}"]
    if json:
        result_json({"folder": str(folder), "files": [*texts], "next": steps})
        return
    result(None, f"{folder}/ has {', '.join(texts)}. Next:", *(f"  {step}" for step in steps))
