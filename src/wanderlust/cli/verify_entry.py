"""The command `wander verify`, as its package declares it."""

from wanderlust.cli.commands import Command

VERIFY = Command(
    target="wanderlust.cli.verify_command:verify_artefacts_command",
    help="Check stored proofs, models and refutations again.",
)
