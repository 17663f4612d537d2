"""Saved states of a training run: one flipped byte is refused, and the state before it goes on to the same weights."""

from __future__ import annotations

import re
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from toys import TOKENIZER, fresh
from wanderlust.errors import StoreError
from wanderlust.policies.local.lora import adapt, save_adapter
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.training.checkpoint import PREVIOUS_STATE_FILE, Run, copy_file, load_state, save_state
from wanderlust.training.config import TrainConfig
from wanderlust.training.optimizer import weights_of
from wanderlust.training.train import resume_training, train
from wanderlust.training.trainers.fsdp_state import save_safetensors, save_tensors
from wanderlust.training.trainers.served import write_weights

FLIPS = 100


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    folder = tmp_path_factory.mktemp("start") / "fresh"
    save_pretrained(folder, fresh(0), TOKENIZER)
    settings = {"tasks_per_step": 4, "group_size": 4, "max_tokens": 1, "lr": 0.01, "steps": 12, "eval_every": 6}
    return TrainConfig(env="toys:Twice", policy=str(folder)).replace(**settings)


@pytest.fixture(scope="module")
def finished(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("run") / "run"
    train(config.env, config.policy, config=config, out=run, workers=1, progress=False)
    return run


def test_every_flipped_byte_is_refused_and_the_previous_state_stays(finished: Path) -> None:
    rng, refused = Random(0), 0
    files = [finished / "state.pt", finished / "trainer" / "rl-12"]
    assert sorted(p.name for p in (finished / "trainer").iterdir()) == ["rl-10", "rl-12"]
    for number in range(FLIPS):
        file = files[number % len(files)]
        whole = file.read_bytes()
        place = rng.randrange(len(whole))
        file.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << rng.randrange(8))]) + whole[place + 1 :])
        with pytest.raises(StoreError, match=rf"^[^\n]*{re.escape(str(file))}[^\n]*--previous-state$"):
            Run.resume(finished)
        refused += 1
        file.write_bytes(whole)
    assert refused == FLIPS
    with closing(Run.resume(finished).store):
        pass


@pytest.mark.parametrize("name", ["state.pt", "trainer/rl-12"])
def test_the_previous_state_ends_in_the_same_weights(name: str, finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / "report.json").unlink()
    (run / name).write_bytes((run / name).read_bytes()[:-1])
    with pytest.raises(StoreError, match="--previous-state"):
        resume_training(run, workers=1, progress=False)
    report = resume_training(run, workers=1, progress=False, previous_state=True).report
    assert report["curve"] == resume_training(finished).report["curve"]
    ours, theirs = (weights_of(load_pretrained(one / "checkpoints/rl")[0]) for one in (run, finished))
    assert torch.equal(ours, theirs)


def test_no_state_is_left(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / "state.pt").write_bytes(b"x")
    (run / PREVIOUS_STATE_FILE).unlink()
    with pytest.raises(StoreError, match=r"state\.pt is not a state .* begin anew$"):
        Run.resume(run)
    with pytest.raises(StoreError, match="no second state"):
        Run.resume(run, previous_state=True)


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file may become longer, as on a disk that has so many bytes left."""
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))


def with_new_adapters(model: Any) -> Any:
    adapt(model, rank=16, seed=0)
    return model


WRITES: dict[str, Callable[[Path], None]] = {
    "state": lambda path: save_state(path, {"weights": torch.ones(40_000)}),
    "copy": lambda path: copy_file(path.with_name("long"), path),
    "checkpoint": lambda path: save_pretrained(path, fresh(0), TOKENIZER),
    "adapters": lambda path: save_adapter(path, with_new_adapters(fresh(0))),
    "sharded": lambda path: save_tensors(path, {"weights": torch.ones(40_000)}),
    "sharded checkpoint": lambda path: save_safetensors(path, {"weights": torch.ones(40_000)}),
    "served": lambda path: write_weights(path, fresh(0), kind="checkpoint"),
}


@pytest.mark.filterwarnings("ignore:.*NoCloseWriter:pytest.PytestUnraisableExceptionWarning")  # PyTorch's, never closed
@pytest.mark.parametrize("kind", WRITES)
def test_a_full_disk_is_one_line_that_names_what_could_not_be_written(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "kept"
    (tmp_path / "long").write_bytes(bytes(80_000))
    if kind == "state":
        save_state(path, {"weights": torch.ones(4)})
    with (
        full_disk(8_192),
        pytest.raises(StoreError, match=rf"^{re.escape(str(path))} cannot be written: [^\n]*File too large[^\n]*$"),
    ):
        WRITES[kind](path)
    if kind == "state":
        assert load_state(path)["weights"].tolist() == [1.0] * 4
