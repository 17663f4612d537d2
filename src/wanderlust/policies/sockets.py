"""Room for many connections: each is an open file, and systems bound how many of those a process may have."""

from __future__ import annotations

import resource

from wanderlust.core.errors import UsageError

SPARE = 256
"""Open files left to everything else in the process."""


def make_room(connections: int) -> None:
    """This process may hold as many connections at once, and the bound that it may raise itself is raised if need be.

    Raises UsageError of one line when the system's own bound is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + SPARE
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    except (ValueError, OSError) as error:
        raise UsageError(
            f"{connections} calls at once take {needed} open files and this process may have {max(soft, hard)}:"
            f" ask for at most {max(1, max(soft, hard) - SPARE)} at once, or raise the hard limit (ulimit -Hn)"
        ) from error
