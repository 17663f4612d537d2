"""`wander world`: what happens in a scenario, and what the verifier says of it. Installed packages add commands."""

from __future__ import annotations

from wanderlust.cli.commands import nested
from wanderlust_worlds.cli.world_budget import budget_command
from wanderlust_worlds.cli.world_files import import_command, verify_command
from wanderlust_worlds.cli.world_show import show_world

world = nested(
    "world",
    """Simulated lives: list, show, run and verify scenarios, import files, draw budgets.

    A scenario is family/split-seed/level, as in invite/eval-0/1, or a file of ARE's JSON. A family alone, also as
    file.py:name, is its first scenario of the eval split.""",
)
world.command(show_world, name="show")
world.command(verify_command, name="verify")
world.command(import_command, name="import")
world.command(budget_command, name="budget")
