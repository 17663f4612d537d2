"""Theorems of a Metamath database, to be proved from what stands before them.

Debian's package `metamath-databases` has `set.mm` with more than 37,000 theorems, and smaller ones. A task gives the
axioms and lemmas of the theorem's own proof among others that stand before it, and the answer is a proof. A quarter of
the theorems is held out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from zlib import crc32

from wanderlust.errors import UsageError
from wanderlust.types import Task, user
from wanderlust_proofs.artefact_answers import ArtefactAnswers
from wanderlust_proofs.contract import Statement
from wanderlust_proofs.metamath import MetamathChecker, normal_proof
from wanderlust_proofs.metamath_database import Assertion, Database, MetamathError, given_text, theorem_text

DATABASE = "/usr/share/metamath/databases/ql.mm"
HELD_OUT_MODULUS = 4
"""One of this many theorems is held out."""
RECENT = 200
"""Lemmas that are given besides are among so many before the theorem."""
INSTRUCTIONS = """Prove the theorem in Metamath. What you may use is given as a database; every $f, $a and $e in it, and
in the theorem, has a label. A proof is a sequence of labels in reverse Polish notation: a hypothesis pushes itself, and
an assertion takes its hypotheses from the stack, the types of its variables first. Answer with the labels alone."""


def is_held_out_theorem(label: str) -> bool:
    """Whether a theorem belongs to the evaluation."""
    return crc32(label.encode()) % HELD_OUT_MODULUS == 0


class Proofs(ArtefactAnswers):
    """Prove theorems of a Metamath database; the reward is 1 for a proof that the checker accepts, else 0."""

    origin = "proofs"
    group_by = "steps"

    def __init__(self, database: str = DATABASE, *, longest: int = 30, lemmas: int = 8, size: int = 500):
        """Theorems whose own proof has at most `longest` labels; a task gives `lemmas` assertions besides those needed.

        `size` is the most tasks of a split. Raises UsageError where the database is missing or malformed.
        """
        if longest < 1 or lemmas < 0 or size < 1:
            raise UsageError(f"longest and size are at least 1, and lemmas 0, not {longest}, {size} and {lemmas}")
        if not Path(database).is_file():
            raise UsageError(
                f"there is no database {database}: install metamath-databases (Debian), or name a .mm file"
            )
        try:
            self.database = Database.of_file(Path(database))
        except (MetamathError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(f"{database}: {error}") from error
        self.longest, self.lemmas, self.size = longest, lemmas, size
        super().__init__(MetamathChecker())
        self._tasks: dict[str, list[Task]] = {}

    def tasks(self, split: str = "train") -> list[Task]:
        """Theorems in a fixed order. Raises UsageError for a split that is neither train nor eval."""
        if split not in ("train", "eval"):
            raise UsageError(f"there is no split {split!r}: one of train, eval")
        if split not in self._tasks:
            self._tasks[split] = self._find(held_out=split == "eval")
        return self._tasks[split]

    def _find(self, *, held_out: bool) -> list[Task]:
        found: list[tuple[int, str]] = []
        known: dict[str, Assertion] = {}
        before: list[str] = []
        tasks: dict[str, Task] = {}
        for one in self.database.assertions.values():
            wanted = one.proof is not None and is_held_out_theorem(one.label) == held_out
            if wanted and (task := self._task(one, known, before)):
                tasks[one.label] = task
                found.append((crc32(f"order/{one.label}".encode()), one.label))
            known[one.label] = one
            before.append(one.label)
        return [tasks[label] for _, label in sorted(found)[: self.size]]

    def _syntax(self, theorem: Assertion, labels: Sequence[str]) -> list[str]:
        """The assertions before the theorem that build expressions of the symbols that it and others have."""
        database = self.database
        parts = [database.assertions[label] for label in labels if label in database.assertions] + [theorem]
        symbols = {symbol for one in parts for symbol in one.expression}
        symbols |= {symbol for one in parts for hypothesis in one.hypotheses for symbol in hypothesis.expression}
        found = []
        for one in database.assertions.values():
            if one.label == theorem.label:
                break
            if is_syntax(one) and one.proof is None and symbols.issuperset({*one.expression} & database.constants):
                found.append(one.label)
        return found

    def _task(self, theorem: Assertion, known: Mapping[str, Assertion], before: Sequence[str]) -> Task | None:
        try:
            proof = normal_proof(theorem, known, most=self.longest)
        except MetamathError:
            return None
        own = {one.label for one in theorem.hypotheses if not one.floating}
        needed = [label for label in dict.fromkeys(proof) if label not in own]
        others = [label for label in before[-RECENT:] if label not in needed and not is_syntax(known[label])]
        offered = Random(f"proofs/{theorem.label}").sample(others, min(self.lemmas, len(others)))
        try:
            given = given_text(self.database, theorem, {*needed, *offered, *self._syntax(theorem, [*needed, *offered])})
        except MetamathError:
            return None
        statement = Statement(kind="metamath", name=theorem.label, text=theorem_text(theorem), given={"axioms": given})
        if self.checker.validate(statement) or not self.checker.check(statement, " ".join(proof)).valid:
            return None
        return Task(
            id=theorem.label,
            prompt=(user(f"{INSTRUCTIONS}\n\nGiven:\n{given}\nTheorem:\n{statement.text}"),),
            answer=" ".join(proof),
            info={"statement": asdict(statement), "steps": 10 * (len(proof) // 10), "validated": self.checker.label},
        )


def is_syntax(assertion: Assertion) -> bool:
    """Whether an assertion builds expressions, and says nothing."""
    return assertion.expression[0] != "|-"
