"""`wander lab`: a reward that can be gamed, gamed and mended on this machine.

`wander demo` and `wander train`: runs that learn, can be stopped at any moment and gone on with.
"""

from __future__ import annotations

import json as json_format
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number
from rich.table import Table

from wanderlust._lazy import load
from wanderlust.cli.options import Computing, Json, Positive
from wanderlust.cli.output import note, result, result_json
from wanderlust.cli.progress import Progress, cores, resumable
from wanderlust.errors import StoreError, UsageError, near
from wanderlust.policies.base import PLAIN
from wanderlust.policies.resolve import RUNS, find_checkpoint, players_of, runs_beside
from wanderlust.rubrics.references import NAMES
from wanderlust.runner.control import controlled
from wanderlust.store.run_folder import (
    REPORT,
    SAID,
    RunFolder,
    begun,
    command,
    is_fresh,
    open_folder,
    runs_in,
    warmup_of,
)
from wanderlust.tasks.registry import find_environment
from wanderlust.training.loggers import Watch, known, sent

PICTURE = "picture.png"


def lab(
    name: str,
    /,
    *,
    seed: int = 0,
    out: Path | None = None,
    workers: Positive | None = None,
    json: Json = False,
) -> None:
    """Rebuild a published reward hack: a small model learns on a flawed reward until it games it, then on a mended one.

    The same command goes on where it was stopped.

    Parameters
    ----------
    name:
        connections: the checker accepts every word in every group. titles: a learnt judge likes one title for all.
    seed:
        Of everything random.
    out:
        Folder of the three runs. Default: runs/lab-NAME-seedN.
    workers:
        Processes, one core each; the figures do not depend on it. Default: 2, or 1 on one core.
    """
    known = load("wanderlust.recipes.reward_hacking:HACKS", extra="train")
    if name not in known:
        raise UsageError(f"there is no lab {name!r}; {near(name, [*known], kind='labs')}")
    folder = out or RUNS / f"lab-{name}-seed{seed}"
    again = command("lab", name, "--seed", str(seed), "--out", folder)
    with resumable(folder, again) as progress:
        run = load("wanderlust.recipes.reward_hacking:laboratory", extra="train")
        body: dict[str, Any] = run(name, folder, seed=seed, watch=progress, workers=workers or min(2, cores()))
        load("wanderlust.recipes.reward_hacking:draw", extra="train")(body, folder / PICTURE)
    if json:
        result_json({"run": str(folder), **body})
        return
    head, rows = (load(f"wanderlust.recipes.reward_hacking:{part}", extra="train") for part in ("HEAD", "rows"))
    table = Table(*head, title="Greedy answers on tasks never trained on; steps are of training")
    for row in rows(body):
        table.add_row(*row)
    result(table)
    for reward, lines in body["probe"].items():
        result(None, f"wander probe on the {reward} reward: " + ("; ".join(lines) or "nothing found"))
    result(None, f"Picture, figures: {folder / PICTURE}, {folder / REPORT}", "Read what it wrote:")
    result(None, *(f"  {command('show', folder / phase)}" for phase in body["phases"]))


Above = Annotated[float, Parameter(validator=Number(gt=0))]


def demo(
    *,
    quick: bool = False,
    out: Path | None = None,
    resume: Annotated[list[Path] | None, Parameter(consume_multiple=(0, 1))] = None,
    seed: int | None = None,
    workers: Positive | None = None,
    json: bool = False,
) -> None:
    """Teach a small language model tic-tac-toe on this machine's CPU: imitation of a teacher, then reinforcement.

    It takes minutes, can be stopped at any moment, and ends with a table, a learning curve and a checkpoint.

    Parameters
    ----------
    quick:
        A run of under a minute that only shows that something is learnt.
    out:
        New folder of the run. Default: runs/demo-seedN.
    resume:
        Go on with a run: the one in this folder, or without one the newest unfinished one.
    seed:
        Of everything random. Default: 0.
    workers:
        Processes, one core each; the figures do not depend on it. Default: 2, or 1 on one core.
    json:
        Print the report as one JSON object.
    """
    if resume is not None:
        if quick or out is not None or seed is not None:
            raise UsageError("--resume goes on as the run was begun: leave --quick, --out and --seed out")
        folder = resume[0] if resume else _newest("DemoConfig")
        _known(folder, "DemoConfig")
    else:
        folder = _new(out or RUNS / f"demo-{'quick-' if quick else ''}seed{seed or 0}", "wander demo")
    with resumable(folder, command("demo", "--resume", folder)) as progress:
        if not (folder / REPORT).is_file():
            config = None if resume is not None else replace(_demo("QUICK" if quick else "FULL"), seed=seed or 0)
            _run_demo(folder, config, progress=progress, workers=workers)
        report = _demo_report(folder)
    if json:
        result_json({"run": str(folder), **report.as_dict()})
        return
    result(report.table())
    files = [f"  {folder / name}" for name in ("curve.png", "report.md", REPORT)]
    result(None, f"{report.wall_s:.0f} seconds. Picture, report and figures:", *files)
    _go_on("tictactoe", folder, report.checkpoint)


def _demo(name: str) -> Any:
    return load(f"wanderlust.recipes.tictactoe:{name}", extra="train")


def _run_demo(folder: Path, config: Any, *, progress: Progress, workers: int | None) -> None:
    """Begin a run, or without a config go on with one, and write its report."""
    run = _open(folder, config, "wanderlust.recipes.tictactoe:DemoConfig")
    with closing(run.store), controlled(run.store.path, progress.tell):
        config = config or _config(folder, "wanderlust.recipes.tictactoe:DemoConfig")
        facts = _demo("Demo")(config, run, watch=progress, workers=workers or min(2, cores())).play()
    load("wanderlust.recipes.tictactoe_report:write_report", extra="train")(folder, facts, seed=config.seed)


def _demo_report(folder: Path) -> Any:
    """The report as it was written."""
    body, kind = _written(folder), load("wanderlust.recipes.tictactoe_report:Report", extra="train")
    try:
        return kind(**{name: body[name] for name in kind.__dataclass_fields__})
    except KeyError as error:
        raise StoreError(f"{folder / REPORT}: there is no {error} in it") from error


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How a checkpoint is trained."""

    algorithm: str = "cispo"
    """How rollouts are credited, and the loss: cispo, grpo, dapo, ppo, dpo, distill, ...; all: docs/algorithms.md."""
    steps: Positive = 100
    """Steps; each plays groups, credits them and updates the weights."""
    groups: Positive = 32
    """Tasks a step."""
    group_size: Positive = 8
    """Rollouts a task, judged against each other."""
    lr: Above = 1e-4
    """Learning rate."""
    temperature: Above = 1.0
    """Of the draws in training."""
    max_tokens: Positive = 256
    """Bound of one answer."""
    seed: int = 0
    """Of everything random."""
    teacher: str | None = None
    """A run or checkpoint folder of a stronger model, for sft, distill and distill-off-policy. Or, to learn without
    labels, what siblings make of each other: majority, likeliest, mutual, synthesis (docs/teachers.md)."""
    kl: Annotated[float, Parameter(validator=Number(gte=0))] = 0.0
    """Weight of the distance to the checkpoint that training starts from, in the loss; 0 is off."""
    entropy: Annotated[float, Parameter(validator=Number(gte=0))] = 0.0
    """Weight of an entropy bonus."""
    lora: Annotated[int, Parameter(validator=Number(gte=0))] = 0
    """Rank of low-rank adapters that are trained instead of the weights; 0 trains the weights."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What a run plays next, how it goes on, what it keeps and whom it tells."""

    curriculum: str = ""
    """Which tasks are played next: uniform, stratified, band, learnability or exit, and settings after it, as in
    exit,share=0.3 (docs/curricula.md). Without it tasks come in the environment's own order."""
    max_lag: Annotated[int, Parameter(validator=Number(gte=0))] = 0
    """Play ahead: how many versions what plays may be behind what learns. 0 plays and learns in turns."""
    best: str = "reward"
    """The examinations' figure by which the best checkpoint is kept: reward, a part, a hidden one, a metric."""
    keep: Annotated[int, Parameter(validator=Number(gte=0))] = 1
    """So many of the newest examined checkpoints are kept beside the best."""
    patience: Annotated[int, Parameter(validator=Number(gte=0))] = 0
    """Stop after so many examinations without a better figure; 0 never does."""
    on_finding: Literal["note", "stop"] = "note"
    """When a monitor finds what looks like gaming of the reward: note it, or stop there as well, to be gone on with."""
    hardware: Computing = PLAIN
    log: tuple[str, ...] = ()
    """Send figures to tensorboard, wandb, trackio or mlflow as well; may be given more than once."""


TRAINING, RUNNING = Training(), Running()


def train(
    env: str | None = None,
    /,
    *,
    policy: str | None = None,
    course: str | None = None,
    training: Training = TRAINING,
    running: Running = RUNNING,
    out: Path | None = None,
    resume: Path | None = None,
    workers: Positive | None = None,
    json: bool = False,
) -> None:
    """Train a model in any environment by reinforcement learning; evaluates before, meanwhile and after.

    Parameters
    ----------
    env:
        Name of an environment, or package.module:Name.
    policy:
        A run or checkpoint folder, or smollm2; with ,episodes=N it imitates so many first; or fresh: a new small model.
    course:
        Instead of all that, what a small model is known to learn: wordle, kuhn, no-answer, tool-call.
    out:
        New folder of the run. Default: runs/train-ENV-seedN.
    resume:
        Go on with the run in this folder, as it was begun.
    workers:
        Processes, one core each; the figures do not depend on it. Default: 2; on one core, a GPU, or with --max-lag, 1.
    json:
        Print the report as one JSON object.
    """
    known(running.log)
    if resume is not None:
        same = training == TRAINING and running == replace(RUNNING, log=running.log)
        settings, folder = None, _resumed(resume, alone=same and (env, policy, course, out) == (None,) * 4)
    else:
        settings = _settings(env, policy, training, running=running, course=course)
        folder = _new(out or _place(course or env or "", training.seed), "wander train")
    with resumable(folder, command("train", "--resume", folder)) as progress:
        if not (folder / REPORT).is_file():
            with sent(running.log, folder, asdict(training), watch=progress) as watch:
                said = begun(env, course, settings, (training, TRAINING), (running, RUNNING))
                _run_train(folder, settings, said, watch=watch, workers=workers, say=progress.tell)
        body = _written(folder)
    if json:
        result_json({"run": str(folder), **body})
        return
    _tell_curve(body)
    _go_on(env or str(_known(folder, "TrainConfig").config["env"]), folder, str(body["checkpoint"]))


def _place(what: str, seed: int) -> Path:
    """Where a run goes that is given no folder."""
    return RUNS / f"train-{what.replace(':', '-')}-seed{seed}"


def _resumed(folder: Path, *, alone: bool) -> Path:
    """The run to go on with. UsageError when it is asked for with settings."""
    if not alone:
        raise UsageError("--resume goes on as the run was begun: leave all else out but --workers, --log and --json")
    return _known(folder, "TrainConfig").path


def _course(name: str, training: Training, running: Running) -> dict[str, Any]:
    """What a run of that course is configured by."""
    courses = load("wanderlust.recipes.presets:COURSES", extra="train")
    if name not in courses:
        raise UsageError(f"there is no course {name!r}; {near(name, [*courses], kind='courses')}")
    if training != replace(TRAINING, seed=training.seed) or running != replace(RUNNING, log=running.log):
        raise UsageError(
            f"--course {name} says how to train: leave all else out but --seed, --log, --out, --workers, --json"
        )
    return {**asdict(courses[name]), "seed": training.seed}


def _settings(
    env: str | None, policy: str | None, training: Training, *, running: Running, course: str | None
) -> dict[str, Any]:
    """What a new run is configured by."""
    if course is not None:
        if (env, policy) != (None, None):
            raise UsageError(f"--course {course} names environment and policy: leave both out")
        return _course(course, training, running)
    if env is None or policy is None:
        raise UsageError("wander train needs an environment and --policy RUN, or --course NAME, or --resume RUN")
    found = find_environment(env)
    if policy.startswith(("http://", "https://")) or policy in players_of(found.env):
        raise UsageError(f"{policy} cannot be trained: only a checkpoint can, or a run that has one")
    plain = asdict(training)
    teacher = _teacher(training.teacher or "")
    beside = {name: plain.pop(name) for name in ("kl", "entropy", "lora")}
    keeping = {"metric": running.best} | {name: getattr(running, name) for name in ("keep", "patience", "on_finding")}
    beside |= {"teacher": teacher, "max_lag": running.max_lag, "keeping": keeping, "curriculum": running.curriculum}
    beside["hardware"] = asdict(load("wanderlust.policies.local.device:resolved", extra="train")(running.hardware))
    del plain["teacher"]
    return {"env": found.target, "policy": _start(policy), "beside": beside, **plain}


def _start(policy: str) -> str:
    """Where training starts: a checkpoint by its whole path, and what is said of a warm-up behind it."""
    if is_fresh(policy) and not Path(policy).exists():
        return policy
    name, warmup = warmup_of(policy)
    return str(find_checkpoint(name).resolve()) + warmup.removeprefix(name)


def _teacher(named: str) -> str:
    """The checkpoint folder of that name, or the estimate that siblings make of each other."""
    if not named or (named.partition(",")[0] in NAMES and not Path(named).exists()):
        return named
    return str(find_checkpoint(named, NAMES).resolve())


def _run_train(
    folder: Path,
    settings: Mapping[str, Any] | None,
    said: tuple[str, ...],
    *,
    watch: Watch,
    workers: int | None,
    say: Callable[[str], object],
) -> None:
    """Begin a run, or without settings go on with one; a new one keeps what was `said`."""
    kind = "wanderlust.training.setup:TrainConfig"
    config = None
    if settings is not None:
        config = msgspec.convert(settings, load(kind, extra="train"))
        load("wanderlust.training.setup:check", extra="train")(config)
    run = _open(folder, config, kind)
    with closing(run.store), controlled(run.store.path, say):
        if said:
            run.store.set_meta(SAID, said)
        config = config or _config(folder, kind)
        recipe = load("wanderlust.training.train:train", extra="train")
        many = 1 if config.beside.hardware.device.startswith("cuda") else min(2, cores())
        recipe(config, run, watch=watch, workers=workers or many)


def _open(folder: Path, config: Any, kind: str) -> Any:
    """The run: a new one with a config, the existing one without."""
    opened = load("wanderlust.training.run:Run", extra="train")
    if config is not None:
        return opened.begin(folder, config)
    _config(folder, kind)
    return opened.resume(folder)


def _config(folder: Path, kind: str) -> Any:
    return load("wanderlust.training.run:config_of", extra="train")(folder, load(kind, extra="train"))


def _new(folder: Path, what: str) -> Path:
    """A folder for a run that is not there yet."""
    if folder.exists():
        raise UsageError(
            f"{folder} exists already and is not overwritten: go on with {what} --resume {folder}, or name another "
            "folder with --out"
        )
    return folder


def _known(folder: Path, recipe: str) -> RunFolder:
    """The run of a recipe in a folder."""
    run = open_folder(folder)
    if run is None:
        raise UsageError(f"no run in {folder}; {near(str(folder), runs_beside(folder), kind='runs')}")
    if run.recipe != recipe:
        raise UsageError(f"{folder} is a run of another recipe ({run.recipe})")
    return run


def _newest(recipe: str) -> Path:
    """The unfinished run that was written to last."""
    runs = [run for run in runs_in(RUNS) if run.recipe == recipe]
    unfinished = [run for run in runs if not run.finished]
    if not unfinished:
        there = f": finished ones are {', '.join(str(run.path) for run in runs)}" if runs else ""
        raise UsageError(f"there is no unfinished run of the demo in {RUNS}{there}")
    newest = max(unfinished, key=lambda run: run.touched).path
    note(f"going on with {newest}")
    return newest


def _written(folder: Path) -> dict[str, Any]:
    try:
        return dict(json_format.loads((folder / REPORT).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(f"cannot read {folder / REPORT}: {error}") from error


def _tell_curve(body: Mapping[str, Any]) -> None:
    curve = body["curve"]
    if not curve:
        result(None, "The environment has no eval split, so nothing was evaluated.")
        return
    before, after = curve[0], curve[-1]
    table = Table(
        "", "before", f"after {after['step']} steps", title="Greedy answers, eval split", title_justify="left"
    )
    for kind in ("rewards", "parts", "metrics"):
        for name, end in after[kind].items():
            start = before[kind].get(name)
            label = "reward" if kind == "rewards" and len(after[kind]) == 1 else name
            table.add_row(label, _estimate(start), _estimate(end))
    failed = [str(point["failed"]) for point in (before, after)]
    if failed != ["0", "0"]:
        table.add_row("failed rollouts", *failed)
    result(table)


def _estimate(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    if found["low"] is None:
        return f"{found['value']:.3f}"
    return f"{found['value']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"


def _go_on(env: str, folder: Path, checkpoint: str) -> None:
    result(
        None,
        f"Checkpoint, a standard Hugging Face folder: {checkpoint}",
        "Go on with:",
        f"  {command('play', env, '--policy', folder)}",
        f"  {command('eval', env, '--policy', folder)}",
        f"  {command('train', env, '--policy', folder)}",
    )
