"""`wander distil`: a small student of a teacher, and what both are worth."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from wanderlust.cli.long_commands import set_library_environment, stoppable
from wanderlust.cli.options import EnvironmentName, JsonFlag, PolicyName, PositiveInt, PriceOptions
from wanderlust.cli.output import print_note, show_result
from wanderlust.policies.base import TokenPrices
from wanderlust.store.run_folder import shell_command
from wanderlust.tasks.registry import parse_settings_like
from wanderlust.training.config import TrainConfig
from wanderlust.training.finetune_config import FinetuneConfig
from wanderlust_data.distillation import DistilConfig, default_folder, distil
from wanderlust_data.distillation_report import PAGE_FILE, PICTURE_FILE
from wanderlust_data.plan import Teacher


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherOptions(PriceOptions):
    """How the teacher is asked, and what it costs."""

    model: str | None = None
    """Name of the model, where the teacher is a URL."""
    temperature: Annotated[float | None, Parameter(validator=Number(gte=0))] = None
    """Sampling temperature of its answers to training questions. Default: 1 for checkpoints, an endpoint's own."""
    max_tokens: PositiveInt | None = None
    """Bound of one of its answers. Default: 256 for checkpoints, the server's own for endpoints."""
    api_key: str | None = None
    """Name of the environment variable that holds the endpoint's key. Default: WANDER_API_KEY, if it is set."""
    samples: PositiveInt = 4
    """Its answers to each question, of which the right ones are imitated."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class StudentOptions:
    """How the student is made and examined."""

    questions: PositiveInt = 500
    """Questions of the split train that the teacher answers, at most."""
    min_reward: float = 1.0
    """Least reward of an answer that the student imitates."""
    sft: str = ""
    """Settings of wander sft: epochs=20,fresh_width=128."""
    rl: str = ""
    """Settings of wander train: steps=60,lr=5e-4,max_tokens=32."""
    exam: PositiveInt = 200
    """Held-out tasks of the split eval, at most."""
    exam_samples: PositiveInt = 1
    """Answers to each."""
    exam_temperature: Annotated[float | None, Parameter(validator=Number(gte=0))] = 0.0
    """Sampling temperature of both in the exam."""
    core_price: Annotated[float, Parameter(validator=Number(gte=0))] = 0.04
    """Dollars per hour of a processor core, for what is computed on this machine."""
    seed: int = 0
    """Random seed."""

    def config(self, prices: TokenPrices | None) -> DistilConfig:
        """As `distil` takes it."""
        training = {
            "sft": _settings(self.sft, asdict(FinetuneConfig())),
            "rl": _settings(self.rl, TrainConfig().as_dict()),
        }
        return DistilConfig(**{**asdict(self), **training}, prices=prices)


DEFAULT_TEACHER_OPTIONS, DEFAULT_STUDENT_OPTIONS = TeacherOptions(), StudentOptions()


def distil_command(
    env: EnvironmentName,
    /,
    *,
    teacher: PolicyName,
    student: Annotated[str, Parameter(help="fresh for a small new model, smollm2, or a run or checkpoint folder.")] = (
        "fresh"
    ),
    teacher_options: TeacherOptions = DEFAULT_TEACHER_OPTIONS,
    student_options: StudentOptions = DEFAULT_STUDENT_OPTIONS,
    out: Path | None = None,
    concurrency: PositiveInt = 64,
    workers: PositiveInt | None = None,
    json: JsonFlag = False,
) -> int:
    """Make a small student of a teacher, and say what both are worth: quality, latency, tokens, cost, break-even.

    The teacher answers questions of the split `train`. Its right answers train the student by SFT, then RL goes on in
    the environment itself. Both are examined on the same held-out tasks. The same command goes on where it was stopped.

    Without prices, a teacher on this machine costs its processor time. The exit code is 1 when rollouts of the exam
    failed; they are in no figure.

    Parameters
    ----------
    out:
        Folder that is written. Default: runs/distil-ENV-seedN.
    concurrency:
        Answers at once; the latency is that of tasks played alone.
    workers:
        Processes of the RL stage. Default: 2, or 1 on one core and on a GPU.
    """
    config = student_options.config(teacher_options.prices())
    asked = {name: getattr(teacher_options, name) for name in ("model", "temperature", "max_tokens", "api_key")}
    folder = out or default_folder(env, config)
    set_library_environment(one_thread=True)
    with stoppable(lambda: f"stopped; finished work is in {folder}; the same command goes on from there") as progress:
        report = distil(
            env,
            Teacher(policy=teacher, samples=teacher_options.samples, **asked),
            student,
            config=config,
            out=folder,
            concurrency=concurrency,
            workers=workers,
            progress=progress,
        )
    files = f"Report: {folder / PAGE_FILE}, picture: {folder / PICTURE_FILE}"
    following = shell_command("eval", env, "--policy", report.student)
    show_result(report.as_dict(), *report.findings, files, "Next:", f"  {following}", table=report.table(), json=json)
    failed = {side.name: side.failed for side in report.sides if side.failed}
    for name, count in failed.items():
        print_note(f"{count} rollouts of the {name} failed and are in no figure")
    return 1 if failed else 0


def _settings(text: str, defaults: dict[str, Any]) -> dict[str, Any]:
    """The settings in the text, each of a known name. Raises UsageError for any other."""
    return parse_settings_like(f",{text}", defaults) if text else {}
