"""The folder of a sandbox: paths that try to leave it, and taking it apart and back by fork and undo."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.sandboxes import SMALL, bearing, token, within

from wanderlust.errors import UsageError
from wanderlust.tools.sandbox import LocalSandbox, UnisolatedSandbox, open_sandbox
from wanderlust.tools.sandbox.overlay import MAX_OVERLAY_LAYERS


def plain(body):
    """What `body` makes of a fresh sandbox that isolates nothing."""

    async def play():
        with pytest.warns(UserWarning, match="NOT ISOLATED"):
            sandbox = UnisolatedSandbox(SMALL)
        try:
            return await body(sandbox)
        finally:
            await sandbox.close()

    return asyncio.run(play())


KINDS = pytest.mark.parametrize("within", [within, plain], ids=["local", "plain"])

OUTSIDE = [
    "../file", "../../etc/passwd", "/etc/passwd", "/", "..", "a/../../file", "/work/../etc/passwd", "/workshop/file",
    "/work/../workshop/x", "/proc/self/environ", "/proc/self/root/etc/passwd", "/proc/1/cwd/../../etc/hosts",
    "/dev/stdin", "/tmp/file", "/../../..//etc/hosts", "./../tmp/x", "~/../../etc/hosts/", "/dev/shm/x",
]  # fmt: skip


@KINDS
@pytest.mark.parametrize("path", OUTSIDE)
def test_a_path_that_leaves_the_folder(within, path):
    async def play(sandbox):
        with pytest.raises(OSError, match=r"leaves the folder|no such file"):
            await sandbox.read(path)
        with pytest.raises(PermissionError):
            await sandbox.write(path, b"x")

    before = Path("/etc/passwd").read_bytes()
    within(play)
    assert Path("/etc/passwd").read_bytes() == before


@KINDS
def test_a_link_that_leaves_the_folder(within, tmp_path):
    secret = token()
    (tmp_path / "file").write_text(secret)
    for folder in (tmp_path, *list(tmp_path.parents)[:-2]):
        folder.chmod(0o777)
    (tmp_path / "file").chmod(0o666)

    async def play(sandbox):
        await sandbox.run(
            f"ln -s {tmp_path}/file link; ln -s {tmp_path} folder; ln -s . here; ln -s ../.. up; ln -s link two"
        )
        for path in ("link", "folder/file", "up/etc/passwd", "here/link", "two", "here/up/tmp/x"):
            with pytest.raises(OSError, match=r"leaves|no such|not to be opened"):
                assert secret.encode() not in await sandbox.read(path)
            with pytest.raises(OSError, match=r"leaves|no such|not to be opened"):
                await sandbox.write(path, b"x")
        with pytest.raises(OSError, match=r"leaves|no such|not to be opened"):
            await sandbox.write("folder/new", b"x")

    within(play)
    assert (tmp_path / "file").read_text() == secret
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@KINDS
def test_what_is_no_regular_file(within):
    async def play(sandbox):
        await sandbox.run("mkfifo fifo; mkdir folder; ln -s /dev/zero zero; ln -s loop loop")
        for path in ("fifo", "folder", "zero", "loop"):
            with pytest.raises(OSError, match=r"regular|leaves|no such|not to be opened"):
                await sandbox.read(path)
            with pytest.raises(OSError, match=r"regular|leaves|no such|not to be opened|cannot|Too many"):
                await sandbox.write(path, b"x")

    within(play)


STRANGE = [
    "-n",
    "--help",
    "a b",
    "$(touch pwned)",
    "`id`",
    "; id",
    "a\nb",
    "a\n",
    " ",
    "'",
    '"',
    "ż😀",
    "*",
    "x/-/y",
    "\\",
    "..a",
]


@KINDS
@pytest.mark.parametrize("path", STRANGE)
def test_a_strange_name_is_a_name(within, path):
    async def play(sandbox):
        await sandbox.write(path, b"one\0two")
        assert await sandbox.read(path) == b"one\0two"
        await sandbox.write(path, b"short")
        return await sandbox.read(path), await sandbox.read(path, limit=2), await sandbox.run("ls -A | wc -l; ls pwned")

    whole, part, listed = within(play)
    assert (whole, part) == (b"short", b"sh")
    assert int(listed.stdout) == len(path.split("\n")) if "\n" in path else 1


@KINDS
@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", "x" * 5000, "nothing", "no/thing", "x" * 300])
def test_a_name_that_cannot_be(within, path):
    async def play(sandbox):
        with pytest.raises(OSError, match=r"no such|not to be opened|File name too long"):
            await sandbox.read(path)

    within(play)


@KINDS
def test_every_byte_comes_back(within):
    data = bytes(range(256)) * 4096

    async def play(sandbox):
        await sandbox.write("deep/er/file", data)
        return await sandbox.read("deep/er/file", limit=2 << 20), await sandbox.run("wc -c < deep/er/file; rm -r deep")

    content, result = within(play)
    assert content == data
    assert (result.code, int(result.stdout)) == (0, len(data))


def test_a_file_that_does_not_fit():
    async def play(sandbox):
        with pytest.raises(OSError, match=r"No space left|File too large|File size limit"):
            await sandbox.write("file", bytes(SMALL.disk + 1))
        return await sandbox.run("rm file; echo alive")

    assert within(play).stdout == b"alive\n"


def local_by_copy(body):
    async def play():
        sandbox = await LocalSandbox.open(SMALL, overlay=False)
        try:
            return await body(sandbox)
        finally:
            await sandbox.close()

    return asyncio.run(play())


FORKS = pytest.mark.parametrize("within", [within, local_by_copy, plain], ids=["overlay", "copy", "plain"])
LIST = "find . -mindepth 1 | sort | tr '\\n' ' '; cat * 2>/dev/null"


@FORKS
def test_a_fork_and_its_origin_are_independent(within):
    async def play(sandbox):
        await sandbox.run("mkdir d; echo one > d/f; echo same > kept; ln -s kept link; chmod 750 kept")
        fork = await sandbox.fork()
        try:
            await sandbox.run("echo two > d/f; echo new > here")
            await fork.run("rm -r d; echo new > there")
            return (await sandbox.run(LIST)).text, (await fork.run(LIST + "; stat -c %a kept")).text
        finally:
            await fork.close()

    mine, other = within(play)
    assert mine == "./d ./d/f ./here ./kept ./link new\nsame\nsame\n"
    assert other == "./kept ./link ./there same\nsame\nnew\n750\n"


@FORKS
def test_undo_goes_back_to_the_last_fork_or_the_beginning(within):
    async def play(sandbox):
        seen = []
        await sandbox.run("echo one > f; mkdir d; touch d/x")
        await sandbox.undo()
        seen.append((await sandbox.run(LIST)).text)
        await sandbox.run("echo one > f; mkdir d; touch d/x")
        fork = await sandbox.fork()
        for each in (sandbox, fork):
            await each.run("echo two > f; rm -r d; mkdir d; touch d/y g")
            await each.undo()
            seen.append((await each.run(LIST)).text)
            await each.undo()
            seen.append((await each.run(LIST)).text)
        await fork.close()
        return seen

    assert within(play) == ["", *["./d ./d/x ./f one\n"] * 4]


@FORKS
def test_a_fork_outlives_its_origin_and_siblings_start_equal(within):
    async def play(sandbox):
        await sandbox.write("file", b"start")
        forks = [await sandbox.fork() for _ in range(4)]
        await sandbox.close()
        for n, fork in enumerate(forks):
            await fork.run(f"echo {n} >> file")
        seen = [await fork.read("file") for fork in forks]
        for fork in forks:
            await fork.close()
        return seen

    assert within(play) == [b"start%d\n" % n for n in range(4)]


def test_a_long_line_of_forks_keeps_everything_and_stays_shallow():
    async def play(sandbox):
        await sandbox.write("first", b"x")
        for n in range(2 * MAX_OVERLAY_LAYERS + 3):
            fork = await sandbox.fork()
            await sandbox.close()
            sandbox = fork
            await sandbox.run(f"touch f{n}")
        listed = await sandbox.run("ls | wc -l; cat first")
        depth = len(sandbox._folder._lowers)
        await sandbox.undo()
        after = await sandbox.run("ls | wc -l")
        await sandbox.close()
        return listed, depth, after

    listed, depth, after = within(play)
    assert listed.stdout.split() == [str(2 * MAX_OVERLAY_LAYERS + 4).encode(), b"x"]
    assert depth <= MAX_OVERLAY_LAYERS
    assert int(after.stdout) == 2 * MAX_OVERLAY_LAYERS + 3


def test_fork_and_undo_refuse_while_a_command_runs():
    async def play(sandbox):
        running = asyncio.create_task(sandbox.run("cat; sleep 60"))
        await asyncio.sleep(0)
        for action in (sandbox.fork, sandbox.undo):
            with pytest.raises(UsageError, match="still runs 1 command"):
                await action()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await sandbox.undo()

    within(play)


def test_a_closed_sandbox_says_so():
    async def play(sandbox):
        await sandbox.close()
        await sandbox.close()
        for action in (sandbox.run("true"), sandbox.fork(), sandbox.undo(), sandbox.read("x"), sandbox.start("true")):
            with pytest.raises(UsageError, match="closed"):
                await action

    within(play)


def test_a_cancelled_closing_gives_back_every_program():
    """Whenever the cancellation comes, none of the started programs keeps its pipes."""

    async def play():
        for n in range(12):
            sandbox = await open_sandbox(bounds=SMALL)
            children = [await sandbox.start(["sleep", "60"]) for _ in range(3)]
            with suppress(TimeoutError):
                async with asyncio.timeout(0.0005 * n):
                    await sandbox.close()
            await sandbox.close()
            assert [child.closed for child in children] == [True] * 3, n

    asyncio.run(play())


def test_cancelling_a_command_ends_it_and_leaks_nothing():
    word = token()

    async def play(sandbox):
        await sandbox.run("true")
        before = sorted(os.listdir("/proc/self/fd"))
        for n in range(40):  # From before bubblewrap starts to after the command does.
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.0015 * n):
                    await sandbox.run(["sh", "-c", "sleep 60; :", word])
        assert bearing(word) == []
        assert sorted(os.listdir("/proc/self/fd")) == before
        for group in sandbox._group.places:
            assert (group / "cgroup.procs").read_text() == ""
        return [int((await sandbox.run(f"echo {n} > {n}; cat {n}")).stdout) for n in range(8)]

    assert within(play, bounds=replace(SMALL, processes=8)) == list(range(8))
