"""`wander judge gap`: what is choosing among rollouts by a judge worth?"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Annotated, NamedTuple

from cyclopts import Parameter
from rich.table import Table

from wanderlust import GroupJudge, Judge, Task, Trajectory, rollouts
from wanderlust.cli.long_commands import stoppable
from wanderlust.cli.options import AnswerOptions, PositiveInt
from wanderlust.cli.output import print_json, print_note, print_result
from wanderlust.errors import RubricFailure, UsageError, WanderlustError, one_line
from wanderlust.evals.judge_calibration import JudgeGap, best_of
from wanderlust.policies.resolve import open_policies, resolve_judge_policy, resolve_policy
from wanderlust.rubrics.label_free import shown_prompt
from wanderlust.rubrics.model_request import JudgeResponseCache
from wanderlust.rubrics.rubric import RewardResult, gather_results
from wanderlust.tasks.registry import resolve_environment
from wanderlust.tasks.selection import choose_tasks, iter_tasks

REFERENCE_FREE_TEMPLATE = """How good is this answer? HIGH is entirely right, LOW is wrong or no answer.

<question>
{prompt}
</question>
<answer>
{completion}
</answer>"""
"""Template of the judge's prompt; without a reference, as there is none when it chooses among rollouts."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeGapOptions:
    """Of `wander judge gap` alone."""

    judge: str | None = None
    """The judge: a URL, a script, a run or checkpoint folder."""
    samples: Annotated[PositiveInt, Parameter(alias="--n")] = 8
    """Rollouts per task, of which the judge chooses one."""
    num_tasks: Annotated[PositiveInt | None, Parameter(alias="-n")] = None
    """How many tasks of the `eval` split, spread evenly over it. Default: all."""
    side_by_side: bool = False
    """One verdict over all rollouts of a task instead of one for each."""


class JudgeSettings(NamedTuple):
    """Template, votes and cache of the judge."""

    template: str | None
    votes: int
    cache: JudgeResponseCache | None


@dataclass(slots=True)
class GapSample:
    """Verdicts and true rewards of each group, and counts of what has none."""

    groups: list[list[tuple[float, float]]] = field(default_factory=list)
    without_verdict: int = 0
    unscored: int = 0
    failure_reasons: Counter[str] = field(default_factory=Counter)

    def add(self, verdicts: list[RewardResult | WanderlustError], truths: list[float]) -> None:
        """A group's; a failed verdict is never a 0."""
        pairs = []
        for verdict, truth in zip(verdicts, truths, strict=True):
            if isinstance(verdict, WanderlustError):
                self.without_verdict += 1
                self.failure_reasons[one_line(str(verdict))] += 1
            else:
                pairs.append((verdict.value, truth))
        self.groups.append(pairs)


def run_judge_gap(
    env: str,
    policy: str,
    answer_options: AnswerOptions,
    /,
    *,
    gap_options: JudgeGapOptions,
    judge_settings: JudgeSettings,
    json: bool,
) -> int:
    """Play, judge, choose, compare; the exit code is 1 when a rollout or a verdict failed."""
    if gap_options.judge is None:
        raise UsageError("wander judge gap ENV needs --policy PLAYER and --judge JUDGE")
    if gap_options.samples < 2:
        raise UsageError("there is nothing to choose from a single rollout: take --samples 2 or more")
    resolved = resolve_environment(env)
    player = resolve_policy(policy, resolved.env, answer_options.policy_options(greedy=False))
    judging = resolve_judge_policy(gap_options.judge, answer_options.policy_options(greedy=False))
    judge: Judge | GroupJudge = Judge(
        judging.policy,
        judge_settings.template or REFERENCE_FREE_TEMPLATE,
        votes=judge_settings.votes,
        cache=judge_settings.cache,
        model=judging.label,
    )
    if gap_options.side_by_side:
        judge = GroupJudge(
            policy=judging.policy, votes=judge_settings.votes, cache=judge_settings.cache, model=judging.label
        )
    tasks = choose_tasks(iter_tasks(resolved.env, "eval"), gap_options.num_tasks)
    chosen = GapSample()

    async def whole() -> None:
        playing = rollouts(resolved.env, tasks, player.policy, group_size=gap_options.samples, seed=answer_options.seed)
        async with open_policies([player.policy, judging.policy]), playing as stream:
            number = 0
            async for group in stream:
                rewarded = [
                    (t, t.score.reward) for r in group.rollouts for t in r.trajectories[:1] if t.score is not None
                ]
                chosen.unscored += len(group.rollouts) - len(rewarded)
                siblings, truths = [t for t, _ in rewarded], [truth for _, truth in rewarded]
                if siblings:
                    chosen.add(await _group_verdicts(judge, group.task, siblings), truths)
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
    if json:
        failed = {"without_verdict": sample.without_verdict, "unscored": sample.unscored}
        print_json({"judge": title, "share": gap.share, **failed, **asdict(gap)})
    else:
        table = Table("truth of", "95% interval", title=f"{title}, {gap.groups} tasks", title_justify="left")
        for name, estimate in (
            ("the rollout that the judge likes best", gap.chosen),
            ("the best rollout", gap.ideal),
            ("the mean rollout", gap.mean),
            ("gained by the judge, paired by task", gap.gained),
            ("that could be gained", gap.possible),
        ):
            table.add_row(name, str(estimate))
        summary = "There is nothing to gain by choosing." if gap.share is None else f"It gains {gap.share:.0%} of that."
        print_result(table, summary)
    if sample.unscored:
        print_note(f"{sample.unscored} rollouts have no reward and are in no figure")
    if sample.without_verdict:
        ((reason, _),) = sample.failure_reasons.most_common(1)
        print_note(f"{sample.without_verdict} rollouts have no verdict and are in no figure: {reason}")
