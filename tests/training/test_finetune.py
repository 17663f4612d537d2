"""Offline training: rows of any maker, masks by role, resuming, SFT and DPO as their formulas say."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from templates import HERMES, PLAIN, THINKING, tokenizer_with
from toys import TOKENIZER, fresh, teacher
from wanderlust import Rubric, SingleTurnEnvironment, TrainConfig, evaluate_sync, exact
from wanderlust.algorithms import finetune
from wanderlust.cli.main import main
from wanderlust.errors import StoreError, UsageError
from wanderlust.policies.base import Hardware, SamplingOptions
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.checkpoints import load_local_policy, resolve_checkpoint
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.store.formats import preferences, training_rows
from wanderlust.store.run import load_run
from wanderlust.store.run_folder import STORE_FILE, runs_in
from wanderlust.store.store import RunStore
from wanderlust.studio.run_index import RunInfo
from wanderlust.studio.runs import repro_command
from wanderlust.training.batch.samples import Sample, imitation_samples
from wanderlust.training.checkpoint import load_state
from wanderlust.training.conversations import conversation_samples, epoch_batches, parse_row
from wanderlust.training.finetune import REFERENCE_FILE, resume_finetuning
from wanderlust.training.finetune_config import FinetuneConfig
from wanderlust.training.optimizer import weights_of
from wanderlust.types import Group, Rollout, Score, Task, Trajectory, Turn, assistant, system, user

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"n": 1}'}}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
SUMS = [
    {"messages": [{"role": "user", "content": f"{a} + {b}"}, {"role": "assistant", "content": str(a + b)}]}
    for a in range(10)
    for b in range(10)
]
QUICK: dict[str, Any] = {"batch_tokens": 400, "epochs": 3, "fresh_width": 32, "fresh_layers": 1, "progress": False}


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def text_of(sample: Sample, renderer: Renderer, *, on: bool) -> str:
    ids = [i for i, trained in zip(sample.ids, sample.mask, strict=True) if trained == on]
    return str(renderer.tokenizer.decode(ids))


# Rows


@pytest.mark.parametrize(
    ("row", "method", "roles"),
    [
        ({"messages": SUMS[0]["messages"]}, "sft", ["user", "assistant"]),
        ({"prompt": "1 + 1", "completion": "2", "task": "x"}, "sft", ["user", "assistant"]),
        ({"prompt": [{"role": "system", "content": "s"}], "completion": [{"role": "assistant", "content": "2"}]}, "sft",
         ["system", "assistant"]),
        ({"prompt": "1 + 1", "chosen": "2", "rejected": "3"}, "dpo", ["user", "assistant"]),
        ({"chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
          "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}]}, "dpo",
         ["user", "assistant"]),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]},
                       {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "look",
                        "arguments": {"n": 1}}}]},
                       {"role": "tool", "content": "1", "tool_call_id": "c1"}, {"role": "assistant", "content": "1"}],
          "tools": json.dumps([TOOL])}, "sft", ["user", "assistant", "tool", "assistant"]),
    ],
)  # fmt: skip
def test_rows_of_other_makers_are_read(row: Mapping[str, Any], method: Any, roles: list[str]) -> None:
    parsed = parse_row("file.jsonl, line 1", row, method)
    assert [message.role for message in parsed.conversations[0].messages] == roles
    if method == "dpo":
        chosen, rejected = parsed.conversations
        assert chosen.messages[: chosen.first] == rejected.messages[: rejected.first]
        assert chosen.messages[-1].content != rejected.messages[-1].content


@pytest.mark.parametrize(
    ("line", "method", "words"),
    [
        ('{"text": "hello"}', "sft", ["messages, or prompt and completion", "this one has: text"]),
        ('{"messages": "no"}', "sft", ["this has no answer of the assistant"]),
        ('{"messages": []}', "sft", ["messages is a text or a list", "empty"]),
        ('{"messages": [{"role": "robot", "content": "x"}]}', "sft", ["message 0", "'robot'"]),
        ('{"messages": [{"role": "assistant", "content": 3}]}', "sft", ["message 0", "content"]),
        ('{"messages": [{"role": "assistant", "tool_calls": [{}]}]}', "sft", ["message 0", "function"]),
        ('{"messages": [4]}', "sft", ["message 0 is a int"]),
        ('{"prompt": "q"}', "sft", ["this one has: prompt"]),
        ('{"prompt": "q", "chosen": "a"}', "dpo", ["chosen and rejected", "this one has: prompt, chosen"]),
        ('{"prompt": "q", "chosen": "a", "rejected": "a"}', "dpo", ["are the same"]),
        ('{"messages": [', "sft", ["no JSON"]),
        ("[1]", "sft", ["a row is a JSON object"]),
    ],
)
def test_a_wrong_row_is_one_line_with_file_and_line_number(
    tmp_path: Path, line: str, method: Any, words: list[str]
) -> None:
    save_pretrained(tmp_path / "start", fresh(0), TOKENIZER)
    good = SUMS[0] if method == "sft" else {"prompt": "q", "chosen": "a", "rejected": "b"}
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(good) + "\n" + line + "\n")
    with pytest.raises(UsageError) as raised:
        finetune(file, tmp_path / "start", method, out=tmp_path / "run", progress=False)
    message = str(raised.value)
    assert "rows.jsonl, line 2: " in message
    assert all(word in message for word in words), message
    assert "\n" not in message
    assert not (tmp_path / "run").exists()


# Masks


def test_ids_and_mask_are_those_of_sampling() -> None:
    renderer = Renderer(TOKENIZER)
    turns = [
        Turn(observation=(user("a"),), action=assistant("b")),
        Turn(observation=(user("c"),), action=assistant("d")),
    ]
    trajectory = Trajectory(turns=turns)
    row = {"messages": [{"role": m.role, "content": m.content} for m in trajectory.messages]}
    (conversation,) = parse_row("", row, "sft").conversations
    (sample,) = conversation_samples(conversation, renderer)
    (wanted,) = imitation_samples(trajectory, renderer)
    assert (sample.ids, sample.mask, sample.advantages) == (wanted.ids, wanted.mask, wanted.advantages)


@pytest.mark.parametrize("template", [PLAIN, HERMES])
@pytest.mark.parametrize(
    ("roles", "trained", "read"),
    [
        (("assistant",), ["two", "four"], ["rules", "one", "three"]),
        (("user",), ["one", "three"], ["rules", "two"]),
        (("assistant", "system"), ["rules", "two", "four"], ["one", "three"]),
    ],
)
def test_roles_choose_what_is_trained_on(
    template: str, roles: tuple[str, ...], trained: list[str], read: list[str]
) -> None:
    renderer = Renderer(tokenizer_with(template))
    talk = [system("rules"), user("one"), assistant("two"), user("three"), assistant("four")]
    row = {"messages": [{"role": m.role, "content": m.content} for m in talk]}
    (conversation,) = parse_row("", row, "sft").conversations
    (sample,) = conversation_samples(conversation, renderer, roles=roles)
    assert all(word in text_of(sample, renderer, on=True) for word in trained)
    assert not any(word in text_of(sample, renderer, on=True) for word in read)
    assert all(word in text_of(sample, renderer, on=False) for word in read)
    assert text_of(sample, renderer, on=True).count("<|im_end|>") == len(trained)
    every = conversation_samples(conversation, renderer, roles=("assistant", "system", "user"))[0]
    assert renderer.tokenizer.decode(every.ids) == renderer.text(talk, asks=False).rstrip("\n")


def test_calls_and_tools_are_written_by_the_template_and_results_are_read() -> None:
    renderer = Renderer(tokenizer_with(HERMES))
    row = {
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "content": "seen", "tool_call_id": "c1"},
            {"role": "assistant", "content": "done"},
        ],
        "tools": [TOOL],
    }
    (conversation,) = parse_row("", row, "sft").conversations
    (sample,) = conversation_samples(conversation, renderer)
    on, off = (text_of(sample, renderer, on=on) for on in (True, False))
    assert '"name": "look", "arguments": {"n": 1}' in on
    assert "done" in on
    assert "seen" in off
    assert '"name": "look"' in off  # the tool as the template shows it


@pytest.mark.filterwarnings("ignore::wanderlust.policies.chat_template.PrefixWarning")
def test_a_template_that_rewrites_turns_gives_a_sample_an_answer() -> None:
    renderer = Renderer(tokenizer_with(THINKING))
    said = ["<think>first</think>two", "<think>then</think>four"]
    row = {
        "messages": [
            message
            for asked, answer in zip(("one", "three"), said, strict=True)
            for message in ({"role": "user", "content": asked}, {"role": "assistant", "content": answer})
        ]
    }
    (conversation,) = parse_row("", row, "sft").conversations
    samples = conversation_samples(conversation, renderer)
    assert [text_of(sample, renderer, on=True) for sample in samples] == [f"{one}<|im_end|>" for one in said]
    assert "first" not in text_of(samples[1], renderer, on=False)
    with pytest.raises(UsageError, match="rewrites earlier turns"):
        conversation_samples(conversation, renderer, roles=("user",))


def test_special_tokens_in_a_users_text_stay_text(tmp_path: Path) -> None:
    renderer = Renderer(tokenizer_with(PLAIN))
    row = {"prompt": "say <|im_end|> now", "completion": "no"}
    (conversation,) = parse_row("", row, "sft").conversations
    (sample,) = conversation_samples(conversation, renderer)
    end = renderer.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert sample.ids.count(end) == 2  # of the two messages


def test_an_epoch_takes_every_example_once_within_the_bound() -> None:
    lengths = [5, 90, 7, 40, 33, 2, 61, 20]
    first, second = (epoch_batches(lengths, 64, seed=1, epoch=epoch) for epoch in (0, 1))
    for batches in (first, second):
        assert sorted(n for batch in batches for n in batch) == list(range(8))
        assert all(sum(lengths[n] for n in batch) <= 64 or len(batch) == 1 for batch in batches)
    assert first != second


# Training


class Cut(Exception):
    """Ends a run in the middle."""


class CutAt:
    """A logger that ends the run when an update has been taken."""

    def __init__(self, step: int):
        self.step = step

    def log_step(self, stage: str, step: int, *, of: int, metrics: Mapping[str, float]) -> None:
        if stage in ("sft", "dpo") and step == self.step:
            raise Cut


def last_weights(folder: Path) -> torch.Tensor:
    return weights_of(load_pretrained(folder / "checkpoints/last")[0])


def test_sft_learns_is_resumed_bit_for_bit_and_plays(tmp_path: Path) -> None:
    rows = [{"prompt": f"after {n}", "completion": str(n + 1)} for n in range(10, 30)]
    held_out = str(written(tmp_path / "held.jsonl", rows))
    settings = {**QUICK, "epochs": 12, "eval_every": 7, "seed": 3, "eval_data": held_out}
    result = finetune(rows * 15, "fresh", out=tmp_path / "whole", **settings)
    assert result.curve[-1]["metrics"]["loss"]["value"] < 0.5 * result.curve[0]["metrics"]["loss"]["value"]
    assert result.verdict.startswith("Held-out loss fell: -")
    assert "Held-out rows" in str(result)
    assert "Checkpoint: " in str(result)
    assert {"report.md", "curve.png", "report.json", "run.json"} <= {file.name for file in result.path.iterdir()}
    with load_run(result.path) as run:
        assert {"loss", "grad_norm", "lr", "tokens_per_s"} <= run.metrics("sft").keys()
        assert len(run.metrics("sft")["loss"]) == result.report["updates"]
    assert resolve_checkpoint(str(result.path)) == result.policy_folder
    policy = load_local_policy(result.policy_folder, Hardware(), SamplingOptions(temperature=0.0, max_tokens=4), seed=0)
    tasks = [Task(id=row["prompt"], prompt=(user(row["prompt"]),), answer=row["completion"]) for row in rows]
    played = evaluate_sync(SingleTurnEnvironment(tasks, rubric=Rubric(exact())), policy, progress=False)
    assert played.reward is not None
    assert played.reward.value > 0.9

    with pytest.raises(Cut):
        finetune(rows * 15, "fresh", out=tmp_path / "cut", **{**settings, "progress": CutAt(17)})
    again = resume_finetuning(tmp_path / "cut", progress=False)
    assert torch.equal(last_weights(again.path), last_weights(result.path))
    assert again.curve == result.curve
    assert finetune(rows * 15, "fresh", out=tmp_path / "cut", **settings).report == again.report
    with pytest.raises(UsageError, match="seed was 3 and is 4"):
        finetune(rows * 15, "fresh", out=tmp_path / "cut", **{**settings, "seed": 4})


def test_data_that_has_changed_does_not_go_on(tmp_path: Path) -> None:
    file = written(tmp_path / "rows.jsonl", SUMS)
    with pytest.raises(Cut):
        finetune(file, "fresh", out=tmp_path / "run", **{**QUICK, "progress": CutAt(2)})
    written(file, SUMS[1:])
    with pytest.raises(UsageError, match="has changed since"):
        resume_finetuning(tmp_path / "run", progress=False)


def test_a_damaged_state_is_refused_by_name_and_the_one_before_goes_on(tmp_path: Path) -> None:
    with pytest.raises(Cut):
        finetune(SUMS, "fresh", out=tmp_path / "run", **{**QUICK, "eval_every": 2, "progress": CutAt(5)})
    whole = finetune(SUMS, "fresh", out=tmp_path / "whole", **{**QUICK, "eval_every": 2})
    state = next((tmp_path / "run/trainer").glob("sft-4"))
    state.write_bytes(state.read_bytes()[:-3] + b"xyz")
    with pytest.raises(StoreError, match="sft-4 is damaged"):
        resume_finetuning(tmp_path / "run", progress=False)
    resumed = resume_finetuning(tmp_path / "run", progress=False, previous_state=True)
    assert torch.equal(last_weights(resumed.path), last_weights(whole.path))


def test_dpo_prefers_what_was_chosen_from_stored_references_and_resumes(tmp_path: Path) -> None:
    save_pretrained(tmp_path / "start", teacher(), TOKENIZER)
    rows = [{"prompt": p, "chosen": c, "rejected": r} for p in "abcd" for c, r in (("a", "b"), ("a", "c"))] * 4
    settings = {
        "batch_tokens": 60,
        "epochs": 3,
        "lr": 1e-3,
        "dpo_beta": 0.3,
        "eval_data": str(written(tmp_path / "held.jsonl", rows[:8])),
    }
    result = finetune(rows, tmp_path / "start", "dpo", out=tmp_path / "whole", progress=False, **settings)
    first, last = result.curve[0]["metrics"], result.curve[-1]["metrics"]
    assert first["loss"]["value"] == pytest.approx(math.log(2), abs=1e-5)  # the model is its own reference
    assert last["loss"]["value"] < 0.5 * first["loss"]["value"]
    assert last["reward_accuracy"]["value"] == 1.0
    assert last["reward_margin"]["value"] > 0.5
    with load_run(result.path) as run:
        metrics = run.metrics("dpo")
        margin, chosen, rejected = (metrics[n][-1][1] for n in ("reward_margin", "chosen_reward", "rejected_reward"))
        assert margin == pytest.approx(chosen - rejected, abs=1e-6)
        assert metrics["reward_accuracy"][-1][1] == 1.0
    kept = load_state(result.path / REFERENCE_FILE)["logprobs"]
    assert len(kept) == 2 * (len(rows) + 8)

    with pytest.raises(Cut):
        finetune(rows, tmp_path / "start", "dpo", out=tmp_path / "cut", progress=CutAt(7), **settings)
    cut = (tmp_path / "cut" / REFERENCE_FILE).read_bytes()
    again = resume_finetuning(tmp_path / "cut", progress=False)
    assert torch.equal(last_weights(again.path), last_weights(result.path))
    assert (again.path / REFERENCE_FILE).read_bytes() == cut


@pytest.mark.parametrize(
    "options",
    [
        {"lora": 2, "lr": 1e-2},
        {"optimizer": "muon", "recompute_activations": True},
        {"implementation": "transformers", "micro_batch_tokens": 50},
        pytest.param({"engine": "fsdp", "processes": 2, "micro_batch_tokens": 64}, marks=pytest.mark.proof("learning")),
        {"engine": "fsdp", "lora": 2, "lr": 1e-2},
    ],
)
def test_adapters_optimizers_and_engines_learn_offline(tmp_path: Path, options: dict[str, Any]) -> None:
    save_pretrained(tmp_path / "start", fresh(3), TOKENIZER)
    rows = [{"prompt": one, "completion": other} for one, other in zip("abcd", "bcda", strict=True)] * 8
    settings = {"epochs": 4, "batch_tokens": 80, "lr": 3e-3, "eval_data": str(written(tmp_path / "h.jsonl", rows[:4]))}
    result = finetune(rows, tmp_path / "start", out=tmp_path / "run", progress=False, **{**settings, **options})
    first, last = (point["metrics"]["loss"]["value"] for point in (result.curve[0], result.curve[-1]))
    assert last < 0.8 * first
    model, _ = load_pretrained(result.policy_folder)
    assert not any("lora" in name for name, _ in model.named_parameters())


def test_fsdp_and_this_process_take_the_same_updates(tmp_path: Path) -> None:
    save_pretrained(tmp_path / "start", fresh(3), TOKENIZER)
    rows = [{"prompt": one, "chosen": other, "rejected": one} for one, other in zip("abcd", "bcda", strict=True)] * 4
    settings = {"batch_tokens": 60, "lr": 1e-3, "eval_share": 0.0}
    folders = [
        finetune(rows, tmp_path / "start", "dpo", out=tmp_path / name, progress=False, **settings, **more).path
        for name, more in (("one", {}), ("two", {"engine": "fsdp", "processes": 2}))
    ]
    one, two = map(last_weights, folders)
    assert float((one - two).norm() / one.norm()) < 1e-5


def test_long_rows_are_counted_and_left_out(tmp_path: Path) -> None:
    rows = [*SUMS, {"prompt": "1 + 1 " * 400, "completion": "2"}]
    result = finetune(rows, "fresh", out=tmp_path / "run", max_context=100, eval_share=0.0, **{**QUICK, "epochs": 1})
    assert result.report["rows"] == {"trained": len(SUMS), "held_out": 0, "too_long": 1}
    assert "1 left out as too long" in (result.path / "report.md").read_text()
    assert result.verdict.startswith("No rows were held out")
    with pytest.raises(UsageError, match="all 100 rows are longer than 3 tokens"):
        finetune(SUMS, "fresh", out=tmp_path / "none", max_context=3, eval_share=0.0, **QUICK)


@pytest.mark.parametrize(
    ("method", "settings", "words"),
    [
        ("sft", {"epoch": 2}, ["no setting 'epoch'", "epochs"]),
        ("sft", {"epochs": 0}, ["epochs is 0", "at least 1"]),
        ("sft", {"roles": "robot"}, ["roles", "assistant"]),
        ("sft", {"eval_share": 1.5}, ["eval_share", "from 0 to 1"]),
        ("sft", {"engine": "fsdp", "optimizer": "muon"}, ["fsdp", "adamw"]),
        ("sft", {"processes": 2}, ["processes", "fsdp"]),
        ("sft", {"min_reward": 1.0}, ["min_reward", "no run"]),
        ("sft", {"eval_share": 1.0}, ["nothing to train on but held-out rows"]),
        ("sft", {"roles": "tool"}, ["nothing of the roles tool"]),
        ("dpo", {}, ["fresh", "name a policy"]),
    ],
)
def test_wrong_settings_are_one_line_before_anything_starts(
    tmp_path: Path, method: Any, settings: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(UsageError) as raised:
        finetune(SUMS, "fresh", method, out=tmp_path / "run", progress=False, **settings)
    assert all(word in str(raised.value) for word in words), str(raised.value)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run").exists()


def test_every_setting_survives_its_file() -> None:
    config = FinetuneConfig(method="dpo", lr=1e-4, min_reward=0.5, lora=4)
    assert FinetuneConfig.from_dict(json.loads(json.dumps(config.as_dict()))) == config
    settings = config.for_engine(updates=7)
    assert isinstance(settings, TrainConfig)
    assert (settings.steps, settings.lora, settings.lr) == (7, 4, 1e-4)


# Runs


def played_group() -> Group:
    """Four rollouts of two turns; one failed."""

    def rollout(number: int, said: str, reward: float | None) -> Rollout:
        turns = [Turn(observation=(user(asked),), action=assistant(answer)) for asked, answer in ("ab", ("c", said))]
        trajectory = Trajectory(turns=turns, score=None if reward is None else Score(reward=reward))
        return Rollout(task=Task(id="t"), seed=1, sample_index=number, trajectories=[trajectory])

    rewards = {"a": 0.5, "b": 1.0, "c": 0.0, "d": None}
    return Group(task=Task(id="t"), rollouts=[rollout(n, *one) for n, one in enumerate(rewards.items())])


def test_a_pair_is_the_best_and_the_worst_behind_what_they_share() -> None:
    (pair,) = preferences(played_group())
    assert [m["content"] for m in pair["prompt"]] == ["a", "b", "c"]
    assert ([m["content"] for m in pair["chosen"]], [m["content"] for m in pair["rejected"]]) == (["b"], ["c"])
    assert pair["rewards"] == [1, 0]
    assert list(preferences(played_group(), min_reward=1.5)) == []
    level = played_group()
    for rollout in level.rollouts[:3]:
        rollout.trajectory.score = Score(reward=1.0)
    assert list(preferences(level)) == []


def test_a_run_is_trained_on_as_its_export_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").mkdir()
    with RunStore.create(tmp_path / "run" / STORE_FILE) as store:
        for step in range(3):
            store.add([played_group()], stage="rl", step=step, env="twice", metrics={})
        store.add([played_group()], stage="eval", step=0, env="twice", metrics={})
    save_pretrained(tmp_path / "start", fresh(1), TOKENIZER)
    for to, count in (("sft", 6), ("dpo", 3)):
        filters = ["--min-reward", "0.5", "--stage", "rl"]
        with pytest.raises(SystemExit) as left:
            main(["export", str(tmp_path / "run"), "--to", to, "--out", str(tmp_path / f"{to}.jsonl"), *filters])
        assert left.value.code == 0
        lines = [json.loads(line) for line in (tmp_path / f"{to}.jsonl").read_text().splitlines()]
        assert len(lines) == count
        with RunStore.read(tmp_path / "run" / STORE_FILE) as reader:
            method: Any = to
            assert list(training_rows(reader, method, min_reward=0.5, stage="rl")) == lines
        given = ["--policy", str(tmp_path / "start"), "--eval-share", "0", "--batch-tokens", "60", "--json"]
        capsys.readouterr()
        for source, more, out in ((tmp_path / "run", filters, "a"), (tmp_path / f"{to}.jsonl", [], "b")):
            with pytest.raises(SystemExit) as left:
                main([to, str(source), *given, *more, "--out", str(tmp_path / f"{to}-{out}")])
            assert left.value.code == 0
            report = json.loads(capsys.readouterr().out)
            assert report["rows"]["trained"] == count
        assert torch.equal(last_weights(tmp_path / f"{to}-a"), last_weights(tmp_path / f"{to}-b"))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["sft"], "needs a file or run, and --policy RUN"),
        (["sft", "missing.jsonl", "--policy", "fresh"], "there is no file missing.jsonl"),
        (["dpo", "nowhere", "--policy", "smollm9"], "smollm9"),
        (["sft", "rows.txt", "--policy", "fresh"], "there is no file or run rows.txt"),
        (["sft", "--resume", "nowhere"], "no run in nowhere"),
        (["sft", "x.jsonl", "--resume", "nowhere"], "leave out everything"),
        (["dpo", "x.jsonl", "--policy", "p", "--roles", "user"], "no option --roles"),
    ],
)
def test_wrong_commands_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    said = capsys.readouterr().err.strip()
    assert line in said
    assert said.count("\n") == 0


def test_a_run_is_listed_and_the_command_that_goes_on_is_said(tmp_path: Path) -> None:
    with pytest.raises(Cut):
        finetune(SUMS, "fresh", out=tmp_path / "cut", **{**QUICK, "progress": CutAt(3)})
    finetune(SUMS, "fresh", out=tmp_path / "done", command=("sft", "sums.jsonl", "--policy", "fresh"), **QUICK)
    cut, done = runs_in(tmp_path)
    assert (cut.recipe, cut.describe_progress(), cut.finished) == ("finetune", "sft 3", False)
    assert (done.recipe, done.finished) == ("finetune", True)
    for run, words in ((cut, "wander sft --resume "), (done, "wander sft sums.jsonl --policy fresh --out ")):
        with RunStore.read(run.path / STORE_FILE) as reader:
            info = RunInfo(key="r", path="r", name="r", finished=run.finished)
            assert str(repro_command(run.path, info, reader.meta())).startswith(words)


def test_reasoning_beside_the_content_is_told(tmp_path: Path) -> None:
    lines: list[str] = []
    logger = SimpleNamespace(log_step=lambda *_, **__: None, log_line=lines.append)
    answer = {"role": "assistant", "content": "2", "reasoning_content": "one and one"}
    rows = [*SUMS, {"messages": [{"role": "user", "content": "1 + 1"}, answer]}]
    finetune(rows, "fresh", out=tmp_path / "run", eval_share=0.0, **{**QUICK, "epochs": 1, "progress": logger})
    assert [line for line in lines if line.startswith("1 rows have reasoning beside the content")]
