"""One process or two under torchrun: the same losses, the same weights, and a state that either goes on from."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING
from transformers import AutoModelForCausalLM

from project_files import ROOT
from sharded_run import KEPT, LOSS, MICRO_BATCH, OPTIMIZER, STEPS, model_of, run, samples_of, trainer_of
from toys import TOKENIZER
from wanderlust.errors import StoreError, UsageError
from wanderlust.policies.base import SamplingOptions
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.training.gradient import GradientComputer, combine
from wanderlust.training.optimizer import Optimizer, weights_of
from wanderlust.training.trainers.fsdp import ShardedConfig, ShardedTrainer, copy_weights
from wanderlust.training.trainers.fsdp_state import _MetadataUnpickler

CLOSE = 1e-5


def alone(kind, folder, **options):
    """The same run in this process: figures, weights and an answer."""
    trainer = trainer_of(kind)
    told = asyncio.run(run(trainer, folder, **options))
    asyncio.run(trainer.publish())
    answer = asyncio.run(trainer.sample([5, 6, 7], SamplingOptions(max_tokens=8), key=3))
    return told, weights_of(trainer.sampler.engine.model), answer


def close(told, reference):
    assert len(told) == len(reference)
    for one, other in zip(told, reference, strict=True):
        assert one == pytest.approx(other, abs=CLOSE, rel=CLOSE)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The uninterrupted run in one process, for each kind of model, and its folder."""
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in ("full", "lora")}
    return {kind: (*alone(kind, folder), folder) for kind, folder in folders.items()}


def test_one_process_is_the_differentiator_and_the_optimizer(whole):
    told, weights, _, _ = whole["full"]
    model = model_of("full")
    differentiator = GradientComputer(model, loss=LOSS, micro_batch=MICRO_BATCH)
    optimizer, figures = Optimizer(model, OPTIMIZER), []
    for step in range(STEPS):
        gradient = combine([differentiator.gradient(samples_of(step))])
        figures.append({**gradient.sums.metrics(), **optimizer.step(gradient)})
    assert (weights - weights_of(model)).abs().max() <= CLOSE
    assert [row["grad_norm"] for row in told] == pytest.approx([row["grad_norm"] for row in figures], rel=1e-4)
    assert max(row["grad_norm"] for row in figures) > OPTIMIZER.max_norm
    assert (weights - weights_of(model_of("full"))).abs().max() > 100 * CLOSE


@pytest.fixture(scope="module")
def together(whole, tmp_path_factory):
    """What two processes under torchrun left; the state that one process kept of the adapters was there before."""
    folder = tmp_path_factory.mktemp("together")
    for name in ("full", "lora", "lean", "split", "mixed", "offloaded", "killed"):
        (folder / name).mkdir()
    shutil.copytree(whole["lora"][-1] / "state", folder / "lora/state")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run([*launcher, ROOT / "tests/sharded_run.py", folder], env=env, check=False)
    assert done.returncode == 1
    return folder


@pytest.mark.parametrize(("kind", "first"), [("full", 0), ("lora", KEPT)])
def test_two_processes_give_what_one_gives_from_the_start_or_from_its_state(whole, together, kind, first):
    reference, weights, answer, _ = whole[kind]
    told = json.loads((together / kind / "told.json").read_text())
    count = sum(parameter.numel() for parameter in model_of(kind).parameters())
    assert sum(told["parts"]) == count
    assert max(told["parts"]) < 0.6 * count
    close(told["figures"], reference[first:])
    assert (torch.load(together / kind / "weights.pt") - weights).abs().max() <= CLOSE
    assert tuple(told["answer"]) == answer.ids


def test_packed_lines_and_pieces_of_logits_give_the_same(whole, together):
    reference, weights, answer, _ = whole["full"]
    told = json.loads((together / "lean/told.json").read_text())
    close(told["figures"], reference)
    assert (torch.load(together / "lean/weights.pt") - weights).abs().max() <= CLOSE
    assert tuple(told["answer"]) == answer.ids


def test_sequences_cut_between_processes_give_the_same(whole, together):
    reference, weights, answer, _ = whole["full"]
    told = json.loads((together / "split/told.json").read_text())
    close(told["figures"], reference)
    assert (torch.load(together / "split/weights.pt") - weights).abs().max() <= CLOSE
    assert tuple(told["answer"]) == answer.ids
    model = model_of("full")
    copy_weights(
        model,
        [
            (name, values)
            for (name, p), values in zip(
                model.named_parameters(),
                torch.load(together / "split/weights.pt").split([p.numel() for p in model.parameters()]),
                strict=True,
            )
            for values in [values.view_as(p)]
        ],
    )
    plain = GradientComputer(model, loss=LOSS).compute_logprobs(samples_of(0))
    for rank in (0, 1):
        for row, other in zip(json.loads((together / f"logprobs-{rank}.json").read_text()), plain, strict=True):
            assert row == pytest.approx(other, abs=CLOSE)


def test_mixed_precision_is_near_and_keeps_whole_weights(whole, together):
    reference, _, _, _ = whole["full"]
    told = json.loads((together / "mixed/told.json").read_text())["figures"]
    for one, other in zip(told, reference[:KEPT], strict=True):
        assert one["loss"] != other["loss"]
        assert one["loss"] == pytest.approx(other["loss"], abs=0.01)
    assert torch.load(together / "mixed/weights.pt").dtype == torch.float32
    with pytest.raises(UsageError, match="torchrun"):
        trainer_of("full", precision="bf16")


def test_one_process_goes_on_from_what_two_killed_ones_kept(whole, together):
    reference, weights, _, _ = whole["full"]
    assert not (together / "killed/told.json").exists()
    told, own, _ = alone("full", together / "killed", first=KEPT)
    close(told, reference[KEPT:])
    assert (own - weights).abs().max() <= CLOSE


def test_published_weights_are_a_hugging_face_folder(whole, tmp_path):
    trainer = trainer_of("full")
    asyncio.run(run(trainer, tmp_path, last=1))
    plain = model_of("full")
    copy_weights(plain, trainer.weights())
    save_pretrained(tmp_path / "folder", plain, TOKENIZER)
    assert (tmp_path / "folder/model.safetensors").is_file()
    assert torch.equal(weights_of(plain), weights_of(trainer.model))


def test_a_gradient_that_is_not_finite_changes_nothing_but_the_schedule():
    trainer, samples = trainer_of("full"), samples_of(0)
    before = weights_of(trainer.model)
    samples[3].advantages = [float("inf")] * len(samples[3].ids)

    async def steps():
        await trainer.forward_backward(samples, LOSS)
        broken = await trainer.optim_step()
        untouched = torch.equal(weights_of(trainer.model), before)
        await trainer.forward_backward(samples_of(0), LOSS)
        return broken, untouched, await trainer.optim_step()

    broken, untouched, good = asyncio.run(steps())
    assert broken["skipped"] == 1
    assert untouched
    assert "skipped" not in good
    assert good["lr"] == OPTIMIZER.lr_at(1)


def test_a_state_of_another_model_or_none_is_one_line(whole, tmp_path):
    _, _, _, folder = whole["lora"]
    trainer = trainer_of("full")
    for place, reason in [
        (folder / "state", "it is of another model: .* is (missing here|not in it)"),
        (tmp_path / "none", "No such file"),
        (hostile(tmp_path / "1", os.system, "touch /tmp/never"), "it names (posix|nt).system"),
        (hostile(tmp_path / "2", getattr, torch.Tensor, "__init__"), "it reads the attribute '__init__'"),
        (cut(folder / "state", tmp_path), "cannot read the state"),
    ]:
        with pytest.raises(StoreError, match=reason) as told:
            asyncio.run(trainer.load_state(place))
        assert "\n" not in str(told.value)


class Called:
    """An object that a pickle makes by a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def hostile(folder, function, *arguments):
    folder.mkdir()
    (folder / ".metadata").write_bytes(pickle.dumps(Called(function, *arguments)))
    return folder


def test_members_of_enumerations_are_read_as_every_python_writes_them():
    """3.11.0 to 3.11.3 write `getattr(Kind, name)`."""
    body = pickle.dumps(Called(getattr, _MEM_FORMAT_ENCODING, "TORCH_PRESERVE_FORMAT"))
    assert _MetadataUnpickler(io.BytesIO(body)).load() is _MEM_FORMAT_ENCODING.TORCH_PRESERVE_FORMAT


def cut(state, folder):
    """A state whose data ends early."""
    made = folder / "cut"
    shutil.copytree(state, made)
    for file in made.glob("*.distcp"):
        file.write_bytes(file.read_bytes()[:1000])
    return made


def test_a_kept_state_survives_a_save_that_was_cut_short(tmp_path):
    trainer = trainer_of("lora")
    asyncio.run(run(trainer, tmp_path, last=KEPT))
    kept = tmp_path / "state"
    (tmp_path / "state.partial").mkdir()
    (tmp_path / "state.partial" / "junk").write_text("half")
    asyncio.run(trainer.save_state(kept))
    assert [place.name for place in tmp_path.iterdir()] == ["state"]
    kept.rename(tmp_path / "state.old")  # the moment between the two names
    other = trainer_of("lora")
    asyncio.run(other.load_state(kept))
    assert torch.equal(weights_of(other.model), weights_of(trainer.model))


def test_muon_is_refused():
    config = ShardedConfig(optimizer=replace(OPTIMIZER, method="muon"))
    with pytest.raises(UsageError, match="adamw"):
        ShardedTrainer(model_of("full"), config, sampler=trainer_of("full").sampler)


def test_two_processes_write_one_folder_of_safetensors_that_transformers_loads(together):
    told = json.loads((together / "full/told.json").read_text())
    folder = together / "full/export"
    assert sorted(p.name for p in folder.glob("*")) == ["config.json", *told["files"]]
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) == 3
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert torch.equal(weights_of(loaded), torch.load(together / "full/weights.pt"))


def test_weights_in_memory_give_the_same_steps(whole, together):
    reference, _, _, _ = whole["full"]
    close(json.loads((together / "offloaded/told.json").read_text())["figures"], reference[:KEPT])


def test_adapters_are_not_exported_alone(tmp_path):
    with pytest.raises(UsageError, match="adapters are merged before"):
        trainer_of("lora").export(tmp_path / "folder")
