"""Short proofs in Metamath that a small model learns from the checker alone: which implications lead to the goal.

A statement has a few hypotheses, a letter or an implication between two letters each, and a goal, a letter. Modus
ponens is the only rule. Most hypotheses lead nowhere, so a proof is planned in notes before its first label is written.
The checker of Metamath decides about the proof alone. A quarter of all statements is held out: none of them occurs in
training.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from random import Random
from zlib import crc32

from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.types import Message, Task, user
from wanderlust_proofs.artefact_answers import ArtefactAnswers
from wanderlust_proofs.contract import Statement
from wanderlust_proofs.metamath import MetamathChecker

LETTERS, FACT = "abcdefgh", "1"
"""The letters of statements; their labels are the capital ones. The label of the letter that is given."""
STEPS = (2, 3)
"""Uses of modus ponens in the shortest proof."""
IMPLICATIONS = 7
HELD_OUT_MODULUS = 4
"""One of this many statements is held out."""
CARE = 0.55
"""How often the teacher looks whether an implication can be used."""
_LABEL = re.compile(r"[a-z]{2}|\S")

AXIOMS = "\n".join(
    [
        "$c ( ) -> wff |- $.",
        f"$v p q {' '.join(LETTERS)} $.",
        "Q $f wff q $.",
        "P $f wff p $.",
        *(f"{letter.upper()} $f wff {letter} $." for letter in LETTERS),
        "I $a wff ( p -> q ) $.",
        "${ major $e |- ( p -> q ) $. minor $e |- p $. M $a |- q $. $}",
    ]
)
"""What every proof may use: `M` is modus ponens, with its conclusion first, so that a proof begins at the goal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation:
    """A statement: what is given, and the goal.

    Example:
        >>> Derivation(implications=("ac", "bc"), fact="a", goal="c").text()
        'A\\nac\\nbc\\nC'
    """

    implications: tuple[str, ...]
    """Two letters each, in their order: `ac` says that `a` implies `c`, and is the label of that hypothesis."""
    fact: str
    """The letter that is given, with the label 1."""
    goal: str

    def text(self) -> str:
        """As it is shown: the fact as a capital letter, a line for each implication, the goal as a capital letter."""
        return "\n".join([self.fact.upper(), *self.implications, self.goal.upper()])

    def statement(self, name: str) -> Statement:
        """The theorem in Metamath's notation."""
        lines = [f"{one} $e |- ( {one[0]} -> {one[1]} ) $." for one in self.implications]
        text = "\n".join(["${", *lines, f"{FACT} $e |- {self.fact} $.", f"T $p |- {self.goal} $= ? $.", "$}"])
        return Statement(kind="metamath", name=name, text=text, given={"axioms": AXIOMS})


def read_derivation(text: str) -> Derivation:
    """The statement that `Derivation.text` shows."""
    fact, *implications, goal = text.lower().splitlines()
    return Derivation(implications=tuple(implications), fact=fact, goal=goal)


def is_held_out_derivation(one: Derivation) -> bool:
    """Whether a statement belongs to the evaluation; the order of its implications does not matter."""
    return crc32("/".join([*sorted(one.implications), one.fact, one.goal]).encode()) % HELD_OUT_MODULUS == 0


def draw_derivation(rng: Random, *, held_out: bool) -> Derivation:
    """A fact, a chain of implications to the goal, and others that start where nothing leads or end where none does."""
    while True:
        letters = rng.sample(LETTERS, len(LETTERS))
        steps = rng.choice(STEPS)
        chain, rest = letters[: steps + 1], letters[steps + 1 :]
        cut = rng.randint(1, len(rest))
        unproved, useless = rest[:cut], rest[cut:]
        implications = {first + second for first, second in pairwise(chain)}
        while len(implications) < IMPLICATIONS:
            if useless and rng.random() < 0.3:
                first, second = rng.choice(letters), rng.choice(useless)
            else:
                first, second = rng.choice(unproved), rng.choice([*chain[1:], *chain[1:], *unproved])
            if first != second and (first not in useless or second in useless):
                implications.add(first + second)
        order = rng.sample(sorted(implications), len(implications))
        made = Derivation(implications=tuple(order), fact=chain[0], goal=chain[-1])
        if is_held_out_derivation(made) == held_out:
            return made


def shortest_proof(one: Derivation) -> str:
    """The labels of a shortest proof, without spaces."""
    proofs = {one.fact: FACT}
    while one.goal not in proofs:
        new = dict[str, str]()
        for pair in one.implications:
            first, second = pair[0], pair[1]
            if first in proofs and second not in proofs:
                new.setdefault(second, f"{second}{first}".upper() + f"{pair}{proofs[first]}M")
        proofs |= new
    return proofs[one.goal]


def careless_proof(one: Derivation, rng: Random) -> str:
    """Notes from the fact towards the goal, a line for each implication that is used, then the proof that they give.

    The teacher looks with probability CARE whether the implication starts from a letter that is known. A proof by one
    that was noted without looking may be wrong.
    """
    notes, known = list[str](), {one.fact}
    while one.goal not in known:
        new = [pair for pair in one.implications if pair[1] not in known]
        if rng.random() < CARE:
            new = [pair for pair in new if pair[0] in known]
        notes.append(rng.choice(new))
        known.add(notes[-1][1])
    return "\n".join([*notes, noted_proof(one, notes)])


def noted_proof(one: Derivation, notes: Sequence[str]) -> str:
    """The labels of a proof by the implications that were noted, backwards from the goal."""
    before, wanted, steps = "", one.goal, 0
    ways = {pair[1]: pair[0] for pair in notes}
    while wanted in ways and steps < len(notes):
        first, steps = ways[wanted], steps + 1
        before += f"{wanted}{first}".upper() + first + wanted
        wanted = first
    return before + FACT + "M" * steps


class BriefProofs(ArtefactAnswers):
    """Prove a letter from a fact and seven implications; the reward is 1 for a proof that the checker accepts, else 0.

    An answer ends with a line that has the labels of the proof without spaces. Lines before it are notes, which nobody
    checks. `teacher` notes implications from the fact on, and seldom looks whether they can be used yet: half of its
    proofs are wrong.
    """

    origin = "brief-proofs"
    group_by = "steps"

    def __init__(self, size: int = 20_000, eval_size: int = 500):
        """`size` statements for training, `eval_size` for evaluation."""
        if size < 1 or eval_size < 1:
            raise UsageError(f"size and eval_size are at least 1, not {size} and {eval_size}")
        self.size, self.eval_size = size, eval_size
        super().__init__(MetamathChecker())
        self.players = {"teacher": lambda: Scripted(self._teach)}

    def tasks(self, split: str = "train") -> list[Task]:
        """The tasks of `train` or `eval`, whose statements differ. Raises UsageError for another split."""
        if split not in ("train", "eval"):
            raise UsageError(f"there is no split {split!r}: one of train, eval")
        count = self.size if split == "train" else self.eval_size
        return [self._task(split, number) for number in range(count)]

    def read_artefact(self, content: str) -> str:
        """The last line's labels with spaces between them: an implication's has two letters, others one character."""
        return " ".join(_LABEL.findall(content.strip().rpartition("\n")[2]))

    def _task(self, split: str, number: int) -> Task:
        one = draw_derivation(Random(f"brief-proofs/{split}/{number}"), held_out=split == "eval")
        proof = shortest_proof(one)
        return Task(
            id=f"{split}-{number}",
            prompt=(user(one.text()),),
            answer=proof,
            info={"statement": asdict(one.statement(f"{split}-{number}")), "steps": proof.count("M")},
        )

    def _teach(self, messages: Sequence[Message], rng: Random) -> str:
        return careless_proof(read_derivation(messages[0].content), rng)
