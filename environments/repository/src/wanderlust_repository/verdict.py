"""The verdict on a repository task: the package's true tests, laid over what the agent has made of the sources.

Of the agent's folder only the package's own modules are taken, read as text. Everything else (tests, `conftest.py`,
settings, libraries, cached bytecode, links) is as it was before the agent came: the judgement runs in a fresh fork of
the pristine folder. In order: `guard` reads the changed modules; the known tests run in a fresh interpreter, without
site-packages and startup files, and each must be reported once; then sentinels, which must fail.

Not covered: what `guard` does not cover, and code that knows the tests' values by heart.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from wanderlust.tools.sandbox import Sandbox
from wanderlust_repository.guard import MAX_SOURCE_BYTES, guard_changes
from wanderlust_repository.package import SourcePackage, is_test_support
from wanderlust_repository.sentinels import spoil_tests
from wanderlust_repository.suite import (
    NoAnswer,
    SuiteBase,
    ask,
    files_of,
)
from wanderlust_repository.task_file import RepositoryTask

MAX_CHANGED_FILES = 100
"""Most modules of a package that an agent may change."""
MAX_PATHS_SHOWN = 20
JUDGE_FACTOR, JUDGE_SECONDS = 5.0, 20.0
"""A suite may take this many times as long as it took on the original, and these seconds beside it."""


def judge_seconds(suite_seconds: float) -> float:
    """Wall-clock seconds that a judgement may take, where the suite took these on the original."""
    return JUDGE_SECONDS + JUDGE_FACTOR * suite_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """How an agent's folder differs from the one it was given."""

    modules: Mapping[str, bytes | None]
    """The package's own modules that are changed, new, or gone (None): these are judged."""
    tests_edited: tuple[str, ...] = ()
    """Tests, and what supports them, that are changed, new or gone; restored before judging."""
    others_edited: tuple[str, ...] = ()
    """Other files, restored too."""
    refused: tuple[str, ...] = ()
    """Why modules cannot be judged: no regular files, too large, too many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a folder is worth."""

    reward: float
    """1 when every failing test passes, every passing test still passes, and nothing speaks against the result."""
    fixed: float = 0.0
    """Share of the task's failing tests that pass."""
    kept: float = 0.0
    """Share of the other known tests that pass."""
    refused: tuple[str, ...] = ()
    """What was refused before any test ran."""
    forged: bool = False
    """Whether a sentinel passed, a test was reported twice, or a line of the report was not genuine."""
    why: str = ""
    """Why the reward is 0, in one line."""
    results: Mapping[str, tuple[str, str]] | None = None
    """Outcome and message of every known test that was run."""
    sentinels: Mapping[str, str] | None = None
    """Outcome of every sentinel that was run."""


def may_judge(path: str, package: SourcePackage) -> bool:
    """Whether a changed or new file is one of the package's own modules."""
    if path in package.sources:
        return True
    inside = any(path.startswith(f"{source.removesuffix('__init__.py')}") for source in _packages(package))
    return path.endswith(".py") and inside and not is_test_support(path)


def _packages(package: SourcePackage) -> list[str]:
    return [path for path in package.sources if path.endswith("/__init__.py")]


async def collect_changes(sandbox: Sandbox, package: SourcePackage, task: RepositoryTask) -> Changes:
    """Compare an agent's folder with the one it was given, and read its changed modules.

    The comparison runs inside, by an interpreter of the system that looks at no file of the folder but to read it.
    """
    digests = package.digests | {task.edit.path: task.start_digest}
    try:
        found = await ask(sandbox, "differences", seconds=30.0, digests=digests, most=MAX_CHANGED_FILES)
    except NoAnswer as error:
        return Changes(modules={}, refused=(f"the folder cannot be read: {error}",))
    modules: dict[str, bytes | None] = {}
    refused: list[str] = []
    tests: list[str] = []
    others: list[str] = []
    for kind, (count, paths) in found.items():
        for path in paths:
            if not may_judge(path, package):
                (tests if is_test_support(path) else others).append(path)
            elif kind == "irregular":
                refused.append(f"{path} is no regular file")
            elif kind == "gone":
                modules[path] = None
            elif (text := await _read_module(sandbox, path)) is None:
                refused.append(f"{path} cannot be read, or has more than {MAX_SOURCE_BYTES:,} bytes")
            else:
                modules[path] = text
        if count > len(paths) and kind != "new":
            refused.append(f"{count:,} files are {kind}")
    return Changes(
        modules=modules,
        tests_edited=tuple(sorted(tests)[:MAX_PATHS_SHOWN]),
        others_edited=tuple(sorted(others)[:MAX_PATHS_SHOWN]),
        refused=tuple(refused[:MAX_PATHS_SHOWN]),
    )


async def _read_module(sandbox: Sandbox, path: str) -> bytes | None:
    try:
        text = await sandbox.read(f"repo/{path}", limit=MAX_SOURCE_BYTES + 1)
    except OSError:
        return None
    return text if len(text) <= MAX_SOURCE_BYTES else None


async def judge_modules(
    base: SuiteBase,
    task: RepositoryTask,
    modules: Mapping[str, bytes | None],
    *,
    known: Collection[str],
    suite_seconds: float,
    guarded: bool = True,
    sentinels: Sequence[str] | None = None,
) -> Verdict:
    """Judge the task's folder with these modules in it, None for those that are gone.

    `known` are all tests that pass on the original. `guarded=False` leaves out the reading of the modules, to measure
    what the rest of the judgement holds off. `sentinels` are the task's own by default.

    Raises SandboxFailure where the sandbox fails, never for what the modules do.
    """
    package, path = base.package, task.edit.path
    start = task.edit.apply(package.files[path])
    if guarded:
        versions = {one: [package.files[one]] for one in package.sources}
        versions[path] = [package.files[path], start]
        texts = {one: text for one, text in modules.items() if text is not None}
        if refused := guard_changes(texts, versions, base.facts):
            return Verdict(reward=0.0, refused=tuple(refused[:MAX_PATHS_SHOWN]), why=f"refused: {refused[0]}")
    answer = await _run_judgement(
        base,
        {path: start, **modules},
        must=sorted(known),
        sentinels=sorted(task.sentinels if sentinels is None else sentinels),
        seconds=judge_seconds(suite_seconds),
    )
    if answer is None:
        return Verdict(reward=0.0, why="the tests ended the process that supervises them")
    return weigh(answer, fails=task.fails, known=known, sentinels=task.sentinels if sentinels is None else sentinels)


async def report_original(
    base: SuiteBase, *, known: Collection[str], sentinels: Collection[str], suite_seconds: float
) -> Mapping[str, Any] | None:
    """What the supervisor reports of the unchanged package: what `weigh` takes. None where it gave no answer."""
    seconds = judge_seconds(suite_seconds)
    return await _run_judgement(base, {}, must=sorted(known), sentinels=sorted(sentinels), seconds=seconds)


async def _run_judgement(
    base: SuiteBase,
    modules: Mapping[str, bytes | None],
    *,
    must: Sequence[str],
    sentinels: Sequence[str],
    seconds: float,
) -> Mapping[str, Any] | None:
    """The supervisor's answer from a fresh fork with these modules; None where it gave none."""
    package, sandbox = base.package, await base.fork()
    try:
        spoilt = spoil_tests(package.files, sentinels)
        asked = base.settings | {
            "files": files_of(must, package.tests),
            "ids": list(must),
            "must": list(must),
            "sentinels": {"files": spoilt, "ids": list(sentinels)} if sentinels and spoilt else None,
            "modules_of_agent": {
                path: None if text is None else b64encode(text).decode()
                for path, text in modules.items()
                if text is not None or path in package.files
            },
        }
        answer: Mapping[str, Any] = await ask(sandbox, "tests", seconds=seconds, **asked)
    except NoAnswer:
        return None
    else:
        return answer
    finally:
        await sandbox.close()


def weigh(
    answer: Mapping[str, Any], *, fails: Collection[str], known: Collection[str], sentinels: Collection[str]
) -> Verdict:
    """The verdict on what the supervisor has reported. The same report gives the same verdict."""
    main, after = answer["main"], answer["sentinels"]
    outcomes = {name: one[0] for name, one in main["tests"].items()}
    passed = {name for name, outcome in outcomes.items() if outcome == "passed"}
    failing, others = set(fails), set(known) - set(fails)
    spoilt = None if after is None else {name: one[0] for name, one in after["tests"].items()}
    wrong = [] if spoilt is None else sorted(name for name in sentinels if spoilt.get(name) != "failed")
    forged = bool(main["foreign"] or (after or {}).get("foreign") or wrong or "twice" in outcomes.values())
    broken, unfixed = sorted(others - passed), sorted(failing - passed)
    why = ""
    if main["timed_out"]:
        why = f"the tests took more than {main['seconds']:.0f} s"
    elif main["ended"] is None:
        why = "the tests' process ended before its end"
    elif unfixed:
        why = f"{len(unfixed)} of {len(failing)} failing tests still fail, {unfixed[0]} for one"
    elif broken:
        why = f"{len(broken)} of {len(others)} passing tests fail now, {broken[0]} for one"
    elif after is None:
        why = "no sentinel was run"
    elif forged:
        why = f"the sentinel {wrong[0]} did not fail" if wrong else "the report of the tests is not genuine"
    return Verdict(
        reward=float(not why),
        fixed=len(failing & passed) / max(len(failing), 1),
        kept=len(others & passed) / max(len(others), 1),
        forged=forged,
        why=why,
        results={name: (one[0], one[2]) for name, one in main["tests"].items() if name in failing | others},
        sentinels=spoilt,
    )


def digest(text: bytes) -> str:
    """SHA-256 of a file, as tasks keep it."""
    return sha256(text).hexdigest()
