"""The command `wander world`, as its package declares it."""

from wanderlust.cli.commands import Command

WORLD = Command(
    target="wanderlust_worlds.cli.world_command:world", help="Simulated lives: list, run and verify scenarios."
)
