"""`wander train`: a training run, which can be stopped and resumed at any moment."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from wanderlust._lazy import needs_extra
from wanderlust.cli.commands import GIVEN
from wanderlust.cli.eval_options import WorkerOptions
from wanderlust.cli.long_commands import resumable
from wanderlust.cli.options import JsonFlag, LoggerNames, PositiveInt
from wanderlust.cli.output import print_json, print_result
from wanderlust.errors import UsageError, WanderlustError, nearest_names
from wanderlust.store.run_folder import (
    RUNS_FOLDER,
    RunFolder,
    open_folder,
    runs_beside,
    shell_command,
    training_command_words,
)
from wanderlust.tasks.registry import resolve_environment
from wanderlust.training.config import TrainConfig
from wanderlust.training.loggers import check_logger_names
from wanderlust.training.presets import load_preset

if TYPE_CHECKING:
    from wanderlust.training.result import TrainResult


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions(TrainConfig):
    """The fields of `TrainConfig` as options; environment and policy are arguments of the command."""

    env: Annotated[str, Parameter(parse=False)] = ""
    policy: Annotated[str, Parameter(parse=False)] = ""
    algorithm: str = "cispo"
    """Advantages and loss: cispo, grpo, dapo, ppo, dpo, distill, ...; all: docs/algorithms.md."""
    curriculum: str = ""
    """Next tasks: uniform, band, learnability, ...; all: docs/curricula.md; settings: band,low=0.1. Empty: in order."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """Where the settings of a new run come from, besides its options."""

    preset: str | None = None
    """Instead of all that, a preset of an installed package, such as wordle; all: docs/presets.md. One of several runs
    takes --policy and options as well."""
    config: Path | None = None
    """TOML file with settings in sections, as every run keeps one (config.toml). Options take precedence over it."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The folder of a run, new or gone on with."""

    out: Path | None = None
    """New folder of the run. Default: runs/train-ENV-seedN, or runs/sft-DATA-seedN for the data of sft."""
    logger: LoggerNames = ()
    resume: Path | None = None
    """Go on with the run in this folder, as it was begun."""
    previous_state: bool = False
    """With --resume: go on from the state saved before the last one, which is damaged."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRunOptions(RunOptions):
    """The same for a training run."""

    accept_changes: bool = False
    """With --resume: go on although the environment, its rubric or its tasks have changed since."""

    @property
    def arguments(self) -> dict[str, Any]:
        """As `resume_training` takes them."""
        return {"accept_changes": self.accept_changes, "previous_state": self.previous_state}


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions(WorkerOptions):
    """Where the rollouts of a training run are played; no setting of the run."""

    workers: PositiveInt | None = None
    """Processes, one core each; the figures do not depend on it. Default: 2, or 1 on one core and on a GPU."""


DEFAULT_TRAIN_OPTIONS, DEFAULT_START_OPTIONS = TrainOptions(), StartOptions()
DEFAULT_RUN_OPTIONS, DEFAULT_PROCESS_OPTIONS = TrainRunOptions(), ProcessOptions()


def train_command(
    env: str | None = None,
    /,
    *,
    policy: str | None = None,
    start_options: StartOptions = DEFAULT_START_OPTIONS,
    train_options: TrainOptions = DEFAULT_TRAIN_OPTIONS,
    run_options: TrainRunOptions = DEFAULT_RUN_OPTIONS,
    process_options: ProcessOptions = DEFAULT_PROCESS_OPTIONS,
    json: JsonFlag = False,
) -> None:
    """Train a model in any environment by reinforcement learning; evaluates before, meanwhile and after.

    Parameters
    ----------
    env:
        Name of an environment, package.module:Name, or file.py:Name.
    policy:
        A run or checkpoint folder, smollm2, or fresh: a new small model that first imitates the environment's teacher.
    """
    out, logger, resume = run_options.out, run_options.logger, run_options.resume
    check_logger_names(logger)
    new, preset = None, start_options.preset
    settings = load_preset(preset) if preset is not None and resume is None else None
    if settings is not None and not isinstance(settings, TrainConfig):
        given = _options_of_preset(env, train_options, start_options, logger=logger)
        settings(policy, given, out=out, workers=process_options.workers, json=json)
        return
    if resume is not None:
        asked = (env, policy, out, replace(train_options, engine_url=DEFAULT_TRAIN_OPTIONS.engine_url), start_options)
        _refuse_with_resume(asked)
        folder = run_of_recipe(resume, "train").path
    else:
        if run_options.accept_changes or run_options.previous_state:
            raise UsageError("--accept-changes and --previous-state go with --resume RUN")
        new = _new_config((env, policy), start_options, preset=settings, options=train_options)
        folder = out or RUNS_FOLDER / f"train-{(preset or str(new.env)).replace(':', '-')}-seed{new.seed}"
        refuse_existing_run(folder, "wander train")
    with resumable(folder, shell_command("train", "--resume", folder)) as progress:
        with needs_extra("train"):
            from wanderlust.training.train import resume_training, train
        if new is None:
            result = resume_training(
                folder,
                **asdict(process_options),
                loggers=logger,
                progress=progress,
                **run_options.arguments,
                engine_url=train_options.engine_url or None,
            )
        else:
            result = train(
                new.env,
                new.policy,
                config=new,
                out=folder,
                resume=False,
                **asdict(process_options),
                loggers=logger,
                progress=progress,
                command=_command_words(new, preset if settings is not None and settings.env else None, train_options),
            )
    if json:
        print_json({"run": str(folder), **result.report})
        return
    _print_outcome(folder, result)
    note_next_commands(run_of_recipe(folder, "train").config["env"], folder, result.policy_folder)


def _refuse_with_resume(asked: tuple[Any, ...]) -> None:
    """Raises UsageError where more is asked than that a run goes on."""
    if asked != (None, None, None, DEFAULT_TRAIN_OPTIONS, DEFAULT_START_OPTIONS):
        raise UsageError(
            "--resume goes on as the run was begun: leave out everything but --accept-changes, "
            "--previous-state, --engine-url, --workers, --ray-workers, --ray-address, --logger and --json"
        )


def _options_of_preset(
    env: str | None, options: TrainOptions, source: StartOptions, *, logger: tuple[str, ...]
) -> dict[str, Any]:
    """The options that were named. Raises UsageError for what no preset of several runs takes."""
    if env is not None or source.config is not None or logger:
        raise UsageError(
            f"--preset {source.preset} takes neither an environment nor --config or --logger: leave them out"
        )
    return {name: value for name, value in asdict(options).items() if name in GIVEN.get()}


def _print_outcome(folder: Path, result: TrainResult) -> None:
    """The greedy and the sampled evaluation, the verdict, the checkpoint that the run hands out, advice."""
    if not result.curve:
        print_result(None, "The environment has no eval split, so nothing was evaluated.")
        return
    print_result(result.table())
    if not result.report.get("result"):
        print_result(None, *result.report.get("advice", ()))
        return
    with needs_extra("train"):
        from wanderlust.training.run_report import CURVE_FILE, PAGE_FILE, policy_sentence
    more = [result.report["overoptimisation"]["sentence"]] if "overoptimisation" in result.report else []
    more += [*result.report["advice"], *(f"Warning at {line}" for line in result.report["result"].get("warnings", ()))]
    files = f"Report: {folder / PAGE_FILE}, picture: {folder / CURVE_FILE}"
    chosen = policy_sentence(result.report).replace("RUN", str(folder), 1)
    print_result(result.result_table(), result.verdict, chosen, *more, files)


def _command_words(config: TrainConfig, preset: str | None, options: TrainOptions) -> tuple[str, ...]:
    """The words after `wander` that begin this run."""
    settings = options if preset else TrainOptions(**{**config.as_dict(), "env": "", "policy": ""})
    return training_command_words(
        str(config.env), config.policy, preset=preset, options=settings, defaults=DEFAULT_TRAIN_OPTIONS
    )


def _new_config(
    named: tuple[str | None, str | None], source: StartOptions, *, preset: TrainConfig | None, options: TrainOptions
) -> TrainConfig:
    """The configuration of a new run, which names its environment and its policy."""
    file, (env, policy) = source.config, named
    if preset is not None and file is not None:
        raise UsageError("--preset and --config both say how to train: leave one out")
    if preset is not None and preset.env:
        if named != (None, None):
            raise UsageError(f"--preset {source.preset} names environment and policy: leave both out")
        if options != replace(DEFAULT_TRAIN_OPTIONS, seed=options.seed):
            raise UsageError(
                f"--preset {source.preset} says how to train: leave out everything but --seed, --logger, --out, "
                "--workers, --json"
            )
        return preset.replace(seed=options.seed)
    given = {n: value for n, value in asdict(options).items() if (file or preset) is None or n in GIVEN.get()}
    start = {name: value for name, value in (("env", env), ("policy", policy)) if value is not None}
    config = (TrainConfig.load(file) if file else preset or TrainConfig()).replace(**{**given, **start})
    if not config.env or not config.policy:
        if file is None:
            choices = "--policy RUN, or --config FILE, or --preset NAME, or --resume RUN"
            raise UsageError(f"wander train needs an environment and {choices}")
        missing = " and ".join(name for name in ("env", "policy") if not getattr(config, name))
        raise UsageError(f"{file} names no {missing}: set it in [model], or as in wander train ENV --policy RUN")
    return config


def refuse_existing_run(folder: Path, command: str) -> None:
    """Raises UsageError, which says how to resume, when the folder exists."""
    if folder.exists():
        raise UsageError(
            f"{folder} exists already and is not overwritten: resume it with {command} --resume {folder}, or name "
            "another folder with --out"
        )


def run_of_recipe(folder: Path, recipe: str) -> RunFolder:
    """The run of a recipe in a folder."""
    run = open_folder(folder)
    if run is None:
        raise UsageError(f"no run in {folder}; {nearest_names(str(folder), runs_beside(folder), kind='runs')}")
    if run.recipe != recipe:
        raise UsageError(f"{folder} is a run of another recipe ({run.recipe})")
    return run


def note_next_commands(env: str, folder: Path, checkpoint: str | Path, *more: str) -> None:
    """Print commands that use the trained model; `play` only where the environment has a seat for a person."""
    try:
        verbs = ["play", "eval", "train"] if resolve_environment(env).env.duel() is not None else ["eval", "train"]
    except WanderlustError:  # an environment that is an object, not a name
        verbs = []
    lines = [shell_command("show", folder), shell_command("studio", folder)]
    lines += [shell_command(verb, env, "--policy", folder) for verb in verbs]
    lines += more
    print_result(
        None,
        f"Checkpoint, a standard Hugging Face folder: {checkpoint}",
        "Next:",
        *(f"  {line}" for line in lines),
    )
