"""Writes of equal effect: an answer to a mail, and a mail to its sender with `Re:` before the subject.

A line of the log that does what an act of the oracle does by another tool is read as that act.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from wanderlust_worlds.apps.mail import Mail
from wanderlust_worlds.engine.events import PlannedCall
from wanderlust_worlds.engine.log import LogEntry
from wanderlust_worlds.engine.scenario import Scenario

_ANSWER = re.compile(r"(?:(?:re|aw|sv)\s*:\s*)+", re.IGNORECASE)


class EqualEffects:
    """The writes of one scenario that have the effect of one of its oracle's acts by another tool."""

    def __init__(self, scenario: Scenario):
        self._acts: dict[str, list[PlannedCall]] = {}
        for act in scenario.oracle:
            self._acts.setdefault(act.app, []).append(act)
        self._mails = {app.name: app for app in scenario.apps if isinstance(app, Mail) and app.name in self._acts}

    def canonical(self, log: Sequence[LogEntry]) -> list[LogEntry]:
        """The log, line by line, with such writes as the oracle's tool would have left them."""
        return [
            self._mail(line, self._mails[line.app], log) if line.by == "agent" and line.app in self._mails else line
            for line in log
        ]

    def _mail(self, line: LogEntry, app: Mail, log: Sequence[LogEntry]) -> LogEntry:
        acts = self._acts[line.app]
        if line.args.get("cc") or line.args.get("attachment_paths"):
            return line
        if line.action == "send_email" and _ANSWER.match(str(line.args.get("subject", ""))):
            subject = _ANSWER.sub("", str(line.args["subject"]), count=1).strip().casefold()
            to = [str(one).casefold() for one in line.args.get("recipients") or ()]
            for act in acts:
                known = _mail_of(app, act.args.get("email_id"), log) if act.action == "reply_to_email" else None
                if known and to == [known[0].casefold()] and subject == known[1].strip().casefold():
                    args = {"email_id": act.args["email_id"], "content": line.args.get("content", "")}
                    return replace(line, action="reply_to_email", args=app.actions["reply_to_email"].complete(args))
        if line.action == "reply_to_email" and not any(
            act.action == "reply_to_email" and act.args.get("email_id") == line.args.get("email_id") for act in acts
        ):
            known = _mail_of(app, line.args.get("email_id"), log)
            if known and any(act.action == "send_email" and act.args.get("recipients") == [known[0]] for act in acts):
                args = {
                    "recipients": [known[0]],
                    "subject": f"Re: {known[1]}",
                    "content": line.args.get("content", ""),
                }
                return replace(line, action="send_email", args=app.actions["send_email"].complete(args))
        return line


def _mail_of(app: Mail, email_id: Any, log: Iterable[LogEntry]) -> tuple[str, str] | None:
    """Sender and subject of a mail that was there, or came."""
    row = app.inbox.rows().get(str(email_id))
    if row is not None:
        return row.sender, row.subject
    came = (line for line in log if line.app == app.name and line.by != "agent" and line.result == email_id)
    return next(_arrivals(came), None)


def _arrivals(lines: Iterable[LogEntry]) -> Iterator[tuple[str, str]]:
    for line in lines:
        if "sender" in line.args:
            yield str(line.args["sender"]), str(line.args.get("subject", ""))
