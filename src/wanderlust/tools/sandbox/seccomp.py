"""Filter the system calls of a sandboxed program, in the kernel's own byte code (seccomp, classic BPF).

Refused are calls that namespaces do not cover or that widen the attack surface: kernel keyrings, sockets other than
Unix and internet ones (vsock reaches the host of a virtual machine), memory that no limit counts, pushing input into a
terminal, io_uring, BPF, performance counters, new mounts and namespaces, loading kernels and modules, and watching
files, whose instances are counted per user: one sandbox could leave none to others that are the same user.
Source: seccomp(2), Linux `include/uapi/asm-generic/unistd.h` and the x86 table.
"""

from __future__ import annotations

import errno
import platform
import struct
from functools import cache

from wanderlust.errors import UsageError

_LOAD, _EQUAL, _AT_LEAST, _ANSWER = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24
"""Offsets in `struct seccomp_data` of the number, the architecture and the low halves of two arguments."""
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000

_FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10}
_TERMINAL = {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C}

_SHARED = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442, "memfd_secret": 447,
}  # fmt: skip
_REFUSED = {
    "x86_64": _SHARED | {
        "shmget": 29, "shmat": 30, "semget": 64, "msgget": 68, "ptrace": 101, "pivot_root": 155, "acct": 163,
        "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169,
        "init_module": 175, "delete_module": 176, "quotactl": 179, "clock_settime": 227,
        "mq_open": 240, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272,
        "perf_event_open": 298, "name_to_handle_at": 303, "open_by_handle_at": 304, "setns": 308,
        "process_vm_readv": 310, "process_vm_writev": 311, "finit_module": 313, "memfd_create": 319,
        "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323,
        "inotify_init": 253, "inotify_init1": 294, "fanotify_init": 300,
    },
    "aarch64": _SHARED | {
        "shmget": 194, "shmat": 196, "semget": 190, "msgget": 186, "ptrace": 117, "pivot_root": 41, "acct": 89,
        "settimeofday": 170, "mount": 40, "umount2": 39, "swapon": 224, "swapoff": 225, "reboot": 142,
        "init_module": 105, "delete_module": 106, "quotactl": 60, "clock_settime": 112,
        "mq_open": 180, "kexec_load": 104, "add_key": 217, "request_key": 218, "keyctl": 219, "unshare": 97,
        "perf_event_open": 241, "name_to_handle_at": 264, "open_by_handle_at": 265, "setns": 268,
        "process_vm_readv": 270, "process_vm_writev": 271, "finit_module": 273, "memfd_create": 279,
        "kexec_file_load": 294, "bpf": 280, "userfaultfd": 282,
        "inotify_init1": 26, "fanotify_init": 262,
    },
}  # fmt: skip
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SOCKETS = {"x86_64": (41, 53), "aarch64": (198, 199)}
_IOCTL = {"x86_64": 16, "aarch64": 29}
_X32 = 0x40000000
"""From here on, x86 numbers are those of a second table that would go around the first."""


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)


def _refuse(error: int) -> bytes:
    return _step(_ANSWER, _ERROR | error)


def _on(number: int, body: list[bytes]) -> list[bytes]:
    """`body` for one system call; it must answer."""
    return [_step(_EQUAL, number, no=len(body)), *body]


@cache
def program(machine: str = "", *, watching: bool = False) -> bytes:
    """Make the filter for this machine's processor; raises UsageError where there is none.

    `watching` allows inotify, for sandboxes that have a user of their own.
    """
    machine = machine or platform.machine()
    if machine not in _REFUSED:
        raise UsageError(f"no system call filter for {machine!r} processors: there is one for {', '.join(_REFUSED)}")
    steps = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, _ARCHITECTURES[machine], yes=1),
        _step(_ANSWER, _KILL),
        _step(_LOAD, _NUMBER),
        _step(_AT_LEAST, _X32, no=1),
        _refuse(errno.ENOSYS),
    ]
    allowed = [_step(_EQUAL, family, yes=len(_FAMILIES) - n) for n, family in enumerate(_FAMILIES.values())]
    for number in _SOCKETS[machine]:
        steps += _on(number, [_step(_LOAD, _FIRST), *allowed, _refuse(errno.EAFNOSUPPORT), _step(_ANSWER, _ALLOW)])
    refused = [name for name in _REFUSED[machine] if not (watching and name.startswith("inotify_"))]
    typing = [_step(_EQUAL, ask, yes=len(_TERMINAL) - n) for n, ask in enumerate(_TERMINAL.values())]
    steps += _on(_IOCTL[machine], [_step(_LOAD, _SECOND), *typing, _step(_ANSWER, _ALLOW), _refuse(errno.EPERM)])
    for number in sorted(_REFUSED[machine][name] for name in refused):
        steps += _on(number, [_refuse(errno.EPERM)])
    return b"".join([*steps, _step(_ANSWER, _ALLOW)])
