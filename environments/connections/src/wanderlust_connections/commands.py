"""The command `wander lab`, as its package declares it."""

from wanderlust.cli.commands import Command

LAB = Command(
    target="wanderlust_connections.lab_command:lab_command",
    help="Watch a published reward hack happen, and the monitors.",
)
