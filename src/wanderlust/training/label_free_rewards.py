"""What teaches a run that sees no label: `--teacher majority`, or `synthesis,reward=rubric,question=true`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, get_args

from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.policies.local import LocalPolicy, Sampling
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.generated import Checklist, Criteria
from wanderlust.rubrics.label_free import Deriver, Matches, Taught, Unlabelled, checks, reads
from wanderlust.rubrics.references import NAMES, estimator
from wanderlust.tasks.registry import named, settings_in
from wanderlust.training.reference_model import likelihood
from wanderlust.types import Policy

Reward = Literal["match", "rubric"]
WRITES = 1024
"""Tokens of a rubric as it is written, and of a verdict."""


def is_teaching(text: str) -> bool:
    """Whether that names an estimate, with settings or without, and no checkpoint."""
    return text.partition(",")[0] in NAMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Teaching:
    """An estimate of the reference out of each group, and how siblings are rewarded by it (Compute as Teacher)."""

    estimate: str
    """`majority`, `likeliest`, `mutual` or `synthesis`."""
    reward: Reward = "match"
    """`match`: the reference's answer; `rubric`: the share met of a rubric written from the reference."""
    question: bool = False
    """Whether the anchor is shown the question as well as the rollouts."""
    judge: str = ""
    """Policy that ticks the rubric off, as package.module:Name or file.py:Name; empty is the anchor."""
    dropout: float = 0.0
    """Share of the rubric's criteria that is left out at each group."""

    @classmethod
    def of(cls, text: str) -> Self:
        """What `text` says. Raises UsageError when it has a setting that there is not, or of another kind."""
        given = settings_in(text)
        made = cls(estimate=text.partition(",")[0])
        for name, value in given.items():
            known = {n: v for n, v in asdict(made).items() if n != "estimate"}
            if name not in known:
                raise UsageError(f"{text}: there is no setting {name!r}; there are {', '.join(known)}")
            if type(value) is not type(known[name]):
                raise UsageError(f"{text}: {name} is to be like {known[name]!r}, not {value!r}")
        made = cls(estimate=made.estimate, **given)
        if made.reward not in get_args(Reward) or not 0 <= made.dropout < 1:
            raise UsageError(f"{text}: reward is match or rubric, and dropout from 0 to below 1")
        return made

    def rubric(self, env: Environment, anchor: Callable[[], tuple[Any, Any]], *, max_tokens: int) -> Unlabelled:
        """The rubric of a run; `anchor` loads a model that nobody trains, and its tokenizer, where one is needed.

        The anchor takes the likeliest token, so equal groups have equal references.
        """
        policy: LocalPolicy | None = None
        if self.estimate in ("mutual", "synthesis") or self.reward == "rubric":
            policy = LocalPolicy.of(*anchor(), Sampling(temperature=0.0, max_tokens=max_tokens))
        estimate = estimator(
            self.estimate,
            anchor=policy,
            likelihood=likelihood(policy.engine.model, policy.renderer) if policy is not None else None,
            extract=reads(env),
            shows_question=self.question,
        )
        deriver: Deriver = Matches() if policy is None or self.reward == "match" else self._criteria(policy)
        return Unlabelled(env, Taught(estimator=estimate, deriver=deriver, check=checks(env)))

    def _criteria(self, anchor: LocalPolicy) -> Criteria:
        writer = anchor.sampled(Sampling(temperature=0.0, max_tokens=WRITES))
        checklist = Checklist(judge=self.judging() or writer, dropout=self.dropout, model=self.judge or "anchor")
        return Criteria(writer=writer, checklist=checklist)

    def judging(self) -> Policy | None:
        """The judge that was named. UsageError when there is none of that name."""
        if not self.judge:
            return None
        found = named(self.judge)
        made: Any = found() if isinstance(found, type) else found
        if hasattr(made, "complete"):
            judge: Policy = made
            return judge
        if callable(made):
            return Scripted(made)
        raise UsageError(f"{self.judge} is neither a policy nor a function that answers")
