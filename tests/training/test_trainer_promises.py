"""What every engine's trainer promises: sample, forward-backward, optimizer step, publish, save, load.

The engines are opened as a run opens them. Tinker's runs where `make peers` has installed SkyRL's server.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch

from patience import PATIENCE
from project_files import ROOT
from servers import ENGINES, Places, open_places
from tiers import proof_except
from toys import TOKENIZER, fresh
from wanderlust.errors import StoreError, UsageError
from wanderlust.policies.base import SamplingOptions
from wanderlust.policies.local.device import one_thread
from wanderlust.policies.local.lora import adapt, merge_adapter
from wanderlust.training import losses
from wanderlust.training.batch.collate import BatchTotals
from wanderlust.training.batch.samples import Sample
from wanderlust.training.checkpoint import SERVICE_PLACE_FILE
from wanderlust.training.config import OptimizerConfig, TrainConfig
from wanderlust.training.engines import open_engine, save_checkpoint
from wanderlust.training.gradient import GradientComputer
from wanderlust.training.models import load_trainable
from wanderlust.training.optimizer import TrainableWeights
from wanderlust.training.run_report import policy_sentence
from wanderlust.training.tiny_model import ModelShape, fresh_model
from wanderlust.training.trainers.base import EngineOptions, SupportsEMA, TrainingSetup
from wanderlust.training.trainers.in_process import InProcessTrainer, LocalLearner

# Tinker's own client leaves connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
PROMPT, DRAW = [1, 6], SamplingOptions(max_tokens=1)
LOSS = losses.GRPO_LOSS
NEAR = 1e-5
CLIENT_ENDS_SECONDS = 3.0
Rows: TypeAlias = list[list[float]]


def sample(*ids: int, advantage: float = 1.0, group: int = -1) -> Sample:
    """All but the first token were sampled, each with log-probability -2."""
    mask = [i > 0 for i in range(len(ids))]
    values = [[on * x for on in mask] for x in (-2.0, advantage)]
    return Sample(ids=list(ids), mask=mask, logprobs=values[0], advantages=values[1], group=group)


BATCH = [
    sample(1, 6, 7, 8, group=0),
    sample(1, 7, 9, advantage=-1.0, group=1),
    sample(1, 8, 8, 8, 6, group=2),
    sample(1, 9, group=3),
]


@dataclass(slots=True, kw_only=True)
class Opened:
    """An engine in a loop of its own; every test begins at its first weights."""

    name: str
    config: TrainConfig
    setup: TrainingSetup
    run: Any
    """Runs a coroutine."""
    folder: Path

    @property
    def trainer(self) -> Any:
        return self.setup.trainer

    async def update(self, batch: Sequence[Sample] = BATCH) -> dict[str, float]:
        seen = await self.trainer.forward_backward(batch, LOSS)
        return {**seen, **await self.trainer.optim_step()}

    async def logprobs(self) -> Rows:
        """What the newest weights say to the batch."""
        rows: Rows = await self.trainer.compute_logprobs(BATCH, LOSS)
        return rows

    async def handed_out(self, *, averaged: bool = False) -> Rows:
        """What the model that the engine hands out says to the batch."""
        model = merge_adapter(await self.setup.whole_model(averaged=averaged)).requires_grad_(True)
        return GradientComputer(model, loss=LOSS).compute_logprobs(BATCH)

    async def drawn(self, keys: Sequence[int] = range(12)) -> list[Any]:
        return await asyncio.gather(*(self.trainer.sample(PROMPT, DRAW, key=key) for key in keys))


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    with open_places(tmp_path_factory.mktemp("places")) as made:
        yield made


OPENED = [name for name in ENGINES if name != "vllm-stale"]


@pytest.fixture(scope="module", params=proof_except({*OPENED} - {"vllm+fsdp"}, OPENED, group="cluster"))
def opened(
    request: pytest.FixtureRequest, places: Places, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Opened]:
    config = places.settings(request.param, lr=1e-2, lr_warmup_steps=1)
    folder = tmp_path_factory.mktemp("run")
    with asyncio.Runner() as runner:
        opening = open_engine(EngineOptions(config=config, start=places.start, workers=2, run=folder))
        made = Opened(
            name=request.param,
            config=config,
            setup=runner.run(opening.__aenter__()),
            run=runner.run,
            folder=folder,
        )
        try:
            made.run(made.trainer.publish())
            made.run(made.trainer.save_state(folder / "first"))
            yield made
        finally:
            made.run(opening.__aexit__(None, None, None))
    del made.setup, made.run, opening, runner
    if request.param == "tinker":  # its client's thread lets go of connections some time later
        time.sleep(CLIENT_ENDS_SECONDS)
    gc.collect()


@pytest.fixture
def engine(opened: Opened) -> Opened:
    opened.run(opened.trainer.load_state(opened.folder / "first"))
    return opened


def reference(engine: Opened, places: Places) -> LocalLearner:
    """The same weights and optimizer, without a sampler."""
    model, _ = load_trainable(engine.config, places.start)
    return LocalLearner(model, engine.config.rl_optimizer)


def near(ours: Rows, theirs: Rows, *, within: float = NEAR) -> bool:
    pairs = zip(chain.from_iterable(ours), chain.from_iterable(theirs), strict=True)
    return max(abs(a - b) for a, b in pairs) <= within


def test_answers_are_those_of_the_weights_published_last(engine: Opened) -> None:
    async def story() -> None:
        trainer = engine.trainer
        version = trainer.version
        before = await engine.drawn()
        assert {one.version for one in before} == {version}
        figures = await engine.update()
        assert figures["grad_norm"] > 0 or engine.name == "tinker"  # a service may not tell
        assert figures["tokens"] == sum(len(s.ids) for s in BATCH)
        if engine.name == "tinker":  # this service samples from the weights that learn: what is asked waits
            asked = asyncio.create_task(engine.drawn())
            assert not (await asyncio.wait([asked], timeout=0.5))[0]
            await trainer.publish()
            assert {one.version for one in await asked} == {version + 1}
            return
        same = await engine.drawn()
        assert [one.ids for one in same] == [one.ids for one in before]
        for one, other in zip(same, before, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=NEAR)
        assert await trainer.publish() == version + 1 == trainer.version
        after = await engine.drawn()
        assert {one.version for one in after} == {version + 1}
        assert max(abs(a.logprobs[0] - b.logprobs[0]) for a, b in zip(after, before, strict=True)) > 1e-4

    engine.run(story())


def test_tokens_are_drawn_with_the_trainers_own_probabilities(engine: Opened) -> None:
    async def story() -> None:
        await engine.update()
        await engine.trainer.publish()
        drawn = await engine.drawn()
        rows = [sample(*PROMPT, *one.ids) for one in drawn]
        read = await engine.trainer.compute_logprobs(rows, LOSS)
        for one, row in zip(drawn, read, strict=True):
            assert one.logprobs == pytest.approx(row[len(PROMPT) :], abs=NEAR)

    engine.run(story())


def test_a_step_is_that_of_the_reference(engine: Opened, places: Places) -> None:
    async def story(own: LocalLearner) -> None:
        assert near(await engine.logprobs(), await own.compute_logprobs(BATCH, LOSS))
        for _ in range(3):
            seen, wanted = await engine.trainer.forward_backward(BATCH, LOSS), await own.forward_backward(BATCH, LOSS)
            wanted.pop("entropy")
            assert {name: seen[name] for name in wanted} == pytest.approx(wanted, abs=1e-4, rel=1e-4)
            taken, step = await engine.trainer.optim_step(), await own.optim_step()
            if engine.name == "tinker":  # its adapter begins with other random values: the same function, another path
                return
            assert taken == pytest.approx(step, rel=1e-4)
            assert near(await engine.logprobs(), await own.compute_logprobs(BATCH, LOSS))

    with reference(engine, places) as own:
        engine.run(story(own))


def test_a_batch_in_pieces_is_the_whole_batch(engine: Opened) -> None:
    async def story() -> None:
        await engine.update()
        whole = await engine.logprobs()
        await engine.trainer.load_state(engine.folder / "first")
        totals = BatchTotals.of(BATCH, LOSS)
        for piece in (BATCH[:1], [], BATCH[1:]):
            figures = await engine.trainer.forward_backward(piece, LOSS, totals=totals)
            assert figures["tokens"] == sum(len(s.ids) for s in piece)
        await engine.trainer.optim_step()
        assert near(await engine.logprobs(), whole)

    engine.run(story())


def test_nothing_to_learn_from_changes_nothing_and_a_step_needs_a_gradient(engine: Opened) -> None:
    async def story() -> None:
        before = await engine.logprobs()
        assert (await engine.update([]))["grad_norm"] == 0
        assert near(await engine.logprobs(), before, within=0)
        with pytest.raises(UsageError, match="optim_step comes after forward_backward"):
            await engine.trainer.optim_step()
        assert (await engine.update())["lr"] == pytest.approx(engine.config.rl_optimizer.lr_at(1))

    engine.run(story())


def test_what_is_no_number_changes_nothing_but_the_schedule(engine: Opened) -> None:
    async def story() -> None:
        before, broken = await engine.logprobs(), [sample(1, 6, advantage=1e60)]
        assert (await engine.update(broken))["skipped"] == 1
        assert near(await engine.logprobs(), before, within=0)
        figures = await engine.update()
        assert "skipped" not in figures
        assert not near(await engine.logprobs(), before, within=1e-4)

    engine.run(story())


def test_a_saved_state_goes_on_to_the_same_weights(engine: Opened) -> None:
    async def on(steps: int) -> Rows:
        for _ in range(steps):
            await engine.update()
            if isinstance(engine.trainer, SupportsEMA):
                engine.trainer.update_ema(0.9)
            await engine.trainer.publish()
        return await engine.logprobs()

    async def averaged() -> Rows:
        if not isinstance(engine.trainer, SupportsEMA):
            return []
        return await engine.handed_out(averaged=True)

    async def story() -> None:
        within = NEAR if engine.name == "tinker" else 0.0
        middle, version = await on(2), engine.trainer.version
        await engine.trainer.save_state(engine.folder / "middle")
        straight, average = await on(3), await averaged()
        await engine.trainer.load_state(engine.folder / "middle")
        assert engine.trainer.version == version
        assert {one.version for one in await engine.drawn()} == {version}
        assert near(await engine.logprobs(), middle, within=within)
        assert near(await on(3), straight, within=within)
        if isinstance(engine.trainer, SupportsEMA):
            assert near(await averaged(), average, within=within)
            await engine.trainer.use_ema()
            assert near(await engine.logprobs(), average)
            assert not near(average, straight, within=1e-3)

    engine.run(story())


def test_states_of_others_are_refused_in_a_line_and_nothing_changes(engine: Opened, tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(os.urandom(64))
    (tmp_path / "folder").mkdir()
    other = fresh_model(TOKENIZER, ModelShape(width=16, layers=1, heads=2, inner=32, positions=32), seed=0)
    TrainableWeights(other, OptimizerConfig(steps=1, lr=1e-3)).save(tmp_path / "other")

    async def story() -> None:
        await engine.update()
        before = await engine.logprobs()
        for name in ("noise", "folder", "other", "missing"):
            with pytest.raises(StoreError) as refused:
                await engine.trainer.load_state(tmp_path / name)
            assert "\n" not in str(refused.value)
            assert str(tmp_path) in str(refused.value)
        assert near(await engine.logprobs(), before, within=0)
        await engine.update()
        await engine.trainer.publish()

    engine.run(story())


def test_it_samples_while_it_learns(engine: Opened) -> None:
    async def story() -> None:
        published = engine.trainer.version
        expected = await engine.drawn(range(24))
        learning = asyncio.create_task(engine.update())
        meanwhile = await engine.drawn(range(24))
        await learning
        await engine.trainer.publish()
        assert {one.version for one in meanwhile} == {published}
        assert [one.ids for one in meanwhile] == [one.ids for one in expected]
        for one, other in zip(meanwhile, expected, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=NEAR)

    engine.run(story())


def test_the_model_that_is_handed_out_is_the_one_that_learns(engine: Opened) -> None:
    async def story() -> None:
        for _ in range(2):
            await engine.update()
        assert near(await engine.handed_out(), await engine.logprobs())

    engine.run(story())


@pytest.mark.parametrize("opened", ["tinker"], indirect=True)
def test_a_service_that_hands_out_no_weights_says_where_they_are(engine: Opened, tmp_path: Path) -> None:
    async def story() -> None:
        archives, engine.trainer.archives = engine.trainer.archives, None
        try:
            assert await engine.setup.whole_model() is None
            await save_checkpoint(tmp_path / "rl", engine.config, engine.setup)
        finally:
            engine.trainer.archives = archives
        assert not (tmp_path / "rl").exists()

    engine.run(story())
    (place,) = (file.read_text().strip() for file in engine.folder.rglob(SERVICE_PLACE_FILE))
    assert place.startswith("tinker://")
    assert place in policy_sentence({"policy_checkpoint": "rl", "service_weights": place})


def embedded(model: Any = None) -> InProcessTrainer:
    one_thread()
    config = OptimizerConfig(steps=20, lr=1e-2, warmup=1)
    return InProcessTrainer(fresh(0) if model is None else model, TOKENIZER, config)


async def update(trainer: InProcessTrainer) -> None:
    await trainer.forward_backward(BATCH, LOSS)
    await trainer.optim_step()


async def answer(trainer: InProcessTrainer, key: int = 5) -> tuple[tuple[int, ...], tuple[float, ...], int]:
    found = await trainer.sample(PROMPT, SamplingOptions(max_tokens=24), key=key)
    return found.ids, found.logprobs, found.version


@pytest.fixture
def trainer() -> Iterator[InProcessTrainer]:
    with embedded() as made:
        yield made


def test_an_answer_under_way_keeps_what_it_was_drawn_with(trainer: InProcessTrainer) -> None:
    async def story() -> None:
        await trainer.publish()
        lengths = [len((await answer(trainer, key))[0]) for key in range(30)]
        key = lengths.index(max(lengths))
        undisturbed, known, _ = await answer(trainer, key)
        engine, before = trainer.published.engine, trainer.published.engine.counters.sampled
        for _ in range(5):
            await update(trainer)
        asked = asyncio.create_task(answer(trainer, key))
        for _ in range(12):
            await asyncio.sleep(0)
        drawn = engine.counters.sampled - before
        assert 0 < drawn < len(undisturbed)
        await trainer.publish()
        ids, logprobs, version = await asked
        assert version == trainer.version - 1  # the oldest that had a part in it
        assert ids[:drawn] == undisturbed[:drawn]
        assert logprobs[:drawn] == pytest.approx(known[:drawn], abs=1e-5)
        assert (await answer(trainer))[2] == trainer.version

    asyncio.run(story())


def test_the_event_loop_is_free_while_gradients_are_computed() -> None:
    async def story() -> int:
        turns, batch = 0, [sample(1, *[6] * 30) for _ in range(64)]
        with embedded() as trainer:
            computing = asyncio.create_task(trainer.forward_backward(batch, losses.CISPO_LOSS))
            while not computing.done():
                await asyncio.sleep(0)
                turns += 1
        return turns

    assert asyncio.run(story()) > 10


def test_only_adapters_learn_and_the_sampler_gets_them() -> None:
    model = fresh(0)
    adapt(model, rank=2, seed=0)

    async def story() -> None:
        with embedded(model) as trainer:
            before = await answer(trainer)
            for _ in range(3):
                await update(trainer)
            await trainer.publish()
            assert (await answer(trainer))[1][0] != pytest.approx(before[1][0], abs=1e-6)
            frozen = {name: p for name, p in model.named_parameters() if "lora_" not in name}
            plain = dict(fresh(0).named_parameters())
            assert all(torch.equal(p, plain[name.replace(".base_layer", "")]) for name, p in frozen.items())
            ids = torch.tensor([PROMPT])
            torch.testing.assert_close(merge_adapter(model)(ids).logits, model(ids).logits, rtol=1e-4, atol=1e-4)

    asyncio.run(story())


FULL = """
import asyncio, json, resource, sys, warnings
from toys import TOKENIZER
from wanderlust.errors import WanderlustError
from wanderlust.training import losses
from wanderlust.training.trainers.in_process import InProcessTrainer
from wanderlust.training.tiny_model import ModelShape, fresh_model
from wanderlust.training.config import OptimizerConfig
from wanderlust.training.batch.samples import Sample

mebibytes = int(sys.argv[1])
model = fresh_model(TOKENIZER, ModelShape(width=64, layers=1, heads=2, inner=4096, positions=2048), seed=0)
ids = [1] + [6, 7, 8, 9] * 255
on = [i > 0 for i in range(len(ids))]
batch = [Sample(ids=ids, mask=on, logprobs=[-2.0 * x for x in on], advantages=[1.0 * x for x in on]) for _ in range(8)]
said = []
with InProcessTrainer(model, TOKENIZER, OptimizerConfig(steps=2, lr=1e-3), micro_batch=8) as trainer:
    asyncio.run(trainer.forward_backward(batch[:1], losses.CISPO_LOSS))
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + mebibytes * 2**20,) * 2)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            figures = asyncio.run(trainer.forward_backward(batch, losses.CISPO_LOSS))
            said.append("done")
        except WanderlustError as error:
            said.append(f"{type(error).__name__}: {error}")
    said += [str(w.message) for w in told]
    print(json.dumps([trainer._reads.micro_batch, said]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="bounds the address space")
@pytest.mark.parametrize(
    ("mebibytes", "left", "said"),
    [(700, 4, "memory ran out"), pytest.param(60, 4, "OutOfMemory: out of", marks=pytest.mark.proof("seeds"))],
)
def test_where_memory_runs_out_half_the_batch_is_tried_then_advice_given(mebibytes: int, left: int, said: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FULL, str(mebibytes)]
    here = ROOT / "tests"
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    micro_batch, lines = json.loads(done.stdout.splitlines()[-1])
    assert micro_batch == left
    assert any(said in line for line in lines), lines
    assert lines[0] == "done" or "take fewer with micro_batch" in lines[0]
