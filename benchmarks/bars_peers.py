"""The same rollouts in other toolkits: how many times as much processor time theirs take as ours.

Each engine is a process of its own (`peers/`), and each peer has a virtual environment of its own, made when it is
first wanted in the folder that WANDERLUST_PEERS names (`.peers` here), with a pinned version and never with PyTorch.
All ask the same model, 1,024 rollouts at once, ours and theirs in turns; a smaller round that only warms up goes
before. What cannot be installed is not measured, and misses nothing: the bars that we promise are those of `endpoint`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import IO, Any

from benchmarks.bar import Bar
from benchmarks.bars_endpoint import CONCURRENCY, ROOT, model
from wanderlust.policies.sockets import make_room

PLACE = Path(os.environ.get("WANDERLUST_PEERS", ROOT / ".peers"))
ROLLOUTS, WARM = 1024, 128
PAIRS = {1: 3, 5: 1}
"""Rounds of each side, by the turns of a rollout: five turns take the heavier ones minutes."""
INSTALL_SECONDS = 900
"""Patience with pip."""
FORBIDDEN = "torch<0\ntriton<0\n"
"""As pip's constraints: whoever wants these is not installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """An engine to compare with."""

    name: str
    module: str
    """Under `benchmarks.peers`."""
    pins: tuple[str, ...]
    turns: tuple[int, ...] = (1, 5)
    beside: bool = False
    """Whether it uses the packages that are here, PyTorch among them, instead of its own."""


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


class NotMeasured(Exception):
    """Why there is no figure of a peer, in one line."""


class EngineFailure(Exception):
    """A process that plays, ours or theirs, ended or did not play right."""


def python_of(peer: Peer) -> Path:
    """The interpreter of the peer's own environment, which is made if need be. Raises NotMeasured."""
    folder, pins = PLACE / peer.module, "\n".join(peer.pins)
    interpreter, ready = folder / "bin" / "python", folder / "ready"
    if ready.is_file() and ready.read_text() == pins:
        return interpreter
    print(f"installing {', '.join(peer.pins)} into {folder} ...", file=sys.stderr, flush=True)
    forbidden = folder / "forbidden.txt"
    pip = [sys.executable, "-m", "pip", "--python", interpreter, "install", "-qq", "--no-input"]
    try:
        subprocess.run(
            [sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True, capture_output=True
        )
        forbidden.write_text(f"torch=={version('torch')}\n" if peer.beside else FORBIDDEN)
        if peer.beside:
            (there,) = folder.glob("lib/python*/site-packages")
            (there / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
        command = [*pip, "--retries", "1", "--timeout", "15", "--only-binary", ":all:", "-c", forbidden, *peer.pins]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise NotMeasured(f"installing it took more than {INSTALL_SECONDS} s") from error
    except subprocess.CalledProcessError as error:
        raise NotMeasured(f"cannot be installed: {_last(error.stderr)}") from error
    ready.write_text(pins)
    return interpreter


def _last(said: str | bytes) -> str:
    lines = (said.decode(errors="replace") if isinstance(said, bytes) else said).strip().splitlines()
    errors = [line for line in lines if line.startswith("ERROR")]  # pip's advice may follow them
    return [*lines, *errors][-1][:200] if lines else "it says nothing"


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
        raise EngineFailure(f"it failed: {_last(errors.read())}")
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
    make_room(2 * CONCURRENCY)  # every process here inherits it
    with model() as url:
        for peer in PEERS:
            for turns in peer.turns:
                try:
                    yield compared(peer, turns, pairs(peer, python_of(peer), url=url, turns=turns))
                except NotMeasured as why:
                    yield _bar(peer, turns, figure=None, note=str(why))
