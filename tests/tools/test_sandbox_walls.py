"""Attempts to get out of the isolated sandbox: all fail, and the world outside shows it."""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import pty
import select
import shutil
import subprocess
import sys
import termios
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.sandboxes import SMALL, TRIED, bearing, code, everybody, refused, shell, token, within

from patience import PATIENCE
from project_files import ROOT
from wanderlust.tools.sandbox import LocalSandbox, users

IS_ROOT = os.geteuid() == 0


@pytest.fixture
def open_place(tmp_path):
    """A folder of this machine that everybody may read and write."""
    return everybody(tmp_path)


@pytest.fixture
def shared_user(monkeypatch):
    """The one user that all sandboxes have where there are none left for each."""
    monkeypatch.setattr(users, "USER_ID_COUNT", 0)
    return users.reserve_user()


@pytest.fixture
def victim(shared_user):
    """A process of this machine, of the very user that the sandbox's processes have outside."""
    process = subprocess.Popen([*shared_user.become_command(), "sleep", "600"])
    yield process
    assert process.poll() is None, "the sandbox has ended a process outside"
    process.kill()
    process.wait()


def test_reads_a_file_that_everybody_may_read(open_place):
    secret = token()
    (open_place / "file").write_text(secret)
    (open_place / "file").chmod(0o666)
    result = shell(f"cat {open_place}/file; ls -la {open_place}; find /tmp /mnt /work /dev -name file")
    assert secret not in result.text
    assert str(open_place) not in result.stdout.decode()


@pytest.mark.parametrize("path", ["/etc/shadow", "/root", "/home", "/var", "/run", "/sys", "/boot", "/proc/kcore"])
def test_reads_the_machines_own_places(path):
    assert shell(f"cat {path} || ls {path}/*").code != 0


def test_users_are_not_the_machines():
    names = set(shell("cut -d: -f1 /etc/passwd").stdout.decode().split())
    assert names == {"agent"}


def test_reads_secrets_from_environments(monkeypatch):
    secret = token()
    monkeypatch.setenv("API_KEY", secret)
    seen = shell("env; cat /proc/*/environ | tr '\\0' '\\n'").text
    assert "PATH=" in seen
    assert secret not in seen
    assert "API_KEY" not in seen


def test_sees_the_machines_processes(victim):
    seen = code("print(*(p for p in os.listdir('/proc') if p.isdigit())); print(open('/proc/1/cmdline').read())").text
    assert len(seen.split("\n")[0].split()) < 6
    assert str(victim.pid) not in seen.split("\n")[0].split()
    assert "/mnt" not in seen


def test_signals_the_parent_and_everybody(victim):
    result = shell(f"kill -9 {os.getpid()} {os.getppid()} {victim.pid}; kill -9 -1; kill -9 0")
    assert result.code != 0
    assert victim.poll() is None


def test_kills_the_sandboxes_own_first_process():
    assert shell("kill -9 1; kill -STOP 1; kill -TERM 1; echo alive").stdout == b"alive\n"


def test_stops_its_own_first_process_to_outlive_its_time():
    line = "kill -STOP -1; kill -STOP $$; sleep 6000"
    assert shell(line, bounds=replace(SMALL, seconds=2)).reached_limit == "time"


def test_traces_a_process_of_the_machine(victim):
    tries = f"""
tried("attach", lambda: libc.ptrace(16, {victim.pid}, 0, 0))
tried("seize", lambda: libc.ptrace(0x4206, {victim.pid}, 0, 0))
tried("own", lambda: libc.ptrace(0, 0, 0, 0))
tried("mem", lambda: open("/proc/{victim.pid}/mem", "rb"))
buffer = ctypes.create_string_buffer(8)
tried("readv", lambda: libc.process_vm_readv({victim.pid}, buffer, 1, buffer, 1, 0))
"""
    assert refused(code(TRIED + tries))
    assert "TracerPid:\t0" in Path(f"/proc/{victim.pid}/status").read_text()


def test_follows_magic_links_to_other_roots(open_place):
    secret = token()
    (open_place / "file").write_text(secret)
    result = shell(f"for p in /proc/[0-9]*; do ls $p/root/ $p/cwd/; cat $p/root{open_place}/file; done")
    assert secret not in result.text


def test_writes_where_everybody_may_write(open_place):
    shell(f"echo x > {open_place}/file; mkdir -p {open_place}; touch /tmp/wanderlust-{open_place.name} /var/tmp/x")
    assert list(open_place.iterdir()) == []
    assert not Path(f"/tmp/wanderlust-{open_place.name}").exists()


@pytest.mark.parametrize(
    "place", ["/usr/bin", "/usr/local/bin", "/etc", "/", "/dev", "/proc/sys/kernel", "/mnt", "/bin"]
)
def test_writes_to_the_system(place):
    name = token()
    assert shell(f"echo x > {place}/{name}").code != 0
    assert not Path(place, name).exists()


def test_changes_settings_of_the_kernel():
    before = Path("/proc/sys/kernel/core_pattern").read_text()
    assert shell("echo '|/work/x' > /proc/sys/kernel/core_pattern").code != 0
    assert shell("echo c > /proc/sysrq-trigger").code != 0
    assert Path("/proc/sys/kernel/core_pattern").read_text() == before


def test_makes_the_system_writable():
    name = token()
    shell(f"mount -o remount,rw /usr; mount -o remount,rw /; umount /usr; touch /usr/{name} /{name}")
    assert not Path("/usr", name).exists()


def test_writes_to_what_is_shown_to_it(open_place):
    shown = open_place / "shown"
    shown.mkdir(mode=0o777)
    shown.chmod(0o777)
    (shown / "file").write_text("before")
    (shown / "file").chmod(0o666)
    result = shell(f"cat {shown}/file; echo x > {shown}/file; rm {shown}/file; touch {shown}/new", readable=(shown,))
    assert result.stdout == b"before"
    assert [(p.name, p.read_text()) for p in shown.iterdir()] == [("file", "before")]


def test_uses_inherited_file_descriptors(tmp_path):
    secret = token()
    (tmp_path / "file").write_text(secret)
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    with open(tmp_path / "file") as file:
        os.set_inheritable(file.fileno(), True)
        os.set_inheritable(writer, True)
        result = code(
            "for fd in range(3, 300):\n"
            "    for act in (lambda: os.lseek(fd, 0, 0), lambda: os.write(fd, b'x'), lambda: print(os.read(fd, 99))):\n"
            "        try: act()\n"
            "        except OSError: pass\n"
            "print(os.listdir('/proc/self/fd'), os.listdir('/proc/1/fd'))"
        )
    assert secret not in result.text
    assert result.stdout.splitlines()[-1].count(b"'") <= 16
    with pytest.raises(BlockingIOError):
        os.read(reader, 1)
    os.close(reader)
    os.close(writer)


@pytest.mark.skipif(not IS_ROOT, reason="only root can make a setuid program of root's")
def test_gains_root_by_a_setuid_program(open_place):
    program = open_place / "id"
    shutil.copy("/usr/bin/id", program)
    program.chmod(0o4755)
    result = shell(
        f"{program} -u; cp {program} mine; chmod u+s mine; ./mine -u; su -c id; grep NoNewPrivs /proc/self/status",
        readable=(open_place,),
    )
    assert result.stdout.decode().split() == ["1000", "1000", "NoNewPrivs:", "1"]


def test_becomes_somebody_else():
    tries = "".join(f"tried('{call}', lambda: os.{call}(0))\n" for call in ("setuid", "setgid", "seteuid", "setegid"))
    tries += "tried('groups', lambda: os.setgroups([0]))\ntried('chown', lambda: os.chown('/work', 0, 0))\n"
    assert refused(code(TRIED + tries))


def test_holds_a_capability():
    seen = shell("grep ^Cap /proc/self/status").text.split()
    assert set(seen[1::2]) == {"0000000000000000"}


def test_mounts_something():
    tries = """
tried("tmpfs", lambda: libc.mount(b"x", b"/work", b"tmpfs", 0, None))
tried("proc", lambda: libc.mount(b"x", b"/work", b"proc", 0, None))
tried("bind", lambda: libc.mount(b"/usr", b"/work", None, 4096, None))
tried("umount", lambda: libc.umount2(b"/usr", 2))
tried("pivot", lambda: libc.syscall(155, b"/", b"/work"))
tried("fsopen", lambda: libc.syscall(430, b"tmpfs", 0))
"""
    assert refused(code(TRIED + tries))


@pytest.mark.parametrize("kind", ["--user", "--mount", "--net", "--pid --fork", "--user --map-root-user --mount"])
def test_makes_namespaces(kind):
    assert shell(f"unshare {kind} id").stdout == b""


def test_makes_a_namespace_with_clone():
    tries = (
        "for f in (0x10000000, 0x20000, 0x40000000):\n    tried(hex(f), lambda: libc.syscall(56, f | 17, 0, 0, 0, 0))"
    )
    if platform.machine() != "x86_64":
        pytest.skip("numbers of x86-64")
    assert refused(code(TRIED + tries))


def test_makes_a_sandbox_in_the_sandbox():
    assert shell("bwrap --bind / / --unshare-user id").stdout == b""


def test_enters_namespaces():
    assert shell("for n in user mnt net pid; do nsenter --$n=/proc/1/ns/$n id; done").stdout == b""


def test_makes_or_opens_devices():
    tries = """
tried("disk", lambda: os.mknod("/work/disk", 0o60666, os.makedev(254, 0)))
tried("memory", lambda: os.mknod("/work/mem", 0o20666, os.makedev(1, 1)))
for name in ("vda", "sda", "mem", "kmsg", "kvm", "vsock", "fuse", "loop0", "net/tun", "console", "tty0"):
    tried(name, lambda: open("/dev/" + name, "rb"))
"""
    assert refused(code(TRIED + tries))


KEYCTL, ADD_KEY, REQUEST_KEY = {"x86_64": (250, 248, 249), "aarch64": (219, 217, 218)}.get(
    platform.machine(), (0, 0, 0)
)


def test_uses_the_machines_keyrings():
    secret, name = token(), token()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(KEYCTL, 1, None)  # A session keyring of our own, so that the key goes with this process.
    key = libc.syscall(ADD_KEY, b"user", name.encode(), secret.encode(), len(secret), -3)
    if key < 0:
        pytest.skip("this kernel keeps no keys")
    tries = f"""
buffer = ctypes.create_string_buffer(100)
tried("read", lambda: libc.syscall({KEYCTL}, 11, {key}, buffer, 100))
tried("link", lambda: libc.syscall({KEYCTL}, 8, {key}, -2))
tried("search", lambda: libc.syscall({REQUEST_KEY}, b"user", {name.encode()!r}, None, 0))
tried("leave", lambda: libc.syscall({ADD_KEY}, b"user", b"left-{name}", b"x", 1, -4))
print(buffer.raw, open("/proc/keys").read())
"""
    result = code(TRIED + tries)
    assert refused(result)
    assert secret not in result.text
    if IS_ROOT:  # the agent is another user then; the same user's keys are listed by name, and can only not be used
        assert name not in result.stdout.decode().rsplit("tried", 1)[1].split("\n", 1)[1]
    assert f"left-{name}" not in Path("/proc/keys").read_text()
    libc.syscall(KEYCTL, 3, key)


TYPING = """
import asyncio, fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.path[:0] = {path!r}
from tests.sandboxes import TRIED, code
tries = '''
import fcntl, termios
for fd in (0, 1, 2):
    tried(fd, lambda: [fcntl.ioctl(fd, termios.TIOCSTI, bytes([c])) for c in b"reboot"])
tried("tty", lambda: os.open("/dev/tty", os.O_RDWR))
tried("linux", lambda: fcntl.ioctl(0, termios.TIOCLINUX, bytes([3])))
master, slave = os.openpty()
tried("own", lambda: fcntl.ioctl(slave, termios.TIOCSTI, b"x"))
'''
result = code(TRIED + tries)
print(result.text, file=sys.stderr)
"""


def test_types_into_the_terminal_of_this_process():
    master, slave = pty.openpty()
    attributes = termios.tcgetattr(slave)
    attributes[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    script = TYPING.format(path=[str(ROOT)])
    done = subprocess.run([sys.executable, "-c", script], stdin=slave, capture_output=True, text=True, check=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("tried")]
    assert len(lines) == 6
    assert all(line.endswith("refused") for line in lines)
    waiting = fcntl.ioctl(slave, termios.FIONREAD, b"\0\0\0\0")
    assert waiting == b"\0\0\0\0"
    os.close(master)
    os.close(slave)


def test_links_a_file_of_the_system_into_the_folder():
    before = os.stat("/usr/bin/env").st_nlink
    assert refused(
        code(TRIED + "for p in ('/usr/bin/env', '/etc/passwd'):\n    tried(p, lambda: os.link(p, '/work/linked'))")
    )
    assert os.stat("/usr/bin/env").st_nlink == before


@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of x86-64")
def test_goes_around_the_filter():
    tries = """
tried("x32 keyctl", lambda: libc.syscall(0x40000000 | 250, 0, -3, 0))
tried("bpf", lambda: libc.syscall(321, 0, 0, 0))
tried("perf", lambda: libc.syscall(298, 0, 0, -1, -1, 0))
tried("io_uring", lambda: libc.syscall(425, 8, ctypes.create_string_buffer(200)))
tried("userfaultfd", lambda: libc.syscall(323, 0))
tried("handle", lambda: libc.syscall(304, -100, ctypes.create_string_buffer(200), 0))
tried("module", lambda: libc.syscall(313, 0, b"", 0))
tried("kexec", lambda: libc.syscall(246, 0, 0, None, 0))
tried("clock", lambda: time.clock_settime(0, 0))
"""
    assert refused(code(TRIED + tries))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of x86-64")
@pytest.mark.usefixtures("shared_user")
def test_takes_what_the_kernel_counts_per_user_from_neighbours_that_are_the_same_user():
    tries = """
tried("inotify_init", lambda: libc.syscall(253))
tried("inotify_init1", lambda: libc.syscall(294, 0))
tried("fanotify", lambda: libc.syscall(300, 0, 0))
"""
    assert refused(code(TRIED + tries))
    assert shell("echo x > f; timeout 1 tail -f f; true").stdout == b"x\n"  # falls back to polling


def test_calls_the_kernel_as_another_processor_would():
    if platform.machine() != "x86_64":
        pytest.skip("code of x86-64")
    source = """
import mmap
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20; int 0x80 (getpid of the 32-bit table); ret
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())
"""
    result = code(source)
    assert result.stdout == b""
    assert result.code > 128


def test_renames_the_machine():
    assert refused(code(TRIED + "tried('name', lambda: socket.sethostname('gone'))"))
    assert shell("hostname").stdout == b"sandbox\n"


def test_sees_or_reaches_another_sandbox():
    secret = token()

    async def play(sandbox):
        other = await LocalSandbox.open(SMALL)
        try:
            await other.write("file", secret.encode())
            running = await other.start(["sleep", "60"])
            seen = await sandbox.run("ls -la / /work /tmp /dev/shm; cat /work/*; kill -9 -1; ls /proc; mount")
            assert running.alive
            return seen
        finally:
            await other.close()

    result = within(play)
    assert secret not in result.text
    assert "sleep" not in result.text


def test_stays_after_its_parent_was_killed():
    word = token()
    script = (
        "import asyncio, sys\n"
        f"sys.path[:0] = {[str(ROOT)]!r}\n"
        "from tests.sandboxes import SMALL\n"
        "from wanderlust.tools.sandbox import LocalSandbox\n"
        "async def main():\n"
        "    sandbox = await LocalSandbox.open(SMALL)\n"
        f"    await sandbox.start(['sh', '-c', 'setsid sleep 600 {word} & echo ready; sleep 600', '{word}'])\n"
        "    child = await sandbox.start(['sh', '-c', 'echo up; sleep 600', 'x'])\n"
        "    from wanderlust.tools.process import wait_readable\n"
        "    await wait_readable(child.stdout)\n"
        "    print(sandbox._folder._popen.pid, flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    keeper = int(parent.stdout.readline())
    watching = []
    for pid in {keeper, *bearing(word)} - {parent.pid}:
        with suppress(ProcessLookupError):  # what has started another and gone
            watching.append(os.pidfd_open(pid))
    assert len(watching) >= 3
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for fd in watching:
        with os.fdopen(fd) as file:
            assert ended(file.fileno())
    assert bearing(word) == []


def ended(pidfd, seconds=PATIENCE):
    """Whether the process ends in time."""
    return bool(select.select([pidfd], [], [], seconds)[0])
