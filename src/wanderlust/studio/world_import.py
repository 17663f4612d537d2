"""`wander world import`: files of ARE's JSON, read, played by their oracle, and told of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from wanderlust.core.errors import UsageError
from wanderlust.core.text import one_line
from wanderlust.studio.arguments import fresh
from wanderlust.studio.output import command, note, result, result_json
from wanderlust.studio.timeline import since
from wanderlust.studio.world_wishes import Wish
from wanderlust.worlds.exchange.exports import export_scenario
from wanderlust.worlds.exchange.files import read_scenario
from wanderlust.worlds.exchange.imports import Imported
from wanderlust.worlds.oracle import Oracle
from wanderlust.worlds.scenario import Scenario, play_oracle
from wanderlust.worlds.verification import verify


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
