"""`wander world write` and `wander world review`: stories that a model drafts or rewords, and what people decide."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec

from wanderlust.cli.long_commands import stoppable
from wanderlust.cli.output import print_json, print_note, print_result
from wanderlust.cli.world_options import WorldCommand
from wanderlust.environments.assistant_life import LIFE_PLAYERS
from wanderlust.errors import UsageError, one_line
from wanderlust.recipes.rewording import reword_texts
from wanderlust.recipes.story_drafts import write_stories
from wanderlust.runner.terminal import Table
from wanderlust.store.run_folder import shell_command
from wanderlust.worlds.life.drafts import Decision, ReviewedDraft, review_draft, reviewed_drafts

ORACLE = "oracle"
"""The default policy of `wander world`, which plays and writes nothing."""


def write_command(command: WorldCommand) -> int:
    """Draft, and print what became of each."""
    options = command.options
    if options.out is None:
        raise UsageError("wander world write needs --out FOLDER, which keeps the drafts and goes on where it stopped")
    if options.policy in (ORACLE, *LIFE_PLAYERS):
        raise UsageError("wander world write needs a writer: --policy URL --model NAME, a run, or a script module:name")
    if options.reword:
        return _reword(command, options.out)
    words = ["--policy", options.policy, "--count", str(options.count), "--out", str(options.out)]
    resume = f"stopped; drafts are kept; resume with: {shell_command('world', 'write', *words)}"
    with stoppable(lambda: resume) as progress:
        result = write_stories(
            options.policy,
            out=options.out,
            count=options.count,
            about=options.about,
            solvers=options.solver,
            solved_at_most=options.solved_at_most,
            options=command.model_options.policy_options(),
            progress=progress,
        )
    if command.json:
        print_json(result.as_dict())
    else:
        told = ", ".join(f"{count} {state}" for state, count in result.counts.items())
        print_result(
            result.table(), f"{told}. Review them: wander world review {options.out}, or wander studio {options.out}"
        )
    return 0


def _reword(command: WorldCommand, out: Path) -> int:
    """Reword, and print what became of the texts."""
    policy, options = command.options.policy, command.model_options.policy_options()
    result = reword_texts(
        command.options.reword,
        policy,
        out=out,
        options=options,
        announce=lambda texts, characters: print_note(f"{texts:,} texts of {characters:,} characters, a call for each"),
    )
    if command.json:
        print_json(result.as_dict())
    else:
        print_result(result.table(), f"Play in these words: wander eval life,book={out}", *map(str, result.stories))
    return 0


def review_command(command: WorldCommand) -> int:
    """List drafts and decisions, show one, or note a decision."""
    folder, *rest = command.arguments
    place = Path(folder)
    if not rest:
        return _listed(reviewed_drafts(place), command)
    if len(rest) == 1:
        found = next((one for one in reviewed_drafts(place) if one.draft.name == rest[0]), None)
        if found is None:
            raise UsageError(f"{folder} has no draft {rest[0]!r}")
        if command.json:
            print_json(_plain(found))
        else:
            print_result(_table([found]), found.text or f"{found.draft.name} has no story.")
        return 0
    name, decision = rest
    if decision not in get_args(Decision) or decision == "edit":
        raise UsageError(
            f"a draft cannot be {decision!r}; say accept, reject or comment (edit its file, or in the studio)"
        )
    done = review_draft(place, name, decision, comment=command.options.comment)  # type: ignore[arg-type]
    return _listed([done], command)


def _listed(found: list[ReviewedDraft], command: WorldCommand) -> int:
    if command.json:
        print_json({"drafts": [_plain(one) for one in found]})
    else:
        print_result(_table(found))
    return 0


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
