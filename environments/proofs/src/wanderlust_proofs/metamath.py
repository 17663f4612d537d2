"""A checker of Metamath proofs.

A statement is one theorem in Metamath's own notation, with its hypotheses and conditions on variables; `given` has the
axioms and lemmas that a proof may use, as a database without proofs, under `axioms`. An artefact is a proof, in the
normal or the compressed format. Source: N. Megill, D. A. Wheeler, *Metamath*, chapter 4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from wanderlust.errors import quoted
from wanderlust_proofs.contract import ArtefactVerdict, Finding, Statement, refused_unread
from wanderlust_proofs.metamath_database import Assertion, Database, Expression, MetamathError, ordered
from wanderlust_proofs.metamath_truth import truth_findings

MAX_PROOF_STEPS = 1_000_000
MAX_EXPRESSION = 20_000
"""Symbols of one expression in a proof: substitutions can double its length at every step."""
MAX_SYMBOLS = 20_000_000
"""Symbols that one proof may write in all."""
KEEP = -1
"""In a compressed proof: keep the last result."""


def verify_proof(theorem: Assertion, proof: Sequence[str], known: Mapping[str, Assertion]) -> int:
    """Check a theorem's proof from `known` assertions; returns its steps. Raises MetamathError where it fails."""
    run = _Run(theorem, known)
    if proof and proof[0] == "(":
        run.compressed(proof)
    else:
        for label in proof:
            run.step(label)
    if run.stack != [theorem.expression]:
        left = " ".join(run.stack[-1])[:120] if run.stack else "nothing"
        raise MetamathError(f"the proof ends with {len(run.stack)} expressions, the last of them {left!r}")
    return run.steps


def _numbers(letters: str) -> Iterator[int]:
    """The numbers that the letters of a compressed proof write, and KEEP."""
    number, may_keep = 0, False
    for letter in letters:
        if "A" <= letter <= "T":
            yield number * 20 + ord(letter) - 65
            number, may_keep = 0, True
        elif "U" <= letter <= "Y" and number <= MAX_PROOF_STEPS:
            number = number * 5 + ord(letter) - 84
        elif letter == "Z" and may_keep and not number:
            yield KEEP
            may_keep = False
        else:
            raise MetamathError("the proof has a gap (?)" if letter == "?" else f"{letter!r} has no meaning there")
    if number:
        raise MetamathError("the proof ends within a number")


class _Run:
    """The stack of a proof."""

    def __init__(self, theorem: Assertion, known: Mapping[str, Assertion]):
        self.theorem, self.known = theorem, known
        self.stack: list[Expression] = []
        self.steps = self.symbols = 0
        self.types = {one.expression[1]: one for one in theorem.in_scope.values() if one.floating}

    def step(self, label: str) -> None:
        """Push a hypothesis, or apply an assertion."""
        if hypothesis := self.theorem.in_scope.get(label):
            self._push(hypothesis.expression)
        elif label == "?":
            raise MetamathError("the proof has a gap (?)")
        elif assertion := self.known.get(label):
            self._apply(assertion)
        else:
            raise MetamathError(f"{quoted(label)} is nothing that this proof may use")

    def compressed(self, proof: Sequence[str]) -> None:
        """Run a proof of the compressed format."""
        try:
            end = proof.index(")")
        except ValueError as error:
            raise MetamathError("the list of labels does not end") from error
        own = [one.label for one in self.theorem.hypotheses]
        labels = [*own, *proof[1:end]]
        if {*own} & {*proof[1:end]} or len({*labels}) != len(labels):
            raise MetamathError("a label is listed twice, or is a hypothesis of the theorem")
        kept: list[Expression] = []
        for at in _numbers("".join(proof[end + 1 :])):
            if at == KEEP:
                kept.append(self.stack[-1])
            elif at < len(labels):
                self.step(labels[at])
            elif at - len(labels) < len(kept):
                self._push(kept[at - len(labels)])
            else:
                raise MetamathError(f"step {self.steps} names a result that was not kept")

    def _push(self, expression: Expression) -> None:
        self.steps += 1
        self.symbols += len(expression)
        if self.steps > MAX_PROOF_STEPS or self.symbols > MAX_SYMBOLS or len(expression) > MAX_EXPRESSION:
            raise MetamathError(f"the proof is too large at step {self.steps}")
        self.stack.append(expression)

    def _apply(self, assertion: Assertion) -> None:
        count = len(assertion.hypotheses)
        if count > len(self.stack):
            raise MetamathError(f"{assertion.label} needs {count} expressions, and there are {len(self.stack)}")
        given = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        values: dict[str, Expression] = {}
        for hypothesis, expression in zip(assertion.hypotheses, given, strict=True):
            if hypothesis.floating:
                kind, variable = hypothesis.expression
                if expression[0] != kind:
                    raise MetamathError(f"{assertion.label}: {variable} is a {kind}, not a {expression[0]}")
                values[variable] = expression[1:]
            elif substituted(hypothesis.expression, values) != expression:
                wanted = " ".join(substituted(hypothesis.expression, values))
                raise MetamathError(
                    f"{assertion.label} wants {quoted(wanted, 120)}, and gets {quoted(' '.join(expression), 120)}"
                )
        for one, other in assertion.disjoint:
            self._keep_apart(assertion, values[one], values[other])
        self._push(substituted(assertion.expression, values))

    def _keep_apart(self, assertion: Assertion, one: Expression, other: Expression) -> None:
        ours = [symbol for symbol in {*one} if symbol in self.types]
        theirs = [symbol for symbol in {*other} if symbol in self.types]
        for a in ours:
            for b in theirs:
                if a == b or ordered(a, b) not in self.theorem.all_disjoint:
                    raise MetamathError(f"{assertion.label} needs {a} and {b} to be different variables ($d)")


def substituted(expression: Expression, values: Mapping[str, Expression]) -> Expression:
    """The expression with expressions in the place of its variables."""
    out: list[str] = []
    for symbol in expression:
        value = values.get(symbol)
        if value is None:
            out.append(symbol)
        else:
            out += value
            if len(out) > MAX_EXPRESSION:
                raise MetamathError("an expression of the proof is too long")
    return tuple(out)


def normal_proof(theorem: Assertion, known: Mapping[str, Assertion], *, most: int = 10_000) -> list[str]:
    """A theorem's own proof in the normal format, without abbreviations. Raises MetamathError beyond `most` labels."""
    proof = theorem.proof or ()
    if proof[:1] != ("(",):
        return list(proof)
    end = proof.index(")")
    labels = [*(one.label for one in theorem.hypotheses), *proof[1:end]]
    stack, kept = list[list[str]](), list[list[str]]()
    for at in _numbers("".join(proof[end + 1 :])):
        if at == KEEP:
            kept.append(stack[-1])
        elif at >= len(labels):
            stack.append(kept[at - len(labels)])
        else:
            assertion = known.get(labels[at])
            count = len(assertion.hypotheses) if assertion else 0
            parts = stack[len(stack) - count :]
            del stack[len(stack) - count :]
            stack.append([label for part in parts for label in part] + [labels[at]])
        if len(stack[-1]) > most:
            raise MetamathError(f"the proof of {theorem.label} has more than {most} labels")
    return stack[-1]


class MetamathChecker:
    """Checks proofs of theorems whose axioms and lemmas are given."""

    kind = "metamath"
    label = "wanderlust.metamath 1"

    def check(self, statement: Statement, artefact: str) -> ArtefactVerdict:
        """As in Checker; `figures` has the steps."""
        if why := refused_unread(statement, artefact):
            return ArtefactVerdict(valid=False, reason=why, checker=self.label)
        try:
            theorem, known = self.read(statement)
            steps = verify_proof(theorem, artefact.split(), known)
        except (MetamathError, RecursionError) as error:
            return ArtefactVerdict(valid=False, reason=str(error), checker=self.label)
        return ArtefactVerdict(valid=True, checker=self.label, figures={"steps": steps})

    def read(self, statement: Statement) -> tuple[Assertion, Mapping[str, Assertion]]:
        """The theorem, and what its proof may use. Raises MetamathError for a malformed statement."""
        given = Database(statement.given.get("axioms", ""))
        if any(one.proof is not None for one in given.assertions.values()):
            raise MetamathError("what is given has a $p: axioms and lemmas are given as $a")
        if statement.text.split().count("$p") != 1 or re.search(r"\$a(?!\S)", statement.text):
            raise MetamathError("the statement is one theorem ($p), and no axiom")
        whole = Database(f"{statement.given.get('axioms', '')}\n{statement.text}")
        (theorem,) = (one for one in whole.assertions.values() if one.proof is not None)
        return theorem, given.assertions

    def validate(self, statement: Statement) -> list[Finding]:
        """Malformed statements, and vacuous ones: what is given, or a hypothesis, says the same already.

        Of propositional logic also those that no proof can reach, those whose hypotheses contradict each other, and
        those for which something false is given, all by truth tables.
        """
        if why := refused_unread(statement, ""):
            return [Finding(name="malformed", why=why)]
        try:
            theorem, known = self.read(statement)
        except (MetamathError, RecursionError) as error:
            return [Finding(name="malformed", why=str(error))]
        if any(one.expression == theorem.expression for one in theorem.essential):
            return [Finding(name="vacuous", why="a hypothesis is the conclusion")]
        for one in known.values():
            if is_instance(one, theorem):
                return [Finding(name="vacuous", why=f"{one.label}, which is given, says the same")]
        return truth_findings(theorem, known)


def is_instance(known: Assertion, theorem: Assertion) -> bool:
    """Whether the theorem says no more than a known assertion with its variables named anew."""
    names: dict[str, str] = {}
    types = {one.expression[1]: one.expression[0] for one in theorem.hypotheses if one.floating}
    own = {one.expression[1]: one.expression[0] for one in known.hypotheses if one.floating}

    def same(a: Expression, b: Expression) -> bool:
        return len(a) == len(b) and all(
            (names.setdefault(x, y) == y and types.get(y) == own[x]) if x in own else x == y
            for x, y in zip(a, b, strict=True)
        )

    said = {one.expression for one in theorem.essential}
    if not same(known.expression, theorem.expression):
        return False
    if not {tuple(names.get(s, s) for s in one.expression) for one in known.essential} <= said:
        return False
    wanted = {ordered(names[a], names[b]) for a, b in known.disjoint if a in names and b in names}
    return wanted <= theorem.disjoint and all(a != b for a, b in wanted)
