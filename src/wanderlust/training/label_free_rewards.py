"""What teaches a run that sees no label: `--teacher majority`, or `synthesis,reward=rubric,question=true`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, get_args

from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.generated import Checklist, ChecklistReward
from wanderlust.rubrics.label_free import (
    ESTIMATOR_NAMES,
    AnswerMatch,
    LabelFreeReward,
    LabelFreeRubric,
    ReferenceToReward,
    answer_extractor,
    build_estimator,
    environment_check,
)
from wanderlust.tasks.registry import parse_settings, resolve_object
from wanderlust.training.reference_model import likelihood
from wanderlust.types import Policy

RewardKind = Literal["match", "rubric"]
MAX_SYNTHESIS_TOKENS = 1024
"""Tokens of a rubric as it is written, and of a verdict."""


def is_label_free(text: str) -> bool:
    """Whether that names an estimate, with settings or without, and no checkpoint."""
    return text.partition(",")[0] in ESTIMATOR_NAMES


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelFreeOptions:
    """An estimate of the reference out of each group, and how siblings are rewarded by it (Compute as Teacher)."""

    estimate: str
    """`majority`, `likeliest`, `mutual` or `synthesis`."""
    reward: RewardKind = "match"
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
        settings = parse_settings(text)
        made = cls(estimate=text.partition(",")[0])
        for name, value in settings.items():
            options = {n: v for n, v in asdict(made).items() if n != "estimate"}
            if name not in options:
                raise UsageError(f"{text}: there is no setting {name!r}; there are {', '.join(options)}")
            if type(value) is not type(options[name]):
                raise UsageError(f"{text}: {name} is to be like {options[name]!r}, not {value!r}")
        made = cls(estimate=made.estimate, **settings)
        if made.reward not in get_args(RewardKind) or not 0 <= made.dropout < 1:
            raise UsageError(f"{text}: reward is match or rubric, and dropout from 0 to below 1")
        return made

    def rubric(
        self, env: Environment, load_synthesizer: Callable[[], tuple[Any, Any]], *, max_tokens: int
    ) -> LabelFreeRubric:
        """The rubric of a run; `load_synthesizer` loads a frozen model and its tokenizer where one is needed.

        The anchor takes the likeliest token, so equal groups have equal references.
        """
        policy: LocalPolicy | None = None
        if self.estimate in ("mutual", "synthesis") or self.reward == "rubric":
            policy = LocalPolicy.of(*load_synthesizer(), SamplingOptions(temperature=0.0, max_tokens=max_tokens))
        estimate = build_estimator(
            self.estimate,
            synthesizer=policy,
            likelihood=likelihood(policy.engine.model, policy.renderer) if policy is not None else None,
            extract=answer_extractor(env),
            synthesizer_sees_question=self.question,
        )
        deriver: ReferenceToReward = (
            AnswerMatch() if policy is None or self.reward == "match" else self._criteria(policy)
        )
        return LabelFreeRubric(
            env, LabelFreeReward(estimator=estimate, to_reward=deriver, check=environment_check(env))
        )

    def _criteria(self, synthesizer: LocalPolicy) -> ChecklistReward:
        writer = synthesizer.with_sampling(SamplingOptions(temperature=0.0, max_tokens=MAX_SYNTHESIS_TOKENS))
        checklist = Checklist(judge=self.resolve_judge() or writer, dropout=self.dropout, model=self.judge or "anchor")
        return ChecklistReward(writer=writer, checklist=checklist)

    def resolve_judge(self) -> Policy | None:
        """The judge that was named. UsageError when there is none of that name."""
        if not self.judge:
            return None
        match = resolve_object(self.judge)
        made: Any = match() if isinstance(match, type) else match
        if hasattr(made, "complete"):
            judge: Policy = made
            return judge
        if callable(made):
            return Scripted(made)
        raise UsageError(f"{self.judge} is neither a policy nor a function that answers")
