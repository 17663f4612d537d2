"""`wander probe`: does an environment's reward pay for what nobody wants?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from wanderlust.core.errors import UsageError
from wanderlust.core.text import one_line
from wanderlust.core.types import Rollout
from wanderlust.environments.named import named
from wanderlust.evals.probe.battery import Probe
from wanderlust.evals.probe.findings import Earned, Findings, Flaw
from wanderlust.evals.probe.probing import BATTERY, probe, sample
from wanderlust.evals.split import choose
from wanderlust.studio.arguments import Environments, Json, Positive
from wanderlust.studio.output import note, result, result_json
from wanderlust.studio.resolve import find_environment, players_of
from wanderlust.studio.session import stoppable

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
        raise UsageError(f"{target} is no list of Probe (wanderlust.evals.probe.battery)")
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
