"""Scenarios to test verifiers with: acts that look alike, wait for each other, and take each other's results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from wanderlust.tools.function import ToolError
from wanderlust_worlds.apps.files import FileStorage
from wanderlust_worlds.apps.mail import Email, Mail
from wanderlust_worlds.apps.user_interface import System, UserInterface
from wanderlust_worlds.engine.cow_dict import CowDict
from wanderlust_worlds.engine.scenario import Scenario, ScenarioBuilder, capture

MAIL_ADDRESSES = tuple(f"{name}@example.org" for name in ("ana", "ben", "chi", "dia"))
MAIL_THINGS = ("the large tent", "two chairs", "a cake", "the old maps", "some music", "the keys")
WEEKDAYS = ("Monday", "Tuesday", "Friday", "Sunday")
SYNONYMS = {"please": "kindly", "bring": "take along", "before": "ahead of", "answer": "reply", "noted": "written down"}
"""Words of the texts, and others for the same."""
ATTACHMENT_FILES = ("plan.txt", "list.txt")


class AttachmentFiles(FileStorage):
    """Files that are there to be attached."""

    files: CowDict[bytes] = CowDict()

    def read_bytes(self, path: str) -> bytes:
        """The content of a file."""
        content = self.files.get(path.lstrip("/"))
        if content is None:
            raise ToolError(f"there is no file {path!r}")
        return content

    def write_bytes(self, path: str, content: bytes) -> None:
        """Make or replace a file."""
        self.files[path.lstrip("/")] = content


def make_look_alikes(seed: int, *, acts: int = 7) -> Scenario:
    """A scenario with so many acts and a message to the user in its first turn, and in half of all cases a second turn.

    The same in every process. Some acts are equal, some differ in a text, some leave the text to the agent; a few are
    due later, take results, or answer an answer. Its apps are two mailboxes, files, the user and the time.
    """
    rng = Random(f"look-alikes/{seed}")
    apps = _apps(rng)
    with capture(*apps) as story:
        writing = _ScenarioWriter(rng=rng, story=story, boxes=apps[:2], user=apps[2])
        request = story.user(apps[2]).send_message_to_agent("Please see to these mails.")
        last_message = writing.turn(request, acts)
        if rng.random() < 0.5:
            more = story.user(apps[2], after=last_message, delay=30).send_message_to_agent("One more thing.")
            writing.turn(more, 2)
    return Scenario(id=f"look-alikes-{seed}", apps=apps, events=story.events, duration=5_000)


def _apps(rng: Random) -> tuple[Mail, Mail, UserInterface, System, AttachmentFiles]:
    boxes = []
    for name in ("Emails", "Work"):
        mails = [
            Email(
                email_id=f"{name}-{n}",
                sender=rng.choice(MAIL_ADDRESSES),
                subject=f"Question {n}",
                content=mail_sentence(rng),
            )
            for n in range(12)
        ]
        boxes.append(Mail(name, user_email="me@example.org", inbox=CowDict({mail.email_id: mail for mail in mails})))
    files: CowDict[bytes] = CowDict({name: name.encode() for name in ATTACHMENT_FILES})
    return boxes[0], boxes[1], UserInterface(), System(), AttachmentFiles(files=files)


def mail_sentence(rng: Random) -> str:
    """What a mail says."""
    day = rng.choice(WEEKDAYS)
    return rng.choice((f"Please bring {rng.choice(MAIL_THINGS)} on {day}.", f"Please answer before {day}."))


@dataclass(slots=True, kw_only=True)
class _ScenarioWriter:
    """A scenario in the making."""

    rng: Random
    story: ScenarioBuilder
    boxes: tuple[Mail, Mail]
    user: UserInterface
    sent: list[tuple[Mail, str]] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)
    used: int = 0

    def turn(self, request: str, acts: int) -> str:
        """So many acts, and a message to the user after all of them."""
        made: list[str] = []
        self.sent.clear()
        for _ in range(acts):
            made += self._act(request, made)
        end = self.story.agent(self.user, after=[request, *made])
        return end.send_message_to_user(f"All noted. {mail_sentence(self.rng)}")  # type: ignore[return-value]

    def _act(self, request: str, made: Sequence[str]) -> list[str]:
        rng = self.rng
        after = [request] if not made or rng.random() < 0.6 else rng.sample(made, min(len(made), rng.randint(1, 2)))
        app = self.boxes[rng.random() < 0.3]
        writer = self.story.agent(app, after=after, delay=rng.choice((0, 0, 0, 0, 0, 90)))
        kind = rng.choices(("send", "twin", "reply", "move", "forward", "talk"), (6, 5, 1, 2, 2, 1))[0]
        if kind == "twin" and self.last:
            return [self._send(writer, app, self._twin())]
        if kind == "forward" and self.sent:
            box, mail = rng.choice(self.sent)
            forward = self.story.agent(box, after=[*after, mail])
            return [forward.forward_email(mail, [rng.choice(MAIL_ADDRESSES)], "SENT")]
        if kind == "move" and self.used < 12:
            return [writer.move_email(self._mail(app), "INBOX", rng.choice(("DRAFT", "TRASH")))]
        if kind == "reply" and self.used < 12:
            return [writer.reply_to_email(email_id=self._mail(app), content=mail_sentence(rng))]
        args = self._args()
        first = self._send(writer, app, args)
        return [first, *self._talk(app, first, args["recipients"][0])] if kind == "talk" else [first]

    def _mail(self, app: Mail) -> str:
        self.used += 1
        return f"{app.name}-{self.used - 1}"

    def _args(self) -> dict[str, Any]:
        rng = self.rng
        args: dict[str, Any] = {"recipients": rng.sample(MAIL_ADDRESSES, rng.choice((1, 1, 2))), "subject": "News"}
        if rng.random() < 0.7:
            args["content"] = mail_sentence(rng)
        if rng.random() < 0.2:
            args["attachment_paths"] = [f"/{rng.choice(ATTACHMENT_FILES)}"]
        self.last = args
        return args

    def _twin(self) -> dict[str, Any]:
        """The last mail again: as it was, with another text, or with none in particular."""
        args = dict(self.last)
        args.pop("content", None)
        how = self.rng.random()
        return self.last if how < 0.4 else {**args, "content": mail_sentence(self.rng)} if how < 0.7 else args

    def _send(self, writer: Mail, app: Mail, args: dict[str, Any]) -> str:
        event = writer.send_email(**args)
        self.sent.append((app, event))
        return event

    def _talk(self, app: Mail, first: str, other: str) -> list[str]:
        """An answer comes, and is answered."""
        reply = self.story.env(app, after=first, delay=40).reply_to_email_from_user(
            sender=other, email_id=first, content=mail_sentence(self.rng)
        )
        answer = self.story.agent(app, after=reply)
        return [answer.reply_to_email(email_id=reply, content=mail_sentence(self.rng))]
