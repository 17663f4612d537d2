"""The command `wander world`, as its package declares it."""

from wanderlust.cli.commands import Command

WORLD = Command(
    target="wanderlust.cli.world_command:world",
    help="Simulated lives: list, show, run and verify scenarios, import files, draw budgets.",
)
