"""Attempts to use more than a sandbox may: all end at the bound, and this machine does not notice."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from tests.sandboxes import SMALL, TRIED, bearing, code, refused, shell, token, within

from wanderlust.tools.sandbox import open_sandbox
from wanderlust.tools.sandbox.base import FLOOD_FACTOR
from wanderlust.tools.sandbox.bubblewrap import find_python

PYTHON = [str(find_python()), "-I", "-c"]
SHORT = replace(SMALL, seconds=1.5)


def test_fork_bomb():
    word = token()
    bomb = f"""
import threading
open("/work/made", "w").close()
while True:
    try:
        if os.fork() == 0:
            os.execv({str(find_python())!r}, ["python3", "-I", "-c", "import time; time.sleep(60)", "{word}"])
        with open("/work/made", "a") as file: file.write("x")
    except OSError:
        pass
"""

    async def play(sandbox):
        result = await sandbox.run([*PYTHON, "import os\n" + bomb], timeout=4)
        return result, len(await sandbox.read("made")), bearing(word)

    result, made, left = within(play)
    # The time ends it, or the kernel before: its processes share the sandbox's memory, and any may be killed.
    assert result.reached_limit == "time" or result.code == 128 + signal.SIGKILL, result
    assert 5 < made < SMALL.processes
    assert left == []


def test_shell_fork_bomb_leaves_the_sandbox_usable():
    word = token()

    async def play(sandbox):
        await sandbox.run(f": {word}; b() {{ b | b & }}; b; sleep 60", timeout=1)
        return bearing(word), await sandbox.run("echo alive")

    left, after = within(play)
    assert left == []
    assert after.stdout == b"alive\n"


def test_thread_bomb():
    threads = """
import threading
threading.stack_size(65536)
n, stop = 0, threading.Event()
try:
    while n < 1000:
        threading.Thread(target=stop.wait, daemon=True).start()
        n += 1
except RuntimeError:
    pass
print(n, flush=True)
os._exit(0)
"""
    assert 5 < int(code(threads).stdout) < SMALL.processes


def test_zombie_flood():
    flood = """
n = 0
try:
    while n < 1000:
        if os.fork() == 0: os._exit(0)
        n += 1
except OSError:
    pass
print(n)
"""
    assert 5 < int(code(flood).stdout) < SMALL.processes


def test_memory_of_one_process():
    result = code("print(len(bytearray(64 << 20)), flush=True)\nprint(len(bytearray(256 << 20)))")
    assert result.stdout == f"{64 << 20}\n".encode()
    assert b"MemoryError" in result.stderr


def test_shared_memory_without_a_name():
    fill = "import mmap\nblock = mmap.mmap(-1, 256 << 20)\n"
    fill += "for n in range(0, 256 << 20, 4096): block[n] = 1\nprint('filled')"
    result = code(fill)
    assert result.code != 0
    assert b"filled" not in result.stdout


def test_memory_of_many_processes():
    bounds = replace(SMALL, memory=48 << 20, disk=1 << 20, processes=8)
    hog = """
children = []
for _ in range(6):
    child = os.fork()
    if child == 0:
        block = bytearray(24 << 20)
        for at in range(0, len(block), 4096): block[at] = 1
        os.write(1, b"holds %d\\n" % os.getpid())
        time.sleep(60)
    children.append(child)
time.sleep(3)
for child in children:
    if os.waitpid(child, os.WNOHANG) == (0, 0): os.write(1, b"lives %d\\n" % child)
"""

    async def play(sandbox):
        if not sandbox.bounded_as_a_whole:
            pytest.skip("no control group can be made here: only each process is bounded")
        result = await sandbox.run([*PYTHON, "import os, time\n" + hog], timeout=20)
        (group,) = (g for g in sandbox._group.places if "memory" in str(g) or (g / "memory.max").exists())
        peak = next(p for p in (group / "memory.max_usage_in_bytes", group / "memory.peak") if p.exists())
        return result, int(peak.read_text())

    result, peak = within(play, bounds=bounds)
    said = [line.split() for line in result.stdout.splitlines()]
    held, living = ({pid for word, pid in said if word == which} for which in (b"holds", b"lives"))
    assert len(held & living) <= 2  # one that was killed makes room for the next: those that live share the memory
    assert bounds.memory / 2 <= peak <= bounds.memory + bounds.disk


def test_memory_that_no_limit_counts():
    tries = """
tried("memfd", lambda: os.memfd_create("x"))
tried("shmget", lambda: libc.shmget(0, 1 << 28, 0o1600))
tried("msgget", lambda: libc.msgget(0, 0o1600))
tried("semget", lambda: libc.semget(0, 100, 0o1600))
tried("mlock", lambda: libc.mlockall(3))
"""
    assert refused(code(TRIED + tries))


@pytest.mark.parametrize("place", ["/work", "/tmp", "/dev/shm"])
def test_disk(place):
    async def play(sandbox):
        await sandbox.run(f"for n in 1 2 3; do head -c 99999999 /dev/zero > {place}/$n; done")
        return await sandbox.run("du -sk /work /tmp /dev/shm | cut -f1")

    free = os.statvfs("/tmp").f_bavail * os.statvfs("/tmp").f_frsize
    kilobytes = [int(n) for n in within(play).stdout.split()]
    assert SMALL.disk * 0.9 < sum(kilobytes) * 1024 <= SMALL.disk
    assert free - os.statvfs("/tmp").f_bavail * os.statvfs("/tmp").f_frsize < SMALL.disk


def test_disk_by_a_file_that_has_no_name_any_more():
    source = """
file = open("/work/x", "wb")
os.unlink("/work/x")
n = 0
try:
    while True: n += file.write(bytes(1 << 20)); file.flush()
except OSError as error:
    print(n >> 20, error.errno)
"""
    megabytes, number = code(source).stdout.split()
    assert int(megabytes) <= SMALL.disk >> 20
    assert int(number) in (27, 28)


def test_entries():
    source = """
n = 0
try:
    while n < 100_000:
        open(f"/work/{n}", "w").close()
        n += 1
except OSError as error:
    print(n, error.errno)
"""
    made, number = code(source).stdout.split()
    assert SMALL.entries * 0.8 < int(made) < SMALL.entries
    assert int(number) == 28


def test_hard_links_and_folders_count_as_entries_or_are_bounded():
    source = "n = 0\ntry:\n    while n < 100_000: os.mkdir(f'/tmp/{n}'); n += 1\nexcept OSError as e: print(n, e.errno)"
    made, number = code(source).stdout.split()
    assert int(made) < SMALL.entries
    assert int(number) == 28


@pytest.mark.parametrize(
    "place", ["/", "/dev", "/run", "/usr/tmp", "/var/tmp", "/proc", "/etc", "/dev/pts", "/dev/mqueue"]
)
def test_memory_by_files_where_nothing_counts(place):
    assert shell(f"head -c 1000000 /dev/zero > {place}/fill").code != 0


@pytest.mark.parametrize("stream", ["", ">&2"], ids=["stdout", "stderr"])
@pytest.mark.parametrize(
    "line", ["yes", "cat /dev/zero", "while :; do printf '\\033[2J'; done"], ids=["lines", "zeros", "codes"]
)
def test_output_flood(line, stream):
    result = shell(f"{{ {line}; }} {stream}", bounds=SHORT)
    assert result.reached_limit in ("output", "time")
    assert len(result.stdout) + len(result.stderr) <= SMALL.output + 100


def test_long_output_keeps_both_ends_and_ends_well():
    result = shell("seq 100000")
    assert (result.code, result.reached_limit) == (0, "")
    assert result.stdout.startswith(b"1\n2\n3\n")
    assert result.stdout.endswith(b"\n99999\n100000\n")
    assert b"bytes left out" in result.stdout
    assert len(result.stdout) <= SMALL.output + 100 < FLOOD_FACTOR * SMALL.output


def test_open_files():
    source = "n, held = 0, []\ntry:\n    while n < 5000: held.append(os.open('/', 0)); n += 1\nexcept OSError: print(n)"
    assert int(code(source).stdout) < SMALL.files


def test_raises_its_own_limits():
    tries = """
import resource
def raised(limit, value):
    try:
        resource.setrlimit(limit, (value, value))
    except ValueError as error:
        raise OSError(error)
memory = "DATA" if resource.getrlimit(resource.RLIMIT_DATA)[1] != resource.RLIM_INFINITY else "AS"
for name in (memory, "NPROC", "NOFILE", "FSIZE", "CORE", "MEMLOCK", "MSGQUEUE", "RTPRIO"):
    limit = getattr(resource, "RLIMIT_" + name, 12)
    for value in (resource.RLIM_INFINITY, 1 << 40):
        tried(name, lambda: raised(limit, value))
tried("other", lambda: resource.prlimit(1, resource.RLIMIT_NPROC, (1 << 20, 1 << 20)))
"""
    assert refused(code(TRIED + tries))


def test_takes_the_processor_from_others():
    tries = """
tried("realtime", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
tried("nice", lambda: os.nice(-5))
"""
    assert refused(code(TRIED + tries))


def test_leaves_a_core_dump(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def play(sandbox):
        crash = await sandbox.run([*PYTHON, "import ctypes; ctypes.string_at(0)"])
        return crash, await sandbox.run("ulimit -c unlimited; sh -c 'kill -SEGV $$'; ls -A")

    crash, after = within(play)
    assert crash.code == 139
    assert b"core" not in after.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [200_000, 5_000_000])
def test_huge_arguments(size):
    async def play(sandbox):
        return await sandbox.run(["echo", "x" * size]), await sandbox.run(["echo"] + ["x" * 1000] * (size // 1000))

    first, second = within(play)
    assert first.code == 126
    assert second.code == (126 if size > 2_000_000 else 0)


def test_huge_arguments_inside():
    source = "try: os.execv('/bin/echo', ['x' * 10_000_000])\nexcept OSError as error: print(error.errno)"
    assert code(source).stdout == b"7\n"


def test_input_that_nobody_reads():
    assert within(lambda sandbox: sandbox.run("sleep 0", stdin=bytes(8 << 20))).code == 0


@pytest.mark.parametrize(
    "command",
    [
        "trap '' TERM INT HUP QUIT ALRM; while :; do :; done",
        "exec sleep 6000",
        "(trap '' TERM; sleep 6000) & wait",
        "setsid sh -c 'sleep 6000' & sleep 6000",
        "kill -STOP $$; sleep 6000",
        "exec >&- 2>&- <&-; sleep 6000",
    ],
    ids=["ignoring", "plain", "child", "session", "stopped", "silent"],
)
def test_time(command):
    word = token()
    result = shell(f": {word}; {command}", bounds=SHORT)
    assert (result.reached_limit, result.code) == ("time", 137)
    assert bearing(word) == []


@pytest.mark.parametrize(
    "command",
    [
        "sleep 6000 &",
        "nohup sleep 6000 &",
        "setsid sleep 6000 &",
        "(setsid sh -c 'sleep 6000 & sleep 6000' &) &",
        "trap '' TERM HUP; (while :; do sleep 0.01; done) &",
    ],
)
def test_something_that_outlives_its_command(command):
    word = token()

    async def play(sandbox):
        result = await sandbox.run(f"export WORD={word}; sh -c '{command.replace(chr(39), chr(34))}' {word}; echo over")
        return result, bearing(word)

    result, left = within(play)
    assert result.stdout == b"over\n"
    assert left == []


def test_a_daemon_goes_on_writing():
    daemon = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            with open("/work/beat", "a") as file: file.write("x")
    os._exit(0)
while not os.path.exists("/work/beat"): pass
"""

    async def play(sandbox):
        await sandbox.run([*PYTHON, "import os\n" + daemon])
        first = await sandbox.run("wc -c < beat")
        return first.stdout, (await sandbox.run("wc -c < beat")).stdout

    first, second = within(play)
    assert int(first) > 0
    assert first == second


def test_deep_folders_and_strange_names_harm_nobody():
    source = """
for n in range(300):
    os.mkdir("d" * 200); os.chdir("d" * 200)
os.chdir("/work")
open(b"\\xff\\xfe\\n\\x1b[31m", "w").close()
"""

    async def play(sandbox):
        made = await sandbox.run([*PYTHON, "import os\n" + source])
        listed = await sandbox.run("ls -a; find . | tail -1 | wc -c")
        fork = await sandbox.fork()
        await sandbox.undo()
        await fork.undo()
        await fork.close()
        return made, listed, await sandbox.run("ls -A | wc -l")

    made, listed, after = within(play)
    assert made.code == 0
    assert "\ufffd" in listed.text
    assert after.stdout == b"3\n"


def test_bounds_hold_for_a_fork_too():
    async def play(sandbox):
        await sandbox.write("file", b"x")
        fork = await sandbox.fork()
        try:
            await fork.run("head -c 99999999 /dev/zero > a; head -c 99999999 /dev/zero > b")
            return await fork.run("du -sk /work | cut -f1")
        finally:
            await fork.close()

    assert int(within(play).stdout) * 1024 <= SMALL.disk + 8192


def own_control_groups():
    return [
        p
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if " - cgroup" in line
        for p in Path(line.split(" ")[4]).rglob(f"wanderlust-{os.getpid()}-*")
    ]


def own_children():
    return {p for p in Path("/proc").glob("[0-9]*") if f"PPid:\t{os.getpid()}\n" in status_of(p)}


def status_of(process):
    try:
        return (process / "status").read_text()
    except OSError:
        return ""


def test_nothing_is_left_in_control_groups():
    shell("true")
    assert own_control_groups() == []


def test_a_cancelled_opening_leaves_nothing():
    async def cancelled(delay):
        opening = asyncio.create_task(open_sandbox(SMALL))
        await asyncio.sleep(delay)
        if opening.cancel():
            with pytest.raises(asyncio.CancelledError):
                await opening
            return True
        await (await opening).close()
        return False

    before = own_children()
    stopped = [asyncio.run(cancelled(0.004 * n)) for n in range(15)]
    assert any(stopped)
    assert own_control_groups() == []
    assert own_children() == before
