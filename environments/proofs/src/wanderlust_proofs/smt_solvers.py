"""Solvers of SMT problems, z3 and cvc5, each in a process of its own with bounded work, memory and time.

A verdict needs one solver; where both are installed both are asked, and they must not contradict each other. A solver
that hangs, crashes or gives up has not answered.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from wanderlust.errors import one_line
from wanderlust.tools.worker import LocalWorker, NoReply, encode_request

SOLVERS = ("z3", "cvc5")
MISSING = "no SMT solver is installed: pip install 'wanderlust[smt]'"
SECONDS = 300.0
"""Seconds by the clock after which a solver hangs, for one script; CPU_SECONDS of processor time end it before that."""
CPU_SECONDS, PER_SCRIPT = 60, 10
"""Seconds that a solver has, and that each further script adds; its own count of steps ends a script before that."""
_PROCESS = Path(__file__).with_name("smt_solver_process.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the solvers say of one script."""

    answer: str
    """`sat`, `unsat`, `malformed`, or `unknown`."""
    why: str = ""
    """Why the script is malformed, or no solver knows."""
    by: str = ""
    """Names and versions of those that answered."""


def installed_solvers() -> list[str]:
    """The names of the solvers that are installed."""
    return [name for name in SOLVERS if find_spec(name) is not None]


def ask(solver: str, scripts: Sequence[str], *, seconds: float | None = None) -> tuple[str, list[str]]:
    """A solver's version, and its answer to each script; where it hangs or crashes, the rest is `unknown` and why."""
    more = PER_SCRIPT * len(scripts)
    seconds = SECONDS + more if seconds is None else seconds
    end = time.monotonic() + seconds
    source, answers, why = _PROCESS.read_text("utf-8"), list[str](), ""
    try:
        with LocalWorker(source, solver, str(CPU_SECONDS + more), start_seconds=seconds) as worker:
            for request in (None, *scripts):
                line = worker.ask_blocking(encode_request(request), seconds=end - time.monotonic())
                answers.append(str(json.loads(line)))
    except NoReply as none:
        late = none.why == "time"
        why = f"{solver} took more than {seconds:g} s" if late else f"{solver} ended with status {none.status}"
    version, *rest = answers or [""]
    return version, [*rest, *[f"unknown {why}"] * (len(scripts) - len(rest))]


def decide(scripts: Sequence[str]) -> list[Decision]:
    """What the solvers that are installed say of each script."""
    solvers = installed_solvers()
    if not solvers:
        return [Decision(answer="unknown", why=MISSING)] * len(scripts)
    answers = {name: ask(name, scripts) for name in solvers}
    return [
        _together({f"{name} {version}": said[at] for name, (version, said) in answers.items()})
        for at in range(len(scripts))
    ]


def _together(answers: dict[str, str]) -> Decision:
    words = {name: answer.partition(" ")[0] for name, answer in answers.items()}
    by = ", ".join(name for name, word in words.items() if word in ("sat", "unsat"))
    if "error" in words.values():
        name = next(name for name, word in words.items() if word == "error")
        return Decision(answer="malformed", why=one_line(f"{name}: {answers[name][6:]}", 200))
    found = {*words.values()} & {"sat", "unsat"}
    if len(found) == 1:
        return Decision(answer=found.pop(), by=by)
    if found:
        return Decision(answer="unknown", why=f"the solvers contradict each other: {answers}", by=by)
    whys = [answer.partition(" ")[2] or f"{name} gave up" for name, answer in answers.items()]
    return Decision(answer="unknown", why="; ".join(whys))
