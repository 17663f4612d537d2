"""A call of each public function that plays, judges or trains, small enough to be made in every surrounding."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
import test_verl

import test_data_ablation as colours
from test_hub import make_key
from test_reasoner import CONFIG
from test_worlds_oracle import judged_by
from toys import TOKENIZER, Again, Twice
from wanderlust import (
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
from wanderlust.runner.progress import Logger
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
