"""Spoilt and sound specifications of all kinds together: contracts, SMT problems, Metamath statements, Coq.

The truth of each is found without the validator: contracts by their results on every case, SMT problems by all values
of a few bits, Metamath statements by what follows from their implications, Coq propositions by how they were made.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import TypeAlias

from benchmarks.bar import Bar

from bars_artefacts import planted
from bars_smt import planted_problems
from wanderlust_proofs.brief_proofs import AXIOMS, Derivation, draw_derivation
from wanderlust_proofs.contract import Statement
from wanderlust_proofs.coq import CoqChecker
from wanderlust_proofs.metamath import MetamathChecker
from wanderlust_proofs.smt_solvers import SOLVERS, installed_solvers

Counts: TypeAlias = tuple[int, int, int, int]
"""Spoilt ones found and planted; sound ones with a finding, and how many."""
DERIVATIONS = 30
PROBLEMS = 150

REVERSED_RULE = "${ r1 $e |- q $. r2 $e |- ( p -> q ) $. R $a |- p $. $}"
EVERYTHING = "E $a |- p $."

COQ_SOUND = (
    "forall n m : nat, n + m = m + n",
    "forall n : nat, n <= n * n",
    "forall p q : Prop, p -> (p -> q) -> q",
    "forall p q r : Prop, (p -> q) -> (q -> r) -> p -> r",
    "forall a b : bool, andb a b = andb b a",
    "forall n : nat, n < 5 -> n < 9",
    "forall n : nat, 0 < n -> exists m, n = S m",
    "forall p q : Prop, p /\\ q -> q /\\ p",
    "forall p q : Prop, p \\/ q -> q \\/ p",
    "forall n m : nat, S n = S m -> n = m",
)
COQ_SPOILT = (
    "forall n : nat, 0 = 1 -> n = 3",
    "forall n : nat, S n = 0 -> n = 7",
    "forall p q : Prop, p -> ~ p -> q",
    "forall b : bool, true = false -> b = b",
    "forall p : Prop, p -> p",
    "forall n : nat, n = n -> True",
    "forall p q : Prop, p -> q -> p",
    "0 = 1",
    "True -> False",
    "true = false",
    "forall n : nat, n = missing",
    "nat",
)


def follows(one: Derivation) -> bool:
    """Whether the goal follows from the implications."""
    known = {one.fact}
    for _ in one.implications:
        known |= {second for first, second in one.implications if first in known}
    return one.goal in known


def metamath_statements(rng: Random) -> Iterator[tuple[Statement, bool]]:
    """Statements of modus ponens, and whether they are sound."""
    for _ in range(DERIVATIONS):
        one = draw_derivation(rng, held_out=False)
        sound = one.statement("sound")
        yield sound, True
        for left_out in one.implications:
            rest = replace(one, implications=tuple(pair for pair in one.implications if pair != left_out))
            yield rest.statement("less"), follows(rest)
        yield replace(one, goal=one.fact).statement("given"), False
        yield replace(sound, text=sound.text.replace("T $p", f"G $e |- {one.goal} $. T $p")), False
        yield replace(sound, text=sound.text.replace(f"|- {one.goal} $=", "|- z $=")), False
        yield replace(sound, text=sound.text.replace("$= ? $.", "$.")), False
        for more in (EVERYTHING, REVERSED_RULE):
            yield replace(sound, given={"axioms": f"{AXIOMS}\n{more}"}), False
        more = rng.choice(["unused $f wff u $.", "$( a comment $)"])
        declared = f"$v u $. {more}" if "unused" in more else more
        yield replace(sound, given={"axioms": f"{AXIOMS}\n{declared}"}), True


def metamath(rng: Random) -> Counts:
    """Of Metamath statements."""
    checker = MetamathChecker()
    cases = [(bool(checker.validate(one)), right) for one, right in metamath_statements(rng)]
    return counted(cases)


def coq(rng: Random) -> Counts:
    """Of propositions in Coq."""
    checker = CoqChecker()
    texts = [(text, True) for text in COQ_SOUND] + [(text, False) for text in COQ_SPOILT]
    return counted([(bool(checker.validate(Statement(kind="coq", text=text))), right) for text, right in texts])


def counted(cases: list[tuple[bool, bool]]) -> Counts:
    """Counts of pairs: whether there is a finding, and whether the specification is sound."""
    found = sum(finding and not right for finding, right in cases)
    alarms = sum(finding and right for finding, right in cases)
    sound = sum(right for _, right in cases)
    return found, len(cases) - sound, alarms, sound


def kinds() -> Mapping[str, Callable[[Random], Counts]]:
    """What can be measured here, by kind."""
    every: dict[str, Callable[[Random], Counts]] = {"contracts": lambda rng: planted(), "Metamath": metamath}
    if len(installed_solvers()) == len(SOLVERS):
        every["SMT"] = lambda rng: planted_problems(rng, PROBLEMS)
    if shutil.which("coqc"):
        every["Coq"] = coq
    return every


def bars() -> Iterator[Bar]:
    """The share of spoilt specifications that are found, and of sound ones with a finding, over all kinds."""
    counts = {name: measure(Random(f"specifications/{name}")) for name, measure in kinds().items()}
    found, wrong, alarms, sound = (sum(column) for column in zip(*counts.values(), strict=True))
    yield Bar(
        name="spoilt specifications found by the validators",
        figure=100 * found / wrong,
        bar=95.0,
        aim=98.0,
        unit="%",
        better="higher",
        note=", ".join(f"{name} {one[0]} of {one[1]}" for name, one in counts.items()),
    )
    yield Bar(
        name="sound specifications with a finding",
        figure=100 * alarms / sound,
        bar=3.0,
        aim=0.0,
        unit="%",
        note=", ".join(f"{name} {one[2]} of {one[3]}" for name, one in counts.items()),
    )
    yield Bar(
        name="spoilt specifications planted", figure=wrong, bar=200, aim=500, better="higher", note=f"{sound} sound"
    )
