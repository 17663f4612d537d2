"""Public functions that play, judge or train end alike in a script, in asynchronous code and in a notebook's loop.

Which functions these are is read from the code: a public function that is asynchronous, or that starts an event loop,
needs a case in `waiting_cases`.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import re
import signal
import sqlite3
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import test_data_ablation as colours
from project_files import module_name, python_files
from waiting_cases import CASES, ENV, ROOT, TRAINING, Result, digest
from wanderlust import Episode, Scripted, SingleTurnEnvironment, evaluate_sync, train
from wanderlust.runner.progress import NullLogger


def in_a_script(call: Callable[[], Result]) -> Result:
    result = call()
    return asyncio.run(result) if inspect.iscoroutine(result) else result


async def awaited(call: Callable[[], Result]) -> Result:
    """Call it in a task, beside which another goes on afterwards."""
    beside, mine = asyncio.create_task(asyncio.sleep(0, "went on")), asyncio.current_task()
    async with asyncio.timeout(None):
        result = call()
        result = await result if inspect.iscoroutine(result) else result
    assert (asyncio.current_task(), await beside) == (mine, "went on")
    return result


def in_async_code(call: Callable[[], Result]) -> Result:
    return asyncio.run(awaited(call))


def in_a_notebook(call: Callable[[], Result]) -> Result:
    """Call it from a callback of a loop that runs for ever, as a cell is called; a coroutine becomes a task of it."""
    loop, results, errors = asyncio.new_event_loop(), list[Result](), list[Exception]()
    loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))

    def cell() -> None:
        try:
            results.append(call())
        finally:
            loop.stop()

    try:
        loop.call_soon(cell)
        loop.run_forever()
        assert loop.run_until_complete(asyncio.sleep(0, "went on")) == "went on"
        for error in errors:
            raise error
        (result,) = results
        return loop.run_until_complete(result) if inspect.iscoroutine(result) else result
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


SURROUNDINGS = [in_a_script, in_async_code, in_a_notebook]


# Which functions there are


def starts_loop(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr in {"run", "Runner", "new_event_loop"}
        and ast.unparse(node.value) == "asyncio"
    )


@cache
def loop_starters() -> frozenset[str]:
    """Definitions of the library whose code starts an event loop, or names one that does, and so on."""
    found, names = set[str](), dict[str, set[str]]()
    for path in python_files("src"):
        module, imports, defined = module_name(path), dict[str, str](), dict[str, set[str]]()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            inside = [*ast.walk(node)]
            froms = [one for one in inside if isinstance(one, ast.ImportFrom)]
            imports |= {name.asname or name.name: f"{one.module}.{name.name}" for one in froms for name in one.names}
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                defined[f"{module}.{node.name}"] = {one.id for one in inside if isinstance(one, ast.Name)}
                if any(map(starts_loop, inside)):
                    found.add(f"{module}.{node.name}")
        names |= {name: {imports.get(one, f"{module}.{one}") for one in used} for name, used in defined.items()}
    while more := {name for name, used in names.items() if name not in found and used & found}:
        found |= more
    return frozenset(found)


def public_functions() -> dict[str, Callable[..., Any]]:
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    places = [line.rsplit(".", 1) for line in re.findall(r"^::: (\S+)$", page, re.MULTILINE)]
    found = {name: getattr(importlib.import_module(module), name) for module, name in places}
    return {name: one for name, one in found.items() if inspect.isfunction(one)}


def is_async(function: Callable[..., Any]) -> bool:
    inner = inspect.unwrap(function)
    return inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner)


def needs_case(function: Callable[..., Any]) -> bool:
    return is_async(function) or f"{function.__module__}.{function.__name__}" in loop_starters()


LONG = {
    "ablate_data",
    "build_data",
    "compare_teachers",
    "distil",
    "optimize_prompt",
    "publish",
    "run_world_benchmark",
    "train",
    "train_reasoner",
    "write_stories",
}
"""Those that take long: called in a script and in a notebook; all leave a running loop in the same way."""
SHOWING = [name for name in CASES if "progress" in inspect.signature(public_functions()[name]).parameters]
"""Those that show progress."""


def test_every_public_function_that_waits_has_a_case() -> None:
    wanted = {name for name, one in public_functions().items() if needs_case(one)}
    assert wanted == CASES.keys()
    assert {"train", "evaluate_sync", "probe"} <= wanted


@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
@pytest.mark.filterwarnings("ignore::wanderlust.tools.sandbox.NotIsolatedWarning")
@pytest.mark.parametrize("name", CASES)
def test_it_ends_alike_in_all_surroundings(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shows = name in SHOWING
    ends = []
    for surrounding in [one for one in SURROUNDINGS if not (name in LONG and one is in_async_code)]:
        folder = tmp_path / surrounding.__name__
        folder.mkdir()
        capsys.readouterr()
        ends.append(surrounding(lambda folder=folder: CASES[name](folder, shows)))
        assert bool(capsys.readouterr().err) or not shows, f"{surrounding.__name__}: no progress was shown"
    assert all(one == ends[0] for one in ends[1:])


class Counted(SingleTurnEnvironment):
    """Counts its episodes in a database that was opened where it was made."""

    def __init__(self) -> None:
        super().__init__(ENV.tasks(), rubric=ENV.rubric)
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        self.database.execute("create table played (task text)")

    async def run(self, episode: Episode) -> None:
        self.database.execute("insert into played values (?)", (episode.task.id,))
        await super().run(episode)

    def count(self) -> int:
        return int(self.database.execute("select count(*) from played").fetchone()[0])


Surrounding = Callable[[Callable[[], Result]], Result]


@pytest.mark.parametrize("surrounding", SURROUNDINGS)
def test_what_was_opened_before_is_used_in_the_thread_that_opened_it(surrounding: Surrounding) -> None:
    env = Counted()
    report = surrounding(lambda: evaluate_sync(env, Scripted(colours.knows), progress=False))
    assert env.count() == report.scored == len(env.tasks())


@pytest.mark.parametrize("surrounding", SURROUNDINGS)
def test_ctrl_c_ends_a_call_that_goes_on_later(surrounding: Surrounding, tmp_path: Path) -> None:
    handler, first, rest = signal.getsignal(signal.SIGINT), Counted(), Counted()

    def play(env: Counted) -> Result:
        return evaluate_sync(env, Scripted(answer), out=tmp_path / "run", concurrency=1, progress=False)

    def answer(messages: Any, rng: Any) -> str:
        if first.count() == 5 and not rest.count():
            signal.raise_signal(signal.SIGINT)
        return colours.knows(messages, rng)

    with pytest.raises(KeyboardInterrupt):
        surrounding(lambda: play(first))
    assert signal.getsignal(signal.SIGINT) is handler
    assert surrounding(lambda: play(rest)).scored == len(rest.tasks())
    assert rest.count() < len(rest.tasks())


class Interruption(NullLogger):
    """Brings Ctrl-C once, at the first step of a stage, or of any."""

    def __init__(self, stage: str = ""):
        self.stage, self.came = stage, False

    def log_step(self, stage: str, step: int, *, of: int, metrics: Mapping[str, float]) -> None:
        if not self.came and stage.startswith(self.stage):
            self.came = True
            signal.raise_signal(signal.SIGINT)


def learn(folder: Path, logger: NullLogger) -> Result:
    return train("tictactoe", config=TRAINING, out=folder, workers=1, progress=logger)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Digest of the weights that TRAINING ends with."""
    return digest(learn(tmp_path_factory.mktemp("whole") / "run", NullLogger()).path)


@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
@pytest.mark.parametrize(
    ("surrounding", "stage"), [(in_a_script, "sft"), (in_async_code, "rl"), (in_a_notebook, "eval")]
)
def test_training_that_ctrl_c_ended_goes_on(
    surrounding: Surrounding, stage: str, uninterrupted: str, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        surrounding(lambda: learn(tmp_path / "cut", Interruption(stage)))
    assert not (tmp_path / "cut/report.json").exists()
    assert digest(surrounding(lambda: learn(tmp_path / "cut", NullLogger())).path) == uninterrupted


@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
@pytest.mark.parametrize("name", [name for name in SHOWING if not is_async(public_functions()[name])])
def test_one_ctrl_c_is_enough_in_async_code(name: str, tmp_path: Path) -> None:
    ended, logger = list[Result](), Interruption()
    with pytest.raises(KeyboardInterrupt):
        in_async_code(lambda: ended.append(CASES[name](tmp_path, logger)))
    assert (logger.came, ended) == (True, [])
