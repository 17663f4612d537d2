"""`wander judge gap`: what is choosing among rollouts by a judge worth?"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from wanderlust import GroupJudge, Judge, Task, Trajectory, rollouts
from wanderlust.cli.long_commands import stoppable
from wanderlust.cli.options import (
    ANSWER_DEFAULTS,
    EnvironmentName,
    JsonFlag,
    ModelOptions,
    PolicyName,
    PositiveInt,
)
from wanderlust.cli.output import print_note, show_result
from wanderlust.errors import RubricFailure, UsageError, WanderlustError, one_line
from wanderlust.evals.judge_calibration import JudgeGap, best_of
from wanderlust.policies.resolve import (
    PolicyOptions,
    ResolvedPolicy,
    open_policies,
    resolve_judge_policy,
    resolve_policy,
)
from wanderlust.rubrics.judge import REFERENCE_FREE_TEMPLATE, JudgeOptions
from wanderlust.rubrics.label_free import shown_prompt
from wanderlust.rubrics.model_request import JudgeRefusal, JudgeResponseCache
from wanderlust.rubrics.rubric import RewardResult, gather_results
from wanderlust.runner.terminal import Table
from wanderlust.tasks.registry import resolve_environment
from wanderlust.tasks.selection import choose_tasks, iter_tasks


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeGapOptions:
    """Options of the judge, and how much is played."""

    judge_model: str | None = None
    """Name of the judge's model, where it is a URL. Default: --model."""
    judge_temperature: Annotated[float | None, Parameter(validator=Number(gte=0))] = None
    """Sampling temperature of the judge. Default: --temperature."""
    judge_max_tokens: PositiveInt | None = None
    """Bound of one answer of the judge. Default: --max-tokens."""
    judge_api_key: str | None = None
    """Name of the environment variable that holds the key of the judge's endpoint. Default: --api-key."""
    samples: PositiveInt = 8
    """Rollouts per task, of which the judge chooses one."""
    num_tasks: Annotated[PositiveInt | None, Parameter(alias="-n")] = None
    """How many tasks of the `eval` split, spread evenly over it. Default: all."""
    side_by_side: bool = False
    """One verdict over all rollouts of a task instead of one for each."""

    def judge_options(self, options: PolicyOptions) -> PolicyOptions:
        """The options of the player's policy with those that are the judge's own."""
        return replace(
            options,
            model=self.judge_model or options.model,
            temperature=options.temperature if self.judge_temperature is None else self.judge_temperature,
            max_tokens=self.judge_max_tokens or options.max_tokens,
            api_key=self.judge_api_key or options.api_key,
        )


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """How a judge is asked."""

    template: Path | None = None
    """A file with what the judge is asked, with {prompt}, {answer} and {completion} in it. Default: our own."""
    votes: PositiveInt = 2
    """How often each answer is judged; two or more say whether the judge agrees with itself."""
    cache: Path | None = None
    """A file that keeps verdicts between runs."""
    yes_no: bool = False
    """The template asks for yes or no in words, and is the whole prompt."""
    schema: bool = False
    """Hold the judge's answers to the JSON schema of a verdict; an endpoint must support `response_format`."""

    def __post_init__(self) -> None:
        if self.yes_no and (self.template is None or self.schema):
            raise UsageError("--yes-no needs a --template that asks for yes or no, and no --schema")

    @property
    def options(self) -> JudgeOptions:
        """Options of the requests."""
        return JudgeOptions(schema=self.schema)

    def single(
        self,
        judging: ResolvedPolicy,
        cache: JudgeResponseCache | None,
        default_template: str,
        *,
        scale: tuple[int, int] = (0, 10),
    ) -> Judge:
        """A judge of one answer."""
        return Judge(
            judging.policy,
            default_template if self.template is None else _read_template(self.template),
            scale="yes/no" if self.yes_no else scale,
            votes=self.votes,
            cache=cache,
            model=judging.label,
            options=self.options,
        )

    def group(self, judging: ResolvedPolicy, cache: JudgeResponseCache | None, *, votes: int) -> GroupJudge:
        """A judge that compares answers."""
        return GroupJudge(policy=judging.policy, votes=votes, cache=cache, model=judging.label, options=self.options)

    def response_cache(self) -> JudgeResponseCache | None:
        """The cache, where one is wanted."""
        return None if self.cache is None else JudgeResponseCache(self.cache)


def _read_template(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeError) as error:
        raise UsageError(f"cannot read --template {file}: {one_line(str(error))}") from error


DEFAULT_GAP_OPTIONS, DEFAULT_JUDGE_SETTINGS = JudgeGapOptions(), JudgeSettings()


@dataclass(slots=True)
class GapSample:
    """Verdicts and true rewards of each group, and counts of what has none."""

    groups: list[list[tuple[float, float]]] = field(default_factory=list)
    without_verdict: int = 0
    refused: int = 0
    """Of those without a verdict, where the judge declined."""
    unscored: int = 0
    failure_reasons: Counter[str] = field(default_factory=Counter)

    def add(self, verdicts: list[RewardResult | WanderlustError], truths: list[float]) -> None:
        """A group's; a failed verdict is never a 0."""
        pairs = []
        for verdict, truth in zip(verdicts, truths, strict=True):
            if isinstance(verdict, WanderlustError):
                self.without_verdict += 1
                self.refused += isinstance(verdict, JudgeRefusal)
                self.failure_reasons[one_line(str(verdict))] += 1
            else:
                pairs.append((verdict.value, truth))
        self.groups.append(pairs)


def gap_command(
    env: EnvironmentName,
    /,
    *,
    policy: PolicyName,
    judge: PolicyName,
    answer_options: ModelOptions = ANSWER_DEFAULTS,
    gap_options: JudgeGapOptions = DEFAULT_GAP_OPTIONS,
    judge_settings: JudgeSettings = DEFAULT_JUDGE_SETTINGS,
    json: JsonFlag = False,
) -> int:
    """Measure what choosing among rollouts by a judge is worth.

    Compares the rollout that the judge likes best with the best one and the mean one, by the environment's own reward,
    which the judge is not shown. The exit code is 1 when a rollout or a verdict failed.
    """
    if gap_options.samples < 2:
        raise UsageError("there is nothing to choose from a single rollout: take --samples 2 or more")
    resolved = resolve_environment(env)
    options = answer_options.policy_options(greedy=False)
    player = resolve_policy(policy, resolved.env, options)
    judging = resolve_judge_policy(judge, gap_options.judge_options(options))
    cache = judge_settings.response_cache()
    asked: Judge | GroupJudge = judge_settings.single(judging, cache, REFERENCE_FREE_TEMPLATE)
    if gap_options.side_by_side:
        asked = judge_settings.group(judging, cache, votes=judge_settings.votes)
    tasks = choose_tasks(iter_tasks(resolved.env, "eval"), gap_options.num_tasks)
    chosen = GapSample()

    async def whole() -> None:
        playing = rollouts(resolved.env, tasks, player.policy, group_size=gap_options.samples, seed=answer_options.seed)
        async with open_policies([player.policy, judging.policy]), playing as stream:
            number = 0
            async for group in stream:
                seats = [r.main_trajectory for r in group.rollouts]
                rewarded = [(t, t.score.reward) for t in seats if t is not None and t.score is not None]
                chosen.unscored += len(group.rollouts) - len(rewarded)
                siblings, truths = [t for t, _ in rewarded], [truth for _, truth in rewarded]
                if siblings:
                    chosen.add(await _group_verdicts(asked, group.task, siblings), truths)
                number += 1
                progress.log_step("judge", number, of=len(tasks), metrics={})

    with stoppable(lambda: "stopped; verdicts in a cache are kept") as progress:
        asyncio.run(whole())
    if not any(chosen.groups):
        reasons = chosen.failure_reasons.most_common(1)
        raise RubricFailure(f"no rollout has a verdict: {reasons[0][0] if reasons else 'none has a reward'}")
    _print_gap(f"{judging.label} on {player.label} in {resolved.name}", best_of(chosen.groups), chosen, json=json)
    return 1 if chosen.without_verdict or chosen.unscored else 0


async def _group_verdicts(
    judge: Judge | GroupJudge, task: Task, siblings: list[Trajectory]
) -> list[RewardResult | WanderlustError]:
    prompt = shown_prompt(task, siblings)
    if isinstance(judge, Judge):
        answers = [t.turns[-1].action.content if t.turns else "" for t in siblings]
        return await gather_results(judge(prompt=prompt, completion=text) for text in answers)
    if len({repr([turn.action for turn in t.turns]) for t in siblings}) < 2:
        return [RewardResult(value=0.5) for _ in siblings]  # nothing to compare: all are equally good to choose
    (together,) = await gather_results([judge(prompt=prompt, trajectories=siblings)])
    return [together] * len(siblings) if isinstance(together, WanderlustError) else [*together]


def _print_gap(title: str, gap: JudgeGap, sample: GapSample, *, json: bool) -> None:
    table = Table("truth of", "95% interval", title=f"{title}, {gap.groups} tasks")
    for name, estimate in (
        ("the rollout that the judge likes best", gap.chosen),
        ("the best rollout", gap.ideal),
        ("the mean rollout", gap.mean),
        ("gained by the judge, paired by task", gap.gained),
        ("that could be gained", gap.possible),
    ):
        table.add_row(name, str(estimate))
    summary = "There is nothing to gain by choosing." if gap.share is None else f"It gains {gap.share:.0%} of that."
    failed = {"without_verdict": sample.without_verdict, "refused": sample.refused, "unscored": sample.unscored}
    show_result({"judge": title, "share": gap.share, **failed, **asdict(gap)}, summary, table=table, json=json)
    if sample.unscored:
        print_note(f"{sample.unscored} rollouts have no reward and are in no figure")
    if sample.without_verdict:
        ((reason, _),) = sample.failure_reasons.most_common(1)
        refused = f" ({sample.refused} refused)" if sample.refused else ""
        print_note(f"{sample.without_verdict} rollouts have no verdict{refused} and are in no figure: {reason}")
