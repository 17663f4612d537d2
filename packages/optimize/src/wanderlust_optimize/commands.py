"""The command `wander optimize`, as its package declares it."""

from wanderlust.cli.commands import Command

OPTIMIZE = Command(
    target="wanderlust_optimize.optimize_command:optimize_command",
    help="Improve an environment's system text for a policy (GEPA).",
)
