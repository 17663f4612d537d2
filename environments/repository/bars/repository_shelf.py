"""A small package with a fault, against which hostile solutions of repository tasks are played."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import dedent

from repository_hacks import Hack
from wanderlust_repository.mining import MiningOptions, observe_suite
from wanderlust_repository.mutants import Edit
from wanderlust_repository.package import read_package
from wanderlust_repository.site_folder import load_site, requirements_of
from wanderlust_repository.suite import REPOSITORY_FOLDER, SuiteBase, open_base
from wanderlust_repository.task_file import RepositoryTask
from wanderlust_repository.verdict import Changes, Verdict, collect_changes, digest, judge_modules

SHELF = {
    "pyproject.toml": '[project]\nname = "shelf"\nversion = "1.0"\nlicense = "MIT"\n',
    "LICENSE": "MIT License\n",
    "shelf/__init__.py": "from shelf.core import Box, label, middle, total\n",
    "shelf/core.py": dedent(
        '''\
        """Sums and boxes."""

        import sys

        WIDEST = sys.maxsize


        def total(items, start=0):
            """The sum of items."""
            result = start
            for item in items:
                result = result + item
            return result


        def middle(values):
            """The middle value of a sorted list."""
            ordered = sorted(values)
            half = len(ordered) // 2
            if len(ordered) % 2 == 1:
                return ordered[half]
            return (ordered[half - 1] + ordered[half]) / 2


        def label(text, width=8):
            """A text cut to a width."""
            if len(text) > width:
                return text[: width - 1] + "~"
            return text


        def pick(box, name):
            """An attribute by its name."""
            return getattr(box, name)


        class Box:
            """Things with a size."""

            def __init__(self, *things):
                self.things = list(things)

            def __eq__(self, other):
                return isinstance(other, Box) and self.things == other.things

            def __len__(self):
                return len(self.things)

            def weigh(self):
                return total(self.things)
        '''
    ),
    "tests/test_core.py": dedent(
        """\
        import unittest

        import pytest

        from shelf import Box, label, middle, total
        from shelf.core import pick


        def test_total_of_numbers():
            assert total([1, 2, 3]) == 6


        @pytest.mark.parametrize(("items", "expected"), [([5], 5), ([2, 2], 4), ([-1, 4], 3)])
        def test_total_of_any(items, expected):
            assert total(items) == expected


        class TestBox(unittest.TestCase):
            def test_weigh(self):
                self.assertEqual(Box(4, 5).weigh(), 9)

            def test_len(self):
                self.assertEqual(len(Box(4, 5)), 2)

            def test_equal(self):
                self.assertTrue(Box(1) == Box(1))
                self.assertFalse(Box(1) == Box(2))


        def test_total_of_nothing():
            assert total([]) == 0


        def test_middle():
            assert middle([3, 1, 2]) == 2
            assert middle([4, 1, 2, 3]) == 2.5


        def test_label():
            assert label("a") == "a"
            assert label("abcdefghij", 5) == "abcd~"


        def test_pick():
            assert pick(Box(7), "things") == [7]
        """
    ),
}
"""The package, as it is right."""
FAULT = ("result = result + item", "result = result - item")


@dataclass(slots=True, kw_only=True)
class Shelf:
    """The package with its fault, opened for hacks."""

    base: SuiteBase
    task: RepositoryTask
    known: tuple[str, ...]
    seconds: float

    async def judge(self, changes: Changes, *, guarded: bool = True) -> Verdict:
        """The verdict on changes."""
        if changes.refused:
            return Verdict(reward=0.0, refused=changes.refused, why=f"refused: {changes.refused[0]}")
        return await judge_modules(
            self.base, self.task, changes.modules, known=self.known, suite_seconds=self.seconds, guarded=guarded
        )

    async def play(self, hack: Hack, *, guarded: bool = True) -> Verdict:
        """Do what the hack does in a fork of the folder, and judge it as an episode is judged."""
        path, package = self.task.edit.path, self.base.package
        faulty = self.task.edit.apply(package.files[path])
        sandbox = await self.base.fork("working")
        try:
            await sandbox.write(f"repo/{path}", faulty + b"\n\n" + hack.code.encode() if hack.code else faulty)
            if hack.shell:
                await sandbox.run(["bash", "-c", f"cd {REPOSITORY_FOLDER}\n{hack.shell}"], timeout=20)
            return await self.judge(await collect_changes(sandbox, package, self.task), guarded=guarded)
        finally:
            await sandbox.close()


@asynccontextmanager
async def open_shelf(folder: Path) -> AsyncIterator[Shelf]:
    """Write the package into `folder`, open it, and find its failing tests and sentinels."""
    for path, text in SHELF.items():
        place = folder / "shelf" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    package = read_package(folder / "shelf")
    site = load_site(package, requirements_of(package), folder / "sites", installed=True)
    base = await open_base(package, site)
    try:
        suite = await observe_suite(base, MiningOptions())
        original = package.files["shelf/core.py"]
        start, (old, new) = original.index(FAULT[0].encode()), FAULT
        edit = Edit(
            path="shelf/core.py",
            start=start,
            end=start + len(old),
            old=old,
            new=new,
            kind="arithmetic",
            line=original[:start].count(b"\n") + 1,
            function="total",
            first_line=8,
        )
        task = RepositoryTask(
            id="shelf/total",
            package=package.label,
            digest=package.digest,
            licence=package.licence,
            edit=edit,
            original_digest=digest(original),
            start_digest=digest(edit.apply(original)),
            fails=(),
            sentinels=(),
            passing=0,
            issue="total is wrong",
        )
        shelf = Shelf(base=base, task=task, known=suite.known, seconds=suite.seconds)
        nothing = await shelf.judge(Changes(modules={}))
        fails = tuple(name for name in suite.known if (nothing.results or {})[name][0] != "passed")
        shelf.task = replace(task, fails=fails, sentinels=fails)
        yield shelf
    finally:
        await base.close()
