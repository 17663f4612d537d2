"""Propositional formulas: models, and refutations in the DRAT format.

A statement is a formula in DIMACS CNF. An artefact settles it: `s SATISFIABLE` and lines `v 1 -2 ... 0` with a model;
or `s UNSATISFIABLE` and the lines of a DRAT proof in text (a clause and 0; `d`, a clause and 0). Each added clause must
follow by unit propagation (RUP), or be RAT on its first literal; the last must be the empty one. Deletions of unit
clauses are obeyed. Source: Wetzler, Heule, Hunt, *DRAT-trim*, SAT 2014.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from wanderlust.errors import WanderlustError, one_line
from wanderlust_proofs.contract import ArtefactVerdict, Finding, Statement, refused_unread

Clause: TypeAlias = tuple[int, ...]

MAX_VARIABLES = 100_000
MAX_WORK = 50_000_000
"""Literals that the checking of one refutation may look at."""


class SatError(WanderlustError):
    """A formula, model or refutation that is wrong, in one line."""


@dataclass(frozen=True, slots=True)
class Formula:
    """Clauses over the variables 1 to `variables`."""

    variables: int
    clauses: tuple[Clause, ...]


def read_formula(text: str) -> Formula:
    """A formula in DIMACS CNF. Raises SatError."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("c")]
    head = lines[0].split() if lines else []
    if len(head) != 4 or head[:2] != ["p", "cnf"] or not all(one.isdigit() and len(one) < 9 for one in head[2:]):
        raise SatError("the formula does not begin with `p cnf VARIABLES CLAUSES`")
    variables, count = int(head[2]), int(head[3])
    if variables > MAX_VARIABLES:
        raise SatError(f"the formula has more than {MAX_VARIABLES:,} variables")
    clauses = [*_clauses(" ".join(lines[1:]).split(), variables)]
    if len(clauses) != count:
        raise SatError(f"the formula has {len(clauses)} clauses, and says {count}")
    return Formula(variables, tuple(clauses))


def _clauses(words: Iterable[str], variables: int) -> Iterator[Clause]:
    clause: list[int] = []
    for word in words:
        literal = _literal(word, variables)
        if literal:
            clause.append(literal)
        else:
            yield tuple(dict.fromkeys(clause))
            clause = []
    if clause:
        raise SatError("the last clause does not end with 0")


def _literal(word: str, variables: int) -> int:
    digits = word.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 9) or int(digits) > variables or word == "-0":
        raise SatError(f"{one_line(word, 40)!r} is no literal of the formula")
    return int(word)


def check_model(formula: Formula, literals: Sequence[int]) -> None:
    """Raises SatError unless the literals make every clause true."""
    true = {*literals}
    both = next((one for one in true if -one in true), 0)
    if both:
        raise SatError(f"the model has {abs(both)} and -{abs(both)}")
    for number, clause in enumerate(formula.clauses, 1):
        if true.isdisjoint(clause):
            raise SatError(f"clause {number} is false: {' '.join(map(str, clause[:20]))}")


@dataclass(slots=True)
class _Refutation:
    """Clauses by number, with two watched literals each, and what follows from the units."""

    clauses: dict[int, Clause] = field(default_factory=dict)
    by_literals: dict[frozenset[int], list[int]] = field(default_factory=dict)
    watched: dict[int, list[int]] = field(default_factory=dict)
    pairs: dict[int, list[int]] = field(default_factory=dict)
    units: dict[int, int] = field(default_factory=dict)
    """Number of a unit clause to its literal."""
    empty: bool = False
    work: int = 0
    last: int = 0

    def add(self, clause: Clause) -> None:
        """Take a clause."""
        self.last += 1
        self.clauses[self.last] = clause
        self.by_literals.setdefault(frozenset(clause), []).append(self.last)
        if not clause:
            self.empty = True
        elif len(clause) == 1:
            self.units[self.last] = clause[0]
        else:
            self.pairs[self.last] = [clause[0], clause[1]]
            for literal in clause[:2]:
                self.watched.setdefault(literal, []).append(self.last)

    def remove(self, clause: Clause) -> None:
        """Forget one copy of a clause. Raises SatError where there is none."""
        numbers = self.by_literals.get(frozenset(clause))
        if not numbers:
            raise SatError(f"there is no clause {' '.join(map(str, clause[:20]))} to be deleted")
        number = numbers.pop()
        del self.clauses[number]
        self.units.pop(number, None)
        for literal in self.pairs.pop(number, ()):
            self.watched[literal].remove(number)

    def conflicts(self, false: Iterable[int]) -> bool:
        """Whether unit propagation meets a contradiction when these literals are false."""
        true: set[int] = set()
        waiting = [-one for one in false] + [*self.units.values()]
        if self.empty:
            return True
        while waiting:
            literal = waiting.pop()
            if -literal in true:
                return True
            if literal not in true:
                true.add(literal)
                found = self._propagate(-literal, true)
                if found is None:
                    return True
                waiting += found
        return False

    def _propagate(self, false: int, true: set[int]) -> list[int] | None:
        """The literals that follow when one more is false; None for a contradiction."""
        found, still = list[int](), list[int]()
        watching = self.watched.get(false, [])
        for at, number in enumerate(watching):
            pair, clause = self.pairs[number], self.clauses[number]
            other = pair[1] if pair[0] == false else pair[0]
            self.work += len(clause)
            if other in true:
                still.append(number)
                continue
            new = next((one for one in clause if one not in pair and -one not in true), None)
            if new is not None:
                self.pairs[number] = [other, new]
                self.watched.setdefault(new, []).append(number)
                continue
            still.append(number)
            if -other in true:
                self.watched[false] = still + watching[at + 1 :]
                return None
            found.append(other)
        self.watched[false] = still
        if self.work > MAX_WORK:
            raise SatError("the refutation takes too long to check")
        return found

    def follows(self, clause: Clause) -> bool:
        """Whether a clause is RUP, or RAT on its first literal."""
        if self.conflicts(clause):
            return True
        if not clause:
            return False
        pivot = clause[0]
        others = [one for one in self.clauses.values() if -pivot in one]
        self.work += len(self.clauses)
        resolvents = ({*clause, *(one for one in other if one != -pivot)} for other in others)
        return all(any(-one in all_ for one in all_) or self.conflicts(all_) for all_ in resolvents)


def check_refutation(formula: Formula, lines: Sequence[str]) -> int:
    """Check a DRAT proof of the empty clause; returns the number of clauses that it adds. Raises SatError."""
    state, added = _Refutation(), 0
    for clause in formula.clauses:
        state.add(clause)
    for number, line in enumerate(lines, 1):
        words = line.split()
        deletes = words[:1] == ["d"]
        clauses = [*_clauses(words[deletes:], formula.variables)]
        if len(clauses) != 1:
            raise SatError(f"line {number} of the refutation is no clause")
        if deletes:
            state.remove(clauses[0])
        elif not state.follows(clauses[0]):
            raise SatError(f"line {number} of the refutation does not follow: {one_line(line, 60)}")
        else:
            state.add(clauses[0])
            added += 1
            if not clauses[0]:
                return added
    raise SatError("the refutation does not reach the empty clause")


def settle(formula: Formula, artefact: str) -> int:
    """Check a model or a refutation; returns the number of clauses that a refutation adds. Raises SatError."""
    lines = [line.strip() for line in artefact.splitlines() if line.strip() and not line.startswith("c ")]
    if lines[:1] == ["s UNSATISFIABLE"]:
        return check_refutation(formula, lines[1:])
    if lines[:1] != ["s SATISFIABLE"]:
        raise SatError("it begins neither with s SATISFIABLE nor with s UNSATISFIABLE")
    words = [line.split() for line in lines[1:]]
    if any(line[0] != "v" for line in words):
        raise SatError("a line of the model does not begin with `v `")
    check_model(formula, [_literal(word, formula.variables) for line in words for word in line[1:] if word != "0"])
    return 0


class SatChecker:
    """Checks models and refutations of formulas."""

    kind = "sat"
    label = "wanderlust.sat 1"

    def check(self, statement: Statement, artefact: str) -> ArtefactVerdict:
        """As in Checker; `figures` has the clauses that a refutation adds."""
        if why := refused_unread(statement, artefact):
            return ArtefactVerdict(valid=False, reason=why, checker=self.label)
        try:
            added = settle(read_formula(statement.text), artefact)
        except SatError as error:
            return ArtefactVerdict(valid=False, reason=str(error), checker=self.label)
        return ArtefactVerdict(valid=True, checker=self.label, figures={"added": added})

    def validate(self, statement: Statement) -> list[Finding]:
        """Malformed formulas, and vacuous ones: no clause, an empty one, or only clauses that are always true."""
        if why := refused_unread(statement, ""):
            return [Finding(name="malformed", why=why)]
        try:
            formula = read_formula(statement.text)
        except SatError as error:
            return [Finding(name="malformed", why=str(error))]
        if () in formula.clauses:
            return [Finding(name="vacuous", why="a clause is empty")]
        if all(any(-one in clause for one in clause) for clause in formula.clauses):
            return [Finding(name="vacuous", why="every clause is always true")]
        return []
