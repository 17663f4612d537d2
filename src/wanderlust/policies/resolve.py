"""Policies by name: endpoints, players, scripts, recordings and checkpoints."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from wanderlust.environment import Environment
from wanderlust.errors import PolicyFailure, UsageError, WanderlustError, boundary, one_line
from wanderlust.policies.answer_cache import AnswerCache, CachedPolicy
from wanderlust.policies.base import API_KEY_VARIABLE, DEFAULT_HARDWARE, SamplingOptions, ThinkingBudget, ToolCalls
from wanderlust.policies.checkpoints import load_local_policy, resolve_checkpoint
from wanderlust.policies.providers import VLLM_PREFIX, Api, split_provider
from wanderlust.policies.scripted import PerRolloutPolicy, Recorded, RolloutKey, Scripted
from wanderlust.store.run_folder import (
    EVALUATION_RECIPE,
    STORE_FILE,
    open_folder,
)
from wanderlust.store.store import RunStore
from wanderlust.tasks.registry import make_environment, parse_settings_like, resolve_object
from wanderlust.tasks.selection import iter_tasks
from wanderlust.tools.text_protocol import TextProtocol
from wanderlust.types import Policy, Task

SCRIPT_PATTERN = re.compile(r"(\w+(\.\w+)*|.+\.py):\w+")
"""Pattern of a script's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """Sampling options and access of a model."""

    model: str | None = None
    temperature: float | None = None
    """None: 1 for local models, the server's own default for endpoints."""
    max_tokens: int | None = None
    thinking: ThinkingBudget | None = None
    """Bounds of a local model's thinking."""
    tool_calls: ToolCalls = "template"
    """`text`: tools and calls stand in the messages, for models that have no calls of their own."""
    seed: int = 0
    api_key: str | None = None
    """Name of the environment variable with an endpoint's key; None is API_KEY, which need not be set."""
    concurrency: int = 64
    """Calls that an endpoint gets at once."""
    extra_body: Mapping[str, Any] | None = None
    """Further fields of each request to an endpoint."""
    headers: Mapping[str, str] | None = None
    """Further headers of each request to an endpoint."""
    batch: bool = False
    """Whether a provider is asked by its batch API."""
    cache: Path | None = None
    """Folder in which an endpoint's answers are kept, and from which they are given again."""
    split: str = "eval"
    """Split of the environment whose tasks its oracle knows."""

    def key(self) -> str | None:
        """The key itself. Raises UsageError when the variable that was named is not set."""
        if self.api_key is not None and not os.environ.get(self.api_key):
            raise UsageError(f"the environment variable {self.api_key} is not set: it is to hold the endpoint's key")
        return os.environ.get(self.api_key or API_KEY_VARIABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPolicy:
    """A policy, its label and its kind."""

    policy: Policy
    label: str
    kind: Literal["scripted", "local", "endpoint", "recorded"]


def resolve_policy(name: str, env: Environment, options: PolicyOptions) -> ResolvedPolicy:
    """A URL, a provider's model, a player of the environment, a script, a recording, a run or a checkpoint.

    They are tried in this order.

    A run or checkpoint may have settings after it, of where it computes: `,device=cuda,precision=bf16`.
    """
    if (remote := _remote(name, options)) is not None:
        return remote
    players = players_of(env, options.split)
    if name in players:
        return ResolvedPolicy(policy=players[name](), label=name, kind="scripted")
    if SCRIPT_PATTERN.fullmatch(name):
        return ResolvedPolicy(policy=_script(name), label=name, kind="scripted")
    if (store := find_recording(Path(name))) is not None:
        return ResolvedPolicy(policy=_replay_policy(store), label=f"the recording {name}", kind="recorded")
    named_players = f", or a player of the environment: {', '.join(players)}" if players else ""
    return _local(name, options, players, accepted=f"{JUDGE_KINDS}{named_players} (in train also fresh)")


def resolve_seats(named: Iterable[str], env: Environment, options: PolicyOptions) -> dict[str, Policy]:
    """Policies by seat, of `SEAT=POLICY` each. Raises UsageError, also for a seat that there is not."""
    policies: dict[str, Policy] = {}
    for one in named:
        seat, given, name = one.partition("=")
        if not given or not name or seat in policies:
            raise UsageError(f"{one!r} is no SEAT=POLICY, or names a seat twice")
        if seat not in env.seats:
            raise UsageError(f"there is no seat {seat!r}; there are: {', '.join(env.seats)}")
        policies[seat] = resolve_policy(name, env, replace(options, thinking=None)).policy
    return policies


def make_policy(name: str, target: str, options: PolicyOptions) -> Policy:
    """The policy of that name for the environment at `target`: what a worker in another process makes."""
    return resolve_policy(name, make_environment(target), options).policy


def resolve_judge_policy(name: str, options: PolicyOptions) -> ResolvedPolicy:
    """A policy that belongs to no environment: a URL, a script, a run or a checkpoint."""
    options = replace(options, thinking=None)  # bounds are those of the policy that is judged
    if (remote := _remote(name, options)) is not None:
        return remote
    if SCRIPT_PATTERN.fullmatch(name):
        return ResolvedPolicy(policy=_script(name), label=name, kind="scripted")
    return _local(name, options)


def resolve_judge_setting(judge: Policy | str | None, model: str | None = None) -> ResolvedPolicy | None:
    """The judge that an environment's settings name: a policy, or the name of one that belongs to no environment.

    `model` says which of an endpoint's models to ask. Raises UsageError in one line for anything that is no policy.
    """
    if judge is None:
        if model is not None:
            raise UsageError("judge_model needs a judge: judge=URL")
        return None
    if isinstance(judge, str):
        if judge.startswith(("http://", "https://")) and model is None:
            raise UsageError(f"the judge {judge} is an endpoint: say which of its models to ask, with judge_model=NAME")
        return resolve_judge_policy(judge, PolicyOptions(model=model, temperature=0.0))
    if not callable(getattr(judge, "complete", None)):
        raise UsageError(f"the judge is {judge!r}, expected a policy, or the name of one (a URL, file.py:Name, a run)")
    return ResolvedPolicy(policy=judge, label="judge", kind="scripted")


def players_of(env: Environment, split: str = "eval") -> dict[str, Callable[[], Policy]]:
    """The scripted policies that an environment brings, by name; the oracle, which knows the split's answers, too."""
    players: dict[str, Callable[[], Policy]] = {name: partial(make_player, env, name) for name in env.players}
    if env.has_oracle:
        players.setdefault("oracle", lambda: PerRolloutPolicy(_OraclePolicyFactory(env, split)))
    return players


def make_player(env: Environment, name: str) -> Policy:
    """The scripted policy of that name. UsageError where the environment has no function that makes one."""
    make: Any = env.players[name]
    if not callable(make):
        raise UsageError(
            f"the player {name!r} is a {type(make).__name__}, not a function that makes a policy: write lambda: ..."
        )
    try:
        with boundary(PolicyFailure):
            player: Policy = make()
    except WanderlustError as failure:
        raise UsageError(f"cannot make the player {name!r}: {one_line(str(failure))}") from failure
    if not hasattr(player, "complete"):
        raise UsageError(f"the player {name!r} makes a {type(player).__name__}, which is no policy")
    return player


def teacher_policy(env: Environment, name: str, tasks: Sequence[Task] = ()) -> Policy:
    """The player of that name, who knows the tasks if it is the oracle. Raises UsageError when there is none."""
    name = name or ("teacher" if "teacher" in env.players else "oracle")
    if name in env.players:
        return make_player(env, name)
    if name == "oracle" and env.has_oracle:
        task_of = {task.id: task for task in tasks}

        def oracle_of(place: RolloutKey) -> Policy:
            policy = env.oracle(task_of[place.task])
            if policy is None:
                raise UsageError(f"the environment has no oracle for the task {place.task!r}")
            return policy

        return PerRolloutPolicy(oracle_of)
    there = [*env.players, *(["oracle"] if env.has_oracle else [])]
    remedy = f"there are {there}" if there else "write an oracle or a player `teacher`, or start from a checkpoint"
    raise UsageError(f"the environment has no player {name!r} to imitate, as a fresh model does first: {remedy}")


def fixed_player(env: Environment, name: str, tasks: Sequence[Task] = ()) -> tuple[str, Policy] | None:
    """The player that seats are measured against, and how it is called: the teacher, of that name where it has one,
    else the random player; None where there is neither."""
    if name in env.players or "teacher" in env.players:
        name = name or "teacher"
        return f"the {name}", teacher_policy(env, name, tasks)
    return ("the random player", make_player(env, "random")) if "random" in env.players else None


def matches_against(player: Policy, env: Environment) -> dict[str, Environment]:
    """By seat that learns, the environment in which it is the only one, and this player has the others of them."""
    seats = [seat for seat in env.seats if seat not in env.frozen_seats]
    return {seat: env.with_frozen_seats({other: player for other in seats if other != seat}) for seat in seats}


class _OraclePolicyFactory:
    """The oracle's policy for a task of a split."""

    def __init__(self, env: Environment, split: str):
        self.env, self.split, self.left, self.tasks = env, split, iter_tasks(env, split), dict[str, Task]()

    def __call__(self, place: RolloutKey) -> Policy:
        while place.task not in self.tasks:  # the split may be endless: it is read as far as it is asked for
            task = next(self.left, None)
            if task is None:
                where = f"the oracle knows the tasks of the split {self.split}"
                raise PolicyFailure(f"{where}, and {place.task!r} is none of them")
            self.tasks[task.id] = task
        policy = self.env.oracle(self.tasks[place.task])
        if policy is None:
            raise PolicyFailure(f"the environment has no oracle for the task {place.task!r}")
        return policy


def _script(target: str) -> Policy:
    """A policy object at `package.module:Name`, a class or function that makes one, or a function that answers."""
    target_object = resolve_object(target)
    made = target_object() if isinstance(target_object, type) else target_object
    if not hasattr(made, "complete"):
        if not callable(made):
            raise UsageError(f"{target} is neither a policy nor a function that answers")
        return Scripted(made)
    policy: Policy = made
    return policy


def find_recording(path: Path) -> Path | None:
    """The store of an evaluation's folder, or the path itself where it is a store; None for anything else."""
    if path.is_file() and path.name == STORE_FILE:
        return path
    run = open_folder(path) if path.is_dir() else None
    return (
        path / STORE_FILE
        if run is not None and run.recipe == EVALUATION_RECIPE and (path / STORE_FILE).is_file()
        else None
    )


def _replay_policy(store: Path) -> Policy:
    """A policy that replays the recorded answers of every rollout in the store."""
    reader = RunStore.read(store)
    ids = {(row.task, row.seed, row.sample_index): row.id for row in reader.rollouts()}

    def of(place: RolloutKey) -> Policy:
        rollout_id = ids.get((place.task, place.seed, place.sample_index))
        if rollout_id is None:
            raise PolicyFailure(f"not recorded: sample {place.sample_index} with seed {place.seed}")
        return Recorded(reader.get(rollout_id))

    return PerRolloutPolicy(of)


JUDGE_KINDS = (
    "an endpoint's URL with --model NAME, a provider's model (openai/NAME, anthropic/NAME, google/NAME, "
    "openrouter/NAME, ollama/NAME), vllm:URL, a run or checkpoint folder, smollm2, or a script module:name"
)
"""What `resolve_judge_policy` takes."""


def _remote(name: str, options: PolicyOptions) -> ResolvedPolicy | None:
    """A policy behind a URL or a provider's; None where the name is neither."""
    url = name.removeprefix(VLLM_PREFIX)
    if url.startswith(("http://", "https://")):
        if options.model is None and url == name:
            raise UsageError(f"{url} is an endpoint: say which of its models to ask, with --model NAME")
        policy = _endpoint("chat", url, options.model or "", key=options.key(), options=options)
        return ResolvedPolicy(policy=policy, label=f"{options.model or 'the model'} at {url}", kind="endpoint")
    found = split_provider(name)
    if found is None or Path(name).exists():
        return None
    provider, model = found
    policy = _endpoint(provider.api, provider.base_url(), model, key=provider.key(options.api_key), options=options)
    return ResolvedPolicy(policy=policy, label=name, kind="endpoint")


def _endpoint(api: Api, url: str, model: str, *, key: str | None, options: PolicyOptions) -> Policy:
    """The policy over one of the APIs. UsageError for bounds of thinking, which only token ids can keep."""
    if options.thinking is not None:
        raise UsageError(f"{url} is asked for texts: --min-thinking and --max-thinking need a checkpoint's token ids")
    from wanderlust.policies.anthropic_messages import AnthropicMessages
    from wanderlust.policies.batches import BatchedAnthropicMessages, BatchedEndpoint, BatchedGemini
    from wanderlust.policies.endpoint import Endpoint
    from wanderlust.policies.gemini_content import GeminiContent

    kinds: Mapping[Api, Any] = {"chat": Endpoint, "anthropic": AnthropicMessages, "google": GeminiContent}
    if options.batch:
        kinds = {"chat": BatchedEndpoint, "anthropic": BatchedAnthropicMessages, "google": BatchedGemini}
    names = ("temperature", "max_tokens", "concurrency", "extra_body", "headers")
    policy: Policy = kinds[api](url, model, api_key=key, **{name: getattr(options, name) for name in names})
    policy = policy if options.cache is None else CachedPolicy(policy, AnswerCache(options.cache))
    return TextProtocol(policy) if options.tool_calls == "text" else policy


def _local(
    name: str, options: PolicyOptions, players: Collection[str] = (), *, accepted: str = JUDGE_KINDS
) -> ResolvedPolicy:
    where, settings = (name, "") if Path(name).exists() else (name.partition(",")[0], name)
    folder = resolve_checkpoint(where, players, accepted=accepted)
    if options.extra_body is not None or options.headers is not None:
        raise UsageError(f"{name} is no endpoint: leave --extra-body and --extra-headers out")
    if options.cache is not None or options.batch:
        raise UsageError(f"{name} is no endpoint: leave --cache and --batch out")
    hardware = replace(DEFAULT_HARDWARE, **parse_settings_like(settings, asdict(DEFAULT_HARDWARE)))
    sampling = SamplingOptions(
        temperature=1.0 if options.temperature is None else options.temperature,
        max_tokens=256 if options.max_tokens is None else options.max_tokens,
        thinking=options.thinking,
    )
    policy = load_local_policy(folder, hardware, sampling, seed=options.seed, tool_calls=options.tool_calls)
    return ResolvedPolicy(policy=policy, label=str(folder), kind="local")


@asynccontextmanager
async def open_policies(policies: Iterable[Policy]) -> AsyncIterator[None]:
    """Keeps those policies open that hold something, for the time of the block."""
    async with AsyncExitStack() as stack:
        for policy in policies:
            if isinstance(policy, AbstractAsyncContextManager):
                await stack.enter_async_context(policy)
        yield
