"""Moments as agents write and read them: YYYY-MM-DD HH:MM:SS, UTC. Worlds count seconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime

from wanderlust.tools.errors import ToolError

FORM = "%Y-%m-%d %H:%M:%S"


def read_time(text: str, what: str = "the time") -> float:
    """The moment in seconds since 1970. Raises ToolError, which names it by `what`, when it is written otherwise."""
    try:
        return datetime.strptime(text, FORM).replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise ToolError(f"{what} must be written as YYYY-MM-DD HH:MM:SS, not {text[:40]!r}") from error


def told_time(seconds: float, form: str = FORM) -> str:
    """The moment as text."""
    return datetime.fromtimestamp(seconds, tz=UTC).strftime(form)


def within(seconds: float, since: str | None, until: str | None) -> bool:
    """Whether a moment lies between two written ones; both belong to it, and None is no bound."""
    after = since is None or read_time(since, "min_date") <= int(seconds)
    return after and (until is None or int(seconds) <= read_time(until, "max_date"))
