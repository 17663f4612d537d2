"""Training by a service that speaks the Tinker API: the hosted one, SkyRL's server, verl's. Needs the extra `tinker`.

The service holds the weights (LoRA), computes gradients and samples; this side plays, judges and gives credit. The
client package reports errors to the service's own address unless TINKER_TELEMETRY=0.
"""

from __future__ import annotations

import asyncio
import io
import json
import secrets
import shutil
import tarfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from math import isfinite, nan
from pathlib import Path
from typing import Any, Self

import aiohttp
import tinker
from safetensors.torch import load
from tinker import types

from wanderlust._lazy import needs_extra
from wanderlust.errors import (
    ContextFull,
    Failure,
    PolicyFailure,
    StoreError,
    UsageError,
    boundary,
    nearest_names,
    one_line,
)
from wanderlust.policies.base import SampledTokens, SamplingOptions
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.refusals import Refusal
from wanderlust.runner.engine import run_blocking
from wanderlust.training import losses
from wanderlust.training.batch.collate import BatchTotals
from wanderlust.training.batch.samples import Sample
from wanderlust.training.checkpoint import SERVICE_PLACE_FILE, load_state, save_state
from wanderlust.training.config import OptimizerConfig, TrainConfig
from wanderlust.training.gradient import GradientComputer
from wanderlust.training.group_source import open_player
from wanderlust.training.losses import PolicyLoss
from wanderlust.training.models import import_adapters, load_frozen
from wanderlust.training.optimizer import NOTHING_ADDED
from wanderlust.training.trainers.base import WEIGHTS_FOLDER, EngineOptions, SupportsLogprobs, TrainingSetup
from wanderlust.training.trainers.tinker_rows import (
    check_supported,
    gradient_calls,
    is_finite,
    logprob_rows,
    loss_metrics,
)
from wanderlust.types import user

FIGURES = ("loss", "clip_fraction", "sampler_kl_k3", "sampler_kl_k1", "sampler_logprob_diff_max", "tokens")
UNDONE = "is no finite number, and gradients of this step were added already: resume the run from its last state"
HELLO_TIMEOUT_SECONDS = 10.0
"""Seconds in which a service with a URL of its own must say that it is there."""
PROBE_TEXT = "The quick brown fox jumps over the lazy dog. 2 + 2 = 4"
MAX_PROBE_DIFFERENCE = 0.5
"""Mean difference of log-probabilities above which a service is said to have another model; bf16 makes below 0.1."""
SEED_BOUND = 2**31
ADAM_EPSILON = 1e-8
"""Of Adam, as PyTorch has it; the service's own default is smaller."""


class TrainerFailure(Failure):
    """The training service failed, or holds what it cannot take back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TinkerService:
    """Address of a service, and the model to train."""

    model: str
    """The name by which the service knows the base model."""
    url: str = ""
    """Without: TINKER_BASE_URL, or the hosted service."""
    key: str = field(default="", repr=False)
    """Begins with `tml-`. Without: TINKER_API_KEY."""
    rank: int = 32
    """Of the LoRA adapter."""
    seed: int = 0
    """Of the adapter's first weights."""
    averages_loss: bool = False
    """The service divides each row's loss by its tokens instead of summing, as SkyRL's JAX backend 0.3.0 does."""
    samples_newest: bool = False
    """The service samples from the weights that learn, published or not, as SkyRL's JAX backend 0.3.0 does: answers
    under way are then waited for before a step, and others wait until its weights are published."""
    timeout_seconds: float = 1800.0
    """Seconds for one call; compiling counts."""

    @classmethod
    def of(cls, config: TrainConfig) -> Self:
        """The service that a configuration names; the key is TINKER_API_KEY's."""
        return cls(
            model=config.engine_model or config.policy,
            url=config.engine_url,
            rank=config.lora,
            seed=config.seed,
            averages_loss=config.engine_service == "skyrl-jax",
            samples_newest=config.engine_service == "skyrl-jax",
        )


@asynccontextmanager
async def connect_tinker(
    service: TinkerService, tokenizer: Any, optimizer: OptimizerConfig
) -> AsyncIterator[TinkerTrainer]:
    """A trainer with a fresh adapter, its weights published as version 0.

    Raises UsageError when nobody answers, or the service has no such model. `tokenizer` is that of the model: answers
    end with its end-of-turn token. Leaving the block ends the session; weights that were not saved are then lost.
    """
    if optimizer.method != "adamw":
        raise UsageError(f"the Tinker API has AdamW only, not {optimizer.method}: take method='adamw'")
    async with _session(service) as client:
        async with _calling(service):
            training = await client.create_lora_training_client_async(
                service.model, rank=service.rank, seed=service.seed
            )
        trainer = TinkerTrainer(training, service, tokenizer=tokenizer, optimizer=optimizer)
        trainer.archives = client.create_rest_client()
        await trainer.refresh()
        yield trainer


def check_tinker(config: TrainConfig) -> None:
    """Raises UsageError, in one line, when the service does not answer, refuses the key, or has no such model."""

    async def ask() -> None:
        async with _session(TinkerService.of(config)):
            pass

    try:
        run_blocking(ask)
    except TrainerFailure as failure:
        raise UsageError(str(failure)) from failure


@asynccontextmanager
async def _session(service: TinkerService) -> AsyncIterator[Any]:
    """The client of a service that has the model."""
    if service.url:
        url = service.url
        try:
            patience = aiohttp.ClientTimeout(total=HELLO_TIMEOUT_SECONDS)
            async with (
                aiohttp.ClientSession(timeout=patience) as session,
                session.get(f"{url.rstrip('/')}/api/v1/healthz") as answer,
            ):
                await answer.read()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            why = one_line(str(error)) or type(error).__name__
            raise UsageError(f"no Tinker service answers at {url}: {why}") from error
    named: dict[str, Any] = {"base_url": service.url or None, "api_key": service.key or None}
    arguments = {name: value for name, value in named.items() if value}
    with attribute_failures(TrainerFailure):
        client = await asyncio.to_thread(tinker.ServiceClient, **arguments)
    try:
        async with _calling(service):
            found = (await client.get_server_capabilities_async()).supported_models
        names = sorted(model.model_name for model in found if model.model_name)
        if names and service.model not in names:
            near = nearest_names(service.model, names, kind="models")
            raise UsageError(f"the Tinker service has no model {service.model!r} (engine_model); {near}")
        yield client
    finally:
        client.holder.close()  # type: ignore[no-untyped-call]


class TinkerTrainer:
    """A `Trainer` whose weights live in a service.

    It differs from a local one where services do. A batch with a number that is not finite is not sent, and its step is
    skipped. A gradient that was added cannot be taken back: where its loss is no finite number, or such a batch follows
    it, `forward_backward` raises TrainerFailure: resume the run, or `load_state`. With nothing to learn from,
    `optim_step` lets the schedule go on and asks for nothing. `grad_norm` is 0 where the service does not tell.
    Sampling is at temperature 1 or 0, as a service's log-probabilities are those of temperature 1.
    """

    def __init__(self, training: Any, service: TinkerService, *, tokenizer: Any, optimizer: OptimizerConfig):
        self.service, self.optimizer, self.version, self.taken = service, optimizer, 0, 0
        self._training, self._added, self._called, self._broken = training, False, False, False
        self._sampling: Any = None
        self._under_way, self._open, self._idle = 0, asyncio.Event(), asyncio.Event()
        self._idle.set()
        self.archives: Any = None
        """The client that asks for weights as files; None: they are not handed out."""
        self._end: tuple[int, str] = (int(tokenizer.eos_token_id), str(tokenizer.eos_token))

    async def sample(
        self, prompt: Sequence[int], sampling: SamplingOptions, *, key: int, session: str = ""
    ) -> SampledTokens:
        """Draw one answer; services remember prefixes by themselves, so that `session` says nothing to them."""
        if sampling.temperature not in (0.0, 1.0):
            raise PolicyFailure(f"a Tinker service samples at temperature 1 or 0, not {sampling.temperature}")
        if self.service.samples_newest:
            await self._open.wait()
        client, version, (end, text) = self._sampling, self.version, self._end
        params = types.SamplingParams(
            max_tokens=sampling.max_tokens,
            seed=key % SEED_BOUND,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            stop=[*sampling.stop, text] if sampling.stop else [end],
        )
        self._under_way += 1
        self._idle.clear()
        try:
            async with _calling(self.service, PolicyFailure):
                answer = await client.sample_async(types.ModelInput.from_ints(list(prompt)), 1, params)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()
        drawn = answer.sequences[0]
        ids, logprobs = tuple(drawn.tokens), tuple(drawn.logprobs or ())
        if not ids or len(ids) != len(logprobs):
            raise PolicyFailure(f"the service sampled {len(ids)} tokens with {len(logprobs)} log-probabilities")
        return SampledTokens(ids=ids, logprobs=logprobs, finish=drawn.stop_reason, version=version)

    def release(self, session: str) -> None:
        """Nothing is kept."""

    async def forward_backward(
        self, samples: Sequence[Sample], loss: PolicyLoss, *, totals: BatchTotals | None = None
    ) -> dict[str, float]:
        """Add the gradient, as `Trainer` says; the entropy is not told. UsageError for what no service computes."""
        check_supported(samples, loss)
        self._called = True
        calls = gradient_calls(
            samples, loss, totals or BatchTotals.of(samples, loss), averages=self.service.averages_loss
        )
        if not all(map(is_finite, calls)):
            if self._added:
                raise TrainerFailure(f"the batch {UNDONE}")
            self._broken = True
            return {**dict.fromkeys(FIGURES, 0.0), "loss": nan}
        logprobs: dict[int, list[float]] = {}
        for term in calls:
            async with _calling(self.service):
                future = await self._training.forward_backward_async(term.data, term.name, dict(term.config) or None)
                outputs = (await future.result_async()).loss_fn_outputs
            logprobs |= {n: out["logprobs"].tolist() for n, out in zip(term.sample_indices, outputs, strict=True)}
        if not logprobs:
            return dict.fromkeys(FIGURES, 0.0)
        self._added = True
        indices = sorted(logprobs)
        metrics = loss_metrics([samples[n] for n in indices], loss, [logprobs[n] for n in indices])
        if not all(map(isfinite, metrics.values())):
            raise TrainerFailure(f"the loss ({metrics}) {UNDONE}")
        return {**metrics, "tokens": float(sum(len(samples[n].ids) for n in indices))}

    async def compute_logprobs(self, samples: Sequence[Sample], loss: PolicyLoss) -> list[list[float]]:
        """Log-probability of every trained token (else 0) under the newest weights."""
        rows = [[0.0] * len(sample.ids) for sample in samples]
        read = [(n, s.trained_positions) for n, s in enumerate(samples) if s.trained_positions]
        if not read:
            return rows
        data = logprob_rows([samples[n] for n, _ in read])
        async with _calling(self.service):
            outputs = (await (await self._training.forward_async(data, "cross_entropy")).result_async()).loss_fn_outputs
        for (n, positions), out in zip(read, outputs, strict=True):
            logprobs = out["logprobs"].tolist()
            for i in positions:
                rows[n][i] = logprobs[i - 1]
        return rows

    async def optim_step(self) -> dict[str, float]:
        """Take a step along the added gradients."""
        if not self._called:
            raise UsageError(NOTHING_ADDED)
        config, lr = self.optimizer, self.optimizer.lr_at(self.taken)
        self.taken, self._called, broken, self._broken = self.taken + 1, False, self._broken, False
        if broken:
            return {"skipped": 1.0, "lr": lr}
        if not self._added:
            return {"grad_norm": 0.0, "lr": lr}
        self._added = False
        if self.service.samples_newest:
            self._open.clear()
            await self._idle.wait()
        adam = types.AdamParams(
            learning_rate=lr,
            beta1=config.betas[0],
            beta2=config.betas[1],
            eps=ADAM_EPSILON,
            weight_decay=config.weight_decay,
            grad_clip_norm=config.max_norm,
        )
        async with _calling(self.service):
            result = await (await self._training.optim_step_async(adam)).result_async()
        norms = [value for name, value in (result.metrics or {}).items() if name.split("/")[-1].startswith("grad_norm")]
        return {"grad_norm": norms[0] if norms else 0.0, "lr": lr}

    async def publish(self) -> int:
        """Give the sampler the newest weights."""
        await self.refresh(self.version + 1)
        return self.version

    async def refresh(self, version: int = 0) -> None:
        """Sample from the newest weights from now on, under this version."""
        async with _calling(self.service):
            self._sampling = await self._training.save_weights_and_get_sampling_client_async()
        self.version = version
        self._open.set()

    async def export_adapter(self, folder: Path) -> str:
        """Have the service keep the newest weights for sampling, and write their adapter to `folder`, as `peft` does.

        Returns the place where the service keeps them. There is no `folder` where the service does not hand them out.
        """
        async with _calling(self.service):
            name = f"wander-{self.taken}-{secrets.token_hex(8)}"
            place: str = (await (await self._training.save_weights_for_sampler_async(name)).result_async()).path
        run, _, checkpoint = place.removeprefix("tinker://").partition("/")
        shutil.rmtree(folder, ignore_errors=True)
        if self.archives is None:
            return place
        with suppress(TrainerFailure):
            async with _calling(self.service):
                found = await self.archives.get_checkpoint_archive_url_async(run, checkpoint)
                async with aiohttp.ClientSession(raise_for_status=True) as session, session.get(found.url) as answer:
                    archive = await answer.read()
                _write_adapter(folder, archive)
        return place

    async def save_state(self, path: Path) -> None:
        """Have the service keep weights and optimizer; the file at `path` says where, and what else is needed."""
        name = f"wander-{self.taken}-{secrets.token_hex(8)}"  # a name that exists would not be written again
        async with _calling(self.service):
            saved = await (await self._training.save_state_async(name)).result_async()
        place = {"place": saved.path, "model": self.service.model, "version": self.version, "taken": self.taken}
        save_state(path, {"tinker": place})

    async def load_state(self, path: Path) -> None:
        """Go on from a kept state, and sample from it."""
        place = load_state(path).get("tinker")
        if not isinstance(place, dict):
            raise StoreError(f"{path} is a state of another trainer, not of a Tinker service")
        if place["model"] != self.service.model:
            raise StoreError(f"{path} is a state of {place['model']}, not of {self.service.model}")
        async with _calling(self.service):
            await (await self._training.load_state_with_optimizer_async(place["place"])).result_async()
        await self.refresh(place["version"])
        self.taken = place["taken"]
        self._added = self._called = self._broken = False


def _write_adapter(folder: Path, archive: bytes) -> None:
    """The two files of an adapter out of a .tar; the configuration names the adapted layers afterwards."""
    with needs_extra("lora"):
        from wanderlust.policies.local.lora import ADAPTER_CONFIG_FILE, ADAPTER_WEIGHTS_FILE
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        members = {Path(member.name).name: member for member in opened if member.isfile()}
        files = {name: opened.extractfile(members[name]) for name in (ADAPTER_CONFIG_FILE, ADAPTER_WEIGHTS_FILE)}
        content = {name: file.read() for name, file in files.items() if file is not None}
    settings = json.loads(content[ADAPTER_CONFIG_FILE])
    layers = {name.split(".lora_")[0].rpartition(".")[2] for name in load(content[ADAPTER_WEIGHTS_FILE])}
    settings["target_modules"] = settings.get("target_modules") or sorted(layers)
    folder.mkdir(parents=True)
    (folder / ADAPTER_WEIGHTS_FILE).write_bytes(content[ADAPTER_WEIGHTS_FILE])
    (folder / ADAPTER_CONFIG_FILE).write_text(json.dumps(settings))


REFUSALS = tinker.BadRequestError | tinker.AuthenticationError | tinker.PermissionDeniedError | tinker.NotFoundError
"""What a service answers to requests that it will refuse again."""


@asynccontextmanager
async def _calling(service: TinkerService, failure: type[Failure] = TrainerFailure) -> AsyncIterator[None]:
    """Bound a call of the service in time, and attribute its failures."""
    with attribute_failures(failure):
        async with asyncio.timeout(service.timeout_seconds):
            yield


@contextmanager
def attribute_failures(failure: type[Failure]) -> Iterator[None]:
    """As `boundary`, in one line; what may pass by itself is transient. Raises ContextFull for too long a prompt."""
    try:
        with boundary(failure):
            yield
    except failure as error:
        cause, line = error.__cause__, f"the service: {one_line(str(error))}"
        passing = isinstance(cause, (TimeoutError, tinker.APIConnectionError))
        refused = isinstance(cause, tinker.BadRequestError | tinker.RequestFailedError)
        if refused and Refusal(status=400, text=str(cause)).context_full:
            raise ContextFull(line) from cause
        refusal = f"HTTP {cause.status_code}" if isinstance(cause, REFUSALS) else ""
        raise failure(line, transient=passing, refusal=refusal) from cause


@asynccontextmanager
async def tinker_engine(options: EngineOptions) -> AsyncIterator[TrainingSetup]:
    """A service samples and learns; its adapter is put on the model in this process where one is saved."""
    config, start = options.config, options.start
    with_adapter = import_adapters().with_adapter
    model, tokenizer = load_frozen(config, start)
    service = TinkerService.of(config)

    async def whole_model(*, averaged: bool = False) -> Any:
        folder = options.run / WEIGHTS_FOLDER / "adapter"
        place = await trainer.export_adapter(folder)
        (options.run / SERVICE_PLACE_FILE).write_text(f"{place}\n")
        return with_adapter(model, folder) if folder.exists() else None

    async with connect_tinker(service, tokenizer, config.rl_optimizer) as trainer:
        await _check_same_model(trainer, model, tokenizer, name=service.model)
        playing = open_player(config, start, tokenizer, training=trainer, evaluation=trainer, ray=options.ray)
        async with playing as player:
            yield TrainingSetup(
                trainer=trainer,
                tokenizer=tokenizer,
                algorithm=player.algorithm,
                player=player,
                whole_model=whole_model,
            )


async def _check_same_model(trainer: SupportsLogprobs, model: Any, tokenizer: Any, *, name: str) -> None:
    """Raises UsageError when a new adapter's log-probabilities are not those of the checkpoint."""
    ids = [*Renderer(tokenizer).start([user(PROBE_TEXT)])]
    sample = Sample()
    sample.append_context(ids[:1])
    sample.append_completion(ids[1:], [0.0] * (len(ids) - 1), [1.0] * (len(ids) - 1))
    loss = losses.IMPORTANCE_LOSS
    (theirs,), (ours,) = (
        await trainer.compute_logprobs([sample], loss),
        GradientComputer(model, loss=loss).compute_logprobs([sample]),
    )
    apart = sum(abs(a - b) for a, b in zip(theirs, ours, strict=True)) / (len(ids) - 1)
    if not apart < MAX_PROBE_DIFFERENCE:
        raise UsageError(
            f"the service's model {name} is not that of the checkpoint: log-probabilities of a token are {apart:.2g} "
            "apart on average; name the right one with engine_model"
        )
