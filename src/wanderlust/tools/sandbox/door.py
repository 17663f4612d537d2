"""Doors of a sandbox: sockets that listen on the loopback of its own network, and that this process answers.

A child enters the sandbox's users and makes a network there, raises its loopback, binds a socket and hands it back. So
nothing runs inside for a door, no byte is passed on by a relay, and the network has no device besides its loopback.
Whatever listens elsewhere, on this machine or in another sandbox, is not reachable.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from wanderlust.errors import SandboxFailure, one_line
from wanderlust.tools.process import Child
from wanderlust.tools.sandbox.base import run_bounded

DOOR_BACKLOG = 64
"""Connections that wait for being accepted."""
DOOR_SECONDS = 20.0
"""Seconds for making a door, which takes milliseconds."""
_MAKE = """
import array, fcntl, os, socket, struct, sys
loopback = struct.pack("16sH22x", b"lo", 0x1 | 0x8 | 0x40)
door = socket.socket()
fcntl.ioctl(door, 0x8914, loopback)
door.bind(("127.0.0.1", 0))
door.listen(int(sys.argv[2]))
handed = array.array("i", [door.fileno(), os.open("/proc/self/ns/net", os.O_RDONLY)])
socket.socket(fileno=int(sys.argv[1])).sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handed)])
"""
"""IFF_UP, IFF_LOOPBACK and IFF_RUNNING, set by SIOCSIFFLAGS: netdevice(7)."""


async def open_door(enter: Sequence[str], *, python: str, network: int = -1) -> tuple[socket.socket, int]:
    """A listening socket in `network`, or in a new one; returns it with a descriptor of the network.

    `enter` are the words that take a command to the sandbox's users. Raises SandboxFailure.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        into = ["unshare", "--net", "--"] if network < 0 else ["nsenter", f"--net=/proc/self/fd/{network}", "--"]
        make = [python, "-I", "-S", "-c", _MAKE, str(theirs.fileno()), str(DOOR_BACKLOG)]
        passed = [theirs.fileno(), *([network] if network >= 0 else [])]
        child = Child([*enter, *into, *make], env={}, pass_fds=passed, cwd="/")
        try:
            result = await run_bounded(child, stdin=b"", seconds=DOOR_SECONDS, output=4096)
        finally:
            child.close()
        if result.code or result.reached_limit:
            why = one_line(result.text.strip().rsplit("\n", 1)[-1]) or result.reached_limit
            raise SandboxFailure(f"the sandbox got no door: {why}")
        _, (door, opened), _, _ = socket.recv_fds(ours, 1, 2)
    return socket.socket(fileno=door), opened
