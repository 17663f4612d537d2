"""Electronic mail: four folders, sending, answering, searching."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from posixpath import basename, join
from typing import Any, Self

import msgspec

from wanderlust.tools.function import ToolError
from wanderlust_worlds.apps.files import files_of
from wanderlust_worlds.engine.app import App, action, read_time
from wanderlust_worlds.engine.argument_checks import PATH_CHECK, PATHS_CHECK, TEXT_CHECK, UNORDERED_CHECK, judged_text
from wanderlust_worlds.engine.cow_dict import CowDict, FrozenRecord

MAIL_FOLDERS = ("INBOX", "SENT", "DRAFT", "TRASH")


class Email(FrozenRecord):
    """A mail."""

    email_id: str
    sender: str
    recipients: tuple[str, ...] = ()
    subject: str = ""
    content: str = ""
    parent_id: str | None = None
    """The mail that this one answers."""
    cc: tuple[str, ...] = ()
    attachments: Mapping[str, str] = {}
    """File name to content, in base64."""
    timestamp: float = 0.0
    """Seconds since 1970, UTC."""
    is_read: bool = False


class EmailPage(FrozenRecord):
    """A part of a folder."""

    emails: tuple[Email, ...]
    emails_range: tuple[int, int]
    total_returned_emails: int
    total_emails: int


class Mailbox(App):
    """Folders of mails, and what arrives in them."""

    user_email: str = "user@example.org"
    view_limit: int = 5
    inbox: CowDict[Email] = CowDict()
    sent: CowDict[Email] = CowDict()
    draft: CowDict[Email] = CowDict()
    trash: CowDict[Email] = CowDict()

    @action("env", "data", writes=True, notify="medium", says="New email received from {sender}")
    def create_and_add_email(
        self,
        *,
        sender: str,
        recipients: list[str] | None = None,
        subject: str = "",
        content: str = "",
        folder_name: str = "INBOX",
    ) -> str:
        """Have a mail arrive, in any folder."""
        return self._put(
            folder_name, sender=sender, recipients=tuple(recipients or ()), subject=subject, content=content
        )

    @action("env", writes=True, notify="medium", says="New email received from {sender}")
    def send_email_to_user_only(self, sender: str, subject: str = "", content: str = "") -> str:
        """Have a mail to the user alone arrive."""
        return self._put("INBOX", sender=sender, recipients=(self.user_email,), subject=subject, content=content)

    @action("env", writes=True, notify="medium", says="New email received")
    def reply_to_email_from_user(
        self, *, sender: str, email_id: str, content: str = "", attachment_paths: list[str] | None = None
    ) -> str:
        """Have an answer to one of the user's mails arrive, from one of its recipients."""
        mail = self._mail(email_id, "SENT")
        if sender not in mail.recipients:
            raise ToolError(f"{sender} did not get the mail {email_id}: {', '.join(mail.recipients)} did")
        return self._put(
            "INBOX",
            sender=sender,
            recipients=(self.user_email,),
            subject=f"Re: {mail.subject}",
            content=content,
            parent_id=mail.email_id,
            attachments=self._read_attachments(attachment_paths),
        )

    @action("data", writes=True)
    def create_and_add_email_with_time(
        self,
        *,
        sender: str,
        recipients: list[str] | None = None,
        subject: str = "",
        content: str = "",
        email_time: str = "",
        folder_name: str = "INBOX",
    ) -> str:
        """Put a mail that was read long ago into a folder; `email_time` as YYYY-MM-DD HH:MM:SS (UTC), empty for now."""
        return self._put(
            folder_name,
            sender=sender,
            recipients=tuple(recipients or ()),
            subject=subject,
            content=content,
            timestamp=read_time(email_time, "email_time") if email_time else self.now,
            is_read=True,
        )

    # How it is done

    def _folder(self, name: str) -> CowDict[Email]:
        if name.upper() not in MAIL_FOLDERS:
            raise ToolError(f"there is no folder {name!r}: one of {', '.join(MAIL_FOLDERS)}")
        folder: CowDict[Email] = getattr(self, name.lower())
        return folder

    def _newest(self, folder: str) -> list[Email]:
        return sorted(self._folder(folder).values(), key=lambda mail: mail.timestamp, reverse=True)

    def _mail(self, email_id: str, folder: str) -> Email:
        mail = self._folder(folder).get(email_id)
        if mail is None:
            raise ToolError(f"there is no mail {email_id!r} in {folder}")
        return mail

    def _mark_read(self, folder: str, mail: Email) -> Email:
        if not mail.is_read:
            mail = msgspec.structs.replace(mail, is_read=True)
            self._folder(folder)[mail.email_id] = mail
        return mail

    def _put(self, folder: str, **fields: Any) -> str:
        addresses = (fields["sender"], *fields["recipients"], *fields.get("cc", ()))
        if wrong := [address for address in addresses if "@" not in address]:
            raise ToolError(f"not an address: {wrong[0]!r}")
        target = self._folder(folder)
        mail = Email(email_id=self.new_id(), **{"timestamp": self.now, **fields})
        target[mail.email_id] = mail
        return mail.email_id

    def _other_side(self, mail: Email) -> str:
        """The address that a conversation is with, also when the mail to answer is the user's own."""
        while mail.sender == self.user_email and mail.parent_id:
            parents = [
                folder[mail.parent_id] for name in MAIL_FOLDERS if mail.parent_id in (folder := self._folder(name))
            ]
            if not parents:
                raise ToolError(f"there is no mail {mail.parent_id!r}")
            mail = parents[0]
        return mail.sender

    def _read_attachments(self, paths: Iterable[str] | None) -> Mapping[str, str]:
        return {basename(path): base64.b64encode(files_of(self).read_bytes(path)).decode() for path in paths or ()}

    @classmethod
    def from_are(cls, name: str, state: Mapping[str, Any]) -> Self:
        """From ARE's state: a list of mails per folder."""
        folders = {folder.lower(): content["emails"] for folder, content in state.get("folders", {}).items()}
        tables = {
            key: {
                mail["email_id"]: {**mail, "attachments": mail.get("attachments") or {}, "cc": mail.get("cc") or ()}
                for mail in mails
            }
            for key, mails in folders.items()
        }
        limit = state.get("view_limit", cls.view_limit)
        return cls.load(name, {"user_email": state["user_email"], "view_limit": limit, **tables})

    def to_are(self) -> dict[str, Any]:
        """A list of mails per folder."""
        own = self.state()
        folders = {
            folder: {"folder_name": folder, "emails": [*own[folder.lower()].values()]} for folder in MAIL_FOLDERS
        }
        return {"user_email": self.user_email, "view_limit": self.view_limit, "folders": folders}


class Mail(Mailbox):
    """The user's mail: folders INBOX, SENT, DRAFT and TRASH, the newest mail first in each."""

    aliases = ("EmailClientV2", "EmailClientApp")

    @action("agent")
    def list_emails(self, folder_name: str = "INBOX", offset: int = 0, limit: int = 10) -> EmailPage:
        """List the mails of a folder, the newest first.

        Args:
            folder_name: INBOX, SENT, DRAFT or TRASH.
            offset: How many of the newest mails to leave out.
            limit: How many to list at most.
        """
        mails = self._newest(folder_name)
        if not 0 <= offset <= len(mails):
            raise ToolError(f"offset must be from 0 to {len(mails)}, the number of mails in {folder_name}")
        page = mails[offset : offset + max(limit, 0)]
        return EmailPage(
            emails=tuple(page),
            emails_range=(offset, offset + len(page)),
            total_returned_emails=len(page),
            total_emails=len(mails),
        )

    @action("agent")
    def get_email_by_id(self, email_id: str, folder_name: str = "INBOX") -> Email:
        """Read a mail, which marks it as read.

        Args:
            email_id: The id of the mail.
            folder_name: The folder that it is in: INBOX, SENT, DRAFT or TRASH.
        """
        return self._mark_read(folder_name, self._mail(email_id, folder_name))

    @action("agent")
    def get_email_by_index(self, idx: int, folder_name: str = "INBOX") -> Email:
        """Read a mail by its place in a folder, which marks it as read.

        Args:
            idx: Its place; 0 is the newest mail.
            folder_name: INBOX, SENT, DRAFT or TRASH.
        """
        mails = self._newest(folder_name)
        if not 0 <= idx < len(mails):
            raise ToolError(f"there is no mail {idx} in {folder_name}: it has {len(mails)}")
        return self._mark_read(folder_name, mails[idx])

    @action("agent")
    def search_emails(self, query: str, folder_name: str = "INBOX") -> list[Email]:
        """Find the mails of a folder with a text in sender, recipients, subject or content, in any case.

        Args:
            query: The text.
            folder_name: INBOX, SENT, DRAFT or TRASH.
        """
        sought = query.lower()
        fields = ((m, (m.sender, m.subject, m.content, *m.recipients)) for m in self._newest(folder_name))
        return [mail for mail, texts in fields if any(sought in text.lower() for text in texts)]

    @action(
        "agent",
        writes=True,
        checks={
            "recipients": UNORDERED_CHECK,
            "cc": UNORDERED_CHECK,
            "subject": judged_text("mail"),
            "content": judged_text("mail"),
            "attachment_paths": PATHS_CHECK,
        },
    )
    def send_email(
        self,
        *,
        recipients: list[str] | None = None,
        subject: str = "",
        content: str = "",
        cc: list[str] | None = None,
        attachment_paths: list[str] | None = None,
    ) -> str:
        """Send a mail.

        Args:
            recipients: Addresses that it goes to.
            subject: Its subject.
            content: Its text.
            cc: Addresses that get a copy.
            attachment_paths: Files to attach.

        Returns:
            The id of the mail.
        """
        return self._put(
            "SENT",
            sender=self.user_email,
            recipients=tuple(recipients or ()),
            subject=subject,
            content=content,
            cc=tuple(cc or ()),
            attachments=self._read_attachments(attachment_paths),
        )

    @action(
        "agent",
        writes=True,
        checks={"folder_name": TEXT_CHECK, "content": judged_text("mail"), "attachment_paths": PATHS_CHECK},
    )
    def reply_to_email(
        self,
        *,
        email_id: str,
        folder_name: str = "INBOX",
        content: str = "",
        attachment_paths: list[str] | None = None,
    ) -> str:
        """Answer a mail.

        Args:
            email_id: The id of the mail to answer.
            folder_name: The folder that it is in: INBOX, SENT, DRAFT or TRASH.
            content: The text of the answer.
            attachment_paths: Files to attach.

        Returns:
            The id of the answer.
        """
        mail = self._mail(email_id, folder_name)
        return self._put(
            "SENT",
            sender=self.user_email,
            recipients=(self._other_side(mail),),
            subject=f"Re: {mail.subject}",
            content=content,
            parent_id=mail.email_id,
            attachments=self._read_attachments(attachment_paths),
        )

    @action("agent", writes=True, checks={"recipients": UNORDERED_CHECK, "folder_name": TEXT_CHECK})
    def forward_email(self, email_id: str, recipients: list[str] | None = None, folder_name: str = "INBOX") -> str:
        """Forward a mail, with its attachments.

        Args:
            email_id: The id of the mail to forward.
            recipients: Addresses that it goes to.
            folder_name: The folder that it is in: INBOX, SENT, DRAFT or TRASH.

        Returns:
            The id of the forwarded mail.
        """
        mail = self._mail(email_id, folder_name)
        return self._put(
            "SENT",
            sender=self.user_email,
            recipients=tuple(recipients or ()),
            subject=f"Fwd: {mail.subject}",
            content=mail.content,
            parent_id=mail.email_id,
            attachments=mail.attachments,
        )

    @action("agent", writes=True, checks={"source_folder_name": TEXT_CHECK, "dest_folder_name": TEXT_CHECK})
    def move_email(self, email_id: str, source_folder_name: str = "INBOX", dest_folder_name: str = "DRAFT") -> str:
        """Move a mail to another folder.

        Args:
            email_id: The id of the mail.
            source_folder_name: The folder that it is in: INBOX, SENT, DRAFT or TRASH.
            dest_folder_name: The folder to move it to.
        """
        source, target = self._folder(source_folder_name), self._folder(dest_folder_name)
        mail = self._mail(email_id, source_folder_name)
        del source[email_id]
        target[email_id] = mail
        return email_id

    @action("agent", writes=True, checks={"folder_name": TEXT_CHECK})
    def delete_email(self, email_id: str, folder_name: str = "INBOX") -> str:
        """Move a mail to the folder TRASH.

        Args:
            email_id: The id of the mail.
            folder_name: The folder that it is in: INBOX, SENT, DRAFT or TRASH.
        """
        return self.move_email(email_id, folder_name, "TRASH")

    @action("agent", writes=True, checks={"folder_name": TEXT_CHECK, "path_to_save": PATH_CHECK})
    def download_attachments(
        self, email_id: str, folder_name: str = "INBOX", path_to_save: str = "Downloads/"
    ) -> list[str]:
        """Save the attachments of a mail as files.

        Args:
            email_id: The id of the mail.
            folder_name: The folder that it is in: INBOX, SENT, DRAFT or TRASH.
            path_to_save: The folder for the files.

        Returns:
            The paths of the files.
        """
        mail = self._mail(email_id, folder_name)
        paths = {join(path_to_save, name): content for name, content in mail.attachments.items()}
        for path, content in paths.items():
            files_of(self).write_bytes(path, base64.b64decode(content))
        return list(paths)
