"""The command `wander hub`, as its package declares it."""

from wanderlust.cli.commands import Command

HUB = Command(
    target="wanderlust_hub.hub_command:hub", help="Publish environments as signed files, find them, and check them."
)
