"""`wander inbox`: one's own mail as an inbox for the mail agent, and verified questions about it."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from wanderlust.cli.commands import nested
from wanderlust.cli.long_commands import stoppable
from wanderlust.cli.options import ANSWER_DEFAULTS, JsonFlag, ModelOptions, MorePaths, PositiveInt
from wanderlust.cli.output import print_note, show_result
from wanderlust.policies.resolve import open_policies, resolve_judge_policy
from wanderlust.runner.terminal import Table
from wanderlust_inbox.importing import import_mail
from wanderlust_inbox.question_writers import PolicyWriter, TemplateWriter
from wanderlust_inbox.question_writing import WritingOptions, WritingReport, write_inbox_questions
from wanderlust_inbox.store import InboxFile

inbox = nested(
    "inbox",
    """Import your own mail for the mail agent, and write verified questions about it.

    Then: wander eval own-mail,inbox=INBOX,questions=FILE --policy NAME. Files are written for you alone. Mail leaves
    this machine only when --policy of questions names a server elsewhere.""",
)
OutFile = Annotated[Path, Parameter(help="File that is written.")]
MailPath = Annotated[Path, Parameter(help="An mbox file, a Maildir folder, an .eml file, or a folder of these.")]
Share = Annotated[float, Parameter(validator=Number(gte=0, lte=1))]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionOptions:
    """Who writes how many questions."""

    policy: str | None = None
    """Who writes and verifies questions: an endpoint's URL, a checkpoint, or a script as package.module:Name. Default:
    templates, without a model."""
    count: Annotated[PositiveInt, Parameter(name=["--count", "-n"])] = 100
    """Questions that are wanted."""
    batch: PositiveInt = 20
    """Mails that are shown at once."""
    unanswerable: Share = 0.15
    """Share of questions that no mail answers, at most."""
    eval_share: Share = 0.2
    """Share of threads whose questions are held out."""
    concurrency: PositiveInt = 8
    """Batches in work at once; the questions are the same with any number."""
    schema: bool = False
    """Send JSON schemas to the endpoint, where it supports them."""


DEFAULT_QUESTION_OPTIONS = QuestionOptions()


@inbox.command(name="import")
def import_command(mail: MailPath, /, *more: MorePaths, out: OutFile, owner: str = "", json: JsonFlag = False) -> int:
    """Read mail into an inbox.

    Broken mails are mended or left out, and counted with the reason; FILE.report.txt has a line for each. The exit code
    is 1 when no mail was found.

    Parameters
    ----------
    owner:
        Address of the mailbox's owner. Default: the one that most mails were sent to or from.
    """
    with stoppable(lambda: f"stopped; {out} is as it was"):
        report = import_mail((mail, *more), out, owner=owner, say=print_note)
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
    show_result(asdict(report), *lines, table=table if report.mended or report.left_out else None, json=json)
    return 0 if report.mails else 1


@inbox.command(name="questions")
def questions_command(
    place: Annotated[Path, Parameter(name="INBOX", help="What wander inbox import has written.")],
    /,
    *,
    out: OutFile,
    options: QuestionOptions = DEFAULT_QUESTION_OPTIONS,
    answer_options: ModelOptions = ANSWER_DEFAULTS,
    json: JsonFlag = False,
) -> int:
    """Write questions that can be verified.

    Shows mails to a policy in batches, and keeps the questions that can be verified. Stopped, the same command goes on.
    The exit code is 1 when no question was taken.
    """
    chosen = WritingOptions(
        count=options.count,
        batch=options.batch,
        unanswerable=options.unanswerable,
        eval_share=options.eval_share,
        seed=answer_options.seed,
        concurrency=options.concurrency,
    )
    with stoppable(lambda: "stopped; the same command goes on from here"), InboxFile(place) as opened:
        report = asyncio.run(_write(opened, out, options, answer_options=answer_options, chosen=chosen))
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
    show_result(asdict(report), *lines, table=table if report.rejected else None, json=json)
    return 0 if report.questions else 1


async def _write(
    mails: InboxFile, out: Path, options: QuestionOptions, *, answer_options: ModelOptions, chosen: WritingOptions
) -> WritingReport:
    if options.policy is None:
        return await write_inbox_questions(mails, out, TemplateWriter(mails), options=chosen, say=print_note)
    greedy = answer_options.temperature is None
    resolved = resolve_judge_policy(options.policy, answer_options.policy_options(greedy=greedy))
    if resolved.kind == "endpoint":
        print_note(f"mails of {mails.path} are sent to {options.policy}")
    async with open_policies([resolved.policy]):
        name = answer_options.model or resolved.label  # the same model behind another address goes on
        writer = PolicyWriter(resolved.policy, mails, name=name, schema=options.schema)
        return await write_inbox_questions(mails, out, writer, options=chosen, say=print_note)
