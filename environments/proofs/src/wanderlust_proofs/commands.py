"""The command `wander verify`, as its package declares it."""

from wanderlust.cli.commands import Command

VERIFY = Command(target="wanderlust_proofs.verify_command:verify_command", help="Check stored proofs and models again.")
