"""How many agents of other projects, unmodified and isolated in boxes, a model is trained through."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bar import Bar
from benchmarks.boxed_training import STEPS, Trained, start_model, train_in_box
from benchmarks.foreign_agents import AGENTS, COMMANDS, ForeignAgent
from benchmarks.peer import NotMeasured
from wanderlust.errors import Failure, one_line
from wanderlust.training.batch.samples import LOGPROB_TOLERANCE


def bars() -> Iterator[Bar]:
    """Agents, their languages, and those of them that are commands for coding."""
    trained: dict[ForeignAgent, Trained] = {}
    missing: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        start_model(Path(place) / "start")
        for agent in AGENTS:
            try:
                result = train_in_box(agent, Path(place) / agent.name, start=Path(place) / "start")
            except (NotMeasured, Failure) as why:
                missing.append(f"{agent.name}: {one_line(str(why))}")
                continue
            if result.met:
                trained[agent] = result
            else:
                missing.append(f"{agent.name}: {result}")
    tokens, gap = sum(each.sampled for each in trained.values()), max((t.gap for t in trained.values()), default=0.0)
    names = ", ".join(agent.name for agent in trained)
    note = (
        f"{STEPS} steps each; {tokens} tokens, all exact, gap at most {gap:.1g} (bound {LOGPROB_TOLERANCE:g}); {names}"
    )
    yield Bar(
        name="agents in boxes that a model is trained through",
        figure=float(len(trained)),
        bar=6,
        aim=10,
        better="higher",
        note="; ".join([note, *missing]),
    )
    languages = sorted({agent.language for agent in trained})
    yield Bar(
        name="agents in boxes: their languages",
        figure=float(len(languages)),
        bar=3,
        aim=4,
        better="higher",
        note=", ".join(languages),
    )
    commands = [agent.name for agent in trained if agent.name in COMMANDS]
    yield Bar(
        name="agents in boxes: coding agents of the command line",
        figure=float(len(commands)),
        bar=3,
        aim=6,
        better="higher",
        note=", ".join(commands),
    )
