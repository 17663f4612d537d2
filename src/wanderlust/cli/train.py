"""`wander lab`: train a model on a flawed reward until it games it, then on the corrected reward.

`wander demo` and `wander train`: training runs, which can be stopped and resumed at any moment.
"""

from __future__ import annotations

import json as json_format
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.table import Table

from wanderlust._lazy import import_object
from wanderlust.cli.options import JsonFlag, PositiveInt
from wanderlust.cli.output import print_json, print_note, print_result
from wanderlust.cli.progress import available_cores, resumable
from wanderlust.errors import StoreError, UsageError, WanderlustError, nearest_names
from wanderlust.policies.resolve import RUNS_FOLDER, runs_beside
from wanderlust.runner.control import serve_control
from wanderlust.runner.progress import Progress
from wanderlust.store.run_folder import (
    REPORT_FILE,
    RunFolder,
    open_folder,
    runs_in,
    shell_command,
    training_command_words,
)
from wanderlust.tasks.registry import resolve_environment
from wanderlust.training.config import TrainConfig
from wanderlust.training.loggers import check_logger_names

PICTURE_FILE = "picture.png"


def lab_command(
    name: str,
    /,
    *,
    seed: int = 0,
    out: Path | None = None,
    workers: PositiveInt | None = None,
    json: JsonFlag = False,
) -> None:
    """Rebuild a published reward hack: a small model learns on a flawed reward until it games it, then on a mended one.

    The same command goes on where it was stopped.

    Parameters
    ----------
    name:
        connections: the checker accepts every word in every group. titles: a learnt judge likes one title for all.
    seed:
        Random seed.
    out:
        Folder of the three runs. Default: runs/lab-NAME-seedN.
    workers:
        Processes, one core each; the figures do not depend on it. Default: 2, or 1 on one core.
    """
    names = import_object("wanderlust.recipes.reward_hacking:HACKS", extra="train")
    if name not in names:
        raise UsageError(f"there is no lab {name!r}; {nearest_names(name, [*names], kind='labs')}")
    folder = out or RUNS_FOLDER / f"lab-{name}-seed{seed}"
    again = shell_command("lab", name, "--seed", str(seed), "--out", folder)
    with resumable(folder, again) as progress:
        run = import_object("wanderlust.recipes.reward_hacking:run_laboratory", extra="train")
        body: dict[str, Any] = run(
            name, folder, seed=seed, watch=progress, workers=workers or min(2, available_cores())
        )
        import_object("wanderlust.recipes.reward_hacking:draw_lab_picture", extra="train")(body, folder / PICTURE_FILE)
    if json:
        print_json({"run": str(folder), **body})
        return
    header = import_object("wanderlust.recipes.reward_hacking:TABLE_HEADER", extra="train")
    table = Table(*header, title="Greedy answers on tasks never trained on; steps are of training")
    for row in import_object("wanderlust.recipes.reward_hacking:lab_table_rows", extra="train")(body):
        table.add_row(*row)
    print_result(table)
    for reward, lines in body["probe"].items():
        print_result(None, f"wander probe on the {reward} reward: " + ("; ".join(lines) or "nothing found"))
    print_result(None, f"Picture, figures: {folder / PICTURE_FILE}, {folder / REPORT_FILE}", "Read what it wrote:")
    print_result(None, *(f"  {shell_command('show', folder / phase)}" for phase in body["phases"]))


PositiveFloat = Annotated[float, Parameter(validator=Number(gt=0))]


def demo_command(
    *,
    quick: bool = False,
    out: Path | None = None,
    resume: Annotated[list[Path] | None, Parameter(consume_multiple=(0, 1))] = None,
    seed: int | None = None,
    workers: PositiveInt | None = None,
    json: bool = False,
) -> None:
    """Teach a small language model tic-tac-toe on this machine's CPU: imitation of a teacher, then reinforcement.

    It takes minutes, can be stopped at any moment, and ends with a table, a learning curve and a checkpoint. A
    finished run is not repeated: its table is shown again.

    Parameters
    ----------
    quick:
        A run of under a minute that only shows that something is learnt.
    out:
        New folder of the run. Default: runs/demo-seedN.
    resume:
        Go on with a run: the one in this folder, or without one the newest unfinished one.
    seed:
        Random seed. Default: 0.
    workers:
        Processes, one core each; the figures do not depend on it. Default: 2, or 1 on one core.
    json:
        Print the report as one JSON object.
    """
    if resume is not None:
        if quick or out is not None or seed is not None:
            raise UsageError("--resume goes on as the run was begun: leave --quick, --out and --seed out")
        folder = resume[0] if resume else _newest_unfinished_demo()
        _run_of_recipe(folder, "demo")
    else:
        folder = out or RUNS_FOLDER / f"demo-{'quick-' if quick else ''}seed{seed or 0}"
        if not _is_finished_demo(folder, quick=quick, seed=seed or 0):
            _refuse_existing_run(folder, "wander demo")
    with resumable(folder, shell_command("demo", "--resume", folder)) as progress:
        if not (folder / REPORT_FILE).is_file():
            config = None if resume is not None else _demo_config(quick=quick, seed=seed or 0)
            _run_demo(folder, config, progress=progress, workers=workers)
        report = _demo_report(folder)
    if json:
        print_json({"run": str(folder), **report.as_dict()})
        return
    print_result(report.table())
    files = [f"  {folder / name}" for name in ("curve.png", "report.md", REPORT_FILE)]
    print_result(None, f"{report.wall_s:.0f} seconds. Picture, report and figures:", *files)
    other_seed = shell_command("demo", *(["--quick"] if quick else []), "--seed", str(report.seed + 1))
    _note_next_commands("tictactoe", folder, report.checkpoint, other_seed)


def _demo_config(*, quick: bool, seed: int) -> Any:
    preset = import_object(f"wanderlust.recipes.tictactoe:{'QUICK' if quick else 'FULL'}_DEMO", extra="train")
    return replace(preset, seed=seed)


def _is_finished_demo(folder: Path, *, quick: bool, seed: int) -> bool:
    """Whether the same demo was finished there."""
    run = open_folder(folder)
    if run is None or run.recipe != "demo" or not run.finished:
        return False
    return bool(_load_demo_config(folder) == _demo_config(quick=quick, seed=seed))


def _load_demo_config(folder: Path) -> Any:
    kind = import_object("wanderlust.recipes.tictactoe:DemoConfig", extra="train")
    return import_object("wanderlust.training.run:load_config", extra="train")(folder, kind)


def _run_demo(folder: Path, config: Any, *, progress: Progress, workers: int | None) -> None:
    """Begin a run, or without a config go on with one, and write its report."""
    runs = import_object("wanderlust.training.run:Run", extra="train")
    if config is not None:
        run = runs.begin(folder, config)
    else:
        config = _load_demo_config(folder)
        run = runs.resume(folder)
    with closing(run.store), serve_control(run.store.path, progress.log_line):
        demo = import_object("wanderlust.recipes.tictactoe:Demo", extra="train")
        facts = demo(config, run, logger=progress, workers=workers or min(2, available_cores())).run_stages()
    import_object("wanderlust.recipes.tictactoe_report:write_report", extra="train")(folder, facts, seed=config.seed)


def _demo_report(folder: Path) -> Any:
    """The report as it was written."""
    kind = import_object("wanderlust.recipes.tictactoe_report:DemoReport", extra="train")
    try:
        body = json_format.loads((folder / REPORT_FILE).read_text())
        return kind(**{name: body[name] for name in kind.__dataclass_fields__})
    except KeyError as error:
        raise StoreError(f"{folder / REPORT_FILE}: there is no {error} in it") from error
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(f"cannot read {folder / REPORT_FILE}: {error}") from error


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions(TrainConfig):
    """The fields of `TrainConfig` as options; environment and policy are arguments of the command."""

    env: Annotated[str, Parameter(parse=False)] = ""
    policy: Annotated[str, Parameter(parse=False)] = ""
    algorithm: str = "cispo"
    """Advantages and loss: cispo, grpo, dapo, ppo, dpo, distill, ...; all: docs/algorithms.md."""
    curriculum: str = ""
    """Next tasks: uniform, stratified, band, learnability or exit,share=0.3. Empty: the environment's order."""


DEFAULT_TRAIN_OPTIONS = TrainOptions()


def train_command(
    env: str | None = None,
    /,
    *,
    policy: str | None = None,
    preset: str | None = None,
    train_options: TrainOptions = DEFAULT_TRAIN_OPTIONS,
    out: Path | None = None,
    resume: Path | None = None,
    workers: PositiveInt | None = None,
    logger: tuple[str, ...] = (),
    json: bool = False,
) -> None:
    """Train a model in any environment by reinforcement learning; evaluates before, meanwhile and after.

    Parameters
    ----------
    env:
        Name of an environment, package.module:Name, or file.py:Name.
    policy:
        A run or checkpoint folder, smollm2, or fresh: a new small model that first imitates the environment's teacher.
    preset:
        Instead of all that, settings known to learn: wordle, arithmetic, kuhn, no-answer, tool-call.
    out:
        New folder of the run. Default: runs/train-ENV-seedN.
    resume:
        Go on with the run in this folder, as it was begun.
    workers:
        Processes, one core each; the figures do not depend on it. Default: 2, or 1 on one core and on a GPU.
    logger:
        Send metrics to tensorboard, wandb, trackio or mlflow as well; may be given more than once.
    json:
        Print the report as one JSON object.
    """
    check_logger_names(logger)
    if resume is not None:
        if train_options != DEFAULT_TRAIN_OPTIONS or (env, policy, preset, out) != (None,) * 4:
            raise UsageError(
                "--resume goes on as the run was begun: leave out everything but --workers, --logger and --json"
            )
        folder = _run_of_recipe(resume, "train").path
    else:
        env, policy, config = _what_to_train(env, policy, preset, options=train_options)
        folder = out or RUNS_FOLDER / f"train-{(preset or env).replace(':', '-')}-seed{config.seed}"
        _refuse_existing_run(folder, "wander train")
    with resumable(folder, shell_command("train", "--resume", folder)) as progress:
        more: dict[str, Any] = {"workers": workers, "loggers": logger, "progress": progress}
        if resume is not None:
            result = import_object("wanderlust.training.train:resume_training", extra="train")(folder, **more)
        else:
            words = training_command_words(
                env or "", policy or "", preset=preset, options=train_options, defaults=DEFAULT_TRAIN_OPTIONS
            )
            start = import_object("wanderlust.training.train:train", extra="train")
            result = start(env, policy, config=config, out=folder, resume=False, command=words, **more)
    if json:
        print_json({"run": str(folder), **result.report})
        return
    if result.curve:
        print_result(result.table())
    else:
        print_result(None, "The environment has no eval split, so nothing was evaluated.")
    _note_next_commands(_run_of_recipe(folder, "train").config["env"], folder, result.policy_folder)


def _what_to_train(
    env: str | None, policy: str | None, preset: str | None, *, options: TrainOptions
) -> tuple[str, str, Any]:
    """Environment, policy and configuration of a new run."""
    if preset is not None:
        if (env, policy) != (None, None):
            raise UsageError(f"--preset {preset} names environment and policy: leave both out")
        presets = import_object("wanderlust.recipes.presets:TRAIN_PRESETS", extra="train")
        if preset not in presets:
            raise UsageError(f"there is no preset {preset!r}; {nearest_names(preset, [*presets], kind='presets')}")
        if options != replace(DEFAULT_TRAIN_OPTIONS, seed=options.seed):
            raise UsageError(
                f"--preset {preset} says how to train: leave out everything but --seed, --logger, --out, --workers, "
                "--json"
            )
        config = replace(presets[preset], seed=options.seed)
        return config.env, config.policy, config
    if env is None or policy is None:
        raise UsageError("wander train needs an environment and --policy RUN, or --preset NAME, or --resume RUN")
    return env, policy, TrainConfig(**{**asdict(options), "env": env, "policy": policy})


def _refuse_existing_run(folder: Path, command: str) -> None:
    """Raises UsageError, which says how to resume, when the folder exists."""
    if folder.exists():
        raise UsageError(
            f"{folder} exists already and is not overwritten: resume it with {command} --resume {folder}, or name "
            "another folder with --out"
        )


def _run_of_recipe(folder: Path, recipe: str) -> RunFolder:
    """The run of a recipe in a folder."""
    run = open_folder(folder)
    if run is None:
        raise UsageError(f"no run in {folder}; {nearest_names(str(folder), runs_beside(folder), kind='runs')}")
    if run.recipe != recipe:
        raise UsageError(f"{folder} is a run of another recipe ({run.recipe})")
    return run


def _newest_unfinished_demo() -> Path:
    """The unfinished run of the demo that was written to last."""
    runs = [run for run in runs_in(RUNS_FOLDER) if run.recipe == "demo"]
    unfinished = [run for run in runs if not run.finished]
    if not unfinished:
        there = f": finished ones are {', '.join(str(run.path) for run in runs)}" if runs else ""
        raise UsageError(f"there is no unfinished run of the demo in {RUNS_FOLDER}{there}")
    newest = max(unfinished, key=lambda run: run.touched).path
    print_note(f"resuming {newest}")
    return newest


def _note_next_commands(env: str, folder: Path, checkpoint: str, *more: str) -> None:
    """Print commands that use the trained model; `play` only where the environment has a seat for a person."""
    try:
        verbs = ["play", "eval", "train"] if resolve_environment(env).env.duel() is not None else ["eval", "train"]
    except WanderlustError:  # an environment that is an object, not a name
        verbs = []
    lines = [shell_command("studio", folder), *(shell_command(verb, env, "--policy", folder) for verb in verbs), *more]
    print_result(
        None,
        f"Checkpoint, a standard Hugging Face folder: {checkpoint}",
        "Next:",
        *(f"  {line}" for line in lines),
    )
