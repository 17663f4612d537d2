"""The five verbs, the same promises whoever keeps them: the engine in this process, and worker processes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch

from toys import TOKENIZER, Twice, fresh
from wanderlust.errors import StoreError, UsageError
from wanderlust.policies.local import SamplingOptions
from wanderlust.policies.local.device import one_thread
from wanderlust.policies.local.lora import adapt, merge_adapter
from wanderlust.training import losses
from wanderlust.training.algorithms.presets import algorithm
from wanderlust.training.batch.collate import BatchTotals
from wanderlust.training.batch.samples import Sample
from wanderlust.training.config import OptimizerConfig, TrainConfig
from wanderlust.training.optimizer import weights_of
from wanderlust.training.tiny_model import ModelShape, fresh_model
from wanderlust.training.trainers.in_process import InProcessTrainer
from wanderlust.training.trainers.process_pool import ProcessPoolTrainer
from wanderlust.training.trainers.replica import Replica

Engine: TypeAlias = InProcessTrainer | ProcessPoolTrainer
CONFIG = OptimizerConfig(steps=20, lr=1e-2, warmup=1)
PROMPT = [1, 6]
LONG = SamplingOptions(max_tokens=24)


def embedded(model: Any = None, **settings: Any) -> InProcessTrainer:
    return InProcessTrainer(fresh(0) if model is None else model, TOKENIZER, CONFIG, **settings)


def pool() -> ProcessPoolTrainer:
    play = TrainConfig(algorithm=algorithm("cispo"), max_tokens=1, implementation="transformers")
    return ProcessPoolTrainer(partial(Replica, fresh(0), TOKENIZER, Twice(), config=play), fresh(0), CONFIG, count=1)


@pytest.fixture(params=[embedded, pool], ids=["embedded", "pool"])
def trainer(request: pytest.FixtureRequest) -> Iterator[Engine]:
    one_thread()
    made: Engine = request.param()
    with made:
        yield made


def sample(*ids: int, advantage: float = 1.0, group: int = -1) -> Sample:
    """All but the first token were sampled, each with log-probability -2."""
    mask = [i > 0 for i in range(len(ids))]
    values = [[on * x for on in mask] for x in (-2.0, advantage)]
    return Sample(ids=list(ids), mask=mask, logprobs=values[0], advantages=values[1], group=group)


BATCH = [sample(1, 6, 7, 8, group=0), sample(1, 7, 9, group=1), sample(1, 8, 8, 8, 6, group=2), sample(1, 9, group=3)]


async def update(trainer: Engine, batch: list[Sample] = BATCH) -> dict[str, float]:
    seen = await trainer.forward_backward(batch, losses.CISPO_LOSS)
    return {**seen, **await trainer.optim_step()}


async def answer(trainer: Engine, key: int = 5) -> tuple[tuple[int, ...], tuple[float, ...], int]:
    found = await trainer.sample(PROMPT, LONG, key=key)
    return found.ids, found.logprobs, found.version


def test_answers_are_those_of_the_published_weights(trainer: Engine) -> None:
    async def story() -> None:
        version = await trainer.publish()
        ids, logprobs, drawn_by = await answer(trainer)
        assert drawn_by == version == trainer.version
        figures = await update(trainer)
        assert figures["grad_norm"] > 0
        assert figures["tokens"] == sum(len(s.ids) for s in BATCH)
        same_ids, same, _ = await answer(trainer)  # the newest weights are not published yet
        assert (same_ids, same) == (ids, pytest.approx(logprobs, abs=1e-5))
        assert await trainer.publish() == version + 1
        _, changed, drawn_by = await answer(trainer)
        assert drawn_by == version + 1
        assert abs(changed[0] - logprobs[0]) > 1e-4

    asyncio.run(story())


def test_a_batch_in_pieces_is_the_whole_batch(trainer: Engine) -> None:
    async def story() -> None:
        totals = BatchTotals.of(BATCH, losses.CISPO_LOSS)
        for piece in (BATCH[:1], BATCH[1:]):
            await trainer.forward_backward(piece, losses.CISPO_LOSS, totals=totals)
        await trainer.optim_step()

    asyncio.run(story())
    with embedded() as whole:
        asyncio.run(update(whole))
        torch.testing.assert_close(weights_of(trainer.model), weights_of(whole.model), rtol=1e-4, atol=1e-5)


def test_what_is_no_number_changes_nothing_but_the_schedule(trainer: Engine) -> None:
    async def story() -> None:
        before = weights_of(trainer.model)
        assert (await update(trainer, [sample(1, 6, advantage=1e60)]))["skipped"] == 1
        assert torch.equal(weights_of(trainer.model), before)
        assert trainer.weights.optimizer.taken == 1
        with pytest.raises(UsageError, match="comes after forward_backward"):
            await trainer.optim_step()
        assert (await update(trainer, []))["grad_norm"] == 0

    asyncio.run(story())


def test_a_saved_state_goes_on_bit_for_bit_and_no_other_model_takes_it(trainer: Engine, tmp_path: Path) -> None:
    async def on(steps: int) -> torch.Tensor:
        for _ in range(steps):
            await update(trainer)
            trainer.update_ema(0.9)
            await trainer.publish()
        return torch.cat([weights_of(trainer.model), trainer.weights.ema_weights])

    async def story() -> None:
        middle = await on(2)
        await trainer.save_state(tmp_path / "state")
        straight = await on(3)
        await trainer.load_state(tmp_path / "state")
        assert trainer.version == 2
        assert (await answer(trainer))[2] == 2
        assert torch.equal(torch.cat([weights_of(trainer.model), trainer.weights.ema_weights]), middle)
        assert torch.equal(await on(3), straight)
        await trainer.use_ema()
        assert torch.equal(weights_of(trainer.model), trainer.weights.ema_weights)

    asyncio.run(story())
    other = fresh_model(TOKENIZER, ModelShape(width=16, layers=1, heads=2, inner=32, positions=32), seed=0)
    with embedded(other) as small, pytest.raises(StoreError, match="another model"):
        asyncio.run(small.load_state(tmp_path / "state"))


def test_looking_says_what_the_newest_weights_would_have_said(trainer: Engine) -> None:
    async def story() -> list[list[float]]:
        await update(trainer)
        return await trainer.compute_logprobs(BATCH, losses.CISPO_LOSS)

    for one, seen in zip(BATCH, asyncio.run(story()), strict=True):
        logits = trainer.model(torch.tensor([one.ids])).logits[0, :-1].log_softmax(-1)
        wanted = [logits[i, token].item() for i, token in enumerate(one.ids[1:])]
        assert seen == pytest.approx([0.0, *wanted], abs=1e-5)


def test_an_answer_under_way_keeps_what_it_was_drawn_with(trainer: Engine) -> None:
    if isinstance(trainer, ProcessPoolTrainer):
        pytest.skip("the pool plays in rounds")

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
@pytest.mark.parametrize(("mebibytes", "left", "said"), [(700, 4, "memory ran out"), (60, 4, "OutOfMemory: out of")])
def test_where_memory_runs_out_half_the_batch_is_tried_then_advice_given(mebibytes: int, left: int, said: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FULL, str(mebibytes)]
    here = Path(__file__).parent
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    micro_batch, lines = json.loads(done.stdout.splitlines()[-1])
    assert micro_batch == left
    assert any(said in line for line in lines), lines
    assert lines[0] == "done" or "take fewer with micro_batch" in lines[0]
