"""From trajectories to better weights, on real models."""

import asyncio
import copy
import os
import signal
import subprocess
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from patience import PATIENCE
from tiers import proof_except
from wanderlust.environment import Environment, Episode
from wanderlust.errors import StoreError, UsageError, WorkerRestartWarning
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.policies.local.device import one_thread
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.runner.engine import rollouts
from wanderlust.training import losses
from wanderlust.training.algorithms.presets import algorithm
from wanderlust.training.batch.collate import collate, microbatches
from wanderlust.training.batch.samples import Sample, build_samples, credited_samples, imitation_samples, to_samples
from wanderlust.training.checkpoint import load_state, save_state
from wanderlust.training.config import OptimizerConfig, TrainConfig
from wanderlust.training.gradient import GradientComputer, combine
from wanderlust.training.optimizer import Muon, Optimizer, set_weights, weights_of
from wanderlust.training.tiny_model import ModelShape, fresh_model, fresh_tokenizer
from wanderlust.training.trainers.process_pool import ProcessPoolTrainer, Workers
from wanderlust.training.trainers.replica import Replica, WorkerError
from wanderlust.types import Group, Task, Tokens, Trajectory, Turn, assistant, user

TOKENIZER = fresh_tokenizer(["say 0", "say 1", "0123456789"] * 20)
SHAPE = ModelShape(width=32, layers=1, heads=2, inner=64, positions=64)


class Echo(Environment):
    """Say the digit you are shown."""

    async def run(self, episode: Episode) -> None:
        said = await episode.agent.act(user(f"say {episode.task.answer}"))
        episode.reward("echo", float(said.content == episode.task.answer))

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id=f"echo-{digit}", answer=str(digit)) for digit in range(10)]


def babbler(seed: int) -> Any:
    """A model that answers with a digit, any digit: it was shown every answer to every question."""
    return copy.deepcopy(taught(seed))


@cache
def taught(seed: int) -> Any:
    model, renderer = fresh_model(TOKENIZER, SHAPE, seed=seed), Renderer(TOKENIZER)
    shown = [
        Trajectory(turns=[Turn(observation=(user(f"say {digit}"),), action=assistant(str(answer)))])
        for digit in range(10)
        for answer in range(10)
    ]
    samples = [sample for trajectory in shown for sample in imitation_samples(trajectory, renderer)]
    optimizer = Optimizer(model, OptimizerConfig(steps=40, lr=1e-2, method="muon"))
    differentiator = GradientComputer(model, loss=losses.IMITATION_LOSS)
    for _ in range(40):
        optimizer.step(combine([differentiator.gradient(samples)]))
    return model


def replica(seed: int = 0) -> Replica:
    one_thread()
    config = TrainConfig(
        algorithm=algorithm("cispo"), max_tokens=2, group_size=8, seed=seed, implementation="transformers"
    )
    return Replica(babbler(seed), TOKENIZER, Echo(), config=config)


def play(policy: LocalPolicy) -> list[Group]:
    async def go() -> list[Group]:
        async with rollouts(Echo(), Echo().tasks(), policy, group_size=4) as groups:
            return sorted([g async for g in groups], key=lambda g: g.index)

    return asyncio.run(go())


def turn(offset: int, prompt: list[int], completion: list[int]) -> Turn:
    tokens = Tokens(
        offset=offset, prompt=tuple(prompt), completion=tuple(completion), logprobs=(-1.0,) * len(completion)
    )
    return Turn(observation=(user("x"),), action=assistant("y"), tokens=tokens)


def test_turns_of_one_sequence_merge_and_masks_cover_the_sampled_tokens() -> None:
    turns = [turn(0, [1, 2], [3]), turn(3, [4], [5, 6]), turn(0, [9], [8])]
    first, second = to_samples(Trajectory(turns=turns, advantage=0.5))
    assert first.ids == [1, 2, 3, 4, 5, 6]
    assert first.mask == [False, False, True, False, True, True]
    assert first.advantages == [0, 0, 0.5, 0, 0.5, 0.5]
    assert first.logprobs == [0, 0, -1, 0, -1, -1]
    assert second.ids == [9, 8]


def test_a_broken_sequence_is_refused() -> None:
    with pytest.raises(UsageError, match="extends a sequence of 7 tokens, but 3 came before"):
        to_samples(Trajectory(turns=[turn(0, [1, 2], [3]), turn(7, [4], [5])]))
    with pytest.raises(UsageError, match="holds no tokens"):
        to_samples(Trajectory(turns=[Turn(observation=(), action=assistant("y"))]))


def test_micro_batches_waste_little_and_lose_nothing() -> None:
    made = [
        Sample(ids=list(range(1, n + 1)), mask=[True] * n, logprobs=[0.0] * n, advantages=[1.0] * n)
        for n in (9, 2, 5, 3, 8, 4)
    ]
    batches = list(microbatches(made, losses.CISPO_LOSS, size=2))
    assert [b.model_input.ids.shape[1] for b in batches] == [2, 4, 8]  # after the last token nothing is predicted
    assert sum(b.tokens for b in batches) == 31
    assert sum(len(b.targets) for b in batches) == 31 - 6  # nothing predicts a first token


def test_trainer_and_sampler_agree_on_logprobs() -> None:
    it = replica()
    groups = play(it.policy)
    samples = [s for g in groups for r in g.rollouts for s in to_samples(r.trajectory)]
    batch = collate(samples, losses.CISPO_LOSS)
    logprobs, _ = GradientComputer(it.model, loss=losses.CISPO_LOSS).logprobs(batch)
    assert float((logprobs.detach() - batch.sampler_logprobs).abs().max()) < 1e-5


def test_loss_tokens_are_the_text_the_environment_read() -> None:
    for group in play(replica().policy):
        for played in group.rollouts:
            (sample,) = to_samples(played.trajectory)
            trained = [i for i, on in zip(sample.ids, sample.mask, strict=True) if on]
            said = Renderer(TOKENIZER).parse_answer(trained)
            assert said == played.trajectory.turns[0].action


def test_muon_is_that_of_torch_in_full_precision() -> None:
    torch.manual_seed(0)
    start, gradients = torch.randn(24, 16), [torch.randn(24, 16) for _ in range(4)]
    ours, theirs = start.clone().requires_grad_(), start.clone().requires_grad_()
    method = Muon([ours], lr=0.02, weight_decay=0.1)
    reference = torch.optim.Muon([theirs], lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for gradient in gradients:
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        method.step()
        reference.step()
    moved, apart = (theirs - start).norm().item(), (ours - theirs).norm().item()
    assert apart < 0.02 * moved  # the reference rounds to bfloat16


@pytest.mark.parametrize("method", ["adamw", "muon"])
def test_an_optimizer_goes_on_bit_for_bit_after_a_restore(method: Literal["adamw", "muon"]) -> None:
    config = OptimizerConfig(steps=9, lr=1e-2, method=method, weight_decay=0.1)
    samples = [Sample(ids=[1, 2, 3, 4], mask=[True] * 4, logprobs=[0.0] * 4, advantages=[1.0] * 4)]

    def go_on(model: Any, optimizer: Optimizer, steps: int) -> torch.Tensor:
        for _ in range(steps):
            optimizer.step(combine([GradientComputer(model, loss=losses.IMITATION_LOSS).gradient(samples)]))
        return weights_of(model)

    model = fresh_model(TOKENIZER, SHAPE, seed=0)
    optimizer = Optimizer(model, config)
    middle, state = go_on(model, optimizer, 3), copy.deepcopy(optimizer.state())
    straight = go_on(model, optimizer, 3)
    assert not torch.equal(middle, straight)
    again = fresh_model(TOKENIZER, SHAPE, seed=5)
    set_weights(again, middle)
    restored = Optimizer(again, config)
    restored.restore(state)
    assert torch.equal(go_on(again, restored, 3), straight)


@pytest.mark.parametrize("loss", [losses.CISPO_LOSS, losses.GRPO_LOSS, losses.DR_GRPO_LOSS])
def test_shards_add_up_to_the_whole_gradient(loss: losses.PolicyLoss) -> None:
    it = replica()
    groups = it.play(Echo().tasks() * 8, 0)
    samples = credited_samples(groups)
    assert samples
    whole = combine([GradientComputer(it.model, loss=loss, micro_batch=3).gradient(samples)])
    parts = combine(GradientComputer(it.model, loss=loss).gradient(samples[i::3]) for i in range(3))
    assert float((whole.values - parts.values).abs().max()) < 1e-6
    assert whole.sums.count == parts.sums.count


@pytest.mark.parametrize("loss", [losses.CISPO_LOSS, losses.GRPO_LOSS, losses.DR_GRPO_LOSS])
def test_merged_siblings_give_the_same_gradient(loss: losses.PolicyLoss) -> None:
    it = replica()
    groups = it.play(Echo().tasks() * 8, 0)
    single = [s for g in groups for r in g.rollouts for s in to_samples(r.trajectory)]
    merged = credited_samples(groups * 2)
    assert len(merged) < len(single) * 2
    assert sum(s.copies for s in merged) == 2 * len(single)
    apart = combine([GradientComputer(it.model, loss=loss).gradient(single * 2)])
    together = combine([GradientComputer(it.model, loss=loss).gradient(merged)])
    assert float((apart.values - together.values).abs().max()) < 1e-6


def test_gradient_is_that_of_the_written_out_loss() -> None:
    it = replica()
    samples = credited_samples(it.play(Echo().tasks() * 8, 0))
    ours = combine([GradientComputer(it.model, loss=losses.CISPO_LOSS).gradient(samples)]).values
    it.model.zero_grad()
    total, count = torch.zeros(()), 0
    assert any(not s.ids for s in samples)
    for s in samples:
        logp = it.model(torch.tensor([s.ids])).logits[0, :-1].log_softmax(-1) if s.ids else None
        for i, on in enumerate(s.mask):
            if on:
                ratio = (logp[i - 1, s.ids[i]].detach() - s.logprobs[i]).exp().clamp(0, 5)
                total = total - s.copies * ratio * s.advantages[i] * logp[i - 1, s.ids[i]]
        count += s.copies * s.sampled_tokens
    (total / count).backward()
    plain = torch.cat([p.grad.reshape(-1) for p in it.model.parameters()])
    assert float((ours - plain).abs().max()) < 1e-6


async def train(pool: ProcessPoolTrainer, steps: range) -> list[float]:
    rewards = []
    loss = algorithm("cispo").loss
    for step in steps:
        groups = await pool.play(Echo().tasks() * 2, seed=step)
        rewards.append(sum(sum(g.rewards) / len(g.rewards) for g in groups) / len(groups))
        await pool.forward_backward(build_samples(groups, loss), loss)
        await pool.optim_step()
        await pool.publish()
    return rewards


def pool(count: int) -> ProcessPoolTrainer:
    config = OptimizerConfig(steps=9, lr=3e-3)
    return ProcessPoolTrainer(partial(replica, 0), fresh_model(TOKENIZER, SHAPE, seed=0), config, count=count)


def run(count: int, steps: int = 3) -> torch.Tensor:
    with pool(count) as trainer:
        asyncio.run(train(trainer, range(steps)))
        return weights_of(trainer.model)


def test_any_number_of_workers_gives_the_same_weights_bit_for_bit() -> None:
    assert torch.equal(run(1), run(2))


def test_resume_gives_the_same_weights_bit_for_bit(tmp_path: Path) -> None:
    async def whole(trainer: ProcessPoolTrainer) -> None:
        await train(trainer, range(2))
        await trainer.save_state(tmp_path / "state")
        await train(trainer, range(2, 5))

    async def rest(trainer: ProcessPoolTrainer) -> None:
        await trainer.load_state(tmp_path / "state")
        await train(trainer, range(2, 5))

    with pool(1) as straight, pool(1) as again:
        asyncio.run(whole(straight))
        asyncio.run(rest(again))
        assert torch.equal(weights_of(straight.model), weights_of(again.model))
        assert straight.version == again.version == 5


@pytest.mark.proof("seeds")
@pytest.mark.parametrize("seed", [0, 1])
def test_reinforcement_finds_out_what_imitation_did_not_show(seed: int) -> None:
    model = babbler(seed)
    make, config = (
        partial(Replica, copy.deepcopy(model), TOKENIZER, Echo(), config=replica(seed).config),
        OptimizerConfig(steps=100, lr=1e-2, method="muon"),
    )
    with ProcessPoolTrainer(make, model, config, count=1) as trainer:
        rewards = asyncio.run(train(trainer, range(100)))
    assert sum(rewards[:5]) / 5 < 0.15  # chance is 0.1
    assert sum(rewards[-10:]) / 10 > 0.2


def test_imitation_teaches_what_was_shown() -> None:
    model = fresh_model(TOKENIZER, SHAPE, seed=3)
    renderer = Renderer(TOKENIZER)
    shown = [Trajectory(turns=[Turn(observation=(user(f"say {d}"),), action=assistant(str(d)))]) for d in range(10)]
    samples = [sample for t in shown for sample in imitation_samples(t, renderer, context=1.0)]
    assert samples[0].ids == list(renderer.start([user("say 0")]) + renderer.render_answer(assistant("0")))
    optimizer = Optimizer(model, OptimizerConfig(steps=200, lr=1e-2, method="muon"))
    differentiator = GradientComputer(model, loss=losses.IMITATION_LOSS)
    for _ in range(200):
        optimizer.step(combine([differentiator.gradient(samples)]))
    groups = play(LocalPolicy.of(model, TOKENIZER, SamplingOptions(temperature=0, max_tokens=3)))
    assert all(g.rewards == [1.0] * 4 for g in groups)


def test_each_conversation_of_an_episode_is_imitated() -> None:
    turns = [Turn(observation=(user(f"a{n}"),), action=assistant("b"), resets_context=n > 0) for n in range(2)]
    samples = imitation_samples(Trajectory(turns=turns), Renderer(TOKENIZER))
    assert [sorted(sample.turns) for sample in samples] == [[0], [1]]


def test_checkpoint_loads_with_transformers_and_bad_ones_are_said(tmp_path: Path) -> None:
    model = fresh_model(TOKENIZER, SHAPE, seed=4)
    save_pretrained(tmp_path / "made", model, TOKENIZER)
    loaded, tokenizer = load_pretrained(tmp_path / "made")
    ids = torch.tensor([tokenizer.apply_chat_template([{"role": "user", "content": "say 3"}])["input_ids"]])
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    (tmp_path / "made" / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(StoreError, match="cannot load the checkpoint"):
        load_pretrained(tmp_path / "made")
    with pytest.raises(StoreError, match=r"no config\.json"):
        load_pretrained(tmp_path)


def test_a_tokenizer_of_another_model_is_said(tmp_path: Path) -> None:
    larger = fresh_tokenizer([f"word{n} and {n * n}" for n in range(999)])
    save_pretrained(tmp_path / "mixed", fresh_model(TOKENIZER, SHAPE, seed=4), larger)
    with pytest.raises(StoreError, match=r"mixed do not belong together: ids go up to \d+ and the model knows"):
        load_pretrained(tmp_path / "mixed")


def test_a_foreign_or_torn_state_is_said_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    save_state(path, {"step": 3})
    whole = path.read_bytes()
    for bad in (whole[: len(whole) // 2], b"", b"hello"):
        path.write_bytes(bad)
        with pytest.raises(StoreError, match=r"^[^\n]*state\.pt is (damaged|not a state)[^\n]*left as it is$"):
            load_state(path)
        assert path.read_bytes() == bad
    torch.save({"a": 1}, path)
    with pytest.raises(StoreError, match="not a state of this version of the library"):
        load_state(path)


def forgetful() -> Any:
    """An object that adds to what was published, fails when told to, and dies once in the middle of the work.

    Its class is sent by value, so that the other process need not import this file.
    """

    class Forgetful:
        def __init__(self) -> None:
            self.published = 0

        def publish(self, value: int) -> None:
            self.published = value

        def add(self, value: int, mark: str, parent: int) -> int:
            if os.getpid() != parent and mark and not Path(mark).exists():
                Path(mark).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return self.published + value

        def fail(self, how: str, parent: int) -> None:
            if os.getpid() != parent:
                if how == "die":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise UsageError("said in one line")

    return Forgetful


@pytest.mark.proof("kills")
@pytest.mark.filterwarnings("ignore::wanderlust.errors.WorkerRestartWarning")
def test_a_worker_that_dies_at_the_same_work_again_and_again_is_said() -> None:
    with Workers(forgetful(), count=2) as workers, pytest.raises(WorkerError, match="died 4 times at the same work"):
        workers.call("fail", [("die", os.getpid())] * 2)


@pytest.mark.parametrize("when", proof_except(["during a call"], ["during a call", "between two calls"], group="kills"))
def test_a_worker_that_fails_is_said_and_a_dead_one_is_replaced_and_does_its_work_again(
    tmp_path: Path, when: str
) -> None:
    mark = str(tmp_path / "died") if when == "during a call" else ""
    with Workers(forgetful(), count=2) as workers:
        workers.call("publish", [(1,)] * 2)
        workers.call("publish", [(40,)] * 2)
        with pytest.raises(WorkerError, match="said in one line"):
            workers.call("fail", [("raise", os.getpid())] * 2)
        os.kill(workers._processes[0].pid, signal.SIGINT)  # of Ctrl-C it never hears
        assert workers.call("add", [(n, "", os.getpid()) for n in range(2)]) == [40, 41]
        assert workers.restarts == 0
        if not mark:
            os.kill(workers._processes[0].pid, signal.SIGKILL)
        with pytest.warns(WorkerRestartWarning, match="exit code -9"):
            assert workers.call("add", [(n, mark, os.getpid()) for n in range(5)]) == [40, 41, 42, 43, 44]
        assert workers.call("add", [(n, mark, os.getpid()) for n in range(5)]) == [40, 41, 42, 43, 44]
        assert workers.restarts == 1


CTRL_C = """
import os, signal
from wanderlust.training.trainers.process_pool import Workers

class Alive:
    def number(self, value):
        return os.getpid(), value

if __name__ == "__main__":
    with Workers(Alive, count=2) as workers:
        before = workers.call("number", [(1,), (2,)])
        for number in {pid for pid, _ in before} - {os.getpid()}:
            os.kill(number, signal.SIGINT)
        assert workers.call("number", [(1,), (2,)]) == before
        print("restarts", workers.restarts)
"""


@pytest.mark.proof("kills")
def test_the_first_worker_of_a_process_never_hears_of_ctrl_c() -> None:
    command = [sys.executable, "-c", CTRL_C]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert (done.stdout, done.stderr) == ("restarts 0\n", "")
