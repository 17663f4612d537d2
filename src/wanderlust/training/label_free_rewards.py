"""Rewards of a run that sees no label: `--label-estimator majority`, or `synthesis --label-reward rubric`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.policies.base import SamplingOptions
from wanderlust.policies.local.policy import LocalPolicy
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.generated import Checklist, ChecklistReward
from wanderlust.rubrics.label_free import (
    AnswerMatch,
    LabelFreeReward,
    LabelFreeRubric,
    answer_extractor,
    build_estimator,
    environment_check,
)
from wanderlust.tasks.registry import resolve_object
from wanderlust.training.config import TrainConfig
from wanderlust.training.models import likelihood
from wanderlust.types import Policy

MAX_SYNTHESIS_TOKENS = 1024
"""Tokens of a rubric as it is written, and of a verdict."""


def label_free_rubric(
    config: TrainConfig, env: Environment, load_synthesizer: Callable[[], tuple[Any, Any]]
) -> LabelFreeRubric | None:
    """The rubric of a run without labels (Compute as Teacher); None where the environment's own reward is used.

    `load_synthesizer` loads a frozen model and its tokenizer where one is needed. It takes the likeliest token, so
    equal groups have equal references.
    """
    if config.label_estimator == "none":
        return None
    policy: LocalPolicy | None = None
    if config.label_estimator in ("mutual", "synthesis") or config.label_reward == "rubric":
        greedy = SamplingOptions(temperature=0.0, max_tokens=config.max_tokens)
        policy = LocalPolicy.of(*load_synthesizer(), greedy)
    estimator = build_estimator(
        config.label_estimator,
        synthesizer=policy,
        likelihood=likelihood(policy.engine.model, policy.renderer) if policy is not None else None,
        extract=answer_extractor(env),
        synthesizer_sees_question=config.label_question,
    )
    to_reward: AnswerMatch | ChecklistReward = AnswerMatch()
    if policy is not None and config.label_reward == "rubric":
        writer = policy.with_sampling(SamplingOptions(temperature=0.0, max_tokens=MAX_SYNTHESIS_TOKENS))
        judge = label_judge(config) or writer
        checklist = Checklist(judge=judge, dropout=config.label_dropout, model=config.label_judge or "anchor")
        to_reward = ChecklistReward(writer=writer, checklist=checklist)
    reward = LabelFreeReward(estimator=estimator, to_reward=to_reward, check=environment_check(env))
    return LabelFreeRubric(env, reward)


def label_judge(config: TrainConfig) -> Policy | None:
    """The judge that the configuration names. Raises UsageError when there is none of that name."""
    if not config.label_judge:
        return None
    named = resolve_object(config.label_judge)
    made: Any = named() if isinstance(named, type) else named
    if hasattr(made, "complete"):
        judge: Policy = made
        return judge
    if callable(made):
        return Scripted(made)
    raise UsageError(f"{config.label_judge} is neither a policy nor a function that answers")
