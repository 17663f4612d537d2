"""`wander data`: make training data by a plan, and compare recipes and teachers by what students learn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cyclopts import Parameter

from wanderlust.cli.long_commands import set_library_environment, stoppable
from wanderlust.cli.options import JsonFlag, PositiveInt
from wanderlust.cli.output import print_json, print_note, print_result
from wanderlust.errors import UsageError, nearest_names
from wanderlust.runner.terminal import Table
from wanderlust_data.ablation import RecipeComparison, ablate_data, compare_teachers
from wanderlust_data.build import DATA_FOLDER, build_data
from wanderlust_data.card import CARD_PAGE, Card
from wanderlust_data.plan import read_plan


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """Options of the verbs."""

    out: Path | None = None
    """Folder that is written. Default: data/NAME after the plan, with -ablation or -teachers. The same command goes on
    in it where it was stopped."""
    concurrency: PositiveInt = 64
    """Answers at once; the result does not depend on it."""


DEFAULT_DATA_OPTIONS = DataOptions()
VERBS = {"build": "", "ablate": "-ablation", "teachers": "-teachers"}


def data_command(
    verb: str, plan: Path, /, *, options: DataOptions = DEFAULT_DATA_OPTIONS, json: JsonFlag = False
) -> int:
    """Make training data from any environment by a plan, and find out which recipe teaches most.

    `data build PLAN.toml` reads and mixes the sources, filters, removes duplicates and held-out questions, asks the
    teachers, filters their answers, and writes sft.jsonl, dpo.jsonl, rl.jsonl and a card. `data ablate PLAN.toml`
    trains small students on variants of the plan, at equal cost, and ranks the recipes. `data teachers PLAN.toml` ranks
    the teachers in the same way.

    The exit code is 1 when rollouts failed to the end; they are in no row.
    """
    if verb not in VERBS:
        raise UsageError(f"no verb {verb!r} of wander data; {nearest_names(verb, [*VERBS], kind='verbs')}")
    read = read_plan(plan)
    folder = options.out or DATA_FOLDER / f"{read.name}{VERBS[verb]}"
    set_library_environment(one_thread=True)
    with stoppable(lambda: f"stopped; finished work is in {folder}; the same command goes on from there") as progress:
        if verb == "build":
            card = build_data(read, folder, concurrency=options.concurrency, progress=progress)
            body: dict[str, Any] = card.as_dict()
            table, lines, code = card_table(card), _card_lines(card), int(any(one.failed for one in card.teachers))
        else:
            compare = ablate_data if verb == "ablate" else compare_teachers
            report = compare(read, folder, concurrency=options.concurrency, progress=progress)
            body, table, lines, code = report.as_dict(), comparison_table(report), report.findings, 0
    if json:
        print_json(body)
    else:
        print_result(table, *lines)
    for line in body.get("notes", ()):
        print_note(line)
    return code


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
