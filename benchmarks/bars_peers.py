"""The same rollouts in other toolkits: how many times as much processor time theirs take as ours.

Each engine is a process of its own (`peers/`), and each peer has a virtual environment of its own, made when it is
first wanted in the folder that WANDERLUST_PEERS names (`.peers` here), with a pinned version and never with PyTorch.
All ask the same model, 1,024 rollouts at once, ours and theirs in turns; a smaller round that only warms up goes
before. What cannot be installed is not measured, and misses nothing: the bars that we promise are those of `endpoint`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import IO, Any

from benchmarks.bar import Bar
from benchmarks.bars_endpoint import CONCURRENCY, model
from benchmarks.peer import ROOT, NotMeasured, Peer, last_line, python_of
from wanderlust.policies.endpoint import raise_file_limit

ROLLOUTS, WARM = 1024, 128
PAIRS = {1: 3, 5: 1}
"""Rounds of each side, by the turns of a rollout: five turns take the heavier ones minutes."""
PEERS = (
    Peer(name="openai SDK 3.54", module="openai_loop", pins=("openai==3.54.0",)),
    Peer(name="verifiers 0.3.1 classic", module="verifiers_classic", pins=("verifiers==0.3.1", "openai==3.54.0")),
    Peer(
        name="inspect_ai 0.3.285",
        module="inspect_single",
        pins=("inspect-ai==0.3.285", "openai==3.54.0"),
        turns=(1,),
    ),
)
Ask = Callable[[str], dict[str, Any]]
"""A line, and what is answered."""
Round = Callable[[int], float]
"""Plays as many rollouts and returns the processor milliseconds of each."""


class EngineFailure(Exception):
    """A process that plays, ours or theirs, ended or did not play right."""


@contextmanager
def asked(command: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> Iterator[Ask]:
    """A process that answers lines with JSON. EngineFailure is raised by a question that it does not answer."""
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=env
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield lambda line: _answer(process.stdin, process.stdout, errors, line=line)
        finally:
            with suppress(BrokenPipeError):
                process.stdin.close()  # it ends by itself then


def _answer(asked: IO[str] | None, told: IO[str] | None, errors: IO[str], *, line: str) -> dict[str, Any]:
    if asked is None or told is None:
        raise EngineFailure("it has no pipes")
    with suppress(BrokenPipeError):  # what it said before it ended tells why
        print(line, file=asked, flush=True)
    answer = told.readline()
    if not answer:
        errors.seek(0)
        raise EngineFailure(f"it failed: {last_line(errors.read())}")
    said: dict[str, Any] = json.loads(answer)
    return said


@contextmanager
def engine(python: str | Path, module: str, *, url: str, turns: int) -> Iterator[Round]:
    """A process that plays rounds on demand. EngineFailure is raised by a round that fails or is not right."""
    command = [python, "-m", f"benchmarks.peers.{module}", url, str(turns), str(CONCURRENCY)]
    with asked(command) as ask:
        yield lambda count: _round(ask, count)


def _round(ask: Ask, count: int) -> float:
    said = ask(str(count))
    if said["right"] != count:
        raise EngineFailure(f"only {said['right']} of {count} rollouts were right")
    return float(said["milliseconds"])


def pairs(peer: Peer, python: Path, *, url: str, turns: int) -> list[tuple[float, float]]:
    """Costs of ours and of theirs, in turns."""
    with (
        engine(sys.executable, "ours", url=url, turns=turns) as ours,
        engine(python, peer.module, url=url, turns=turns) as theirs,
    ):
        ours(WARM), _others(theirs, WARM)
        return [(ours(ROLLOUTS), _others(theirs, ROLLOUTS)) for _ in range(PAIRS[turns])]


def _others(play: Round, count: int) -> float:
    try:
        return play(count)
    except EngineFailure as error:
        raise NotMeasured(str(error)) from error


def compared(peer: Peer, turns: int, measured: Sequence[tuple[float, float]]) -> Bar:
    """The bar of one peer."""
    mine, theirs = (median(side) for side in zip(*measured, strict=True))
    note = f"{theirs:.1f} ms against our {mine:.2f}; {len(measured)} pair{'s' * (len(measured) > 1)}"
    return _bar(peer, turns, figure=median(b / a for a, b in measured), note=note)


def _bar(peer: Peer, turns: int, *, figure: float | None, note: str) -> Bar:
    what = f"{peer.name}, {turns} turn{'s' * (turns > 1)}: times our cost"
    return Bar(name=what, figure=figure, bar=1, aim=20, unit="x", better="higher", note=note, promised=False)


def bars() -> Iterator[Bar]:
    """Every peer, one turn and five."""
    raise_file_limit(2 * CONCURRENCY)  # every process here inherits it
    with model() as url:
        for peer in PEERS:
            for turns in peer.turns:
                try:
                    yield compared(peer, turns, pairs(peer, python_of(peer), url=url, turns=turns))
                except NotMeasured as why:
                    yield _bar(peer, turns, figure=None, note=str(why))
