"""`wander world import`: files of ARE's JSON, read, played by their oracle, and told of.

Logs of which it is known whether they are right, made from an oracle's own: to try a verifier on any scenario.

Lines are left out and doubled in the log itself, and nothing is played again; `confusion.py` plays its perturbations,
in scenarios that are made for them.

`wander world verify`: what the verifier says of a log and why, or how the verifier fares on the oracle's own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from rich.table import Table
from rich.text import Text

from wanderlust.cli.options import fresh
from wanderlust.cli.output import note, result, result_json
from wanderlust.cli.progress import hush
from wanderlust.cli.world_options import Wish, since, stored, the_scenario
from wanderlust.errors import UsageError, one_line
from wanderlust.policies.resolve import find_policy, opened
from wanderlust.store.run_folder import command
from wanderlust.worlds.engine.log import Happened, read_log
from wanderlust.worlds.engine.scenario import Scenario, play_oracle
from wanderlust.worlds.exchange.read import Imported, read_bytes, read_scenario
from wanderlust.worlds.exchange.write import export_scenario
from wanderlust.worlds.life.grading import Structural
from wanderlust.worlds.verify.judge import judged
from wanderlust.worlds.verify.oracle import Oracle
from wanderlust.worlds.verify.verdict import Compat, Decision, Verdict
from wanderlust.worlds.verify.verify import verify
from wanderlust.worlds.wrap.environment import WorldEnvironment, log_of


@dataclass(frozen=True, slots=True, kw_only=True)
class _Summary:
    """What there is in a file, and that its oracle passes."""

    file: str
    id: str
    events: int
    acts: int
    """What a perfect agent does."""
    turns: int
    apps: tuple[str, ...]
    names: int
    """Tools and arguments that go by other names."""
    seconds: float
    """Simulated seconds that the oracle takes."""
    digest: str
    """Of the oracle's log."""
    warnings: tuple[str, ...]


def import_files(wish: Wish) -> int:
    """Every file is tried; 2 when one of them could not be imported, with a line for each that says why."""
    out = wish.wishes.out
    fresh(out)
    files = [Path(one) for one in wish.what]
    _apart(files if out else [])
    good: list[tuple[_Summary, Imported]] = []
    refused: dict[str, str] = {}
    for path in files:
        try:
            found = read_scenario(path)
            good.append((_summary(path, found.scenario, found.warnings), found))
        except UsageError as error:
            told = str(error)
            refused[str(path)] = told if told.startswith(str(path)) else f"{path}: {told}"
    if out and good:
        out.mkdir(parents=True)
        for path, (_, found) in ((Path(one.file), (one, found)) for one, found in good):
            (out / f"{path.stem}.json").write_bytes(export_scenario(found.scenario, found.augmentation))
    _tell([one for one, _ in good], refused, wish)
    return 2 if refused else 0


def _apart(files: Sequence[Path]) -> None:
    first: dict[str, Path] = {}
    for path in files:
        if first.setdefault(path.stem, path) != path:
            raise UsageError(f"{first[path.stem]} and {path} would be one file in --out: give one of them another name")


def _summary(path: Path, scenario: Scenario, warnings: tuple[str, ...]) -> _Summary:
    """Raises ScenarioError when the oracle cannot be played, or its own log is not accepted."""
    world, oracle = play_oracle(scenario), Oracle.of(scenario)
    verdict = verify(world.log, oracle)
    if not verdict.accepted:
        raise UsageError(f"what its oracle does is not accepted: {one_line(str(verdict), 300)}")
    return _Summary(
        file=str(path),
        id=scenario.id,
        events=len(scenario.events),
        acts=len(scenario.oracle),
        turns=oracle.turns,
        apps=tuple(app.name for app in scenario.apps),
        names=len(scenario.names),
        seconds=max((line.time for line in world.log if line.event), default=scenario.start) - scenario.start,
        digest=world.digest(),
        warnings=warnings,
    )


def _tell(found: Sequence[_Summary], refused: dict[str, str], wish: Wish) -> None:
    if wish.json:
        result_json({"imported": [asdict(one) for one in found], "refused": refused})
    elif found:
        table = Table("file", "scenario", "turns", "events", "oracle's acts", "apps", "takes", "warnings")
        for one in found:
            cells = (Path(one.file).name, one.id, one.turns, one.events, one.acts, len(one.apps), since(one.seconds))
            table.add_row(*(Text(one_line(str(cell), 60), overflow="fold") for cell in (*cells, len(one.warnings))))
        warned = [f"{one.file}: {one_line(warning, 300)}" for one in found for warning in one.warnings]
        out = wish.wishes.out
        use = [f"Play them: {command('eval', f'are,folder={out}', '--policy', 'oracle')}"] if out else []
        result(table, *warned, f"{len(found)} of {len(found) + len(refused)} imported; the oracle passes.", *use)
    for line in refused.values():
        note(one_line(line, 600))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A log, and what is to be said of it."""

    kind: str
    right: Decision
    log: Sequence[Happened]
    event: str = ""
    """The oracle's act that is not as it should be."""


def trials(log: Sequence[Happened], scenario: Scenario, *, compat: Compat = "strict") -> Iterator[Trial]:
    """The oracle's log, the same without each of its writes, with each twice, and without all of them.

    Upstream's judges allow a message to the user too many, so for them those are not doubled.
    """
    yield Trial(kind="as the oracle does", right="accept", log=log)
    apps = {app.name: app for app in scenario.apps}
    acts = {act.id: apps[act.app].actions[act.action] for act in scenario.oracle}
    writes = [n for n, line in enumerate(log) if line.event in acts and line.by == "agent" and line.writes]
    for at in writes:
        event = log[at].event or ""
        yield Trial(kind="an act left out", right="reject", log=_without(log, {at}), event=event)
        if compat == "strict" or not acts[event].ends_turn:
            twice = [*log[: at + 1], replace(log[at], event=None), *log[at + 1 :]]
            yield Trial(kind="an act done twice", right="reject", log=twice, event=event)
    if writes:
        yield Trial(kind="nothing done", right="reject", log=_without(log, set(writes)))


def _without(log: Sequence[Happened], lines: set[int]) -> list[Happened]:
    return [line for number, line in enumerate(log) if number not in lines]


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
        _tell_world_verify(verdict, scenario)
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


def _tell_world_verify(verdict: Verdict, scenario: Scenario) -> None:
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
