"""`wander scale`: what more samples and revisions bring at test time, against their tokens and cost."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Final, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from wanderlust.cli.eval_options import make_estimator, synthesis_writer
from wanderlust.cli.judge_gap import DEFAULT_JUDGE_SETTINGS, JudgeSettings
from wanderlust.cli.long_commands import stoppable
from wanderlust.cli.options import (
    ANSWER_DEFAULTS,
    EnvironmentName,
    JsonFlag,
    ModelOptions,
    PolicyName,
    PositiveInt,
    PriceOptions,
)
from wanderlust.cli.output import print_note, show_result
from wanderlust.errors import UsageError
from wanderlust.evals.scaling import scale
from wanderlust.evals.scaling_report import PICTURE_FILE
from wanderlust.policies.resolve import PolicyOptions, ResolvedPolicy, resolve_judge_policy, resolve_policy
from wanderlust.rubrics.judge import REFERENCE_FREE_TEMPLATE
from wanderlust.rubrics.label_free import ReferenceEstimator
from wanderlust.tasks.registry import ResolvedEnvironment, resolve_environment

SEES_QUESTION: Final = "synthesis-with-question"
ScaledEstimate = Literal["likeliest", "mutual", "synthesis", "synthesis-with-question"]
"""Estimators with a curve; `majority` has one in any case."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleOptions(PriceOptions):
    """Of `wander scale`."""

    samples: Annotated[int, Parameter(validator=Number(gte=2))] = 16
    """Rollouts per task."""
    rounds: Annotated[int, Parameter(validator=Number(gte=0))] = 0
    """Revisions of the first rollout of each task, one after the other."""
    choose_by: tuple[str, ...] = ()
    """Part or metric of the score by which best-of-n chooses, such as visible tests. Default: the environment's."""
    judge: str | None = None
    """A judge by which best-of-n chooses, too: a URL, a script, a run or checkpoint folder."""
    estimate: tuple[ScaledEstimate, ...] = ()
    """Also draw the reward of one answer made of k rollouts (docs/label-free-rl.md); several times for several."""
    synthesizer: str | None = None
    """Policy that writes syntheses, at temperature 0. Default: the policy itself."""
    split: str = "eval"
    """Split of the environment."""
    num_tasks: Annotated[PositiveInt | None, Parameter(alias="-n")] = None
    """How many tasks of the split, spread evenly over it. Default: all."""
    out: Path | None = None
    """Folder for the rollouts, scaling.json and the picture scaling.png; the same command goes on where it stopped."""
    concurrency: PositiveInt = 128
    """Rollouts at once."""

    def __post_init__(self) -> None:
        if (self.price_in is None) != (self.price_out is None):
            raise UsageError("--price-in and --price-out go together")

    def estimators(
        self, resolved: ResolvedEnvironment, player: ResolvedPolicy, options: PolicyOptions, *, policy: str
    ) -> dict[str, ReferenceEstimator]:
        """The estimators by the names of their curves."""
        if not self.estimate:
            return {}
        anchor = synthesis_writer(player, self.synthesizer or (policy if player.kind == "endpoint" else None), options)
        return {
            name: make_estimator(
                "synthesis" if name == SEES_QUESTION else name,
                resolved,
                player,
                anchor=anchor,
                sees_question=name == SEES_QUESTION,
            )
            for name in self.estimate
        }


DEFAULT_SCALE_OPTIONS = ScaleOptions()
SCALE_ARGUMENTS = ("split", "samples", "rounds", "choose_by", "out", "concurrency")
"""Options that are arguments of `scale` as they are."""


def scale_command(
    env: EnvironmentName,
    /,
    *,
    policy: PolicyName,
    answer_options: ModelOptions = ANSWER_DEFAULTS,
    scale_options: ScaleOptions = DEFAULT_SCALE_OPTIONS,
    judge_settings: JudgeSettings = DEFAULT_JUDGE_SETTINGS,
    json: JsonFlag = False,
) -> int:
    """Test-time scaling of a policy: pass@k, best-of-n by visible tests or a judge, majority, and sequential revision.

    Every point has its 95% interval, the gain over one sample paired by task, and its completion tokens and cost; the
    last points are also given by difficulty (all points: --json). The exit code is 1 when tasks were left out because a
    rollout failed.
    """
    options = answer_options.policy_options(greedy=False)
    resolved = resolve_environment(env)
    judge = None
    if scale_options.judge is not None:
        judging = resolve_judge_policy(scale_options.judge, options)
        judge = judge_settings.single(judging, judge_settings.response_cache(), REFERENCE_FREE_TEMPLATE)
    player = resolve_policy(policy, resolved.env, replace(options, split=scale_options.split))
    writing = answer_options.policy_options(greedy=True)
    estimators = scale_options.estimators(resolved, player, writing, policy=policy)
    out = scale_options.out
    farewell = f"stopped; the same command goes on in {out}" if out else "stopped; nothing was saved (no --out)"
    with stoppable(lambda: farewell) as progress:
        report = asyncio.run(
            scale(
                resolved.env,
                player.policy,
                **{name: getattr(scale_options, name) for name in SCALE_ARGUMENTS},
                n=scale_options.num_tasks,
                judge=judge,
                estimators=estimators,
                prices=scale_options.prices(),
                seed=answer_options.seed,
                progress=progress,
            )
        )
    if out is not None:
        report.draw(out / PICTURE_FILE)
    lines = [f"The picture is {out / PICTURE_FILE}."] if out is not None else []
    show_result(asdict(report), *lines, table=report.table(), json=json)
    if report.left_out:
        print_note(f"{report.left_out} tasks are in no figure: some of their rollouts failed")
    if report.revision_left_out:
        print_note(f"{report.revision_left_out} tasks are not in the curve of revisions: one of those failed")
    for name, count in report.estimates_left_out.items():
        if count:
            print_note(f"{count} tasks are not in the curve of {name}: {report.first_failure}")
    return 1 if report.left_out or report.revision_left_out or any(report.estimates_left_out.values()) else 0
