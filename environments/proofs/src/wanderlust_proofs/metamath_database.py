"""Databases in Metamath's notation. Source: N. Megill, D. A. Wheeler, *Metamath*, chapter 4."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TypeAlias

from wanderlust.errors import WanderlustError, quoted

Expression: TypeAlias = tuple[str, ...]
Pair: TypeAlias = tuple[str, str]

_LABEL = re.compile(r"[A-Za-z0-9._-]+")
_SYMBOL = re.compile(r"[!-#%-~]+")
"""Printable characters without the dollar sign."""


class MetamathError(WanderlustError):
    """A database or a proof that is wrong, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """A `$f` or `$e` statement."""

    label: str
    expression: Expression
    floating: bool
    """`$f`: a variable and its type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertion:
    """An axiom (`$a`) or theorem (`$p`) with what it depends on."""

    label: str
    expression: Expression
    hypotheses: tuple[Hypothesis, ...]
    """The mandatory ones, in their order."""
    disjoint: frozenset[Pair]
    """Pairs of mandatory variables, each in order, that may share no variable."""
    proof: tuple[str, ...] | None = None
    """As written; None for an axiom."""
    in_scope: Mapping[str, Hypothesis] = field(default_factory=dict, repr=False)
    """Of a theorem, every hypothesis that its proof may name, by label."""
    all_disjoint: frozenset[Pair] = frozenset()
    """Of a theorem, also the pairs of variables that occur in its proof alone."""

    @property
    def essential(self) -> list[Hypothesis]:
        """The hypotheses that say something."""
        return [one for one in self.hypotheses if not one.floating]


@dataclass(slots=True)
class _Block:
    floats: list[Hypothesis] = field(default_factory=list)
    order: list[Hypothesis] = field(default_factory=list)
    variables: set[str] = field(default_factory=set)
    disjoint: set[Pair] = field(default_factory=set)


def ordered(one: str, other: str) -> Pair:
    """The pair in a fixed order."""
    return (one, other) if one < other else (other, one)


class Database:
    """The assertions of a Metamath text, in their order."""

    def __init__(self, text: str):
        """Read a whole database; proofs are kept, and not checked. Raises MetamathError for a malformed text."""
        self.constants: set[str] = set()
        self.assertions: dict[str, Assertion] = {}
        self._labels: set[str] = set()
        self._symbols: set[str] = set()
        self._blocks = [_Block()]
        self._read(_tokens(text))
        self.floats = {one.label: one for one in self._blocks[0].floats}
        """The `$f` statements of the outermost block."""

    @classmethod
    def of_file(cls, path: Path) -> Database:
        """Read a file."""
        return cls(path.read_text("ascii"))

    def _read(self, tokens: Iterator[str]) -> None:
        label = ""
        for token in tokens:
            if not token.startswith("$"):
                if label or not _LABEL.fullmatch(token):
                    raise MetamathError(f"{quoted(token)} stands where a statement begins")
                label = token
            elif bool(label) != (token in ("$f", "$e", "$a", "$p")):
                raise MetamathError(f"{token} {'has' if label else 'has not'} a label")
            elif label:
                self._state(token, label, tokens)
                label = ""
            else:
                self._unlabelled(token, tokens)
        if label or len(self._blocks) > 1:
            raise MetamathError("the text ends in the middle of a block or statement")

    def _unlabelled(self, keyword: str, tokens: Iterator[str]) -> None:
        if keyword == "${":
            self._blocks.append(_Block())
        elif keyword == "$}" and len(self._blocks) > 1:
            self._blocks.pop()
        elif keyword in ("$c", "$v", "$d"):
            self._declare(keyword, _until(tokens, "$."))
        else:
            raise MetamathError(f"{quoted(keyword)} does not belong here")

    def _declare(self, keyword: str, symbols: Sequence[str]) -> None:
        active = self._variables()
        if keyword == "$d":
            if len({*symbols}) != len(symbols) or not {*symbols} <= active:
                raise MetamathError(f"$d {' '.join(symbols)[:60]} repeats a variable, or names none")
            self._blocks[-1].disjoint |= {ordered(a, b) for a, b in combinations(symbols, 2)}
            return
        taken = self.constants | active | self._labels
        for symbol in symbols:
            if not _SYMBOL.fullmatch(symbol) or symbol in taken:
                raise MetamathError(f"{keyword} {symbol[:40]} is declared twice, or is no symbol")
            if keyword == "$c" and (len(self._blocks) > 1 or symbol in self._symbols):
                raise MetamathError(f"$c {symbol[:40]} is declared in a block, or was a variable")
            taken.add(symbol)
        self._symbols |= {*symbols}
        (self.constants if keyword == "$c" else self._blocks[-1].variables).update(symbols)

    def _variables(self) -> set[str]:
        return set[str]().union(*(block.variables for block in self._blocks))

    def _typed(self) -> set[str]:
        return {one.expression[1] for block in self._blocks for one in block.floats}

    def _state(self, keyword: str, label: str, tokens: Iterator[str]) -> None:
        if label in self._labels or label in self._symbols:
            raise MetamathError(f"the label {label[:60]} is used twice")
        self._labels.add(label)
        expression = tuple(_until(tokens, "$=" if keyword == "$p" else "$."))
        if not expression or expression[0] not in self.constants:
            raise MetamathError(f"{label[:60]} does not begin with a constant")
        if keyword == "$f":
            self._type(label, expression)
            return
        typed = self._typed()
        if any(one not in self.constants and one not in typed for one in expression):
            raise MetamathError(f"{label[:60]} has a symbol that is not declared, or a variable without a type")
        if keyword == "$e":
            self._blocks[-1].order.append(Hypothesis(label=label, expression=expression, floating=False))
            return
        proof = tuple(_until(tokens, "$.")) if keyword == "$p" else None
        self.assertions[label] = self._assertion(label, expression, proof)

    def _type(self, label: str, expression: Expression) -> None:
        if len(expression) != 2 or expression[1] not in self._variables() - self._typed():
            raise MetamathError(f"{label[:60]} is no type of a variable, or its second one")
        hypothesis = Hypothesis(label=label, expression=expression, floating=True)
        self._blocks[-1].floats.append(hypothesis)
        self._blocks[-1].order.append(hypothesis)

    def _assertion(self, label: str, expression: Expression, proof: tuple[str, ...] | None) -> Assertion:
        hypotheses = [one for block in self._blocks for one in block.order]
        used = {*expression}.union(*(one.expression for one in hypotheses if not one.floating))
        disjoint = frozenset[Pair]().union(*(block.disjoint for block in self._blocks))
        return Assertion(
            label=label,
            expression=expression,
            hypotheses=tuple(one for one in hypotheses if not one.floating or one.expression[1] in used),
            disjoint=frozenset(pair for pair in disjoint if used.issuperset(pair)),
            proof=proof,
            in_scope={one.label: one for one in hypotheses} if proof is not None else {},
            all_disjoint=disjoint if proof is not None else frozenset(),
        )


def _tokens(text: str) -> Iterator[str]:
    """The tokens without comments."""
    if not text.isascii():
        raise MetamathError("the text has characters beyond ASCII")
    tokens = iter(text.split())
    for token in tokens:
        if token == "$(":
            for inside in tokens:
                if inside == "$)":
                    break
                if "$(" in inside or "$)" in inside:
                    raise MetamathError(f"a comment has {quoted(inside)}")
            else:
                raise MetamathError("a comment does not end")
        elif token == "$[":
            raise MetamathError("other files ($[) are not read")
        else:
            yield token


def _until(tokens: Iterator[str], end: str) -> list[str]:
    out: list[str] = []
    for token in tokens:
        if token == end:
            return out
        if token.startswith("$"):
            raise MetamathError(f"{quoted(token)} stands before {end}")
        out.append(token)
    raise MetamathError(f"the text ends before {end}")


def theorem_text(theorem: Assertion) -> str:
    """A theorem as a block of Metamath's notation, without its proof."""
    lines = [f"$d {a} {b} $." for a, b in sorted(theorem.all_disjoint or theorem.disjoint)]
    lines += [f"{one.label} $e {' '.join(one.expression)} $." for one in theorem.essential]
    return "\n".join(["${", *lines, f"{theorem.label} $p {' '.join(theorem.expression)} $= ? $.", "$}"])


def given_text(database: Database, theorem: Assertion, labels: Iterable[str]) -> str:
    """What a proof of a theorem may use, as a database of its own: assertions with these labels, without proofs.

    Declared are the symbols that these, the theorem and its hypotheses have. Raises MetamathError where a variable has
    its type within a block.
    """
    wanted = {*labels}
    chosen = [one for one in database.assertions.values() if one.label in wanted]
    floats = {h.label for one in (*chosen, theorem) for h in one.hypotheses if h.floating}
    floats |= wanted & database.floats.keys()
    if inner := floats - database.floats.keys():
        raise MetamathError(f"{min(inner)} gives a variable its type within a block")
    typed = [one for label, one in database.floats.items() if label in floats]
    parts = [one.expression for one in (*chosen, theorem)]
    parts += [h.expression for one in (*chosen, theorem) for h in one.hypotheses] + [one.expression for one in typed]
    constants = sorted({symbol for part in parts for symbol in part} & database.constants)
    lines = [f"$c {' '.join(constants)} $."]
    if typed:
        lines.append(f"$v {' '.join(one.expression[1] for one in typed)} $.")
    lines += [f"{one.label} $f {' '.join(one.expression)} $." for one in typed]
    for one in chosen:
        own = [f"  $d {a} {b} $." for a, b in sorted(one.disjoint)]
        own += [f"  {h.label} $e {' '.join(h.expression)} $." for h in one.essential]
        line = f"{one.label} $a {' '.join(one.expression)} $."
        lines += ["${", *own, f"  {line}", "$}"] if own else [line]
    return "\n".join(lines) + "\n"
