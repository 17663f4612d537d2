"""A cost model of a training step on GPUs: seconds, bytes and memory of each engine.

`python -m benchmarks --page` writes the tables of docs/scale.md.

Nothing here was measured on a GPU by this project. The model has the accelerator's data-sheet figures and the shares
that programs reach of them. One share is set by one published run (CALIBRATION); the other published runs test it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from math import ceil, exp
from pathlib import Path
from typing import Literal, TypeAlias

ROOT = Path(__file__).resolve().parent.parent
PAGE, MEASURED = ROOT / "docs" / "scale.md", ROOT / "benchmarks" / "results" / "scale.json"
Design: TypeAlias = Literal["fsdp", "vllm", "vllm+fsdp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A dense transformer with grouped-query attention, in bf16."""

    name: str
    parameters: float
    layers: int
    hidden: int
    kv_heads: int
    head_dim: int = 128

    @property
    def weight_bytes(self) -> float:
        """Of the weights in bf16."""
        return 2 * self.parameters

    @property
    def cache_bytes(self) -> float:
        """Keys and values of one token in bf16."""
        return 2 * 2.0 * self.layers * self.kv_heads * self.head_dim

    def flops(self, passes: float, context: float) -> float:
        """Operations of one token in `passes` forward passes (a backward pass counts two), attention included."""
        return passes * (2 * self.parameters + 2 * self.layers * self.hidden * context)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """A GPU by its data sheet, and the shares of it that programs reach."""

    flops: float = 989e12
    """bf16, dense, per second (H100 SXM)."""
    bandwidth: float = 3.35e12
    """Bytes per second of its own memory."""
    memory: float = 80e9
    link: float = 450e9
    """Bytes per second to GPUs of the same machine, one way."""
    network: float = 50e9
    """Bytes per second to other machines (400 Gbit/s)."""
    gpus_per_machine: int = 8
    compute_share: float = 0.301
    """Share of `flops` reached by training and prefill: the one that CALIBRATION gives."""
    bandwidth_share: float = 0.6
    """Share of `bandwidth` reached while decoding."""
    memory_share: float = 0.85
    """Share of the memory that weights and cache may take in a sampler."""
    decode_overhead: float = 3e-3
    """Seconds of a decoding step besides memory traffic: scheduler, kernel starts, sampling."""
    link_latency: float = 15e-6
    """Seconds of one sum over the GPUs of a tensor-parallel group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a step plays and learns from."""

    rollouts: int = 2048
    prompt: float = 130.0
    """Tokens read in a rollout: prompt and tool results."""
    answer: float = 1060.0
    """Tokens sampled in a rollout, on average."""
    longest: float = 4096.0
    """Tokens sampled in the longest one."""
    turns: int = 1
    forward_passes: float = 5.0
    """Forward passes of each token in the update, a backward pass counted as two. 5: the sampled log-probabilities,
    a reference model, and the gradient. 3: the gradient alone, as this project's default trains."""

    @property
    def tokens(self) -> float:
        """Tokens of a step."""
        return self.rollouts * (self.prompt + self.answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Predicted seconds of a step, and what they are made of."""

    rollout: float
    update: float
    publish: float
    seconds: float
    """Of the whole step: the sum in turn, or the longest of what overlaps, and the publishing."""
    driver: float
    """Share of the step in which the driving process is busy with requests, samples and the store; above 1 it is the
    bottleneck."""


def decode_seconds(model: Model, gpu: Accelerator, *, parallel: int, sequences: float, work: Workload) -> float:
    """Seconds in which one server of `parallel` GPUs samples its sequences.

    Lengths are exponential with the mean `answer`, cut at `longest`; sequences that do not fit wait for free memory.
    """
    room = parallel * gpu.memory * gpu.memory_share - model.weight_bytes
    fits = max(room / (model.cache_bytes * (work.prompt + work.answer)), 1.0)
    waves = max(sequences / fits, 1.0)
    at_once = sequences / waves
    rate = _rate_of(work.answer, work.longest)
    seconds, stride = 0.0, max(work.longest / 200, 1.0)
    for n in range(ceil(work.longest / stride)):
        place = n * stride
        alive = at_once * exp(-rate * place)
        if alive < 0.5:
            break
        traffic = model.weight_bytes + alive * (work.prompt + place) * model.cache_bytes
        memory = traffic / parallel / (gpu.bandwidth * gpu.bandwidth_share)
        compute = alive * model.flops(1, work.prompt + place) / (parallel * gpu.flops * gpu.compute_share)
        sums = 2 * model.layers * (gpu.link_latency + 2 * alive * model.hidden * 2 / gpu.link) if parallel > 1 else 0.0
        seconds += stride * (gpu.decode_overhead + max(memory, compute) + sums)
    prefill = sequences * work.prompt * model.flops(1, work.prompt) / (parallel * gpu.flops * gpu.compute_share)
    # Later waves fill places as they become free: they cost the full batch's mean time, not a tail each.
    return seconds * (1 + (waves - 1) * work.answer / min(work.longest, _tail(rate, at_once))) + prefill


def _tail(rate: float, sequences: float) -> float:
    """Tokens after which half a sequence is left."""
    place = 0.0
    while sequences * exp(-rate * place) >= 0.5:
        place += 16
    return max(place, 16.0)


def _rate_of(mean: float, longest: float) -> float:
    """Rate of an exponential whose values, cut at `longest`, have this mean; 0 where all are nearly that long."""
    low, high = 1e-9, 10 / mean
    for _ in range(60):
        rate = (low + high) / 2
        low, high = (rate, high) if (1 - exp(-rate * longest)) / rate > mean else (low, rate)
    return rate


def update_seconds(model: Model, gpu: Accelerator, *, gpus: int, work: Workload) -> float:
    """Seconds of an update over `gpus` with sharded weights: compute, and what communication it does not hide."""
    context = (work.prompt + work.answer) / 2
    compute = work.tokens * model.flops(work.forward_passes, context) / (gpus * gpu.flops * gpu.compute_share)
    wire = gpu.link if gpus <= gpu.gpus_per_machine else gpu.network
    gathers = work.forward_passes + 1  # weights gathered once a pass, gradients scattered once
    return max(compute, gathers * model.weight_bytes / wire if gpus > 1 else 0.0)


def publish_seconds(model: Model, *, servers: int, folder: float = 2e9) -> float:
    """Seconds to write a checkpoint into a shared folder and to load it, `servers` reading at once.

    `folder` is the bytes per second of the file system, shared by its readers beyond eight.
    """
    return model.weight_bytes / folder * (1 + max(servers / 8, 1.0))


def predict(
    model: Model,
    gpus: int,
    work: Workload,
    *,
    design: Design,
    overlap: bool,
    gpu: Accelerator | None = None,
    parallel: int | None = None,
    driver_seconds: float = 0.0,
    in_memory: bool = False,
) -> Step | str:
    """One step on `gpus` GPUs, or in a few words why it does not fit.

    fsdp: all GPUs play, then all learn. vllm: servers on all GPUs but the trainer's machine. vllm+fsdp: half of the
    GPUs each way where they `overlap`, else all in turn (as engines that share GPUs do). `driver_seconds` are of one
    turn; `in_memory`: weights go over the links instead of a folder.
    """
    gpu = gpu or Accelerator()
    size = parallel or tensor_parallel(model, gpu)
    state = 16 * model.parameters  # weights, gradients and AdamW's two moments in fp32
    if design == "fsdp":
        learners, players, size = gpus, gpus, 1
        if model.weight_bytes + state / gpus > gpu.memory * gpu.memory_share:
            return "a whole copy does not fit a GPU"
    elif design == "vllm":
        learners, players = 1, gpus - 1
        if state > gpu.memory:
            return "the optimizer does not fit one GPU"
    else:
        learners, players = (gpus // 2, gpus // 2) if overlap else (gpus, gpus)
        if state / max(learners, 1) > gpu.memory * gpu.memory_share:
            return "the optimizer does not fit"
    if players < size:
        return "too few GPUs for one server"
    servers = players // size
    rollout = decode_seconds(model, gpu, parallel=size, sequences=work.rollouts / servers, work=work)
    update = update_seconds(model, gpu, gpus=learners, work=work)
    wire = model.weight_bytes / (gpu.link if gpus <= gpu.gpus_per_machine else gpu.network)
    publish = wire if in_memory or design == "fsdp" else publish_seconds(model, servers=servers)
    seconds = (max(rollout, update) if overlap else rollout + update) + publish
    driver = driver_seconds * work.rollouts * work.turns / seconds
    return Step(rollout=rollout, update=update, publish=publish, seconds=max(seconds, driver * seconds), driver=driver)


def tensor_parallel(model: Model, gpu: Accelerator) -> int:
    """GPUs of one server: the least power of two whose memory holds the weights twice."""
    size = 1
    while size < gpu.gpus_per_machine and size * gpu.memory * gpu.memory_share < 2 * model.weight_bytes:
        size *= 2
    return size


QWEN_1_5B = Model(name="1.5B (Qwen2.5)", parameters=1.54e9, layers=28, hidden=1536, kv_heads=2)
LLAMA_8B = Model(name="8B (Llama 3.1)", parameters=8.03e9, layers=32, hidden=4096, kv_heads=8)
QWEN_32B = Model(name="32B (Qwen3)", parameters=32.8e9, layers=64, hidden=5120, kv_heads=8)
LLAMA_70B = Model(name="70B (Llama 3.1)", parameters=70.6e9, layers=80, hidden=8192, kv_heads=8)
MODELS = (QWEN_1_5B, LLAMA_8B, QWEN_32B, LLAMA_70B)


@dataclass(frozen=True, slots=True)
class Published:
    """A run that others measured and published."""

    name: str
    model: Model
    work: Workload
    _: KW_ONLY
    gpus: int
    parallel: int
    seconds: float
    overlap: bool = False


SOURCE = "https://github.com/NVIDIA-NeMo/RL/blob/main/docs/about/performance-summary.md"
"""NeMo RL 0.4, GRPO on H100, bf16, 2,048 rollouts of up to 4,096 tokens a step."""
LLAMA_RUN = Workload(answer=1060, prompt=132)
QWEN_RUN = Workload(answer=3206, prompt=110)
LLAMA_AHEAD = replace(LLAMA_RUN, answer=1129)
PUBLISHED = (
    Published("Llama 3.1 8B, in turn", LLAMA_8B, LLAMA_RUN, gpus=16, parallel=1, seconds=97.7),
    Published("Llama 3.1 8B, one step ahead", LLAMA_8B, LLAMA_AHEAD, gpus=16, parallel=1, seconds=74.6, overlap=True),
    Published("Qwen3 32B, in turn", QWEN_32B, QWEN_RUN, gpus=32, parallel=4, seconds=393),
    Published("Qwen3 32B, one step ahead", QWEN_32B, QWEN_RUN, gpus=64, parallel=4, seconds=215, overlap=True),
)
CALIBRATION = PUBLISHED[0]


def predicted(run: Published, gpu: Accelerator | None = None) -> Step:
    """The model's step of a published run, whose engines hand weights over in memory."""
    step = predict(
        run.model,
        run.gpus,
        run.work,
        design="vllm+fsdp",
        overlap=run.overlap,
        parallel=run.parallel,
        gpu=gpu,
        in_memory=True,
    )
    assert isinstance(step, Step), step
    return step


def calibrated_share() -> float:
    """The share of the data sheet's operations with which the model gives CALIBRATION's published time."""
    low, high = 0.05, 0.95
    for _ in range(40):
        share = (low + high) / 2
        slow = predicted(CALIBRATION, Accelerator(compute_share=share)).seconds > CALIBRATION.seconds
        low, high = (share, high) if slow else (low, share)
    return round(share, 3)


AGENT = Workload(rollouts=512, prompt=3000, answer=1000, longest=4000, turns=5, forward_passes=3)
"""The workload of the predictions: 64 groups of 8 episodes of five turns, which read tool results."""
SIZES = (1, 8, 64, 1024)
DESIGNS: Mapping[Design, str] = {
    "fsdp": "`fsdp`: play and learn in turn, a whole copy for sampling on each GPU",
    "vllm": "`vllm`: servers sample, one process on one GPU learns",
    "vllm+fsdp": "`vllm+fsdp`: half of the GPUs sample, half learn, at once (`--max-staleness 1`)",
}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def tables(measured: Mapping[str, float]) -> dict[str, str]:
    """The generated parts of docs/scale.md, by their names in the page."""
    checks = [
        [
            run.name + (" (calibration)" if run is CALIBRATION else ""),
            str(run.gpus),
            f"{run.seconds:g} s",
            f"{predicted(run).seconds:.0f} s",
            f"{100 * (predicted(run).seconds / run.seconds - 1):+.0f}%",
        ]
        for run in PUBLISHED
    ]
    out = {
        "measured": table(["what", "measured"], [[name, f"{value:.3g}"] for name, value in measured.items()]),
        "published": table(["run", "GPUs", "published", "model", "difference"], checks),
    }
    for design, title in DESIGNS.items():
        rows = [
            [model.name, *(cell(model, gpus, design, driver=measured[DRIVER]) for gpus in SIZES)] for model in MODELS
        ]
        out[design] = f"{title}.\n\n" + table(["model", *(f"{n} GPU{'s' * (n > 1)}" for n in SIZES)], rows)
    return out


DRIVER = "processor milliseconds of the driving process per turn"
"""Over HTTP, stored and scored: what the subject `endpoint` measured, per turn of its episodes of five."""


def cell(model: Model, gpus: int, design: Design, *, driver: float) -> str:
    """One prediction: seconds of a step, tokens per second, what bounds it; or why it does not fit."""
    step = predict(model, gpus, AGENT, design=design, overlap=design != "fsdp", driver_seconds=driver / 1000)
    if isinstance(step, str):
        return step
    parts = {"sampling": step.rollout, "learning": step.update, "publishing": step.publish}
    bound = "the driver" if step.driver >= 1 else max(parts, key=lambda name: parts[name])
    seconds = f"{step.seconds:,.0f}" if step.seconds >= 10 else f"{step.seconds:.1f}"
    return f"{seconds} s, {AGENT.tokens / step.seconds:,.0f} tokens/s, {bound}"


def fill(page: str, parts: Mapping[str, str]) -> str:
    """The page with its generated parts anew."""
    for name, text in parts.items():
        mark = f"<!-- {name} -->"
        before, _, after = page.split(mark)
        page = f"{before}{mark}\n\n{text}\n\n{mark}{after}"
    return page


def measured() -> dict[str, float]:
    """The figures of this project that the model uses, as `python -m benchmarks --only scale` stored them."""
    sizes = {bar["name"]: bar["figure"] for bar in json.loads(MEASURED.read_text())["bars"] if bar["unit"] == "bytes"}
    endpoint = json.loads(MEASURED.with_name("endpoint.json").read_text())["bars"]
    five_turns = next(bar["figure"] for bar in endpoint if bar["name"].startswith("5 turns"))
    return {**sizes, DRIVER: five_turns / 5}


def write_page() -> None:
    """Write the generated parts of docs/scale.md anew."""
    PAGE.write_text(fill(PAGE.read_text(), tables(measured())))
