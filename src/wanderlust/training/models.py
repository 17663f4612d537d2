"""The models of a training run: those that learn, sample, score or judge; and the rewards of a run without labels."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import fsum
from pathlib import Path
from typing import Any

from wanderlust._lazy import needs_extra
from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.policies.base import SamplingOptions, SupportsChoices
from wanderlust.policies.chat_template import Renderer, Rendering
from wanderlust.policies.checkpoints import load_local_policy, resolve_checkpoint
from wanderlust.policies.local.device import memory_of, to_device, to_device_fp32
from wanderlust.policies.local.policy import LocalPolicy
from wanderlust.policies.local.pretrained import load_pretrained
from wanderlust.policies.local.reward_model import with_score_head
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
from wanderlust.store.run_folder import SMOLLM2_POLICY
from wanderlust.tasks.registry import resolve_object
from wanderlust.training import losses
from wanderlust.training.algorithms.base import AlgorithmContext
from wanderlust.training.batch.samples import to_samples, values_by_turn
from wanderlust.training.config import TrainConfig
from wanderlust.training.gradient import GradientComputer
from wanderlust.types import Message, Policy, Tokens, Trajectory, Turn, assistant


def checkpoint_folder(policy: str) -> Path:
    """The checkpoint's folder; the pretrained model is fetched first where it is missing."""
    if policy != SMOLLM2_POLICY:
        return Path(policy)
    with needs_extra("smollm2"):
        from wanderlust.policies.local.smollm2 import fetch_smollm2
    return fetch_smollm2()


def load_trainable(config: TrainConfig, folder: Path) -> tuple[Any, Any]:
    """The checkpoint as it learns: with the configuration's adapters, on the device, in fp32; and its tokenizer."""
    model, tokenizer = load_pretrained(folder)
    add_adapters(config, model)
    return to_device_fp32(model, config.hardware), tokenizer


def load_scoring(config: TrainConfig, folder: Path) -> tuple[Any, Any]:
    """The checkpoint as a reward model that learns: with a new head for scores, else as `load_trainable`."""
    model, tokenizer = load_pretrained(folder)
    model = with_score_head(model, tokenizer)
    add_adapters(config, model)
    return to_device_fp32(model, config.hardware), tokenizer


def load_sampling(config: TrainConfig, folder: Path) -> tuple[Any, Any]:
    """The checkpoint as it samples: with the configuration's adapters, on the device, rounded to the precision."""
    model, tokenizer = load_pretrained(folder)
    add_adapters(config, model)
    return to_device(model, config.hardware), tokenizer


def load_frozen(config: TrainConfig, folder: Path) -> tuple[Any, Any]:
    """A checkpoint that is only read, on the device, and its tokenizer."""
    model, tokenizer = load_pretrained(folder)
    return to_device(model, config.hardware), tokenizer


def cache_bytes(config: TrainConfig, device: Any) -> int:
    """Bound of what one of the run's samplers caches."""
    return int(config.cache_gib * 2**30) or memory_of(device) // (2 * max(config.shards, config.processes))


def import_adapters() -> Any:
    """The module of low-rank adapters. Raises UsageError where the extra is missing."""
    with needs_extra("lora"):
        from wanderlust.policies.local import lora
    return lora


def add_adapters(config: TrainConfig, model: Any) -> None:
    """Add low-rank adapters to the model where `lora` is above 0."""
    if config.lora:
        import_adapters().adapt(model, rank=config.lora, alpha=config.lora_alpha, seed=config.seed)


def merge_adapters(config: TrainConfig, model: Any) -> Any:
    """The model as `transformers` loads it, adapters merged into its weights."""
    return import_adapters().merge_adapter(model) if config.lora else model


def rendering_of(config: TrainConfig) -> Rendering:
    """How the run renders conversations: in the warm-up, in rollouts and in evaluations, and later where it is used."""
    return Rendering(keeps_answers=config.earlier_answers == "sampled", text_calls=config.tool_calls == "text")


def algorithm_context(config: TrainConfig, folder: Path, tokenizer: Any) -> AlgorithmContext:
    """What a run gives to its algorithm: copies of the checkpoint in `folder`, the teacher, the sampling options."""
    return make_context(
        config,
        lambda: load_frozen(config, folder)[0],
        load_teacher=teacher_loader(config, tokenizer),
    )


def make_context(
    config: TrainConfig, load_initial_model: Callable[[], Any], *, load_teacher: Callable[[], Any] | None = None
) -> AlgorithmContext:
    """The models and sampling that algorithms may use; `load_initial_model` makes a new copy at each call."""

    def no_teacher() -> Any:
        raise UsageError("this algorithm learns from a teacher: set `teacher` to a stronger checkpoint")

    return AlgorithmContext(
        max_tokens=config.max_tokens,
        temperature=config.temperature,
        load_initial_model=load_initial_model,
        load_teacher=load_teacher or no_teacher,
    )


def teacher_loader(config: TrainConfig, tokenizer: Any) -> Callable[[], Any] | None:
    """Loads the stronger model; None where there is none. It raises UsageError when the tokenizers differ."""
    return partial(_load_teacher, config, tokenizer) if config.teacher else None


def _load_teacher(config: TrainConfig, tokenizer: Any) -> Any:
    model, theirs = load_frozen(config, Path(config.teacher))
    if theirs.get_vocab() != tokenizer.get_vocab():
        raise UsageError(f"the teacher {config.teacher} has another tokenizer than the policy: ids would not agree")
    return model


class Scorer:
    """A frozen model with the policy's tokenizer; it reads the very ids that were sampled."""

    def __init__(self, model: Any, *, temperature: float = 1.0, micro_batch: int = 64):
        self._reads = GradientComputer(
            model.eval(), loss=losses.IMITATION_LOSS, temperature=temperature, micro_batch=micro_batch
        )

    def logprobs(self, trajectories: Sequence[Trajectory]) -> list[list[list[float]]]:
        """Per trajectory and turn, the log-probability of every sampled token at the scorer's temperature."""
        rows = [to_samples(trajectory) for trajectory in trajectories]
        read = iter(self._reads.compute_logprobs([sample for row in rows for sample in row]))
        return [values_by_turn(row, [next(read) for _ in row]) for row in rows]


def likelihood(model: Any, renderer: Renderer) -> Callable[[Sequence[Message], str], Awaitable[float]]:
    """Mean log-probability per token of a text as the answer to a conversation."""
    scorer = Scorer(model)

    async def of(talk: Sequence[Message], text: str) -> float:
        ids = renderer.render_answer(assistant(text))
        tokens = Tokens(prompt=renderer.start(talk), completion=ids, logprobs=(0.0,) * len(ids))
        turn = Turn(observation=tuple(talk), action=assistant(text), tokens=tokens)
        ((logprobs,),) = scorer.logprobs([Trajectory(turns=[turn])])
        return fsum(logprobs) / len(logprobs)

    return of


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
