"""Users of this machine that sandboxes have for themselves.

The kernel counts pipes, watches of files, pending signals, keys and locks per user: a sandbox with a user of its own
cannot take them from another. Only root can hand out users. The sandboxes that anybody else opens are all of the one
user that opened them, and so are those of root beyond USER_ID_COUNT.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
from pathlib import Path

from wanderlust.errors import SandboxFailure

UNPRIVILEGED_UID = 59_337
"""User and group of root's sandboxes that have none of their own: an unused one, so root's files are safe."""
USER_ID_COUNT = 1000
"""Users after UNPRIVILEGED_UID that the sandboxes of a machine have between them, when root starts them."""
USER_LOCKS_FOLDER = Path(tempfile.gettempdir()) / "wanderlust-users"


def is_root() -> bool:
    """Whether this process is root and may become the users of sandboxes, which a container may not map."""
    spans = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    return os.geteuid() == 0 and any(
        first <= UNPRIVILEGED_UID < UNPRIVILEGED_UID + 1000 < first + count for first, _, count in spans
    )


class SandboxUser:
    """The user of a sandbox and of its forks: each of them ends with `release`, and the last gives the user back."""

    def __init__(self, uid: int, *, own: bool, lock: int = -1):
        """`lock` is the open file that keeps other sandboxes from `uid`; a negative `uid` is that of this process."""
        self.uid, self.own = uid, own
        self._lock, self._holders = lock, 1

    def share(self) -> SandboxUser:
        """The same user, for a further sandbox."""
        self._holders += 1
        return self

    def release(self) -> None:
        """Give it back; its processes have ended."""
        self._holders -= 1
        if not self._holders and self._lock >= 0:
            os.close(self._lock)

    def become_command(self) -> list[str]:
        """Words before a command that make it this user's, without groups; none where it is this process's user."""
        if self.uid < 0:
            return []
        return ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", "--"]


def reserve_user() -> SandboxUser:
    """A user that no other sandbox of this machine has, where this process is root and one is free.

    A lock file keeps it, also from other processes, until `release`, or at the latest the end of this process.
    """
    if not is_root():
        return SandboxUser(-1, own=False)
    USER_LOCKS_FOLDER.mkdir(mode=0o700, exist_ok=True)
    if USER_LOCKS_FOLDER.is_symlink() or USER_LOCKS_FOLDER.stat().st_uid != 0:
        raise SandboxFailure(f"{USER_LOCKS_FOLDER} belongs to another user: remove it")
    first = secrets.randbelow(max(USER_ID_COUNT, 1))
    for user in (UNPRIVILEGED_UID + 1 + (first + n) % USER_ID_COUNT for n in range(USER_ID_COUNT)):
        lock = os.open(USER_LOCKS_FOLDER / str(user), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return SandboxUser(user, own=True, lock=lock)
    return SandboxUser(UNPRIVILEGED_UID, own=False)
