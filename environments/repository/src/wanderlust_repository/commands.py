"""The command `wander tasks`, as its package declares it."""

from wanderlust.cli.commands import Command

TASKS = Command(
    target="wanderlust_repository.tasks_command:tasks", help="Make repository tasks; read and write Harbor tasks."
)
