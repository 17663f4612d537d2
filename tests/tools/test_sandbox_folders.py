"""Whole folders into sandboxes and out of them, doors, and the users that sandboxes have for themselves."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import tarfile
import warnings
from pathlib import Path

import pytest
from tests.sandboxes import SMALL, TRIED, code, refused, within

from wanderlust.errors import SandboxFailure
from wanderlust.tools.sandbox import ContainerSandbox, LocalSandbox, NotIsolatedWarning, UnisolatedSandbox, users
from wanderlust.tools.sandbox.archives import unpack_folder
from wanderlust.tools.sandbox.bubblewrap import find_python


def anywhere(body):
    """What `body` makes of an isolated sandbox, and of one without isolation."""

    async def plainly():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotIsolatedWarning)
            sandbox = UnisolatedSandbox(SMALL)
        try:
            return await body(sandbox)
        finally:
            await sandbox.close()

    return [within(body), asyncio.run(plainly())]


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "file").write_bytes(b"\0data")
    (folder / "tool").write_text("#!/bin/sh\necho runs\n")
    (folder / "tool").chmod(0o755)
    (folder / "link").symlink_to("deep/er/file")
    return folder


def test_a_folder_goes_in_and_out(source, tmp_path):
    async def play(sandbox):
        await sandbox.put(source, "a/b")
        ran = await sandbox.run("a/b/tool; cat a/b/link | wc -c; echo new > a/b/new; mkfifo a/fifo; ln -s / a/root")
        target = tmp_path / f"target-{sandbox.isolated}"
        target.mkdir()
        await sandbox.get(target)
        return ran.stdout, {str(p.relative_to(target)): p.is_file() and p.read_bytes() for p in target.rglob("*")}

    for said, copied in anywhere(play):
        assert said == b"runs\n5\n"
        files = {name: data for name, data in copied.items() if data is not False}
        assert files == {
            "a/b/deep/er/file": b"\0data",
            "a/b/tool": b"#!/bin/sh\necho runs\n",
            "a/b/new": b"new\n",
        }


def test_a_folder_of_it_goes_out_with_its_executables(source, tmp_path):
    async def play(sandbox):
        await sandbox.put(source, "a")
        target = tmp_path / f"target-{sandbox.isolated}"
        target.mkdir()
        await sandbox.get(target, "a/deep")
        await sandbox.get(target, "a")
        return os.access(target / "tool", os.X_OK), (target / "er" / "file").exists()

    assert anywhere(play) == [(True, True)] * 2


@pytest.mark.parametrize("path", ["..", "/etc", "../../tmp/x", "link/x"])
def test_a_path_outside_is_refused(source, tmp_path, path):
    async def play(sandbox):
        await sandbox.run("ln -s / link")
        target = tmp_path / f"target-{sandbox.isolated}"
        target.mkdir()
        with pytest.raises(PermissionError):
            await sandbox.put(source, path)
        with pytest.raises((PermissionError, FileNotFoundError)):
            await sandbox.get(target, path)

    anywhere(play)


def test_a_folder_that_is_too_large_is_an_error(tmp_path):
    async def play(sandbox):
        await sandbox.run("truncate -s 15M a b c; mkdir missing-not")
        with pytest.raises(OSError, match="more than 1000000 bytes"):
            await sandbox.get(tmp_path, limit=1_000_000)
        with pytest.raises(FileNotFoundError):
            await sandbox.get(tmp_path, "missing")
        with pytest.raises(PermissionError):
            await sandbox.get(tmp_path, "a")

    within(play)


def archive(*members):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as made:
        for name, kind, link in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode = kind, link, 0o6777
            content = b"x" if kind == tarfile.REGTYPE else b""
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))
    return data.getvalue()


def test_a_hostile_archive_leaves_nothing_outside(tmp_path):
    outside, target = tmp_path / "outside", tmp_path / "target"
    outside.mkdir()
    target.mkdir()
    unpack_folder(
        archive(
            ("../outside/a", tarfile.REGTYPE, ""),
            (f"{outside}/b", tarfile.REGTYPE, ""),
            ("link", tarfile.SYMTYPE, str(outside)),
            ("link/c", tarfile.REGTYPE, ""),
            ("hard", tarfile.LNKTYPE, str(outside / "b")),
            ("device", tarfile.CHRTYPE, ""),
            ("fifo", tarfile.FIFOTYPE, ""),
            ("n" * 300, tarfile.REGTYPE, ""),
            ("twice", tarfile.REGTYPE, ""),
            ("twice", tarfile.REGTYPE, ""),
            ("twice/below", tarfile.REGTYPE, ""),
            ("good/file", tarfile.REGTYPE, ""),
        ),
        target,
    )
    assert list(outside.iterdir()) == []
    assert sorted(str(p.relative_to(target)) for p in target.rglob("*") if p.is_file()) == [
        "good/file",
        "link/c",
        "twice",
    ]
    assert (target / "good" / "file").stat().st_mode & 0o7777 == 0o755


def test_a_door_is_answered_here_and_reached_from_inside_alone():
    async def play(sandbox):
        with await sandbox.listen() as door, await sandbox.listen() as other:
            ports = [each.getsockname()[1] for each in (door, other)]
            inside = (
                "import socket, sys\n"
                "for port in sys.argv[1:]:\n"
                '    with socket.create_connection(("127.0.0.1", int(port)), 5) as s: print(s.recv(9))\n'
            )
            running = asyncio.create_task(sandbox.run([str(find_python()), "-c", inside, *map(str, ports)]))
            for each in (door, other):
                each.setblocking(False)
                connection, _ = await asyncio.get_running_loop().sock_accept(each)
                connection.sendall(b"hello")
                connection.close()
            said = (await running).stdout
            outside = [socket.socket().connect_ex(("127.0.0.1", port)) for port in ports]
            fork = await sandbox.fork()
            try:
                closed = await fork.run([str(find_python()), "-c", inside, str(ports[0])])
            finally:
                await fork.close()
            return said, outside, closed.code

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        said, outside, closed = within(play)
    assert said == b"b'hello'\nb'hello'\n"
    assert 0 not in outside
    assert closed != 0


def test_a_container_has_no_door():
    sandbox = ContainerSandbox("image", SMALL, engine="docker", name="none")
    with pytest.raises(SandboxFailure, match="has no door"):
        asyncio.run(sandbox.listen())


@pytest.mark.skipif(not users.is_root(), reason="only root hands out users")
def test_each_sandbox_is_a_user_of_its_own_and_a_fork_the_same():
    async def play():
        first, second = await LocalSandbox.open(SMALL), await LocalSandbox.open(SMALL)
        fork = await first.fork()
        uids = [sandbox._folder.user.uid for sandbox in (first, second, fork)]
        await first.close()
        third = await LocalSandbox.open(SMALL)
        uids.append(third._folder.user.uid)
        own = [sandbox.own_user for sandbox in (second, fork, third)]
        for sandbox in (second, fork, third):
            await sandbox.close()
        return uids, own

    (first, second, fork, third), own = asyncio.run(play())
    assert first == fork
    assert len({first, second, third}) == 3, "a user is given to another while a fork still has it"
    assert own == [True] * 3


@pytest.mark.skipif(not users.is_root(), reason="only root hands out users")
def test_without_a_free_user_a_sandbox_shares_one_and_says_so(monkeypatch):
    monkeypatch.setattr(users, "USER_ID_COUNT", 0)

    async def play(sandbox):
        return sandbox.own_user, sandbox._folder.user.uid

    assert within(play) == (False, users.UNPRIVILEGED_UID)
    with pytest.raises(SandboxFailure, match="too many sandboxes"), pytest.warns(NotIsolatedWarning):
        UnisolatedSandbox(SMALL)


@pytest.mark.skipif(not users.is_root(), reason="only root hands out users")
def test_a_sandbox_with_a_user_of_its_own_may_watch_files_within_the_kernels_bound():
    tries = TRIED + "tried('watch', lambda: libc.inotify_init1(0))"
    assert not refused(code(tries))
    many = "n = 0\nwhile ctypes.CDLL(None).inotify_init1(0) >= 0: n += 1\nprint(n)"
    assert 0 < int(code(many).stdout) <= int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())


def test_commands_are_in_every_group_of_their_sandbox():
    async def play(sandbox):
        if not sandbox._group.processor:
            pytest.skip("this process may not make groups that share the processor")
        await sandbox.start(["sleep", "60"])
        return [len((place / "cgroup.procs").read_text().split()) for place in sandbox._group.places]

    counts = within(play)
    assert len(counts) >= 1
    assert all(count >= 2 for count in counts)
