"""Truth tables for statements of propositional logic in Metamath: which of them no proof can reach.

The connectives have their usual two-valued meaning. Where every assertion that may be used keeps truth in this meaning,
all that can be proved is true; so one assignment that makes the hypotheses true and the conclusion false shows that
there is no proof. Statements with any other symbol are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from wanderlust_proofs.contract import Finding
from wanderlust_proofs.metamath_database import Assertion, Expression, MetamathError

MAX_VARIABLES = 12
"""Statements of more variables are left alone."""
MAX_DEPTH = 60
"""Connectives within one another, at most."""
PROVABLE = "|-"

Table: TypeAlias = int
"""A bit for each assignment, set where the formula is true."""
BINARY: Mapping[str, Callable[[Table, Table, Table], Table]] = {
    "->": lambda a, b, every: (every & ~a) | b,
    "<->": lambda a, b, every: every & ~(a ^ b),
    "/\\": lambda a, b, every: a & b,
    "\\/": lambda a, b, every: a | b,
}


class _Tables:
    """Truth tables of formulas over some variables."""

    def __init__(self, variables: Sequence[str]):
        self.variables = variables
        self.every: Table = (1 << (1 << len(variables))) - 1
        self.known: dict[str, Table] = {"T.": self.every, "F.": 0}
        for at, name in enumerate(variables):
            block = (1 << (1 << at)) - 1  # so many zeros, then as many ones, and so on
            self.known[name] = sum(block << start for start in range(1 << at, 1 << len(variables), 2 << at))

    def table(self, expression: Expression) -> Table:
        """The table of `|-` and a formula. Raises MetamathError for what is no formula of propositional logic."""
        if expression[:1] != (PROVABLE,):
            raise MetamathError("it is no assertion of truth")
        table, end = self._formula(expression, 1, 0)
        if end != len(expression):
            raise MetamathError("it does not end with its formula")
        return table

    def _formula(self, symbols: Expression, at: int, depth: int) -> tuple[Table, int]:
        symbol = symbols[at] if at < len(symbols) and depth <= MAX_DEPTH else ""
        if symbol in self.known:
            return self.known[symbol], at + 1
        if symbol == "-.":
            table, end = self._formula(symbols, at + 1, depth + 1)
            return self.every & ~table, end
        if symbol != "(":
            raise MetamathError("it is no formula of propositional logic")
        left, middle = self._formula(symbols, at + 1, depth + 1)
        connective = BINARY.get(symbols[middle]) if middle < len(symbols) else None
        right, end = self._formula(symbols, middle + 1, depth + 1)
        if connective is None or symbols[end : end + 1] != (")",):
            raise MetamathError("it is no formula of propositional logic")
        return connective(left, right, self.every), end + 1

    def assignment(self, table: Table) -> str:
        """The first assignment at which a table is true."""
        number = (table & -table).bit_length() - 1
        values = [f"{name} is {'true' if number >> at & 1 else 'false'}" for at, name in enumerate(self.variables)]
        return ", ".join(values)


def _read(one: Assertion) -> tuple[_Tables, Table, Table]:
    """Tables of an assertion's hypotheses together, and of its conclusion. Raises MetamathError."""
    names = [hypothesis.expression[1] for hypothesis in one.hypotheses if hypothesis.floating]
    if len(names) > MAX_VARIABLES:
        raise MetamathError(f"{one.label} has more than {MAX_VARIABLES} variables")
    tables = _Tables(names)
    required = tables.every
    for hypothesis in one.essential:
        required &= tables.table(hypothesis.expression)
    return tables, required, tables.table(one.expression)


def truth_findings(theorem: Assertion, known: Mapping[str, Assertion]) -> list[Finding]:
    """What truth tables say against a statement; empty where they have nothing to say."""
    given = [one for one in known.values() if one.expression[0] == PROVABLE]
    try:
        tables, required, conclusion = _read(theorem)
        read = {one.label: _read(one) for one in given}
    except MetamathError:
        return []
    if not required:
        return [Finding(name="unsatisfiable", why="its hypotheses cannot be true together")]
    for label, (own, needs, says) in read.items():
        if wrong := needs & ~says:
            return [Finding(name="vacuous", why=_sentence(f"{label}, which is given, is false", own, wrong))]
    if wrong := required & ~conclusion:
        return [Finding(name="unsatisfiable", why=_sentence("it has no proof: it is false", tables, wrong))]
    return []


def _sentence(what: str, tables: _Tables, wrong: Table) -> str:
    return f"{what} where {tables.assignment(wrong)}" if tables.variables else what
