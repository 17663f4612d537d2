"""SMT problems made from a seed: find a model of equations over whole numbers or bit-vectors, or a small core.

Each problem is made around its answer. The validator looks at it before it becomes a task: a model is the only one,
the assertions of a core contradict each other, and none of them alone. A quarter of all problems is held out, by their
texts. Needs a solver: the extra `smt`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice, pairwise
from random import Random
from zlib import crc32

from wanderlust.errors import UsageError
from wanderlust.types import Task, user
from wanderlust_proofs.artefact_answers import ArtefactAnswers
from wanderlust_proofs.contract import Statement
from wanderlust_proofs.smt import REFERENCE, SmtChecker
from wanderlust_proofs.smt_solvers import MISSING, installed_solvers
from wanderlust_proofs.smt_terms import Bits, Term, Value, sort_of, term_text, value_term

FAMILIES = ("numbers", "bits", "core")
MAX_LEVEL = 8
HELD_OUT_MODULUS = 4
"""One of this many problems is held out."""
MAX_TRIES = 20
"""Problems that are made for each task, at most, until the validator has no finding."""
INSTRUCTIONS = """Settle this problem of SMT-LIB 2. If all assertions can hold together, answer with `sat` and a
definition of every declared name, as in

sat
(define-fun x () Int 3)

If they cannot, answer with `unsat` and the names of assertions that contradict each other, as in

unsat
(a1 a4)"""


class SmtProblems(ArtefactAnswers):
    """Settle SMT problems; the reward is 1 for a model or core that the checker accepts, else 0.

    A model is evaluated, and a core is solved again by the solvers that are installed.
    """

    origin = "smt"
    group_by = "family"

    def __init__(self, family: str = "", *, level: int = 2, size: int = 48, seed: int = 0):
        """Problems of one family, or of all in turns; `level` bounds the unknowns, `size` the tasks of a split.

        Raises UsageError where neither z3 nor cvc5 is installed.
        """
        if family not in ("", *FAMILIES):
            raise UsageError(f"there is no family {family!r}: one of {', '.join(FAMILIES)}")
        if not 1 <= level <= MAX_LEVEL or size < 1:
            raise UsageError(f"level is 1 to {MAX_LEVEL} and size at least 1, not {level} and {size}")
        if not installed_solvers():
            raise UsageError(MISSING)
        self.families = (family,) if family else FAMILIES
        self.level, self.size, self.seed = level, size, seed
        super().__init__(SmtChecker())
        self._tasks: dict[str, list[Task]] = {}

    def tasks(self, split: str = "train") -> list[Task]:
        """Tasks that depend on the seed alone. Raises UsageError for a split that is neither train nor eval."""
        if split not in ("train", "eval"):
            raise UsageError(f"there is no split {split!r}: one of train, eval")
        if split not in self._tasks:
            found: dict[str, Task] = {}
            drawn = self._drawn(split)
            checker = SmtChecker()
            for _ in range(MAX_TRIES):
                some = [*islice(drawn, self.size - len(found))]
                for (family, one), findings in zip(some, checker.validate_all([one for _, one in some]), strict=True):
                    if not findings:
                        found.setdefault(one.text, self._task(family, one, f"{split}-{len(found)}"))
            if len(found) < self.size:
                raise UsageError(f"there are only {len(found)} problems of level {self.level}: ask for fewer")
            self._tasks[split] = [*found.values()]
        return self._tasks[split]

    def _drawn(self, split: str) -> Iterator[tuple[str, Statement]]:
        """Problems of a split, of the families in turns, not validated."""
        rng = Random(f"smt/{self.seed}/{split}")
        makers = {"numbers": numbers_problem, "bits": bits_problem, "core": core_problem}
        while True:
            for family in self.families:
                made = makers[family](rng, self.level)
                while is_held_out_problem(made.text) != (split == "eval"):
                    made = makers[family](rng, self.level)
                yield family, made

    def _task(self, family: str, statement: Statement, name: str) -> Task:
        shown = Statement(kind="smt", name=name, text=statement.text, given=statement.given)
        return Task(
            id=name,
            prompt=(user(f"{INSTRUCTIONS}\n\n{statement.text}"),),
            answer=statement.given[REFERENCE],
            info={"statement": asdict(shown), "family": family, "level": self.level, "validated": self.checker.label},
        )


def is_held_out_problem(text: str) -> bool:
    """Whether a problem belongs to the evaluation."""
    return crc32(text.encode()) % HELD_OUT_MODULUS == 0


def _statement(declared: list[Term], assertions: list[Term], answer: str, *, head: str = "") -> Statement:
    commands = [*declared, *(("assert", ("!", one, ":named", f"a{at}")) for at, one in enumerate(assertions, 1))]
    text = "\n".join([*([head] if head else []), *map(term_text, commands)]) + "\n"
    return Statement(kind="smt", text=text, given={REFERENCE: answer})


def _with_model(values: dict[str, Value], assertions: list[Term]) -> Statement:
    declared: list[Term] = [("declare-const", name, sort_of(value)) for name, value in values.items()]
    terms: list[Term] = [("define-fun", name, (), sort_of(value), value_term(value)) for name, value in values.items()]
    return _statement(declared, assertions, "\n".join(["sat", *map(term_text, terms)]))


def numbers_problem(rng: Random, level: int) -> Statement:
    """Linear equations over one whole number more than `level`, and an inequality."""
    values = {f"x{at}": rng.randint(-9, 9) for at in range(1, level + 2)}
    names = list(values)

    def weighted() -> tuple[Term, int]:
        chosen = rng.sample(names, min(len(names), rng.choice((2, 3))))
        factors = [rng.choice((-3, -2, -1, 1, 2, 3)) for _ in chosen]
        total = sum(factor * values[name] for factor, name in zip(factors, chosen, strict=True))
        return ("+", *(("*", value_term(factor), name) for factor, name in zip(factors, chosen, strict=True))), total

    assertions: list[Term] = []
    for _ in names:
        term, total = weighted()
        assertions.append(("=", term, value_term(total)))
    term, total = weighted()
    assertions.append(("<", term, value_term(total + rng.randint(1, 9))))
    rng.shuffle(assertions)
    return _with_model(dict(values), assertions)


def bits_problem(rng: Random, level: int) -> Statement:
    """Equations over `level` bit-vectors and one more, of three bits more than `level`."""
    width = level + 3
    values = {f"x{at}": Bits(width, rng.randrange(1 << width)) for at in range(1, level + 2)}
    names, top = list(values), 1 << width

    def bits(number: int) -> Term:
        return value_term(Bits(width, number % top))

    factor = rng.randrange(1, top, 2)
    first = values[names[0]].number
    assertions: list[Term] = [("=", ("bvmul", bits(factor), names[0]), bits(factor * first))]
    for one, other in pairwise(names):
        a, b = values[one].number, values[other].number
        word, result = rng.choice([("bvadd", a + b), ("bvxor", a ^ b), ("bvsub", a - b)])
        assertions.append(("=", (word, one, other), bits(result)))
    rng.shuffle(assertions)
    return _with_model(dict(values), assertions)


def core_problem(rng: Random, level: int) -> Statement:
    """Bounds on differences: `level` + 1 of them go round in a circle that cannot close, the others hold together."""
    count = level + 1
    names = [f"x{at}" for at in range(1, count + 3)]
    values = {name: rng.randint(-9, 9) for name in names}
    circle = rng.sample(names, count)
    steps = list(zip(circle, circle[1:] + circle[:1], strict=True))
    slack = [values[b] - values[a] for a, b in steps]
    slack[rng.randrange(count)] += rng.randint(1, 4)  # the sum around the circle was 0
    terms: list[Term] = [_at_least(a, b, least) for (a, b), least in zip(steps, slack, strict=True)]
    core = len(terms)
    while len(terms) < core + level + 2:
        a, b = rng.sample(names, 2)
        if (a, b) not in steps:
            terms.append(_at_least(a, b, values[b] - values[a] - rng.randint(0, 5)))
    order = rng.sample(range(len(terms)), len(terms))
    chosen = sorted(order.index(at) + 1 for at in range(core))
    declared: list[Term] = [("declare-const", name, "Int") for name in names]
    answer = f"unsat\n({' '.join(f'a{at}' for at in chosen)})"
    return _statement(declared, [terms[at] for at in order], answer, head=f"(set-info :core-at-most {core})")


def _at_least(a: str, b: str, least: int) -> Term:
    """`b` is at least `least` more than `a`."""
    return (">=", ("-", b, a), value_term(least))
