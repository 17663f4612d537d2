"""`wander data`: make training data by a plan, and compare recipes and teachers by what students learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from wanderlust.cli.commands import nested
from wanderlust.cli.long_commands import set_library_environment, stoppable
from wanderlust.cli.options import JsonFlag, PositiveInt
from wanderlust.cli.output import print_json, print_note, print_result
from wanderlust.data.ablation import RecipeComparison, ablate_data, compare_teachers
from wanderlust.data.build import DATA_FOLDER, build_data
from wanderlust.data.card import CARD_PAGE, Card
from wanderlust.data.plan import read_plan
from wanderlust.runner.progress import Progress
from wanderlust.runner.terminal import Table

data = nested("data", "Make training data from any environment by a plan, and find out which recipe teaches most.")
PlanFile = Annotated[Path, Parameter(help="The plan, a .toml file.")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """Where the work is done, and how much at once."""

    out: Path | None = None
    """Folder that is written. Default: data/NAME after the plan, with -ablation or -teachers. The same command goes on
    in it where it was stopped."""
    concurrency: PositiveInt = 64
    """Answers at once; the result does not depend on it."""

    def folder(self, default: str) -> Path:
        """The folder that is written."""
        return self.out or DATA_FOLDER / default


DEFAULT_DATA_OPTIONS = DataOptions()


@data.command
def build(plan: PlanFile, /, *, options: DataOptions = DEFAULT_DATA_OPTIONS, json: JsonFlag = False) -> int:
    """Make training data: sft.jsonl, dpo.jsonl, rl.jsonl and a card.

    Reads and mixes the sources, filters, removes duplicates and held-out questions, asks the teachers, and filters
    their answers. The exit code is 1 when rollouts failed to the end; they are in no row.
    """
    read = read_plan(plan)
    folder = options.folder(read.name)
    with _going_on_in(folder) as progress:
        card = build_data(read, folder, concurrency=options.concurrency, progress=progress)
    _show(card.as_dict(), card_table(card), _card_lines(card), json=json)
    return int(any(one.failed for one in card.teachers))


@data.command
def ablate(plan: PlanFile, /, *, options: DataOptions = DEFAULT_DATA_OPTIONS, json: JsonFlag = False) -> None:
    """Rank recipes: train small students on variants of the plan, at equal cost."""
    _compare(ablate_data, plan, "-ablation", options=options, json=json)


@data.command
def teachers(plan: PlanFile, /, *, options: DataOptions = DEFAULT_DATA_OPTIONS, json: JsonFlag = False) -> None:
    """Rank the plan's teachers: train small students on each teacher's answers alone, at equal cost."""
    _compare(compare_teachers, plan, "-teachers", options=options, json=json)


def _compare(
    compare: Callable[..., RecipeComparison], plan: Path, suffix: str, *, options: DataOptions, json: bool
) -> None:
    read = read_plan(plan)
    folder = options.folder(f"{read.name}{suffix}")
    with _going_on_in(folder) as progress:
        report = compare(read, folder, concurrency=options.concurrency, progress=progress)
    _show(report.as_dict(), comparison_table(report), report.findings, json=json)


def _going_on_in(folder: Path) -> AbstractContextManager[Progress]:
    set_library_environment(one_thread=True)
    return stoppable(lambda: f"stopped; finished work is in {folder}; the same command goes on from there")


def _show(body: dict[str, Any], table: Table, lines: Sequence[str], *, json: bool) -> None:
    if json:
        print_json(body)
    else:
        print_result(table, *lines)
    for line in body.get("notes", ()):
        print_note(line)


def card_table(card: Card) -> Table:
    """For the terminal."""
    table = Table("stage", "of", "before", "left", "taken out", title=card.folder, title_justify="left")
    for one in card.stages:
        removed = ", ".join(f"{reason} {count:,}" for reason, count in one.removed.items())
        table.add_row(one.stage, one.of, f"{one.before:,}", f"{one.left:,}", removed)
    return table


def _card_lines(card: Card) -> list[str]:
    lines = [
        f"teacher {one.teacher}: {one.played:,} answers, {one.failed:,} failed"
        + ("" if one.reward is None else f", mean reward {one.reward:.3f}")
        for one in card.teachers
    ]
    files = ", ".join(f"{name} {count:,}" for name, count in card.files.items())
    return [*lines, f"{files} rows in {card.folder}; the card is {Path(card.folder) / CARD_PAGE}"]


def comparison_table(report: RecipeComparison) -> Table:
    """For the terminal."""
    seeds = len(report.seeds)
    title = f"{report.exam} exam questions, {seeds} students a recipe, {report.tokens:,} tokens each and epoch"
    table = Table(
        "recipe", "students", "over the plan", "teachers", "rows", "leaked", title=title, title_justify="left"
    )
    for one in report.recipes:
        taught = "" if one.teacher_reward is None else f"{one.teacher_reward:.3f}"
        over = "" if one.over_plan is None else str(one.over_plan)
        table.add_row(one.name, str(one.reward), over, taught, f"{one.rows:,}", str(len(one.leaked) or ""))
    return table
