"""A package's test suite in a sandbox: the base that every run forks from, and requests to the runner inside."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wanderlust.errors import SandboxFailure, one_line
from wanderlust.tools.sandbox import Sandbox, SandboxBounds, open_sandbox
from wanderlust.tools.sandbox.base import MEBI
from wanderlust_repository.guard import PackageFacts
from wanderlust_repository.package import NotMineable, SourcePackage, as_archive

REPOSITORY_FOLDER = "/work/repo"
SITE_FOLDER = "/work/site"
RUNNER_TEXT = Path(__file__).with_name("suite_runner.py").read_text(encoding="utf-8")
SUITE_BOUNDS = SandboxBounds(
    seconds=1200.0, memory=2048 * MEBI, processes=128, files=512, disk=256 * MEBI, entries=60_000, output=64 * MEBI
)
"""Of a sandbox in which suites run."""
PYTHON = ("python3", "-I", "-S", "-B", "-c", f"{RUNNER_TEXT}\nmain()")
RUNNER_GRACE_SECONDS = 20.0
"""Seconds that the runner may take beside the tests."""


class NoAnswer(SandboxFailure):
    """The runner inside the sandbox ended without a complete answer."""


async def ask(sandbox: Sandbox, do: str, *, seconds: float, **asked: Any) -> Any:
    """Have the runner do something in a sandbox; raises NoAnswer when its answer is missing or not genuine."""
    nonce = secrets.token_hex(16)
    body = json.dumps({"do": do, "nonce": nonce, "source": RUNNER_TEXT, "seconds": seconds, **asked}).encode()
    ran = await sandbox.run(PYTHON, stdin=body, timeout=2 * seconds + RUNNER_GRACE_SECONDS)
    head, found, answer = ran.stdout.partition(nonce.encode())
    if head or not found:
        last = one_line(ran.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2])
        raise NoAnswer(f"no answer from the runner: {ran.reached_limit or last or f'exit status {ran.code}'}")
    try:
        return json.loads(answer)
    except ValueError as error:
        raise NoAnswer(f"the runner's answer is cut: {len(answer):,} bytes") from error


async def put_archive(sandbox: Sandbox, archive: bytes) -> None:
    """Unpack a tar in a sandbox's folder. Raises SandboxFailure where it does not fit."""
    ran = await sandbox.run(["tar", "-C", "/work", "-xf", "-", "--no-same-owner", "--overwrite"], stdin=archive)
    if ran.code or ran.reached_limit:
        why = one_line(ran.stderr.decode("utf-8", "replace")) or ran.reached_limit or f"exit status {ran.code}"
        raise SandboxFailure(f"files could not be put into the sandbox: {why}")


@dataclass(slots=True, eq=False, kw_only=True)
class SuiteBase:
    """Two pristine sandboxes of one package: `judging`, with cached bytecode, and `working`, without any.

    Nothing of an agent runs in either. Both are forked, one fork at a time.
    """

    package: SourcePackage
    judging: Sandbox
    working: Sandbox
    facts: PackageFacts
    """What the guard knows of the package."""
    fork_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def settings(self) -> dict[str, Any]:
        """What every run of tests is told."""
        return {"roots": list(self.package.roots), "files": list(self.package.tests)}

    async def fork(self, which: str = "judging") -> Sandbox:
        """A fork of `judging` or `working`; the caller closes it."""
        async with self.fork_lock:
            return await (self.judging if which == "judging" else self.working).fork()

    async def close(self) -> None:
        """Close both."""
        await self.working.close()
        await self.judging.close()


async def open_base(
    package: SourcePackage,
    site: Mapping[str, bytes],
    *,
    bounds: SandboxBounds = SUITE_BOUNDS,
    readable: Sequence[Path] = (),
    seconds: float = 120.0,
) -> SuiteBase:
    """Lay out a package and its libraries, and import everything once, so that bytecode is cached.

    `readable` are folders of this machine that agents and suites may read.

    Raises SandboxFailure where this machine has no sandbox, and NotMineable where pytest collects nothing in time.
    """
    async with AsyncExitStack() as failing:
        judging = await open_sandbox(bounds, readable=readable)
        failing.push_async_callback(judging.close)
        await put_archive(judging, as_archive(package.files, "repo"))
        await put_archive(judging, as_archive(site, "site"))
        settings = {"roots": list(package.roots), "files": list(package.tests), "must": [], "sentinels": None}
        collected = await ask(judging, "tests", seconds=seconds, collect=True, bytecode=True, **settings)
        _check_collected(collected["main"])
        working = await judging.fork()
        failing.push_async_callback(working.close)
        await working.run(["find", REPOSITORY_FOLDER, "-name", "__pycache__", "-exec", "rm", "-rf", "{}", "+"])
        failing.pop_all()
    facts = PackageFacts.of({path: package.files[path] for path in package.sources}, package.top_names)
    return SuiteBase(package=package, judging=judging, working=working, facts=facts)


def _check_collected(result: Mapping[str, Any]) -> None:
    if result["timed_out"] or result["ended"] is None:
        raise NotMineable("tests cannot be collected", "pytest takes too long" if result["timed_out"] else "it ends")


def files_of(ids: Collection[str], tests: Sequence[str]) -> list[str]:
    """The test files that these tests are in, in the order of `tests`."""
    named = {one.partition("::")[0] for one in ids}
    return [path for path in tests if path in named]


async def run_tests(base: SuiteBase, ids: Collection[str] | None, *, seconds: float, **more: Any) -> Mapping[str, Any]:
    """Run tests of the unchanged package in a fresh fork; all of them without `ids`. Raises NoAnswer."""
    sandbox = await base.fork()
    try:
        asked = base.settings | {"must": [], "sentinels": None, "ids": None if ids is None else sorted(ids), **more}
        if ids is not None:
            asked["files"] = files_of(ids, base.package.tests)
        answer: Mapping[str, Any] = (await ask(sandbox, "tests", seconds=seconds, **asked))["main"]
        return answer
    finally:
        await sandbox.close()


async def run_mutants(
    sandbox: Sandbox, base: SuiteBase, mutants: Sequence[Mapping[str, Any]], **asked: Any
) -> list[Any]:
    """Run mutants one after the other in `sandbox`, each in a process of its own; one result per mutant.

    A mutant that ends the runner has the result None, as have those behind it.
    """
    body = base.settings | {"do": "mutants", "nonce": "", "source": RUNNER_TEXT, "mutants": list(mutants), **asked}
    ran = await sandbox.run(PYTHON, stdin=json.dumps(body).encode())
    results: list[Any] = [*_json_lines(ran.stdout)][: len(mutants)]
    return results + [None] * (len(mutants) - len(results))


def _json_lines(data: bytes) -> Iterator[Any]:
    for line in data.splitlines():
        with suppress(ValueError):
            if isinstance(found := json.loads(line), dict):
                yield found
