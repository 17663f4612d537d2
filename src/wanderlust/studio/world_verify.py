"""`wander world verify`: what the verifier says of a log and why, or how the verifier fares on the oracle's own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from wanderlust.core.errors import UsageError
from wanderlust.core.text import one_line
from wanderlust.studio.arguments import opened
from wanderlust.studio.output import result, result_json
from wanderlust.studio.resolve import find_policy
from wanderlust.studio.session import hush
from wanderlust.studio.world_wishes import Wish, stored, the_scenario
from wanderlust.worlds.environment import WorldEnvironment, log_of
from wanderlust.worlds.exchange.files import read_bytes
from wanderlust.worlds.families.grading import Structural
from wanderlust.worlds.judging import judged
from wanderlust.worlds.log import Happened, read_log
from wanderlust.worlds.scenario import Scenario, play_oracle
from wanderlust.worlds.sieve import Trial, trials
from wanderlust.worlds.verdict import Decision, Verdict

CODES: Mapping[Decision, int] = {"accept": 0, "reject": 1, "undecided": 3}
LONGEST = 600
"""Characters of a reason."""


def verify_world(wish: Wish) -> int:
    """The verdict on a log, or without one the verifier's on the oracle and on what is wrong with it on purpose."""
    scenario, log = _asked(wish)
    if log is None:
        return _sieved(scenario, wish)
    verdict = asyncio.run(_verdict(scenario, log, wish))
    if wish.json:
        result_json({"scenario": scenario.id, "share": verdict.share, **verdict.record()})
    else:
        _tell(verdict, scenario)
    return CODES[verdict.decision]


def _asked(wish: Wish) -> tuple[Scenario, list[Happened] | None]:
    """The scenario, and the log that is to be verified."""
    *named, run = wish.what[:-1] if len(wish.what) > 1 else (*wish.what, "")
    if not run:
        scenario = the_scenario(wish.first).scenario
        return scenario, None if wish.gradings.log is None else _read(wish.gradings.log)
    if wish.gradings.log is not None:
        raise UsageError("name a log or a rollout, not both")
    played, known = stored(run, wish.number())
    scenario_named = the_scenario(named[0]).scenario if named else known
    if scenario_named is None:
        raise UsageError(f"{run} does not say in which scenarios it was played: name the scenario before it")
    if scenario_named.id != played.task.id:
        raise UsageError(f"rollout {wish.number()} is of {played.task.id!r}, not of {scenario_named.id!r}")
    return scenario_named, log_of(played)


def _read(path: Path) -> list[Happened]:
    try:
        log = read_log(read_bytes(path))
    except UsageError as error:
        told = str(error)
        raise UsageError(told if told.startswith(str(path)) else f"{path}: {told}") from error
    if not log:
        raise UsageError(f"{path} is empty: the log of a world has at least one line")
    return log


async def _verdict(scenario: Scenario, log: Sequence[Happened], wish: Wish) -> Verdict:
    structural, asked = Structural.of(scenario, wish.gradings.compat), wish.gradings.judge
    if asked is None:
        return structural(log)
    hush()
    judge = find_policy(asked, WorldEnvironment([scenario]), wish.voices.voice()).policy
    async with opened([judge]):
        return await judged(log, structural.oracle, judge, compat=wish.gradings.compat)


def _tell(verdict: Verdict, scenario: Scenario) -> None:
    table = Table("what is wrong", "event", "line", "why") if verdict.reasons else None
    for reason in verdict.reasons:
        assert table is not None
        cells = (reason.fault, reason.event, "" if reason.line < 0 else str(reason.line), reason.text)
        table.add_row(*(Text(one_line(cell, LONGEST), overflow="fold") for cell in cells))
    acts = len(verdict.matched) + len(verdict.missing)
    done = f"{len(verdict.matched)} of {acts} acts found, {len(verdict.extra)} writes too many"
    marks = [f"{name}: {'kept' if kept else 'not kept'}" for name, kept in verdict.marks.items()]
    open_ = [
        f"only a judge can tell: {q.event} ({', '.join(q.about)}); name one with --judge" for q in verdict.questions
    ]
    lines = [*marks, *(open_ if verdict.decision == "undecided" else ())]
    result(table, f"{one_line(scenario.id)}: {verdict.decision} ({verdict.compat}); {done}", *map(one_line, lines))


def _sieved(scenario: Scenario, wish: Wish) -> int:
    """The verifier, verified: the oracle's own log, and logs that are wrong on purpose."""
    compat = wish.gradings.compat
    log = list(play_oracle(scenario).log)
    verifier = Structural.of(scenario, compat)
    tried = [(trial, verifier(trial.log)) for trial in trials(log, scenario, compat=compat)]
    counts: dict[str, Counter[Decision]] = {}
    for trial, verdict in tried:
        counts.setdefault(trial.kind, Counter())[verdict.decision] += 1
    right = sum(verdict.decision == trial.right for trial, verdict in tried)
    wrong = [_wrong(trial, verdict) for trial, verdict in tried if verdict.decision != trial.right]
    if wish.json:
        table = {kind: dict(found) for kind, found in counts.items()}
        result_json({"scenario": scenario.id, "compat": compat, "right": right, "of": len(tried), "verdicts": table,
                     "wrong": wrong})  # fmt: skip
    else:
        _tell_sieve(counts, {trial.kind: trial.right for trial, _ in tried})
        said = [f"wrong: {one['kind']} {one['event']}: {one['verdict']}" for one in wrong]
        result(None, f"{one_line(scenario.id)}: {right} of {len(tried)} verdicts are right ({compat})", *said)
    return 0 if not wrong else 1


def _tell_sieve(counts: Mapping[str, Counter[Decision]], right: Mapping[str, Decision]) -> None:
    table = Table("the agent's log", "right is", "accepted", "undecided", "rejected")
    for kind, found in counts.items():
        table.add_row(kind, right[kind], *(str(found[one]) for one in ("accept", "undecided", "reject")))
    result(table)


def _wrong(trial: Trial, verdict: Verdict) -> dict[str, Any]:
    return {"kind": trial.kind, "event": trial.event, "right": trial.right, "verdict": one_line(str(verdict), LONGEST)}
