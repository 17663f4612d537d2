"""Public functions that play, judge or train end alike in a script, in asynchronous code and in a notebook's loop.

Which functions these are is read from the code: a public function that is asynchronous, or that starts an event loop,
needs a case here.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import re
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
import test_verl

import test_data_ablation as colours
from project_files import module_name, python_files
from test_hub import make_key
from test_reasoner import CONFIG
from test_worlds_oracle import judged_by
from toys import TOKENIZER, Again, Twice
from wanderlust import (
    Episode,
    Scripted,
    SingleTurnEnvironment,
    Task,
    TrainConfig,
    check,
    evaluate,
    evaluate_sync,
    load_run,
    open_sandbox,
    probe,
    rollout,
    rollouts,
    system,
    train,
    user,
)
from wanderlust.algorithms import (
    EvolutionConfig,
    TinkerService,
    connect_tinker,
    finetune,
    iterate_revisions,
    optimize_prompt,
)
from wanderlust.data import (
    AnswerFilters,
    DataPlan,
    DistilConfig,
    Source,
    Student,
    Teacher,
    Variant,
    ablate_data,
    build_data,
    compare_teachers,
    distil,
)
from wanderlust.environments.calculator import Calculator
from wanderlust.errors import UsageError
from wanderlust.policies.base import SamplingOptions
from wanderlust.policies.chat_template import Renderer
from wanderlust.runner.progress import Logger, NullLogger
from wanderlust.serving import play_episode, serve_http, serve_stdio, trl_environments
from wanderlust.testing import check_environment, replay_rollout
from wanderlust.training.config import OptimizerConfig
from wanderlust.types import Rollout
from wanderlust_hub import create_hub, publish
from wanderlust_inbox import InboxFile, TemplateWriter, import_mail, write_inbox_questions
from wanderlust_life import EXAMPLE_STORY, run_world_benchmark, write_stories
from wanderlust_reasoning import train_reasoner
from worlds import wander

ROOT = Path(__file__).parent.parent
Result = Any
Case = Callable[[Path, Logger | bool], Result]
"""Takes an empty folder and whether progress is shown; returns what must be equal, or a coroutine that does."""
CASES: dict[str, Case] = {}


def case(function: Callable[..., Any]) -> Callable[[Case], Case]:
    """The case of a public function."""

    def keep(made: Case) -> Case:
        CASES[function.__name__] = made
        return made

    return keep


ENV = colours.colours(0, 8)
TINY = {"epochs": 2, "batch_tokens": 300, "fresh_width": 32, "fresh_layers": 1}
TRAINING = TrainConfig(
    steps=2,
    tasks_per_step=4,
    group_size=2,
    max_tokens=8,
    eval_every=1,
    eval_tasks=4,
    result_tasks=4,
    sft_episodes=8,
    sft_steps=4,
)
PLAN = DataPlan(
    sources=(Source(name="clean", env=ENV), Source(name="more", env=colours.colours(8, 12))),
    teachers=(
        Teacher(name="knows", policy=Scripted(colours.knows)),
        Teacher(name="shifted", policy=Scripted(colours.shifted)),
    ),
    answers=AnswerFilters(min_reward=1.0),
    student=Student(env=colours.EXAM, questions=8, max_tokens=4, seeds=(0,), tokens=100, settings=TINY),
    variants=(Variant(name="without more", without_sources=("more",)),),
)


def digest(folder: Path) -> str:
    """Digest of every weight in a folder."""
    files = sorted(folder.rglob("*.safetensors"))
    assert files
    return blake2b(b"".join(file.read_bytes() for file in files)).hexdigest()


def played(rollouts: Iterable[Rollout]) -> list[str]:
    """What happened in rollouts, in an order of its own."""
    happened = [(one.task.id, one.seed, one.sample_index, one.trajectory) for one in rollouts]
    return sorted(map(repr, happened))


@case(evaluate_sync)
def _(out: Path, progress: Logger | bool) -> Result:
    report = evaluate_sync(ENV, Scripted(colours.knows), out=out / "run", progress=progress)
    with load_run(out / "run") as run:
        return report.rewards, played(run.rollouts)


@case(evaluate)
async def _(out: Path, progress: Logger | bool) -> Result:
    return (await evaluate(ENV, Scripted(colours.knows), out=out / "run", progress=progress)).rewards


@case(train)
def _(out: Path, progress: Logger | bool) -> Result:
    result = train("tictactoe", config=TRAINING, out=out / "run", workers=1, progress=progress)
    return digest(result.path), result.curve, result.verdict


@case(check)
def _(out: Path, progress: Logger | bool) -> Result:
    return {**check(ENV, n=1).card(), "cost": None}


@case(probe)
def _(out: Path, progress: Logger | bool) -> Result:
    report = probe(ENV, n=4, split="train")
    return report.sound, report.flaws


@case(build_data)
def _(out: Path, progress: Logger | bool) -> Result:
    build_data(PLAN, out / "data", progress=progress)
    return [file.read_text() for file in sorted((out / "data").glob("*.jsonl"))]


@case(ablate_data)
def _(out: Path, progress: Logger | bool) -> Result:
    report = ablate_data(PLAN, out / "out", progress=progress)
    return [(one.name, one.reward) for one in report.recipes], report.findings


@case(compare_teachers)
def _(out: Path, progress: Logger | bool) -> Result:
    report = compare_teachers(replace(PLAN, answers=AnswerFilters()), out / "out", progress=progress)
    return [(one.name, one.reward, one.teacher_reward) for one in report.recipes]


@case(distil)
def _(out: Path, progress: Logger | bool) -> Result:
    short = {"steps": 1, "tasks_per_step": 2, "group_size": 2, "max_tokens": 4, "eval_tasks": 2}
    config = DistilConfig(questions=8, exam=4, sft=TINY, rl=short)
    env = SingleTurnEnvironment({"train": [*ENV.tasks()], "eval": [*colours.EXAM.tasks()]}, rubric=ENV.rubric)
    report = distil(env, Scripted(colours.knows), config=config, out=out / "out", workers=1, progress=progress)
    return [side.reward for side in report.sides], digest(out / "out")


@case(finetune)
def _(out: Path, progress: Logger | bool) -> Result:
    rows = [{"prompt": f"after {n}", "completion": str(n + 1)} for n in range(8)]
    result = finetune(rows, "fresh", out=out / "run", **TINY, progress=progress)
    return digest(result.path), [{**point, "usage": None} for point in result.curve]


@case(optimize_prompt)
def _(out: Path, progress: Logger | bool) -> Result:
    tasks = [Task(id=f"{n}", prompt=(system("Say."), user(f"{n}")), answer="YES") for n in range(8)]
    env = SingleTurnEnvironment({"train": tasks, "eval": tasks}, rubric=ENV.rubric)
    player = Scripted(lambda messages, _: "YES" if "capitals" in messages[0].content else "yes")
    config = EvolutionConfig(iterations=2, minibatch=2, pareto=4)
    reflector = Scripted(lambda *_: "```\nSay in capitals.\n```")
    report = optimize_prompt(env, player, reflector, config=config, out=out / "out", progress=progress)
    return report.best.text, report.before, report.after


@case(trl_environments)
def _(out: Path, progress: Logger | bool) -> Result:
    with trl_environments(Twice()) as factory:
        place = factory()
        place.reset(index=0)
        return [place.act(text=letter) for letter in "bc"], place.get_reward()


@case(rollout)
async def _(out: Path, progress: Logger | bool) -> Result:
    return played([await rollout(ENV, ENV.tasks()[0], Scripted(colours.knows))])


@case(rollouts)
async def _(out: Path, progress: Logger | bool) -> Result:
    async with rollouts(ENV, ENV.tasks(), Scripted(colours.knows), group_size=2) as groups:
        return played([one async for group in groups for one in group.rollouts])


@case(open_sandbox)
async def _(out: Path, progress: Logger | bool) -> Result:
    sandbox = await open_sandbox(isolation="preferred")
    try:
        result = await sandbox.run(["echo", "inside"])
        return result.code, result.stdout
    finally:
        await sandbox.close()


@case(iterate_revisions)
async def _(out: Path, progress: Logger | bool) -> Result:
    env = Again()
    rounds = await iterate_revisions(env, env.tasks(), Scripted(["b"]), rounds=1)
    return [played(one.values()) for one in rounds]


@case(check_environment)
async def _(out: Path, progress: Logger | bool) -> Result:
    return [str(one) for one in await check_environment(ENV, count=1)]


@case(replay_rollout)
async def _(out: Path, progress: Logger | bool) -> Result:
    recorded = await rollout(ENV, ENV.tasks()[0], Scripted(colours.knows))
    return played([await replay_rollout(ENV, recorded)])


@case(play_episode)
async def _(out: Path, progress: Logger | bool) -> Result:
    how = {"params": {"temperature": 1.0, "top_p": 1.0}, "sampling": SamplingOptions(max_tokens=3)}
    server = test_verl.Server()
    return await play_episode(Twice(), test_verl.ROW, generate=server.generate, renderer=Renderer(TOKENIZER), **how)


@case(serve_http)
async def _(out: Path, progress: Logger | bool) -> Result:
    async with serve_http(*Calculator().tools) as endpoint:
        return endpoint.url.startswith("http://127.0.0.1:")


@case(serve_stdio)
async def _(out: Path, progress: Logger | bool) -> Result:
    (out / "stdin").touch()
    with (out / "stdin").open() as ended, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", ended)
        await serve_stdio(*Calculator().tools)


@case(connect_tinker)
async def _(out: Path, progress: Logger | bool) -> Result:
    service = TinkerService(url="http://127.0.0.1:9", model="none")
    with pytest.raises(UsageError, match="no Tinker service answers") as refused:
        async with connect_tinker(service, TOKENIZER, OptimizerConfig(steps=1, lr=1e-3)):
            pass
    return str(refused.value)


@case(importlib.import_module("wanderlust.worlds").verify_with_judge)
async def _(out: Path, progress: Logger | bool) -> Result:
    return (await judged_by('{"same": true}')).record()


@case(publish)
def _(out: Path, progress: Logger | bool) -> Result:
    assert wander("new", "sums", cwd=out).returncode == 0
    create_hub(out / "hub", key=make_key(out / "key"))
    entry = publish(out / "sums", hub=out / "hub", key=out / "key")
    return entry.name, entry.version


@case(write_stories)
def _(out: Path, progress: Logger | bool) -> Result:
    writer = Scripted(lambda *_: EXAMPLE_STORY)
    written = write_stories(writer, out=out / "drafts", count=1, solvers=("nothing",), progress=progress)
    return [one.state for one in written.drafts]


@case(run_world_benchmark)
def _(out: Path, progress: Logger | bool) -> Result:
    result = run_world_benchmark("life,families=invite", "oracle", out=out / "out", samples=1, progress=progress)
    return result.report.rewards


@case(write_inbox_questions)
async def _(out: Path, progress: Logger | bool) -> Result:
    lines = (
        "From a@club.example Mon Mar  2 09:00:00 2026",
        "From: Ines Roth <ines@club.example>",
        "To: Rita Vale <rita@home.example>",
        "Subject: Dinner",
        "Date: 3 Mar 2026 09:00:00 +0000",
        "Message-ID: <1@club.example>",
        "",
        "Dear all, the dinner is on 14 May at 19:30.",
        "",
    )
    (out / "mail.mbox").write_text("\n".join(lines), encoding="utf-8")
    import_mail([out / "mail.mbox"], out / "mail.inbox")
    with InboxFile(out / "mail.inbox") as inbox:
        await write_inbox_questions(inbox, out / "questions.jsonl", TemplateWriter(inbox))
    return (out / "questions.jsonl").read_text(encoding="utf-8")


@case(train_reasoner)
def _(out: Path, progress: Logger | bool) -> Result:
    report = train_reasoner(CONFIG, out=out / "out", workers=1, progress=progress)
    return repr(report.held_out)


# Surroundings


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
    "run_world_benchmark",
    "train",
    "train_reasoner",
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
