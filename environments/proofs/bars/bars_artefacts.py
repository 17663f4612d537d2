"""Spoilt and sound artefacts: Metamath proofs of Debian's databases, models and refutations of random formulas.

Sound are all proofs of the databases. Spoilt are proofs with a letter or label lost, changed or exchanged, the proof of
another statement, and statements whose axioms or conditions lack one. A spoilt proof that is accepted is given to
Debian's `metamath` as well: only one that it refuses counts. `make peers` installs databases and program.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random

from benchmarks.bar import Bar

from contracts import changed, contracts, is_as_right
from wanderlust_proofs.contract import Statement
from wanderlust_proofs.metamath import MetamathChecker, verify_proof
from wanderlust_proofs.metamath_database import Assertion, Database, MetamathError
from wanderlust_proofs.programs import ProgramChecker, mutants, read_contract
from wanderlust_proofs.proofs import Proofs
from wanderlust_proofs.sat import SatChecker
from wanderlust_proofs.small_python import ProgramError, parse_program

FOLDER = Path("/usr/share/metamath/databases")
DATABASES = ("ql", "hol", "nf", "iset", "set")
PER_TASK, PER_FORMULA, FORMULAS = 16, 20, 60
VARIABLES, CLAUSES = 7, 32


def refused_proofs(database: Database) -> tuple[int, int]:
    """How many of a database's own proofs are refused, and how many there are."""
    known: dict[str, Assertion] = {}
    refused = total = 0
    for one in database.assertions.values():
        if one.proof is not None:
            total += 1
            try:
                verify_proof(one, one.proof, known)
            except MetamathError:
                refused += 1
        known[one.label] = one
    return refused, total


def spoilt(statement: Statement, proof: list[str], other: Statement, *, rng: Random) -> tuple[Statement, list[str]]:
    """A statement and a proof of which one is spoilt."""
    at, with_ = rng.randrange(len(proof)), rng.randrange(len(proof))
    labels = [line.split()[0] for line in statement.given["axioms"].splitlines() if " $a " in line or " $f " in line]
    made = list(proof)
    kind = rng.randrange(6)
    if kind == 0:
        del made[at]
    elif kind == 1:
        made[at] = rng.choice(labels)
    elif kind == 2:
        made[at], made[with_] = made[with_], made[at]
    elif kind == 3:
        made.insert(at, rng.choice(labels))
    elif kind == 4:
        return replace(statement, text=other.text), made
    else:
        used = rng.choice(made)
        lines = [line for line in statement.given["axioms"].splitlines() if not line.strip().startswith(f"{used} $a ")]
        return replace(statement, given={"axioms": "\n".join(lines)}), made
    return statement, made


def refused_by_metamath(statement: Statement, proof: list[str]) -> bool:
    """Whether Debian's program refuses a proof."""
    text = statement.given["axioms"] + statement.text.replace("$= ? $.", f"$= {' '.join(proof)} $.")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "one.mm").write_text(text)
        words = "set scroll continuous\nread one.mm\nverify proof *\nexit\n"
        done = subprocess.run(["metamath"], input=words, capture_output=True, text=True, cwd=folder, check=False)
    return "All proofs in the database were verified" not in done.stdout


def spoilt_proofs(rng: Random) -> tuple[int, int]:
    """How many spoilt proofs are accepted wrongly, and how many were tried."""
    checker = MetamathChecker()
    accepted = total = 0
    for name in ("ql", "iset"):
        env = Proofs(str(FOLDER / f"{name}.mm"), longest=60, size=2000)
        tasks = [*env.tasks(), *env.tasks("eval")]
        statements = [Statement(**task.info["statement"]) for task in tasks]
        for task, statement in zip(tasks, statements, strict=True):
            proof = task.answer.split()
            for _ in range(PER_TASK):
                changed, made = spoilt(statement, proof, rng.choice(statements), rng=rng)
                if (changed, made) != (statement, proof):
                    total += 1
                    if checker.check(changed, " ".join(made)).valid:
                        accepted += refused_by_metamath(changed, made)
    return accepted, total


def holds(clauses: list[list[int]], literals: list[int]) -> bool:
    """Whether the literals make every clause true."""
    return all(not {*literals}.isdisjoint(clause) for clause in clauses)


def formulas(rng: Random) -> Iterator[list[list[int]]]:
    """Random formulas, about half of which can be met."""
    for _ in range(FORMULAS):
        yield [[v * rng.choice((1, -1)) for v in rng.sample(range(1, VARIABLES + 1), 3)] for _ in range(CLAUSES)]


def all_assignments() -> Iterator[list[int]]:
    """All of them, as literals."""
    for signs in product((1, -1), repeat=VARIABLES):
        yield [sign * variable for variable, sign in enumerate(signs, 1)]


def settled(rng: Random) -> tuple[int, int, int, int]:
    """Wrong answers accepted and tried, right ones refused and tried."""
    checker, wrong, refused, tried, right = SatChecker(), 0, 0, 0, 0
    prefixes = [
        [sign * variable for variable, sign in enumerate(signs, 1)]
        for length in range(VARIABLES, 0, -1)
        for signs in product((1, -1), repeat=length)
    ]
    for clauses in formulas(rng):
        lines = [f"p cnf {VARIABLES} {CLAUSES}", *(" ".join(map(str, [*clause, 0])) for clause in clauses)]
        statement = Statement(kind="sat", text="\n".join(lines))
        models = [literals for literals in all_assignments() if holds(clauses, literals)]
        for literals in rng.sample([*all_assignments()], PER_FORMULA):
            accepted = checker.check(statement, f"s SATISFIABLE\nv {' '.join(map(str, literals))} 0").valid
            good = literals in models
            tried, wrong = tried + (not good), wrong + (accepted and not good)
            right, refused = right + good, refused + (good and not accepted)
        proof = [" ".join(map(str, [*clause, 0])) for clause in prefixes] + ["0"]
        if not models:
            right += 1
            refused += not checker.check(statement, "\n".join(["s UNSATISFIABLE", *proof])).valid
        for _ in range(PER_FORMULA if models else 0):
            some = rng.sample(proof[:-1], rng.randrange(len(proof)))
            tried += 1
            wrong += checker.check(statement, "\n".join(["s UNSATISFIABLE", *some, "0"])).valid
    return wrong, tried, refused, right


def planted() -> tuple[int, int, int, int]:
    """Spoilt contracts found and planted; sound ones with a finding, and how many."""
    checker, found, wrong, alarms, sound = ProgramChecker(), 0, 0, 0, 0
    for text, program in contracts().values():
        original = read_contract(text)
        for one in dict.fromkeys([text, *changed(text)]):
            findings = checker.validate(Statement(kind="program", text=one, given={"reference": program}))
            if is_as_right(one, original, program):
                sound, alarms = sound + 1, alarms + bool(findings)
            else:
                wrong, found = wrong + 1, found + bool(findings)
    return found, wrong, alarms, sound


def spoilt_programs() -> tuple[int, int]:
    """Mutants of right programs that are accepted although a case has another result, and how many such there are."""
    checker, accepted, total = ProgramChecker(), 0, 0
    for text, program in contracts().values():
        contract = read_contract(text)
        for one in mutants(parse_program(program)):
            try:
                breaks = any(not contract.allows(case, one.run(case)) for case in contract.cases)
            except ProgramError:
                breaks = True
            if breaks:
                total += 1
                accepted += checker.check(Statement(kind="program", text=text), ast.unparse(one.node)).valid
    return accepted, total


def bars() -> Iterator[Bar]:
    """Sound artefacts that are refused, and spoilt ones that are accepted."""
    rng = Random("artefacts")
    missing = not FOLDER.is_dir() or shutil.which("metamath") is None
    why = "metamath and its databases are not installed: make peers" if missing else ""
    refused = total = 0
    for name in () if missing else DATABASES:
        counts = refused_proofs(Database.of_file(FOLDER / f"{name}.mm"))
        refused, total = refused + counts[0], total + counts[1]
    yield Bar(
        name="sound Metamath proofs refused",
        figure=None if missing else 100 * refused / total,
        bar=0.1,
        aim=0.0,
        unit="%",
        note=why or f"{total:,} proofs of {', '.join(DATABASES)}",
    )
    wrong, tried = (0, 0) if missing else spoilt_proofs(rng)
    yield Bar(
        name="spoilt Metamath proofs accepted",
        figure=None if missing else wrong,
        bar=0.0,
        aim=0.0,
        note=why or f"{tried:,} tried",
    )
    wrong, tried, refused, right = settled(rng)
    note = f"{tried:,} tried; {refused} of {right:,} right ones refused"
    yield Bar(name="wrong models and refutations accepted", figure=wrong, bar=0.0, aim=0.0, note=note)
    yield Bar(
        name="right models and refutations refused", figure=100 * refused / right, bar=0.1, aim=0.0, unit="%", note=note
    )
    accepted, total = spoilt_programs()
    note = f"{total:,} mutants of {len(contracts())} right programs"
    yield Bar(name="wrong programs accepted", figure=accepted, bar=0.0, aim=0.0, note=note)
    found, wrong, alarms, sound = planted()
    yield Bar(
        name="spoilt contracts found by the validator",
        figure=100 * found / wrong,
        bar=95.0,
        aim=98.0,
        unit="%",
        better="higher",
        note=f"{found} of {wrong}",
    )
    note = f"{alarms} of {sound}"
    yield Bar(name="sound contracts with a finding", figure=100 * alarms / sound, bar=3.0, aim=0.0, unit="%", note=note)
