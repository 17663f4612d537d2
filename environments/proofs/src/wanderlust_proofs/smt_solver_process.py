"""The source of the worker in which z3 or cvc5 runs; started by `smt_solvers.py` with an empty environment.

Arguments are the solver's name and its seconds of processor time. The answer to a script is `sat`, `unsat`, `unknown`,
or `error` and why; that to None is the solver's version. It imports nothing of ours.
Work is bounded by the solver's own count, so that a verdict does not depend on the machine's speed.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

MAX_MEMORY_BYTES = 4 << 30
"""Address space."""
WORK = {"z3": 10_000_000, "cvc5": 1_000_000}
"""Steps for one script by the solver's own count: a few seconds."""


def start_z3() -> tuple[str, Callable[[str], str]]:
    """The version of z3, and a function that solves a script."""
    z3: Any = import_module("z3")

    def solve(script: str) -> str:
        try:
            solver = z3.Solver()
            solver.set("rlimit", WORK["z3"])
            solver.from_string(script)
            return str(solver.check())
        except z3.Z3Exception as error:
            said = error.value
            return f"error {said.decode(errors='replace') if isinstance(said, bytes) else said}"

    return ".".join(map(str, z3.get_version()[:3])), solve


def start_cvc5() -> tuple[str, Callable[[str], str]]:
    """The version of cvc5, and a function that solves a script."""
    cvc5: Any = import_module("cvc5")

    def solve(script: str) -> str:
        solver = cvc5.Solver(cvc5.TermManager())
        solver.setOption("rlimit", str(WORK["cvc5"]))
        solver.setOption("produce-models", "false")
        parser = cvc5.InputParser(solver)
        parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, script, "script")
        try:
            while not (command := parser.nextCommand()).isNull():
                said = command.invoke(solver, parser.getSymbolManager())
                if said.startswith("(error"):
                    return f"error {said}"
            result = solver.checkSat()
        except RuntimeError as error:  # what cvc5 raises for malformed input
            return f"error {error}"
        return "sat" if result.isSat() else "unsat" if result.isUnsat() else "unknown"

    version = cvc5.Solver(cvc5.TermManager()).getVersion()
    return version.decode() if isinstance(version, bytes) else version, solve


def answer(script: str | None) -> str:
    """The solver's version, or what it says of a script."""
    return _VERSION if script is None else " ".join(_SOLVE(script).split())[:300]


if __name__ == "worker":
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[2]), int(sys.argv[2])))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    _VERSION, _SOLVE = {"z3": start_z3, "cvc5": start_cvc5}[sys.argv[1]]()
