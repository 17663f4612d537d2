"""Branches of a sandbox: each has its own files, undo goes to where it began, and the tools answer in text."""

from __future__ import annotations

import asyncio

import pytest
from tests.sandboxes import SMALL, within

from wanderlust.errors import UsageError
from wanderlust.tools.sandbox import BranchedSandbox, BranchTools, LocalSandbox, PythonSession, UnisolatedSandbox
from wanderlust.tools.sandbox.branches import MAX_BRANCHES, MAX_COMPARED_FILES
from wanderlust.tools.sandbox.bubblewrap import find_python


def branched(body, *, begin=None):
    async def play(sandbox):
        if begin is not None:
            await begin(sandbox)
        branches = BranchedSandbox(await sandbox.fork())
        try:
            return await body(branches)
        finally:
            await branches.close()

    return within(play)


async def text(sandbox, path="a"):
    return (await sandbox.read(path)).decode()


def test_each_branch_has_its_own_files():
    async def story(box):
        await box.write("a", b"first")
        await box.branch("second")
        assert await text(box) == "first"
        await box.write("a", b"other")
        await box.run("echo new > b")
        await box.switch("main")
        assert (await text(box), (await box.run("ls")).text.split()) == ("first", ["a"])
        await box.branch("third")
        await box.switch("second")
        assert (await text(box), await text(box, "b")) == ("other", "new\n")
        return box.history

    assert branched(story) == [
        {"event": "branch", "name": "second", "of": "main"},
        {"event": "switch", "name": "main"},
        {"event": "branch", "name": "third", "of": "main"},
        {"event": "switch", "name": "second"},
    ]


def test_undo_goes_to_the_last_branch_made_or_to_the_beginning():
    async def begin(sandbox):
        await sandbox.write("a", b"given")

    async def story(box):
        await box.write("a", b"worse")
        await box.undo()
        assert await text(box) == "given"
        await box.write("a", b"better")
        await box.branch("try")
        await box.write("a", b"worse")
        await box.undo()
        assert await text(box) == "better"
        await box.switch("main")
        await box.write("a", b"worse")
        await box.undo()
        return await text(box)

    assert branched(story, begin=begin) == "better"


def test_programs_end_where_a_branch_is_left():
    async def story(box):
        session = PythonSession(box, python=str(find_python()))
        await session.run("x = 1")
        await box.branch("try")
        cell = await session.run("print('x' in globals())")
        assert (cell.fresh, cell.output) == (True, "False\n")
        child = await box.start(["sleep", "60"])
        await box.switch("main")
        assert not child.alive
        await session.close()

    branched(story)


def test_the_tools_compare_and_refuse_in_text():
    async def story(box):
        tools = BranchTools(box)
        await box.write("code.py", b"def f():\n    return 1\n")
        assert await tools.branch("try") == "you are in branch try; there are main, try"
        assert await tools.compare("main") == "all files are equal"
        await box.write("code.py", b"def f():\n    return 2\n")
        await box.write("odd\nname", b"x\n")
        await box.write("data", b"\xff\xfe")
        said = await tools.compare("main")
        assert "-    return 1\n+    return 2" in said
        assert "--- main/code.py\n+++ try/code.py" in said
        assert "data: the two differ, and are no short texts" in said
        assert "odd\nname" not in said
        for answer, part in (
            (await tools.branch("try"), "there is a branch try already"),
            (await tools.branch("../x"), "1 to 32 lower-case"),
            (await tools.switch("none"), "there is no branch 'none': main, try"),
            (await tools.compare("none"), "there is no branch 'none'"),
        ):
            assert answer.startswith("error: ")
            assert part in answer
        assert await tools.undo() == "branch try is as before"
        assert await tools.compare("main") == "all files are equal"

    branched(story)


def test_branches_and_comparisons_are_bounded():
    async def story(box):
        for number in range(MAX_BRANCHES - 1):
            await box.branch(f"b{number}")
        with pytest.raises(UsageError, match="which is the most"):
            await box.branch("more")
        await box.run(f"for i in $(seq {MAX_COMPARED_FILES + 5}); do seq 200 > f$i; done")
        said = await BranchTools(box).compare("main")
        assert len(said) < 20_000
        assert "[cut: compare smaller changes]" in said
        await box.run("mkdir x; cd x; for i in $(seq 250); do : > long-name-of-a-file-$i; done")
        assert "error: there are too many files" in await BranchTools(box).compare("main")

    branched(story)


@pytest.mark.filterwarnings("ignore::wanderlust.tools.sandbox.NotIsolatedWarning")
def test_other_sandboxes_have_branches_too():
    async def story():
        box = BranchedSandbox(UnisolatedSandbox(SMALL, why="a test"))
        await box.write("a", b"1")
        await box.branch("try")
        await box.write("a", b"2")
        await box.switch("main")
        found = await text(box)
        await box.close()
        return found, box.isolated

    assert asyncio.run(story()) == ("1", False)


def test_closing_closes_every_branch():
    async def story():
        box = BranchedSandbox(await LocalSandbox.open(SMALL))
        await box.branch("try")
        await box.close()
        for one in box.branches.values():
            with pytest.raises(UsageError, match="closed"):
                await one.run("true")

    asyncio.run(story())
