"""Prompt evolution by a small model itself: SmolLM2-135M writes system texts for SmolLM2-135M after six examples.

Task and policy are those of `bars_distil`, so that the figures can stand beside those of SFT and RL.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bar import Bar
from benchmarks.tickets import EVAL, Prompted, Tickets, smollm2

from wanderlust.algorithms import EvolutionConfig, optimize_prompt
from wanderlust.policies.base import SamplingOptions

ITERATIONS = 8
REFLECTION = SamplingOptions(temperature=0.7, max_tokens=128)


def bars() -> Iterator[Bar]:
    """Held-out reward of the best text over that of the first."""
    model = smollm2()
    with tempfile.TemporaryDirectory() as folder:
        found = optimize_prompt(
            Tickets(),
            Prompted(model).greedy(),
            model.with_sampling(REFLECTION),
            config=EvolutionConfig(iterations=ITERATIONS, held_out=EVAL),
            out=Path(folder) / "out",
            progress=False,
        )
    yield Bar(
        name="SmolLM2-135M by texts of its own, over its first text",
        figure=100 * found.difference.value,
        bar=-100,
        aim=5,
        unit="pt",
        better="higher",
        note=f"no bar: for comparison; {found.before} to {found.after}, {EVAL} held-out messages, greedy; {ITERATIONS}"
        f" iterations, {len(found.candidates) - 1} texts accepted, {found.rollouts:,} rollouts",
    )
