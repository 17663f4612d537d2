"""`wander data`: make training data by a plan, and compare recipes and teachers by what students learn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

from cyclopts import Parameter

from wanderlust.cli.commands import nested
from wanderlust.cli.long_commands import set_library_environment, stoppable
from wanderlust.cli.options import JsonFlag, PositiveInt
from wanderlust.cli.output import print_note, show_result
from wanderlust.runner.terminal import Table
from wanderlust_data.ablation import RecipeComparison, ablate_data, compare_teachers
from wanderlust_data.build import DATA_FOLDER, build_data
from wanderlust_data.card import CARD_PAGE, Card
from wanderlust_data.plan import read_plan

data = nested("data", "Make training data from any environment by a plan, and find out which recipe teaches most.")
Made = TypeVar("Made", Card, RecipeComparison)
PlanFile = Annotated[Path, Parameter(help="The plan, a .toml file.")]


DataFolder = Annotated[Path | None, Parameter(help="Folder that is written, or gone on in. Default: data/NAME.")]
Concurrency = Annotated[PositiveInt, Parameter(help="Answers at once; the result does not depend on it.")]


@data.command
def build(plan: PlanFile, /, *, out: DataFolder = None, concurrency: Concurrency = 64, json: JsonFlag = False) -> int:
    """Make training data: sft.jsonl, dpo.jsonl, rl.jsonl and a card.

    Reads and mixes the sources, filters, removes duplicates and held-out questions, asks the teachers, and filters
    their answers. The exit code is 1 when rollouts failed to the end; they are in no row.
    """
    card = _by_plan(build_data, plan, out, suffix="", concurrency=concurrency)
    show_result(card.as_dict(), *_card_lines(card), table=card_table(card), json=json)
    for line in card.notes:
        print_note(line)
    return int(any(one.failed for one in card.teachers))


@data.command
def ablate(plan: PlanFile, /, *, out: DataFolder = None, concurrency: Concurrency = 64, json: JsonFlag = False) -> None:
    """Rank recipes: train small students on variants of the plan, at equal cost."""
    report = _by_plan(ablate_data, plan, out, suffix="-ablation", concurrency=concurrency)
    show_result(report.as_dict(), *report.findings, table=comparison_table(report), json=json)


@data.command
def teachers(
    plan: PlanFile, /, *, out: DataFolder = None, concurrency: Concurrency = 64, json: JsonFlag = False
) -> None:
    """Rank the plan's teachers: train small students on each teacher's answers alone, at equal cost."""
    report = _by_plan(compare_teachers, plan, out, suffix="-teachers", concurrency=concurrency)
    show_result(report.as_dict(), *report.findings, table=comparison_table(report), json=json)


def _by_plan(work: Callable[..., Made], plan: Path, out: Path | None, *, suffix: str, concurrency: int) -> Made:
    """What `work` makes by a plan."""
    read = read_plan(plan)
    folder = out or DATA_FOLDER / f"{read.name}{suffix}"
    set_library_environment(one_thread=True)
    with stoppable(lambda: f"stopped; finished work is in {folder}; the same command goes on from there") as progress:
        return work(read, folder, concurrency=concurrency, progress=progress)


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
