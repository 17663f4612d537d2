"""Which sandbox a machine gives: the isolated one, none, a plain one that says so, or an engine's container."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from tests.container_image import IMAGE
from tests.sandboxes import SMALL, bearing, token

from project_files import ROOT
from wanderlust.errors import SandboxFailure, UsageError
from wanderlust.tools.sandbox import (
    ContainerSandbox,
    LocalSandbox,
    NotIsolatedWarning,
    PythonSession,
    SandboxTools,
    UnisolatedSandbox,
    WritableContainer,
    open_sandbox,
    seccomp,
)
from wanderlust.tools.sandbox.bubblewrap import find_python
from wanderlust.tools.sandbox.docker import build_run_arguments


def test_this_machine_isolates():
    async def play():
        sandbox = await open_sandbox(SMALL)
        result = await sandbox.run("echo here")
        await sandbox.close()
        return sandbox.isolated, result

    isolated, result = asyncio.run(play())
    assert isolated
    assert (result.stdout, result.isolated) == (b"here\n", True)


CLOSED = """
import asyncio, json, sys, warnings
sys.path.insert(0, {root!r})
from tests.sandboxes import SMALL
from wanderlust.errors import SandboxFailure
from wanderlust.tools.sandbox import open_sandbox
async def main():
    try:
        await open_sandbox(SMALL)
    except SandboxFailure as error:
        why = str(error)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        sandbox = await open_sandbox(SMALL, isolation="preferred")
    result = await sandbox.run("echo ran")
    await sandbox.close()
    print(json.dumps([why, [str(w.message) for w in said], sandbox.isolated, result.isolated, result.text]))
asyncio.run(main())
"""


def without(words: list[str]) -> list:
    script = CLOSED.format(root=str(ROOT))
    done = subprocess.run([*words, sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_closed_user_namespaces_are_said_and_never_passed_over(tmp_path):
    shut = ["unshare", "--user", "--map-root-user", "sh", "-c"]
    shut += ['echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"', "sh"]
    why, said, isolated, result, text = without(shut)
    assert "no isolation on this machine" in why
    assert "\n" not in why
    assert len(said) == 1
    assert said[0].startswith("NOT ISOLATED")
    assert (isolated, result, text) == (False, False, "ran\n")


def test_missing_bubblewrap_is_named(monkeypatch, tmp_path):
    for tool in ("nsenter", "unshare", "prlimit", "setpriv"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxFailure, match=r"not installed: bwrap .*bubblewrap"):
        asyncio.run(open_sandbox(SMALL))
    with pytest.raises(UsageError, match="'required' or 'preferred'"):
        asyncio.run(open_sandbox(SMALL, isolation="maybe"))


@pytest.mark.skipif(os.geteuid() != 0, reason="already an ordinary user")
def test_an_ordinary_user_gets_the_same_walls(tmp_path):
    script = f"""
import sys; sys.path[:0] = {[str(ROOT), str(ROOT / "src"), *sys.path]!r}
from tests.sandboxes import shell, code, TRIED, refused
import os
print(os.geteuid(), shell("id -u; kill -9 {os.getpid()}; echo x > f; cat f; (setsid sleep 60 &); ls /root").stdout)
bomb = "n = 0\\ntry:\\n  while n < 99:\\n    if os.fork() == 0: time.sleep(9); os._exit(0)\\n    n += 1\\n"
print(code(bomb + "except OSError: print(n)").text)
print(shell("sleep 9", bounds=__import__("tests.sandboxes").sandboxes.SMALL.__class__(seconds=0.5)).reached_limit)
"""
    place = shutil.copytree(ROOT / "src", tmp_path / "src")
    shutil.copytree(ROOT / "tests", tmp_path / "tests")
    script = script.replace(repr(str(ROOT)), repr(str(tmp_path))).replace(repr(str(ROOT / "src")), repr(str(place)))
    for folder in (tmp_path, *list(tmp_path.parents)[:-2]):
        folder.chmod(0o755)
    words = ["setpriv", "--reuid=40123", "--regid=40123", "--clear-groups", str(find_python()), "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd="/", env={"PATH": os.environ["PATH"]})
    if "No module named" in done.stderr or "mismatch" in done.stderr:
        pytest.skip(f"the Python that everybody may run cannot run this project: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.split("\n")[:2]
    assert first == "40123 b'1000\\nx\\n'"
    assert 5 < int(second) < SMALL.processes
    assert done.stdout.split()[-1] == "time"


@pytest.fixture
def plain():
    with pytest.warns(NotIsolatedWarning, match="NOT ISOLATED"):
        sandbox = UnisolatedSandbox(SMALL)
    yield sandbox
    asyncio.run(sandbox.close())


def test_plain_bounds_and_ends_what_it_starts(plain):
    word = token()

    async def play():
        late = await plain.run(f"(setsid sh -c 'sleep 600 {word}' &) ; trap '' TERM; : {word}; sleep 600", timeout=1)
        after = await plain.run(f"(setsid sh -c 'sleep 600; : {word}' >/dev/null 2>&1 &); echo over")
        memory = await plain.run([str(find_python()), "-c", "bytearray(1 << 30)"])
        return late, after, memory

    late, after, memory = asyncio.run(play())
    assert (late.reached_limit, late.isolated) == ("time", False)
    assert (after.stdout, after.isolated) == (b"over\n", False)
    assert b"MemoryError" in memory.stderr
    assert bearing(word) == []


def test_plain_hides_the_environment_and_root(plain, monkeypatch):
    secret = token()
    monkeypatch.setenv("API_KEY", secret)
    result = asyncio.run(plain.run("env; id -u"))
    assert secret not in result.text
    assert result.stdout.split()[-1] != b"0"


def test_plain_sandboxes_of_other_processes_live_on(plain):
    """Each ends its processes by their user, so no two of a machine may have the same one."""
    program = (
        "import asyncio, sys\n"
        "from wanderlust.tools.sandbox import UnisolatedSandbox\n"
        "async def play():\n"
        "    for _ in range(5):\n"
        "        sandbox = UnisolatedSandbox()\n"
        "        done = await sandbox.run('sleep 0.1; id -u')\n"
        "        print(done.code, done.stdout.decode().strip(), flush=True)\n"
        "        await sandbox.close()\n"
        "asyncio.run(play())\n"
    )
    words = [sys.executable, "-W", "ignore", "-c", program]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    lines = [line.split() for one in both for line in one.communicate()[0].splitlines()]
    assert [code for code, _ in lines] == ["0"] * 20
    if os.geteuid() == 0:
        assert str(plain._user) not in [user for _, user in lines]


def test_plain_plays_sessions_and_leaves_no_folder(plain):
    async def play():
        session = PythonSession(plain, python=str(find_python()))
        seen = [(await session.run(source)).output for source in ("x = 1", "x + 1")]
        await session.close()
        return seen

    assert asyncio.run(play()) == ["", "2\n"]
    place = plain._place
    asyncio.run(plain.close())
    assert not place.exists()


def test_the_filter_knows_the_kernels_own_numbers():
    headers = {
        "x86_64": ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"],
        "aarch64": ["/usr/include/asm-generic/unistd.h"],
    }
    checked = 0
    for machine, paths in headers.items():
        for path in filter(os.path.exists, paths):
            text = Path(path).read_text()
            known = {n: int(v) for n, v in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
            mine = seccomp._REFUSED[machine]
            assert {name: known[name] for name in mine if name in known} == {
                n: v for n, v in mine.items() if n in known
            }
            checked += 1
    if not checked:
        pytest.skip("no kernel headers: apt-get install linux-libc-dev")


def test_a_processor_without_a_filter_is_refused():
    with pytest.raises(UsageError, match="no system call filter for 'riscv64'"):
        seccomp.program("riscv64")
    assert len(seccomp.program("x86_64")) % 8 == len(seccomp.program("aarch64")) % 8 == 0
    assert platform.machine() in ("x86_64", "aarch64")


def test_a_container_is_asked_for_with_every_wall():
    words = build_run_arguments("image", SMALL)
    for wall in ("--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--pull=never"):
        assert wall in words
    assert f"--pids-limit={SMALL.processes}" in words
    assert words[-2:] == ["image", "2147483647"]
    assert "nr_inodes" not in str(build_run_arguments("image", SMALL, engine="podman"))  # which refuses the word


def test_a_missing_engine_or_daemon_is_one_line():
    with pytest.raises(SandboxFailure, match="'no-such-engine' is not installed"):
        asyncio.run(ContainerSandbox.open("image", engine="no-such-engine"))
    if shutil.which("docker"):
        with pytest.raises(SandboxFailure, match=r"^docker run: [^\n]+$"):
            asyncio.run(ContainerSandbox.open("wanderlust-no-such-image", engine="docker"))


def test_a_real_container(engine):
    async def play():
        bounds = replace(SMALL, seconds=60)  # on a busy machine a container answers late
        sandbox = await ContainerSandbox.open(IMAGE, bounds, engine=engine)
        try:
            await sandbox.write("d/file", b"one")
            fork = await sandbox.fork()
            await sandbox.run("echo two > d/file")
            seen = [await sandbox.read("d/file"), await fork.read("d/file")]
            await sandbox.undo()
            seen.append(await sandbox.read("d/file"))
            await fork.close()
            late = await sandbox.run("(setsid sleep 600 &); sleep 600", timeout=1)
            left = await sandbox.run("cat /proc/[0-9]*/comm; cat /proc/net/dev | tail -n +3 | cut -d: -f1")
            return seen, late, left
        finally:
            await sandbox.close()

    with warnings.catch_warnings():
        seen, late, left = asyncio.run(play())
    assert seen == [b"one".replace(b"one", b"two\n"), b"one", b"one"]
    assert late.reached_limit == "time"
    assert left.text.count("sleep") <= 1
    assert left.text.split()[-1] == "lo"


@pytest.mark.proof("containers")
def test_a_writable_container_is_forked_and_taken_back(engine):
    async def play():
        sandbox = await WritableContainer.open(IMAGE, SMALL, engine=engine)
        try:
            await sandbox.run("echo one > /etc/file")
            fork = await sandbox.fork()
            again = await fork.fork()
            await sandbox.run("echo two > /etc/file")
            await fork.run("rm /etc/file")
            seen = [(await one.run("cat /etc/file")).text for one in (sandbox, fork, again)]
            await sandbox.undo()
            await fork.undo()
            seen += [(await one.run("cat /etc/file")).text for one in (sandbox, fork)]
            third = await sandbox.fork()
            tags = {tag for one in (sandbox, fork, again, third) for tag in one._kept}
            for one in (fork, again, third):
                await one.close()
            late = await sandbox.run("(setsid sleep 600 &); sleep 600", timeout=1)
            left = await sandbox.run("cat /proc/[0-9]*/comm; id -u")
            return seen, late, left.text, tags
        finally:
            await sandbox.close()

    seen, late, left, tags = asyncio.run(play())
    assert seen[0] == "two\n"
    assert "No such file" in seen[1]
    assert seen[2:] == ["one\n"] * 3
    assert late.reached_limit == "time"
    assert left.count("sleep") <= 1
    assert left.endswith("\n0\n")
    kept = subprocess.run([engine, "images", "--format", "{{.Repository}}"], capture_output=True, text=True, check=True)
    assert len(tags) == 6
    assert not [tag for tag in tags if tag in kept.stdout]


OPENED = {
    "async with": lambda: open_sandbox(SMALL, isolation="preferred"),
    "local": lambda: LocalSandbox.open(SMALL),
}


@pytest.mark.parametrize("opened", OPENED)
def test_what_is_opened_is_closed_at_the_end_of_the_block(opened: str) -> None:
    async def work() -> None:
        async with OPENED[opened]() as sandbox:
            assert (await sandbox.run("echo hi")).stdout == b"hi\n"
        with pytest.raises(UsageError):
            await sandbox.run("echo hi")
        async with await OPENED[opened]() as sandbox, SandboxTools(sandbox) as tools:
            assert await tools.bash("echo hi") == "hi"
        with pytest.raises(UsageError):
            await sandbox.run("echo hi")
        kept = await asyncio.create_task(OPENED[opened]())
        await kept.close()

    asyncio.run(work())
