"""`wander world write` and `wander world review`: stories that a model drafts or rewords, and what people decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from wanderlust.cli.long_commands import stoppable
from wanderlust.cli.options import JsonFlag, PolicyName, PositiveInt
from wanderlust.cli.output import print_note, show_result
from wanderlust.errors import UsageError, one_line
from wanderlust.policies.resolve import PolicyOptions
from wanderlust.runner.terminal import Table
from wanderlust.store.run_folder import shell_command
from wanderlust_life.assistant_life import LIFE_PLAYERS
from wanderlust_life.drafts import ReviewedDraft, review_draft, reviewed_drafts
from wanderlust_life.story_drafts import write_stories
from wanderlust_life.text_rewording import reword_texts
from wanderlust_worlds.cli.world_options import DEFAULT_MODEL_OPTIONS, WorldModelOptions

OutFolder = Annotated[Path, Parameter(help="Folder of the drafts; the same command goes on in it.")]
Share = Annotated[float, Parameter(validator=Number(gte=0, lte=1))]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What is written."""

    count: PositiveInt = 5
    """Drafts that the folder is to have."""
    about: str = ""
    """What the stories shall be about."""
    reword: tuple[str, ...] = ()
    """Reword mails and messages instead, of a scenario or a story's file; may be given again."""
    solver: tuple[str, ...] = ("greedy",)
    """Policies that play each draft; may be given again."""
    solved_at_most: Share = 0.9
    """A draft of which a solver passes a larger share is too easy."""


DEFAULT_WRITE_OPTIONS = WriteOptions()


def write_command(
    *,
    policy: PolicyName,
    out: OutFolder,
    options: WriteOptions = DEFAULT_WRITE_OPTIONS,
    model_options: WorldModelOptions = DEFAULT_MODEL_OPTIONS,
    json: JsonFlag = False,
) -> None:
    """Have a model draft stories, or reword mails and messages.

    Then review the drafts; `life,families=FOLDER` plays those that were accepted.
    """
    if policy in ("oracle", *LIFE_PLAYERS):
        raise UsageError("wander world write needs a writer: --policy URL --model NAME, a run, or a script module:name")
    if options.reword:
        return _reword(options.reword, policy, out, options=model_options.policy_options(), json=json)
    words = ["--policy", policy, "--count", str(options.count), "--out", str(out)]
    resume = f"stopped; drafts are kept; resume with: {shell_command('world', 'write', *words)}"
    with stoppable(lambda: resume) as progress:
        result = write_stories(
            policy,
            out=out,
            count=options.count,
            about=options.about,
            solvers=options.solver,
            solved_at_most=options.solved_at_most,
            options=model_options.policy_options(),
            progress=progress,
        )
    told = ", ".join(f"{count} {state}" for state, count in result.counts.items())
    line = f"{told}. Review them: wander world review {out}, or wander studio {out}"
    show_result(result.as_dict(), line, table=result.table(), json=json)


def _reword(sources: Sequence[str], policy: str, out: Path, *, options: PolicyOptions, json: bool) -> None:
    """Reword, and print what became of the texts."""
    result = reword_texts(
        sources,
        policy,
        out=out,
        options=options,
        announce=lambda texts, characters: print_note(f"{texts:,} texts of {characters:,} characters, a call for each"),
    )
    lines = [f"Play in these words: wander eval life,book={out}", *map(str, result.stories)]
    show_result(result.as_dict(), *lines, table=result.table(), json=json)


def review_command(
    folder: Path,
    draft: str | None = None,
    decision: Literal["accept", "reject", "comment"] | None = None,
    /,
    *,
    comment: Annotated[str, Parameter(help="Words to the decision.")] = "",
    json: JsonFlag = False,
) -> None:
    """List drafts and decisions, show a draft, or decide on one."""
    if draft is not None and decision is not None:
        found = [review_draft(folder, draft, decision, comment=comment)]
    else:
        found = [one for one in reviewed_drafts(folder) if draft in (None, one.draft.name)]
    if draft is None or decision is not None:
        return show_result({"drafts": [_plain(one) for one in found]}, table=_table(found), json=json)
    if not found:
        raise UsageError(f"{folder} has no draft {draft!r}")
    show_result(_plain(found[0]), found[0].text or f"{draft} has no story.", table=_table(found), json=json)


def _plain(one: ReviewedDraft) -> dict[str, object]:
    return {**msgspec.to_builtins(one), "decision": one.decision}


def _table(found: list[ReviewedDraft]) -> Table:
    table = Table("draft", "state", "review", "asks", "solved", "comments")
    for one in found:
        solved = ", ".join(f"{name} {done}/{of}" for name, (done, of) in one.draft.solved.items())
        comments = "; ".join(review.comment for review in one.reviews if review.comment)
        cells = (one.draft.name, one.draft.state, one.decision, one.draft.asks or one.draft.reason, solved, comments)
        table.add_row(*(one_line(cell, 120) for cell in cells))
    return table
