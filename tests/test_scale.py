"""The page on scale says what the model says, and the model gives the step times that others published."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks import scale


def test_the_page_holds_the_newest_tables() -> None:
    page = scale.PAGE.read_text()
    assert scale.fill(page, scale.tables(scale.measured())) == page


def test_the_fitted_share_is_the_one_that_the_calibration_gives() -> None:
    assert scale.Accelerator().compute_share == scale.calibrated_share()


@pytest.mark.parametrize(
    "run", [run for run in scale.PUBLISHED if run is not scale.CALIBRATION], ids=lambda run: run.name
)
def test_published_runs_are_within_thirty_percent(run: scale.Published) -> None:
    assert scale.predicted(run).seconds == pytest.approx(run.seconds, rel=0.3)


def test_lengths_have_the_mean_that_was_asked_for() -> None:
    gpu, work = scale.Accelerator(decode_overhead=1.0, bandwidth=1e30, flops=1e30), scale.Workload(prompt=0)
    one = scale.decode_seconds(scale.QWEN_1_5B, gpu, parallel=1, sequences=1000, work=work)
    assert one == pytest.approx(4096, rel=0.05)  # until the longest of a thousand ends
    short = scale.decode_seconds(scale.QWEN_1_5B, gpu, parallel=1, sequences=1, work=work)
    assert short < one / 3


def test_more_gpus_never_take_longer_where_weights_travel_in_memory() -> None:
    for model in scale.MODELS:
        times = []
        for gpus in (8, 16, 32, 64, 128):
            step = scale.predict(model, gpus, scale.AGENT, design="vllm+fsdp", overlap=True, in_memory=True)
            if isinstance(step, scale.Step):
                times.append(step.rollout + step.update)
        assert times == sorted(times, reverse=True)


def test_what_does_not_fit_is_said() -> None:
    assert scale.predict(scale.LLAMA_70B, 64, scale.AGENT, design="vllm", overlap=True) == (
        "the optimizer does not fit one GPU"
    )
    small = replace(scale.AGENT, rollouts=8)
    assert scale.predict(scale.QWEN_1_5B, 1, small, design="vllm+fsdp", overlap=True) == "too few GPUs for one server"


def test_a_slow_driver_is_the_bottleneck() -> None:
    step = scale.predict(scale.QWEN_1_5B, 64, scale.AGENT, design="fsdp", overlap=False, driver_seconds=1.0)
    assert isinstance(step, scale.Step)
    assert step.driver > 1
    assert step.seconds == pytest.approx(512 * 5, rel=1e-6)
