"""A trainer whose answers come from servers: weights learn here, and reach the servers through a folder."""

from __future__ import annotations

import asyncio
import copy
import os
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from wanderlust._lazy import needs_extra
from wanderlust.errors import PolicyFailure, UsageError, writing
from wanderlust.policies.base import API_KEY_VARIABLE, SampledTokens, SamplingOptions
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local.device import one_thread
from wanderlust.policies.vllm import VLLM
from wanderlust.policies.vllm_servers import (
    SERVER_CLIENTS,
    VLLMOptions,
    VLLMServers,
    WeightFormat,
    find_vllm_servers,
    start_vllm_servers,
)
from wanderlust.policies.weight_sender import WeightSender
from wanderlust.runner.engine import run_blocking
from wanderlust.store.whole_files import replacing
from wanderlust.training.batch.collate import BatchTotals
from wanderlust.training.batch.samples import Sample
from wanderlust.training.config import OptimizerConfig, TrainConfig
from wanderlust.training.group_source import open_player
from wanderlust.training.losses import PolicyLoss
from wanderlust.training.models import gradient_settings, load_frozen, load_trainable
from wanderlust.training.trainers.base import WEIGHTS_FOLDER, EngineOptions, SupportsWholeModel, TrainingSetup
from wanderlust.training.trainers.fsdp_group import FsdpGroup, RankOptions, fsdp_group, sharded_export
from wanderlust.training.trainers.in_process import LocalLearner

PROBE_TEXT = "Some 3 foo_bar(x)\n\u00e9\u4f60"
"""Tokenizers differ in it, if they differ; short enough for any model."""
MAX_SERVER_GAP = 0.2
"""Difference of a log-probability that no precision explains."""
KEPT_EXPORTS = 3
"""Exported weights that stay: servers may still read the older ones."""


class ServedTrainer:
    """A `Trainer` made of one without a sampler, and of servers that sample.

    At `publish` the newest weights are written to a folder that the servers read: the adapter where there is one, else
    a whole checkpoint; or all of them are sent over the network. With adapters, answers under way end under the weights
    they began with; with whole weights they are held and go on under the new ones, and their version is the older.
    While averaged weights are evaluated, other requests wait.
    """

    def __init__(self, learner: SupportsWholeModel, servers: VLLMServers, *, folder: Path, kind: WeightFormat):
        """`folder`, which servers and learner share, takes the exported weights."""
        self.learner, self.servers, self.folder, self.kind = learner, servers, folder, kind
        self._exports = self._under_way = 0
        self._open, self._idle = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._idle.set()

    @property
    def version(self) -> int:
        """Number of times that weights were published."""
        return self.learner.version

    def begin(self, config: OptimizerConfig) -> None:
        """A fresh optimizer."""
        self.learner.begin(config)

    async def sample(
        self, prompt: Sequence[int], sampling: SamplingOptions, *, key: int, session: str = ""
    ) -> SampledTokens:
        """Draw one answer with the weights that were published last."""
        await self._open.wait()
        self._under_way += 1
        self._idle.clear()
        try:
            return await self.servers.sample(prompt, sampling, key=key, session=session)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    def release(self, session: str) -> None:
        """A conversation is over."""
        self.servers.release(session)

    async def forward_backward(
        self, samples: Sequence[Sample], loss: PolicyLoss, *, totals: BatchTotals | None = None
    ) -> dict[str, float]:
        """The learner's gradient, and how the servers fare."""
        return {**await self.learner.forward_backward(samples, loss, totals=totals), **self.servers.metrics()}

    async def compute_logprobs(self, samples: Sequence[Sample], loss: PolicyLoss) -> list[list[float]]:
        """Log-probabilities under the newest weights."""
        return await self.learner.compute_logprobs(samples, loss)

    async def optim_step(self) -> dict[str, float]:
        """The learner's step."""
        return await self.learner.optim_step()

    async def publish(self) -> int:
        """Write the newest weights and have every server read them."""
        await self.learner.publish()
        await self._send(averaged=False)
        return self.version

    def update_ema(self, decay: float) -> None:
        """Let the average follow the weights."""
        self.learner.update_ema(decay)

    @asynccontextmanager
    async def ema_weights(self) -> AsyncIterator[None]:
        """Inside, `EvaluationSampler` draws with the averaged weights; what is under way ends before."""
        self._open.clear()
        try:
            await self._idle.wait()
            await self._send(averaged=True)
            yield
            await self._send(averaged=False)
        finally:
            self._open.set()

    async def use_ema(self) -> None:
        """The average becomes the weights."""
        await self.learner.use_ema()
        await self._send(averaged=False)

    async def save_state(self, path: Path) -> None:
        """The learner's."""
        await self.learner.save_state(path)

    async def load_state(self, path: Path) -> None:
        """The learner's, published under the version it had then."""
        await self.learner.load_state(path)
        await self._send(averaged=False)

    async def _send(self, *, averaged: bool) -> None:
        model = await self.learner.whole_model(averaged=averaged)
        if self.kind == "tensors":
            copies = [(name, tensor.to("cpu", copy=True)) for name, tensor in untied(model).state_dict().items()]
            await self.servers.publish(copies, self.version, self.kind)
            return
        self._exports += 1
        folder = self.folder / f"{self._exports:06}"
        await asyncio.to_thread(write_weights, folder, model, kind=self.kind)
        await self.servers.publish(folder, self.version, self.kind)
        for old in sorted(self.folder.iterdir())[:-KEPT_EXPORTS]:
            shutil.rmtree(old, ignore_errors=True)


class EvaluationSampler:
    """The servers, for whoever evaluates inside `ema_weights`: its requests do not wait."""

    def __init__(self, trainer: ServedTrainer):
        self.servers = trainer.servers
        self.sample: Callable[..., Any] = trainer.servers.sample
        self.release = trainer.servers.release


def write_weights(folder: Path, model: Any, *, kind: WeightFormat) -> None:
    """Write what servers read: the adapter of the model, or all its weights with the head beside the embeddings."""
    if kind == "adapter":
        with needs_extra("lora"):
            from wanderlust.policies.local.lora import save_adapter
        save_adapter(folder, model)
    else:
        with writing(folder), replacing(folder) as draft:
            untied(model).save_pretrained(draft)


@torch.no_grad()
def untied(model: Any) -> Any:
    """The model with a head of its own.

    vLLM on processors packs the head's weights when it starts, and reloading leaves them as they were where they are
    the embeddings' (vLLM 0.32, measured: log-probabilities were off by 0.2).
    """
    if not model.config.tie_word_embeddings:
        return model
    head = model.get_output_embeddings()
    shell = copy.copy(model)
    shell._modules = dict(model._modules)
    shell.config = copy.deepcopy(model.config)
    shell.config.tie_word_embeddings = False
    own = nn.Linear(head.in_features, head.out_features, bias=head.bias is not None)
    own.weight = nn.Parameter(model.get_input_embeddings().weight.detach().clone())
    shell.set_output_embeddings(own)
    return shell


@asynccontextmanager
async def served_engine(options: EngineOptions) -> AsyncIterator[TrainingSetup]:
    """Servers sample; weights learn in this process or in a group, and reach the servers through the run's folder."""
    config, start = options.config, options.start
    one_thread()
    model, tokenizer = load_trainable(config, start)
    async with AsyncExitStack() as stack:
        learner: LocalLearner | FsdpGroup
        if config.engine == "vllm":
            reading, hardware = gradient_settings(config), config.hardware
            learner = stack.enter_context(LocalLearner(model, config.rl_optimizer, hardware=hardware, **reading))
        else:
            shared = RankOptions(config=config, start=start, plays=False)
            learner = stack.enter_context(fsdp_group(shared, processes=config.processes))
        kind: WeightFormat = "adapter" if config.lora else "checkpoint"
        sender = None
        if config.weight_transfer != "folder":
            half = config.precision == "bf16"
            kind, sender = "tensors", WeightSender(config.weight_transfer, device=config.hardware.device, half=half)
        servers = await stack.enter_async_context(_servers(options, tokenizer, sender))
        trainer = ServedTrainer(learner, servers, folder=options.run / WEIGHTS_FOLDER / "published", kind=kind)
        evaluation = EvaluationSampler(trainer)
        playing = open_player(config, start, tokenizer, training=trainer, evaluation=evaluation, ray=options.ray)
        player = await stack.enter_async_context(playing)
        yield TrainingSetup(
            trainer=trainer,
            tokenizer=tokenizer,
            algorithm=player.algorithm,
            player=player,
            whole_model=learner.whole_model,
            export=sharded_export(config, learner) if isinstance(learner, FsdpGroup) else None,
        )


def _servers(
    options: EngineOptions, tokenizer: Any, sender: WeightSender | None
) -> AbstractAsyncContextManager[VLLMServers]:
    """The servers at the configured addresses, or servers that are started with the checkpoint."""
    config, end_ids = options.config, Renderer(tokenizer).end_ids
    if config.engine_url:
        return find_vllm_servers(
            [url.strip() for url in config.engine_url.split(",")],
            api_key=os.environ.get(API_KEY_VARIABLE),
            end_ids=end_ids,
            concurrency=config.concurrency,
            kind=SERVER_CLIENTS[config.server_api],
            sender=sender,
        )
    served = options.run / WEIGHTS_FOLDER / "served"
    if not served.exists():
        plain, _ = load_frozen(config, options.start)
        write_weights(served, plain, kind="checkpoint")
        tokenizer.save_pretrained(served)
    how = VLLMOptions(
        command=config.server_command,
        extra=config.server_options,
        hardware=config.hardware,
        max_context=config.max_context,
        concurrency=config.concurrency,
        lora_rank=config.lora,
        processed=config.temperature != 1,
        receives=sender is not None,
    )
    return start_vllm_servers(served, how, count=config.servers, logs=options.run, end_ids=end_ids, sender=sender)


def check_servers(config: TrainConfig, model: Any = None, tokenizer: Any = None) -> None:
    """Raises UsageError, in one line, when a server at `engine_url` does not answer, or has another model, tokenizer or
    version than the others.

    Without a tokenizer only the first is asked, and of SGLang's servers.
    """
    versions: dict[str, str] = {}
    for url in filter(None, map(str.strip, config.engine_url.split(","))):
        client = SERVER_CLIENTS[config.server_api](url, "", api_key=os.environ.get(API_KEY_VARIABLE))
        ask = (
            client.first_model
            if tokenizer is None or config.server_api != "vllm"
            else partial(_check_server, config, client, checkpoint=(model, tokenizer))
        )
        try:
            run_blocking(ask)
        except PolicyFailure as error:
            raise UsageError(str(error)) from error
        versions[url] = run_blocking(client.library_version)
    if len(set(filter(None, versions.values()))) > 1:
        told = ", ".join(f"{url} has {version or 'one that it does not tell'}" for url, version in versions.items())
        raise UsageError(f"servers of different versions compute different numbers: {told}; start all with one version")


async def _check_server(config: TrainConfig, client: VLLM, *, checkpoint: tuple[Any, Any]) -> None:
    """Compare the ids of a text and, where adapters leave the server's own weights as they are, a log-probability."""
    model, tokenizer = checkpoint
    client.model = await client.first_model()
    async with client:
        await client.check_calls("adapter" if config.lora else "checkpoint")
        ids = tuple(tokenizer.encode(PROBE_TEXT))
        theirs = await client.tokenize(PROBE_TEXT)
        where = f"the server at {client.url.parent}"
        if theirs != ids:
            raise UsageError(
                f"{where} has another tokenizer than {config.policy}: it reads {len(theirs)} ids where this one "
                f"has {len(ids)}, as {list(theirs[:5])} for {list(ids[:5])}; start it with this checkpoint"
            )
        if not config.lora:
            return
        sampled = await client.sample(ids, SamplingOptions(temperature=0, max_tokens=1), key=1)
        with torch.inference_mode():
            ours = model(input_ids=torch.tensor([ids], device=model.device)).logits[0, -1].float().log_softmax(-1)
        gap = abs(float(ours[sampled.ids[0]]) - sampled.logprobs[0])
        if gap > MAX_SERVER_GAP:
            raise UsageError(
                f"{where} has other weights than {config.policy}: their log-probabilities of a token are {gap:.2g} "
                "apart; start it with this checkpoint"
            )
