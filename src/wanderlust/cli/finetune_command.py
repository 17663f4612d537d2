"""`wander sft`, `wander dpo` and `wander reward-model`: offline training on stored data, which can be resumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from wanderlust._lazy import needs_extra
from wanderlust.cli.long_commands import resumable
from wanderlust.cli.options import JsonFlag
from wanderlust.cli.output import show_result
from wanderlust.cli.train_command import RunOptions, refuse_existing_run, run_of_recipe
from wanderlust.errors import UsageError
from wanderlust.policies.base import Precision
from wanderlust.store.run_folder import OFFLINE_COMMANDS, RUNS_FOLDER, option_words, shell_command
from wanderlust.training.finetune_config import FinetuneConfig, Method
from wanderlust.training.loggers import check_logger_names

Hidden = Parameter(parse=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options(FinetuneConfig):
    """The fields of `FinetuneConfig` as options; data and policy are arguments of the commands."""

    data: Annotated[str, Hidden] = ""
    data_digest: Annotated[str, Hidden] = ""
    policy: Annotated[str, Hidden] = ""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SFTOptions(_Options):
    """Options of `wander sft`."""

    method: Annotated[Method, Hidden] = "sft"
    dpo_beta: Annotated[float, Hidden] = 0.1


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class DPOOptions(_Options):
    """Options of `wander dpo`, which reads answers of the assistant and starts from a trained model."""

    method: Annotated[Method, Hidden] = "dpo"
    roles: Annotated[str, Hidden] = "assistant"
    fresh_width: Annotated[int, Hidden] = 64
    fresh_head_width: Annotated[int, Hidden] = 16
    fresh_layers: Annotated[int, Hidden] = 2
    fresh_positions: Annotated[int, Hidden] = 1024


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class RewardModelOptions(_Options):
    """Options of `wander reward-model`."""

    method: Annotated[Method, Hidden] = "reward"
    roles: Annotated[str, Hidden] = "assistant"
    min_reward: Annotated[float | None, Hidden] = None
    dpo_beta: Annotated[float, Hidden] = 0.1
    engine: Annotated[Literal["local", "fsdp"], Hidden] = "local"
    processes: Annotated[int, Hidden] = 1
    precision: Annotated[Precision, Hidden] = "fp32"


DEFAULT_SFT, DEFAULT_DPO, DEFAULT_REWARD_MODEL = SFTOptions(), DPOOptions(), RewardModelOptions()
DEFAULT_RUN_OPTIONS = RunOptions()


def sft_command(
    data: Path | None = None,
    /,
    *,
    policy: str | None = None,
    options: SFTOptions = DEFAULT_SFT,
    run_options: RunOptions = DEFAULT_RUN_OPTIONS,
    json: JsonFlag = False,
) -> None:
    """Train a checkpoint on conversations, offline: a file of rows, or what a run has stored.

    Parameters
    ----------
    data:
        What wander export --to sft writes, or a run's folder; or JSONL, CSV or Parquet rows with messages, or with
        prompt and completion.
    policy:
        A run or checkpoint folder, smollm2, or fresh: a new small model.
    """
    _run(data, policy, options, run_options=run_options, json=json)


def dpo_command(
    data: Path | None = None,
    /,
    *,
    policy: str | None = None,
    options: DPOOptions = DEFAULT_DPO,
    run_options: RunOptions = DEFAULT_RUN_OPTIONS,
    json: JsonFlag = False,
) -> None:
    """Train a checkpoint on pairs of a better and a worse answer, offline (arXiv 2305.18290).

    Parameters
    ----------
    data:
        What wander export --to dpo writes, or a run's folder; or JSONL or Parquet rows with chosen and rejected, and
        prompt where those two do not begin with it.
    policy:
        A run or checkpoint folder, or smollm2; it is the reference as well.
    """
    _run(data, policy, options, run_options=run_options, json=json)


def reward_model_command(
    data: Path | None = None,
    /,
    *,
    policy: str | None = None,
    options: RewardModelOptions = DEFAULT_REWARD_MODEL,
    run_options: RunOptions = DEFAULT_RUN_OPTIONS,
    json: JsonFlag = False,
) -> None:
    """Train a reward model on preferences (Bradley-Terry), offline; it is calibrated on held-out pairs.

    wander train learned-reward,env=ENV,model=RUN then trains a policy against it, and wander rescore scores with it.

    Parameters
    ----------
    data:
        Pairs, as wander export --to dpo writes them: JSONL or Parquet rows with chosen, rejected and prompt. Or rated
        answers: rows with prompt, completion and rating. Or a run's folder, whose rollouts are compared by reward.
    policy:
        The model that gets a head for scores: a run or checkpoint folder, smollm2, or fresh (a new small model).
    """
    _run(data, policy, options, run_options=run_options, json=json)


def _run(
    data: Path | None, policy: str | None, options: FinetuneConfig, /, *, run_options: RunOptions, json: bool
) -> None:
    method, resume, logger = options.method, run_options.resume, run_options.logger
    defaults, command = type(options)(), OFFLINE_COMMANDS[method]
    settings = {name: value for name, value in asdict(options).items() if value != getattr(defaults, name)}
    check_logger_names(logger)
    if resume is not None:
        if settings or (data, policy, run_options.out) != (None,) * 3:
            raise UsageError(
                "--resume goes on as the run was begun: leave out everything but --previous-state, --logger and --json"
            )
        folder = run_of_recipe(resume, "finetune").path
    else:
        if run_options.previous_state:
            raise UsageError("--previous-state goes with --resume RUN")
        if data is None or policy is None:
            raise UsageError(f"wander {command} needs a file or run, and --policy RUN; or --resume RUN")
        folder = run_options.out or RUNS_FOLDER / f"{method}-{data.stem}-seed{settings.get('seed', 0)}"
        refuse_existing_run(folder, f"wander {command}")
    with resumable(folder, shell_command(command, "--resume", folder)) as progress:
        with needs_extra("train"):
            from wanderlust.training.finetune import finetune, resume_finetuning
        if data is None or policy is None:
            result = resume_finetuning(
                folder, loggers=logger, progress=progress, previous_state=run_options.previous_state
            )
        else:
            words = (command, str(data), "--policy", policy, *option_words(settings))
            result = finetune(
                data,
                policy,
                method,
                out=folder,
                resume=False,
                loggers=logger,
                progress=progress,
                command=words,
                **settings,
            )
    lines = [result.verdict, f"Checkpoint: {result.policy_folder}"]
    if method == "reward":
        lines.append(reward_model_sentence(result.report["reward_model"]))
    following = f"train learned-reward,env=ENV,model={folder}" if method == "reward" else f"eval ENV --policy {folder}"
    body, table = {"run": str(folder), **result.report}, result.table() if result.curve else None
    show_result(body, *lines, "Next:", f"  wander {following}", table=table, json=json)


def reward_model_sentence(figures: Mapping[str, Any]) -> str:
    """What a reward model is worth on held-out pairs."""
    if figures["accuracy"] is None:
        return "No pairs were held out, so the reward model is neither measured nor calibrated."
    error = figures["calibration_error"]
    stated = (
        "" if error is None else f"; calibration error {error:.3f}, {figures['calibration_error_before']:.3f} before"
    )
    chance = figures["accuracy_low"] is None or figures["accuracy_low"] <= 0.5
    return (
        f"Held-out pairs: {figures['accuracy']:.1%} right of {figures['held_out_pairs']} "
        f"[{figures['accuracy_low'] or 0:.1%}, {figures['accuracy_high'] or 1:.1%}]; "
        f"temperature {figures['temperature']:.2f}{stated}.{' Not shown to be better than chance.' if chance else ''}"
    )
