"""Rewards of a run without labels, from the rollouts of a task together: what a configuration names, made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.policies.base import SamplingOptions, SupportsChoices
from wanderlust.policies.checkpoints import load_local_policy, resolve_checkpoint
from wanderlust.policies.local.policy import LocalPolicy
from wanderlust.policies.resolve import SCRIPT_PATTERN
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.choice_judge import ChoiceJudge
from wanderlust.rubrics.generated import CHOICE_CRITERION_TEMPLATE, Checklist, ChecklistReward
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

MAX_SYNTHESIS_TOKENS = 2048
"""Tokens of a rubric as it is written, and of a verdict."""
LABEL_JUDGE_KINDS = "package.module:Name, file.py:Name, a run or checkpoint folder, or smollm2"


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
        to_reward = written_rubric_reward(config, policy)
    reward = LabelFreeReward(estimator=estimator, to_reward=to_reward, check=environment_check(env))
    return LabelFreeRubric(env, reward)


def written_rubric_reward(config: TrainConfig, policy: LocalPolicy) -> ChecklistReward:
    """The policy writes the rubric, held to its schema; it also ticks the criteria, where no other judge is named.

    Whoever tells log-probabilities ticks by them; other judges write verdicts.
    """
    writer = policy.with_sampling(SamplingOptions(temperature=0.0, max_tokens=MAX_SYNTHESIS_TOKENS))
    judge = label_judge(config) or policy
    if not isinstance(judge, ChoiceJudge) and isinstance(judge, SupportsChoices):
        judge = ChoiceJudge(judge, CHOICE_CRITERION_TEMPLATE, name="criterion")
    checklist = Checklist(judge=judge, dropout=config.label_dropout, model=config.label_judge or "anchor")
    return ChecklistReward(writer=writer, checklist=checklist)


def label_judge(config: TrainConfig) -> Policy | ChoiceJudge | None:
    """The judge that the configuration names: a run or checkpoint, or an object. UsageError when there is none."""
    name = config.label_judge
    if not name:
        return None
    if not SCRIPT_PATTERN.fullmatch(name):
        greedy = SamplingOptions(temperature=0.0, max_tokens=MAX_SYNTHESIS_TOKENS)
        return load_local_policy(resolve_checkpoint(name, accepted=LABEL_JUDGE_KINDS), config.hardware, greedy, seed=0)
    named = resolve_object(name)
    made: Any = named() if isinstance(named, type) else named
    if isinstance(made, ChoiceJudge):
        return made
    if hasattr(made, "complete"):
        judge: Policy = made
        return judge
    if callable(made):
        return Scripted(made)
    raise UsageError(f"{name} is neither a policy nor a function that answers")
