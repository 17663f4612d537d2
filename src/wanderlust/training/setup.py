"""Whether a training run could begin."""

from __future__ import annotations

from itertools import islice

from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.policies.local.device import warn_slow_precision
from wanderlust.policies.local.pretrained import load_pretrained
from wanderlust.policies.resolve import make_player, teacher_policy
from wanderlust.store.run_folder import FRESH_POLICY
from wanderlust.tasks.curriculum.uniform import Curriculum, TrainsRevisions, resolve_curriculum
from wanderlust.tasks.selection import choose_tasks, find_faulty_tasks, iter_tasks
from wanderlust.training.algorithms.base import Algorithm, least_group_size
from wanderlust.training.algorithms.presets import configured_algorithm
from wanderlust.training.checkpoint import LOCKED_TASKS
from wanderlust.training.config import TrainConfig
from wanderlust.training.engines import check_engine, check_places, check_ray
from wanderlust.training.group_source import RayCluster, bind_algorithm
from wanderlust.training.label_free_rewards import label_judge
from wanderlust.training.memory import check_memory
from wanderlust.training.models import algorithm_context, checkpoint_folder, import_adapters
from wanderlust.training.trainers.context_parallel import check_full_attention
from wanderlust.training.verdict import RANDOM


def check_run(config: TrainConfig, *, resumes: bool, workers: int, ray: RayCluster | None) -> None:
    """Raises UsageError or StoreError, in one line, when a run could not begin, or not go on, on this machine."""
    if config.lora:
        import_adapters()
    check_memory(config, workers=workers)
    if resumes:
        check_engine(config)
        check_ray(config, ray)
        check_places(config)
    else:
        validate_config(config)
        check_ray(config, ray)


def validate_config(config: TrainConfig) -> None:
    """Raises UsageError or StoreError, in one line, when a run with this config could not begin."""
    config = config.with_sft_defaults()
    check_engine(config)
    check_places(config)
    method, env = configured_algorithm(config), config.make_env()
    warn_slow_precision(config.hardware)
    run_curriculum(config, env)
    for tasks in (islice(iter_tasks(env, "train"), LOCKED_TASKS), choose_tasks(iter_tasks(env, "eval"), LOCKED_TASKS)):
        for why in find_faulty_tasks([*tasks]).values():  # fails here if it fails at all
            raise UsageError(f"{config.env_name}: {why}")
    if config.label_estimator != "none":
        label_judge(config)
        if config.group_size < 2:
            raise UsageError("label-free rewards compare the rollouts of a task: set group_size to 2 or more")
        if config.teacher:
            raise UsageError("set `label_estimator` or `teacher`, not both")
    check_sizes(config, method)
    check_players(config, env)
    check_environment_gives(config, env)
    if config.policy != FRESH_POLICY:
        folder = checkpoint_folder(config.policy)
        model, tokenizer = load_pretrained(folder)
        if config.context_parallel > 1:
            check_full_attention(model.config)
        check_places(config, model, tokenizer)
        bind_algorithm(method, algorithm_context(config, folder, tokenizer))
    elif config.teacher:
        raise UsageError("a fresh model makes its own tokenizer, so it cannot learn from the checkpoint `teacher`")


def check_sizes(config: TrainConfig, method: Algorithm) -> None:
    """Raises UsageError where groups, or the parts of a step, are too small for what the algorithm compares."""
    if config.group_size < least_group_size(method) and config.steps:
        raise UsageError(
            f"the algorithm {config.algorithm} compares the rollouts of a task: set group_size to 2 or more, or take "
            "an algorithm without a baseline, like reinforce"
        )
    if config.updates_per_step > 1 and getattr(method, "credits_pairs", False):
        raise UsageError(f"the algorithm {config.algorithm} credits pairs for one update: set updates_per_step to 1")


def check_environment_gives(config: TrainConfig, env: Environment) -> None:
    """Raises UsageError where exact figures or first moves are asked for, and nobody gives or reads them."""
    if not config.eval_tasks and not env.has_exact:
        raise UsageError(f"{config.env_name} computes no exact figures: set eval_tasks to 1 or more")
    if config.exploring_starts and not getattr(configured_algorithm(config), "credits_explorers", False):
        raise UsageError(f"the algorithm {config.algorithm} does not read exploring_starts: take cispo-tree")
    if config.exploring_starts >= config.group_size:
        raise UsageError(f"exploring_starts is {config.exploring_starts}, and must be below group_size")


def run_curriculum(config: TrainConfig, env: Environment) -> Curriculum:
    """The curriculum of a run: the object in the configuration, or the one of that name."""
    if not isinstance(config.curriculum, str):
        return config.curriculum
    after = 0 if config.policy == FRESH_POLICY else config.sft_episodes
    return resolve_curriculum(config.curriculum, env, seed=config.seed, after=after)


def measured_revisions(config: TrainConfig, env: Environment) -> int:
    """How often answers are revised before they are measured; 0 where the curriculum trains first answers."""
    curriculum = run_curriculum(config, env)
    return curriculum.revisions if isinstance(curriculum, TrainsRevisions) else 0


def check_players(config: TrainConfig, env: Environment) -> None:
    """Raises UsageError where the teacher, or the random player of the result, is missing or cannot be made."""
    if config.sft_episodes:
        teacher_policy(env, config.sft_teacher)
    if config.result_samples and RANDOM in env.players:
        make_player(env, RANDOM)
