"""`wander inbox`: one's own mail as an inbox for the mail agent, and verified questions about it."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from wanderlust.cli.long_commands import stoppable
from wanderlust.cli.options import AnswerOptions, JsonFlag, PositiveInt
from wanderlust.cli.output import print_json, print_note, print_result
from wanderlust.environments.inbox.importing import import_mail
from wanderlust.environments.inbox.question_writers import PolicyWriter, TemplateWriter
from wanderlust.environments.inbox.question_writing import WritingOptions, WritingReport, write_inbox_questions
from wanderlust.environments.inbox.store import InboxFile
from wanderlust.errors import UsageError, nearest_names
from wanderlust.policies.resolve import open_policies, resolve_judge_policy
from wanderlust.runner.terminal import Table

VERBS = ("import", "questions")
DEFAULT_ANSWER_OPTIONS = AnswerOptions()


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class InboxOptions:
    """Options of the verbs."""

    out: Path | None = None
    """File that is written."""
    owner: str = ""
    """Address of the mailbox's owner. Default: the one that most mails were sent to or from (import)."""
    policy: str | None = None
    """Who writes and verifies questions: an endpoint's URL, a checkpoint, or a script as package.module:Name. Default:
    templates, without a model (questions)."""
    count: Annotated[PositiveInt, Parameter(name=["--count", "-n"])] = 100
    """Questions that are wanted (questions)."""
    batch: PositiveInt = 20
    """Mails that are shown at once (questions)."""
    unanswerable: Annotated[float, Parameter(validator=Number(gte=0, lte=1))] = 0.15
    """Share of questions that no mail answers, at most (questions)."""
    eval_share: Annotated[float, Parameter(validator=Number(gte=0, lte=1))] = 0.2
    """Share of threads whose questions are held out (questions)."""
    concurrency: PositiveInt = 8
    """Batches in work at once; the questions are the same with any number (questions)."""
    schema: bool = False
    """Send JSON schemas to the endpoint, where it supports them (questions)."""


DEFAULT_INBOX_OPTIONS = InboxOptions()


def inbox_command(
    verb: str,
    /,
    *places: Path,
    options: InboxOptions = DEFAULT_INBOX_OPTIONS,
    answer_options: AnswerOptions = DEFAULT_ANSWER_OPTIONS,
    json: JsonFlag = False,
) -> int:
    """Import your own mail for the mail agent, and write verified questions about it.

    `inbox import PATH... --out FILE` reads mbox files, Maildir folders, .eml files and folders of these. Broken mails
    are mended or left out, and counted with the reason. FILE.report.txt has a line for each.

    `inbox questions INBOX --out FILE --policy NAME` shows mails to a policy in batches, and keeps the questions that
    can be verified. Without --policy, templates write them. Stopped, the same command goes on.

    Then: `wander eval own-mail,inbox=INBOX,questions=FILE --policy NAME`.

    Files are written for you alone. Mail leaves this machine only when --policy names a server elsewhere.
    The exit code is 1 when no mail was found, or no question was taken.

    Parameters
    ----------
    verb:
        import or questions.
    places:
        Where the mail is, or the inbox.
    """
    if verb not in VERBS:
        raise UsageError(f"no verb {verb!r} of wander inbox; {nearest_names(verb, [*VERBS], kind='verbs')}")
    if not places:
        raise UsageError(f"wander inbox {verb} needs {'a path to mail' if verb == 'import' else 'an inbox'}")
    if options.out is None:
        raise UsageError(f"wander inbox {verb} needs --out FILE")
    if verb == "import":
        return _import(places, options.out, owner=options.owner, json=json)
    if len(places) > 1:
        raise UsageError(f"wander inbox questions takes one inbox, and no further {str(places[1])!r}")
    return _questions(places[0], options.out, options, answer_options=answer_options, json=json)


def _import(places: tuple[Path, ...], out: Path, *, owner: str, json: bool) -> int:
    with stoppable(lambda: f"stopped; {out} is as it was"):
        report = import_mail(places, out, owner=owner, progress=print_note)
    if json:
        print_json(asdict(report))
        return 0 if report.mails else 1
    table = Table("", "mails", "reason", "first")
    for what, counts in (("mended", report.mended), ("left out", report.left_out)):
        for reason, count in counts.items():
            table.add_row(what, f"{count:,}", reason, report.places.get(reason, ""))
    lines = [f"{report.found:,} found, {report.mails:,} taken, {sum(report.left_out.values()):,} left out"]
    if report.mails:
        lines += [
            f"{report.threads:,} threads from {report.first_date[:10]} to {report.last_date[:10]}; owner {report.owner}"
            f" ({report.owner_share:.0%} of the mails; --owner ADDRESS names another)",
            f"wander inbox questions {report.inbox} --out questions.jsonl",
        ]
    else:
        lines.append("no mail was found: no inbox is written")
    print_result(table if report.mended or report.left_out else Table(), *lines)
    return 0 if report.mails else 1


def _questions(place: Path, out: Path, options: InboxOptions, *, answer_options: AnswerOptions, json: bool) -> int:
    chosen = WritingOptions(
        count=options.count,
        batch=options.batch,
        unanswerable=options.unanswerable,
        eval_share=options.eval_share,
        seed=answer_options.seed,
        concurrency=options.concurrency,
    )
    with stoppable(lambda: "stopped; the same command goes on from here"), InboxFile(place) as inbox:
        report = asyncio.run(_write(inbox, out, options, answer_options=answer_options, chosen=chosen))
    if json:
        print_json(asdict(report))
        return 0 if report.questions else 1
    table = Table("rejected", "reason")
    for reason, count in report.rejected.items():
        table.add_row(f"{count:,}", reason)
    unread = f"; {report.unread_batches} answers could not be read" if report.unread_batches else ""
    lines = [
        f"{report.questions:,} questions ({report.train:,} train, {report.eval:,} eval;"
        f" {report.unanswerable:,} that no mail answers) of {report.proposed:,} proposed"
        f" in {report.batches:,} of {report.all_batches:,} batches{unread}",
        f"wander eval own-mail,inbox={place},questions={out} --policy NAME",
    ]
    print_result(table if report.rejected else Table(), *lines)
    return 0 if report.questions else 1


async def _write(
    inbox: InboxFile, out: Path, options: InboxOptions, *, answer_options: AnswerOptions, chosen: WritingOptions
) -> WritingReport:
    if options.policy is None:
        return await write_inbox_questions(inbox, out, TemplateWriter(inbox), options=chosen, progress=print_note)
    greedy = answer_options.temperature is None
    resolved = resolve_judge_policy(options.policy, answer_options.policy_options(greedy=greedy))
    if resolved.kind == "endpoint":
        print_note(f"mails of {inbox.path} are sent to {options.policy}")
    async with open_policies([resolved.policy]):
        name = answer_options.model or resolved.label  # the same model behind another address goes on
        writer = PolicyWriter(resolved.policy, inbox, name=name, schema=options.schema)
        return await write_inbox_questions(inbox, out, writer, options=chosen, progress=print_note)
