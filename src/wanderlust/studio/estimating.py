"""`wander eval --estimate`: what do the samples of a task know together?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from wanderlust.core.contracts import Policy
from wanderlust.core.errors import UsageError
from wanderlust.core.extras import load
from wanderlust.core.types import Group
from wanderlust.evals.estimates import EstimateReport, Estimates
from wanderlust.rubrics.references import Name, estimator
from wanderlust.rubrics.taught import checks, reads
from wanderlust.studio.arguments import opened
from wanderlust.studio.options import Answers, Questions
from wanderlust.studio.progress import Progress
from wanderlust.studio.resolve import Answering, Found, find_judge

AT_ONCE = 16
"""Tasks whose estimates are made at once."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Estimating:
    """What is made of the samples of a task together."""

    estimate: Name | None = None
    """Distil one answer from each task's samples, and say what it earns beside them (docs/teachers.md)."""
    anchor: str | None = None
    """Who writes a synthesis: as --policy, but no player. Default: the policy itself."""
    shows_question: bool = False
    """Show the anchor the question as well as the samples."""

    def checked(self, questions: Questions) -> dict[str, Any]:
        """The options by name. Raises UsageError where they do not go together."""
        if self.estimate is None and (self.anchor is not None or self.shows_question):
            raise UsageError("--anchor and --shows-question are for --estimate synthesis")
        if self.estimate is not None and (questions.samples < 2 or questions.exact):
            raise UsageError("--estimate distils an answer from several samples of a task: add --samples 8")
        return asdict(self)

    def together(self, found: Found, asked: Answering, answers: Answers) -> Together | None:
        """What will make the estimates, if there are to be any. UsageError when nobody can be asked for one."""
        if self.estimate is None:
            return None
        anchor = asked.policy if asked.kind in ("local", "endpoint") else None
        if self.anchor is not None:
            anchor = find_judge(self.anchor, answers.voice(greedy=False)).policy
        likelihood: Any = None
        if self.estimate == "mutual" and asked.kind == "local":
            local: Any = asked.policy
            likelihood = load("wanderlust.train.scoring:likelihood", extra="train")(local.engine.model, local.renderer)
        estimate = estimator(
            self.estimate,
            anchor=anchor,
            likelihood=likelihood,
            extract=reads(found.env),
            shows_question=self.shows_question,
        )
        estimates = Estimates(name=self.estimate, estimator=estimate, check=checks(found.env))
        voices = [anchor] if anchor is not None and self.estimate == "synthesis" else []
        return Together(estimates=estimates, voices=voices)


@dataclass(slots=True, kw_only=True)
class Together:
    """Rollouts that finished one by one, as groups of siblings again, and what is made of them."""

    estimates: Estimates
    voices: list[Policy]
    """Who is asked for the estimates."""
    groups: dict[int, Group] = field(default_factory=dict)

    def add(self, group: Group) -> None:
        """Some of the siblings."""
        mine = self.groups.setdefault(group.index, Group(task=group.task, rollouts=[], index=group.index))
        mine.rollouts += group.rollouts

    def whole(self) -> Iterator[Group]:
        """All groups, in the order of the tasks and siblings."""
        for _, group in sorted(self.groups.items()):
            group.rollouts.sort(key=lambda rollout: rollout.sibling)
            yield group

    async def estimate(self, progress: Progress) -> None:
        """Make all the estimates."""
        async with opened(self.voices):
            whole = list(self.whole())
            for start in range(0, len(whole), AT_ONCE):
                await self.estimates.add(whole[start : start + AT_ONCE])
                progress.show("estimate", min(start + AT_ONCE, len(whole)), of=len(whole), figures={})


def estimate_table(found: EstimateReport) -> Table:
    """For the terminal."""
    table = Table("", "value", "95% interval", "tasks", title="All samples of a task together", title_justify="left")
    for label, figure in found.rows():
        known = figure.low is not None and figure.high is not None
        interval = f"{figure.low:.3f} to {figure.high:.3f}" if known else "unknown"
        table.add_row(Text(label), f"{figure.value:.3f}", interval, str(figure.clusters))
    return table
