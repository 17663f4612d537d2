"""`wander world import`: files of ARE's JSON or of rows with it, read, played by their oracle, and summed up.

`wander world verify`: what the verifier says of a log and why, or how the verifier fares on the oracle's own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Self

from cyclopts import Parameter
from msgspec.structs import replace

from wanderlust.cli.long_commands import set_library_environment
from wanderlust.cli.options import JsonFlag, MorePaths, refuse_existing
from wanderlust.cli.output import print_note, show_result
from wanderlust.errors import UsageError, one_line
from wanderlust.policies.resolve import open_policies, resolve_policy
from wanderlust.runner.terminal import Table, plain
from wanderlust.store.run_folder import shell_command
from wanderlust.types import Policy
from wanderlust_worlds import (
    Oracle,
    Scenario,
    Verdict,
    WorldEnvironment,
    export_scenario,
    log_of,
    play_oracle,
    verify,
    verify_with_judge,
)
from wanderlust_worlds.cli.world_options import (
    DEFAULT_MODEL_OPTIONS,
    WorldModelOptions,
    format_duration,
    load_rollout_and_scenario,
    resolve_scenario,
    rollout_number,
)
from wanderlust_worlds.engine.log import LogEntry, read_log
from wanderlust_worlds.exchange.read import (
    ROW_SUFFIXES,
    ImportedScenario,
    read_rows,
    read_scenario,
    read_scenario_bytes,
)
from wanderlust_worlds.verification.grading import StructuralVerifier
from wanderlust_worlds.verification.verdict import Compat, Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class _ImportSummary:
    """Contents of a file or a row, and whether its oracle passes."""

    file: str
    """The file, and its row where it has several."""
    id: str
    events: int
    acts: int
    """The actions of a perfect agent."""
    turns: int
    apps: tuple[str, ...]
    names: int
    """Tools and arguments that go by other names."""
    seconds: float
    """Simulated seconds that the oracle takes."""
    digest: str
    """Of the oracle's log."""
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, place: str, imported: ImportedScenario) -> Self:
        """Raises UsageError when the oracle cannot be played, or its own log is not accepted."""
        scenario = imported.scenario
        world, oracle = play_oracle(scenario), Oracle.of(scenario)
        verdict = verify(world.log, oracle)
        if not verdict.accepted:
            raise UsageError(f"what its oracle does is not accepted: {one_line(str(verdict), 300)}")
        return cls(
            file=place,
            id=scenario.id,
            events=len(scenario.events),
            acts=len(scenario.oracle),
            turns=oracle.turns,
            apps=tuple(app.name for app in scenario.apps),
            names=len(scenario.names),
            seconds=max((line.time for line in world.log if line.event), default=scenario.start) - scenario.start,
            digest=world.digest(),
            warnings=imported.warnings,
        )


def import_command(
    file: Annotated[Path, Parameter(help="ARE's JSON, or rows of it in .jsonl or .parquet.")],
    /,
    *files: MorePaths,
    out: Annotated[Path | None, Parameter(help="Folder for the files as they were understood.")] = None,
    json: JsonFlag = False,
) -> int:
    """Import files of scenarios: read, played by their oracle, verified.

    Every file is tried. The exit code is 2 when one of them is refused, with a line for each that says why.
    """
    refuse_existing(out)
    good: list[tuple[_ImportSummary, ImportedScenario]] = []
    refused: dict[str, str] = {}
    for path in (file, *files):
        try:
            rows = read_rows(path) if path.suffix in ROW_SUFFIXES else {str(path): read_scenario(path)}
        except UsageError as error:
            refused[str(path)] = _prefixed(error, str(path))
            continue
        if not rows:
            refused[str(path)] = f"{path} has no rows, expected a scenario in each"
        for place, imported in rows.items():
            try:
                good.append((_ImportSummary.of(place, imported), imported))
            except UsageError as error:
                refused[place] = _prefixed(error, place)
    if out and good:
        names = _file_names([one.file for one, _ in good])
        out.mkdir(parents=True)
        for name, (_, imported) in zip(names, good, strict=True):
            (out / name).write_bytes(export_scenario(imported.scenario, imported.augmentation))
    _print_imports([one for one, _ in good], refused, out=out, json=json)
    return 2 if refused else 0


def _prefixed(error: UsageError, place: str) -> str:
    return str(error) if str(error).startswith(place) else f"{place}: {error}"


def _file_names(places: Sequence[str]) -> list[str]:
    """A file name for each scenario: its file's, of a row with its number. Raises UsageError where two are equal."""
    names, first = [], dict[str, str]()
    for place in places:
        path, _, row = place.rpartition(", ")
        of_row = bool(path) and Path(path).suffix in ROW_SUFFIXES
        name = f"{Path(path).stem}-{row.split()[-1]}.json" if of_row else f"{Path(place).stem}.json"
        if first.setdefault(name, place) != place:
            raise UsageError(f"{first[name]} and {place} would be one file in --out: give one of them another name")
        names.append(name)
    return names


def _print_imports(
    summaries: Sequence[_ImportSummary], refused: dict[str, str], *, out: Path | None, json: bool
) -> None:
    table = Table("file", "scenario", "turns", "events", "oracle's acts", "apps", "takes", "warnings")
    for one in summaries:
        counts = (one.turns, one.events, one.acts, len(one.apps), format_duration(one.seconds), len(one.warnings))
        cells = (Path(one.file).name, one.id, *counts)
        table.add_row(*(plain(one_line(str(cell), 60), overflow="fold") for cell in cells))
    lines = [f"{one.file}: {one_line(warning, 300)}" for one in summaries for warning in one.warnings]
    lines.append(f"{len(summaries)} of {len(summaries) + len(refused)} imported; the oracle passes.")
    if out:
        lines.append(f"Play them: {shell_command('eval', f'are,folder={out}', '--policy', 'oracle')}")
    if json or summaries:
        body = {"imported": [asdict(one) for one in summaries], "refused": refused}
        show_result(body, *lines, table=table, json=json)
    for line in refused.values():
        print_note(one_line(line, 600))


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierTrial:
    """A log, and what is to be said of it."""

    kind: str
    expected_decision: Decision
    log: Sequence[LogEntry]
    event: str = ""
    """The oracle's act that is not as it should be."""


def verifier_trials(
    log: Sequence[LogEntry], scenario: Scenario, *, compat: Compat = "strict"
) -> Iterator[VerifierTrial]:
    """The oracle's log, the same without each of its writes, with each twice, and without all of them.

    Upstream's judges allow a message to the user too many, so for them those are not doubled.
    """
    yield VerifierTrial(kind="as the oracle does", expected_decision="accept", log=log)
    apps = {app.name: app for app in scenario.apps}
    acts = {act.id: apps[act.app].actions[act.action] for act in scenario.oracle}
    writes = [n for n, line in enumerate(log) if line.event in acts and line.by == "agent" and line.writes]
    for at in writes:
        event = log[at].event or ""
        yield VerifierTrial(kind="an act left out", expected_decision="reject", log=_without(log, {at}), event=event)
        if compat == "strict" or not acts[event].ends_turn:
            twice = [*log[: at + 1], replace(log[at], event=None), *log[at + 1 :]]
            yield VerifierTrial(kind="an act done twice", expected_decision="reject", log=twice, event=event)
    if writes:
        yield VerifierTrial(kind="nothing done", expected_decision="reject", log=_without(log, set(writes)))


def _without(log: Sequence[LogEntry], lines: set[int]) -> list[LogEntry]:
    return [line for number, line in enumerate(log) if number not in lines]


EXIT_CODES: Mapping[Decision, int] = {"accept": 0, "reject": 1, "undecided": 3}
MAX_REASON_CHARS = 600
"""Characters of a reason."""


def verify_command(
    scenario: Annotated[str, Parameter(help="A scenario or a file; or the folder of a run.")],
    run: Annotated[str | None, Parameter(help="The folder of a run; or the number of a rollout.")] = None,
    number: Annotated[str | None, Parameter(help="The number of a rollout.")] = None,
    /,
    *,
    log: Annotated[Path | None, Parameter(help="A file with the log of a world, JSON lines.")] = None,
    compat: Annotated[Compat, Parameter(help="Whose verdict; are and gaia2_cli are as ARE's two judges.")] = "strict",
    judge: Annotated[str | None, Parameter(help="A policy that is asked what comparing cannot tell.")] = None,
    model_options: WorldModelOptions = DEFAULT_MODEL_OPTIONS,
    json: JsonFlag = False,
) -> int:
    """Verify a log or a rollout; without one, test the verifier on the scenario's oracle.

    verify SCENARIO tests the verifier on the oracle's log, with actions left out and doubled. verify SCENARIO --log
    FILE, verify RUN NUMBER and verify SCENARIO RUN NUMBER say why a log was accepted. The exit code is 0 when it is
    accepted, 1 when it is rejected, 3 when only a judge could tell.
    """
    place, entries = _scenario_and_log([one for one in (scenario, run, number) if one is not None], log)
    if entries is None:
        return _verify_trials(place, compat, json=json)
    verifier = StructuralVerifier.of(place, compat)
    if judge is None:
        verdict = verifier(entries)
    else:
        set_library_environment()
        policy = resolve_policy(judge, WorldEnvironment([place]), model_options.policy_options()).policy
        verdict = asyncio.run(_judged(verifier, entries, policy, compat=compat))
    table = Table("what is wrong", "event", "line", "why")
    for reason in verdict.reasons:
        cells = (reason.fault, reason.event, "" if reason.line < 0 else str(reason.line), reason.text)
        table.add_row(*(plain(one_line(cell, MAX_REASON_CHARS), overflow="fold") for cell in cells))
    acts = len(verdict.matched) + len(verdict.missing)
    done = f"{len(verdict.matched)} of {acts} acts found, {len(verdict.extra)} writes too many"
    lines = [f"{place.id}: {verdict.decision} ({verdict.compat}); {done}"]
    lines += [f"{name}: {'kept' if holds else 'not kept'}" for name, holds in verdict.marks.items()]
    if verdict.decision == "undecided":
        asked = [f"{one.event} ({', '.join(one.about)})" for one in verdict.questions]
        lines += [f"only a judge can tell: {one}; name one with --judge" for one in asked]
    body = {"scenario": place.id, "share": verdict.share, **verdict.record()}
    show_result(body, *map(one_line, lines), table=table if verdict.reasons else None, json=json)
    return EXIT_CODES[verdict.decision]


def _scenario_and_log(words: Sequence[str], log: Path | None) -> tuple[Scenario, list[LogEntry] | None]:
    """The scenario, and the log that is to be verified."""
    if len(words) == 1:
        return resolve_scenario(words[0]).scenario, None if log is None else _read(log)
    if log is not None:
        raise UsageError("name a log or a rollout, not both")
    *named, run, number = words
    played, scenario = load_rollout_and_scenario(run, rollout_number(run, number))
    if named:
        scenario = resolve_scenario(named[0]).scenario
    if scenario is None:
        raise UsageError(f"{run} does not say in which scenarios it was played: name the scenario before it")
    if scenario.id != played.task.id:
        raise UsageError(f"rollout {number} is of {played.task.id!r}, not of {scenario.id!r}")
    return scenario, log_of(played)


def _read(path: Path) -> list[LogEntry]:
    try:
        log = read_log(read_scenario_bytes(path))
    except UsageError as error:
        message = str(error)
        raise UsageError(message if message.startswith(str(path)) else f"{path}: {message}") from error
    if not log:
        raise UsageError(f"{path} is empty: the log of a world has at least one line")
    return log


async def _judged(structural: StructuralVerifier, log: Sequence[LogEntry], judge: Policy, *, compat: Compat) -> Verdict:
    async with open_policies([judge]):
        if structural.grader is not None:  # both must accept
            return await structural.grader.judged_verdict(log, judge, compat=compat)
        return await verify_with_judge(log, structural.oracle, judge, compat=compat)


def _verify_trials(scenario: Scenario, compat: Compat, *, json: bool) -> int:
    """The verifier, verified: the oracle's own log, and logs that are wrong on purpose."""
    log = list(play_oracle(scenario).log)
    verifier = StructuralVerifier.of(scenario, compat)
    tried = [(trial, verifier(trial.log)) for trial in verifier_trials(log, scenario, compat=compat)]
    counts: dict[str, Counter[Decision]] = {}
    for trial, verdict in tried:
        counts.setdefault(trial.kind, Counter())[verdict.decision] += 1
    rights = {trial.kind: trial.expected_decision for trial, _ in tried}
    wrong = [
        {"kind": trial.kind, "event": trial.event, "right": trial.expected_decision}
        | {"verdict": one_line(str(verdict), MAX_REASON_CHARS)}
        for trial, verdict in tried
        if verdict.decision != trial.expected_decision
    ]
    right = len(tried) - len(wrong)
    table = Table("the agent's log", "right is", "accepted", "undecided", "rejected")
    for kind, verdicts in counts.items():
        table.add_row(kind, rights[kind], *(str(verdicts[d]) for d in ("accept", "undecided", "reject")))
    lines = [f"{one_line(scenario.id)}: {right} of {len(tried)} verdicts are right ({compat})"]
    lines += [f"wrong: {one['kind']} {one['event']}: {one['verdict']}" for one in wrong]
    found = {"verdicts": {kind: dict(verdicts) for kind, verdicts in counts.items()}, "wrong": wrong}
    body = {"scenario": scenario.id, "compat": compat, "right": right, "of": len(tried), **found}
    show_result(body, *lines, table=table, json=json)
    return 0 if not wrong else 1
