"""A private folder of memory-backed layers, held by a shell in namespaces of its own (the keeper).

The folder lives as long as its keeper, and the keeper as long as the pipe to this process: after this process has
ended in any way, no files, mounts or processes are left. A layer is a tmpfs with a bounded size and number of entries.
`branch` and `undo` lay an empty layer over frozen ones by overlayfs, or over a copy where overlayfs is closed.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from wanderlust.errors import SandboxFailure, one_line, quoted
from wanderlust.tools.process import CHUNK_BYTES, wait_readable
from wanderlust.tools.sandbox.base import SandboxBounds
from wanderlust.tools.sandbox.users import SandboxUser, reserve_user

FRAME_FOLDER = "/mnt"
"""A folder that every system has; in the keeper's own view the layers lie under it."""
AGENT_UID = 1000
"""User and group inside."""
MAX_OVERLAY_LAYERS = 12
"""Layers under a folder before they are copied into one."""
LAYER_TIMEOUT_SECONDS = 60.0
"""Seconds for one request to the keeper; only a large copy takes more than milliseconds."""

_LOOP = 'echo +; while IFS= read -r line; do if eval "$line"; then echo +; else echo -; fi; done'
_FRAME = (
    f"mount -t tmpfs -o size=4m,nr_inodes=2k,mode=755,nosuid,nodev frame {FRAME_FOLDER}"
    f" && mkdir -p {FRAME_FOLDER}/etc/ssl/certs && cd {FRAME_FOLDER}/etc"
    f" && echo 'agent:x:{AGENT_UID}:{AGENT_UID}:agent:/work:/bin/sh' > passwd && echo 'agent:x:{AGENT_UID}:' > group"
    " && echo '127.0.0.1 localhost sandbox' > hosts && echo 'hosts: files' > nsswitch.conf"
    " && { cat /etc/ld.so.cache > ld.so.cache; cp -R /etc/alternatives .; cd /; } 2>/dev/null"
)
_APART = ["unshare", "--mount", "--propagation", "private", "--"]


class LayeredFolder:
    """One folder's layers. Requests are one at a time; the caller sees to it."""

    def __init__(
        self,
        argv: Sequence[str],
        bounds: SandboxBounds,
        *,
        user: SandboxUser,
        overlay: bool = True,
        places: Sequence[str] = (),
    ):
        """`user` is released by `close`."""
        self.bounds, self.user, self.overlay, self.places = bounds, user, overlay, tuple(places)
        self._lowers: tuple[str, ...] = ()
        self._top = 0
        self._popen = subprocess.Popen(
            [*argv, "/bin/sh", "-c", _LOOP],
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd="/",
        )

    @classmethod
    async def open(cls, bounds: SandboxBounds, *, overlay: bool = True, places: Sequence[str] = ()) -> LayeredFolder:
        """An empty folder, and further ones for `places`.

        Raises SandboxFailure in one line where user namespaces are closed.
        """
        unshare = ["unshare", "--user", "--map-root-user", "--mount", "--propagation", "private", "--"]
        with ExitStack() as failing:
            user = reserve_user()
            keeper = cls([*user.become_command(), *unshare], bounds, user=user, overlay=overlay, places=places)
            failing.callback(keeper.close)
            await keeper._await_reply()
            await keeper._run_line(_FRAME)
            await keeper._mount_layer()
            failing.pop_all()
        return keeper

    @property
    def view(self) -> str:
        """Where the folder is in the keeper's view; it holds `work`, `tmp` and `shm`."""
        return f"{FRAME_FOLDER}/{self._top}/view" if self._lowers and self.overlay else f"{FRAME_FOLDER}/{self._top}/up"

    def enter_command(self) -> list[str]:
        """Words before a command that take it to the keeper's view, as the sandbox's user."""
        target = ["-t", str(self._popen.pid), "-U", "-m", "--preserve-credentials", "--"]
        return [*self.user.become_command(), "nsenter", *target]

    async def branch(self, *, changed: bool) -> LayeredFolder:
        """A second keeper whose folder starts as this one's is; `changed` says whether this top layer was written.

        Nothing may run in the folder meanwhile.
        """
        lowers = (f"{FRAME_FOLDER}/{self._top}/up", *self._lowers) if changed or not self._lowers else self._lowers
        lowers = lowers if self.overlay else lowers[:1]
        fresh, view = lowers != self._lowers, self.view
        with ExitStack() as failing:
            apart, user = [*self.enter_command(), *_APART], self.user.share()
            other = LayeredFolder(apart, self.bounds, user=user, overlay=self.overlay, places=self.places)
            failing.callback(other.close)
            await other._await_reply()
            other._top = self._top
            if not fresh:
                await other._run_line(f"umount -l {FRAME_FOLDER}/{self._top}")
            await other._stack_layers(lowers, view)
            if fresh:
                await self._stack_layers(lowers, view)
            failing.pop_all()
        return other

    async def _stack_layers(self, lowers: tuple[str, ...], view: str) -> None:
        """Lay a fresh layer over frozen ones that together look like `view`; too many of them become one."""
        self._lowers, self._top = lowers, self._top + 1
        if len(lowers) > MAX_OVERLAY_LAYERS:
            copy, size = f"{FRAME_FOLDER}/{self._top}/up", self.bounds.disk * len(lowers)
            await self._run_line(f"{_tmpfs(self._top, size, 0)} && cp -a {view}/. {copy}/")
            self._lowers, self._top = (copy,), self._top + 1
        await self._mount_layer()
        used_layers = [int(lower.split("/")[-2]) for lower in self._lowers]
        # Only unmounted: the frame is the family's, and removing a folder would tear its mount out of every other view.
        for number in sorted(set(range(self._top)) - set(used_layers)):
            await self._run_line(f"umount -l {FRAME_FOLDER}/{number} 2>/dev/null; true")

    async def undo(self) -> None:
        """Throw the top layer away; nothing may run in the folder meanwhile."""
        await self._run_line(f"umount -l {FRAME_FOLDER}/{self._top}")
        await self._mount_layer()

    async def _mount_layer(self) -> None:
        """A fresh top layer over the lower ones."""
        top = f"{FRAME_FOLDER}/{self._top}"
        fresh = _tmpfs(self._top, self.bounds.disk, self.bounds.entries)
        if not self._lowers:
            further = "".join(f" {top}/up/places/{number}" for number, _ in enumerate(self.places))
            places = f"-p {top}/up/work {top}/up/tmp {top}/up/shm{further}"
            await self._run_line(f"{fresh} && mkdir {places} && chmod 1777 {top}/up/tmp {top}/up/shm")
            return
        if self.overlay:
            options = f"userxattr,lowerdir={':'.join(self._lowers)},upperdir={top}/up,workdir={top}/wk"
            await self._run_line(f"{fresh} && mount -t overlay -o nosuid,nodev,{options} view {top}/view")
        else:
            room = _tmpfs(self._top, 2 * self.bounds.disk, 2 * self.bounds.entries)
            await self._run_line(f"{room} && cp -a {self._lowers[0]}/. {top}/up/")

    async def _run_line(self, line: str) -> None:
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(line.encode() + b"\n")
            self._popen.stdin.flush()
        except BrokenPipeError as error:
            raise SandboxFailure(f"the process of the private folder ended: {quoted(line)} was for it") from error
        await self._await_reply()

    async def _await_reply(self) -> None:
        """Wait for the reply to the last request; raises SandboxFailure where it failed."""
        assert self._popen.stdout is not None
        fd, reply = self._popen.stdout.fileno(), b""
        try:
            async with asyncio.timeout(LAYER_TIMEOUT_SECONDS):
                while not reply.endswith((b"+\n", b"-\n")):
                    await wait_readable(fd)
                    if not (data := os.read(fd, CHUNK_BYTES)):
                        break
                    reply = (reply + data)[-CHUNK_BYTES:]
        except TimeoutError as error:
            raise SandboxFailure(
                f"the process of the private folder did not answer for {LAYER_TIMEOUT_SECONDS:g} s"
            ) from error
        if not reply.endswith(b"+\n"):
            why = one_line(reply.decode("utf-8", "replace").removesuffix("-\n"))
            raise SandboxFailure(f"no private folder: {why or 'its process ended'}")

    def close(self) -> None:
        """End the keeper; the kernel takes the folder down with it."""
        self._popen.kill()
        self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self.user.release()


def _tmpfs(number: int, size: int, entries: int) -> str:
    place = f"{FRAME_FOLDER}/{number}"
    options = f"size={size},nr_inodes={entries},mode=755,nosuid,nodev"
    return f"mkdir -p {place} && mount -t tmpfs -o {options} layer {place} && mkdir {place}/up {place}/wk {place}/view"
