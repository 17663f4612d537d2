"""The command `wander inbox`, as its package declares it."""

from wanderlust.cli.commands import Command

INBOX = Command(
    target="wanderlust_inbox.inbox_command:inbox", help="Import your own mail, and write questions about it."
)
