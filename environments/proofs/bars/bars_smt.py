"""Spoilt and sound SMT models, cores and problems, with their truth.

Our checker evaluates models, so solvers say what is true of them. Our checker asks solvers about cores and problems, so
their truth is found without one: bounds on differences contradict each other when they go round a circle with a sum
above 0, and problems of a few bits have few models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from random import Random

from benchmarks.bar import Bar

from wanderlust_proofs.contract import Statement
from wanderlust_proofs.smt import REFERENCE, Problem, SmtChecker, read_problem
from wanderlust_proofs.smt_problems import bits_problem, core_problem, numbers_problem
from wanderlust_proofs.smt_solvers import MISSING, SOLVERS, ask, installed_solvers
from wanderlust_proofs.smt_terms import Bits, Evaluation, Function, Term, read_terms, sort_of, term_text, value_term

PROBLEMS, MODELS = 90, 140
CORES, SUBSETS = 20, 10
PLANTED = 600
WIDTH = 3
WORDS = ("bvadd", "bvsub", "bvmul", "bvxor", "bvand", "bvor", "bvudiv", "bvurem", "bvshl", "bvlshr")
ORDERS = ("bvult", "bvule", "bvslt", "bvsge", "=", "distinct")


def loose_problem(rng: Random) -> Statement:
    """Comparisons that many models keep, over whole numbers or bit-vectors."""
    names = ["x", "y", "z"]
    if rng.random() < 0.5:
        sort, words, orders = "Int", ("+", "-", "*"), ("<", "<=", ">", ">=", "=", "distinct")
        constant = value_term(rng.randint(-20, 20))
    else:
        sort, words, orders = "(_ BitVec 4)", WORDS, ORDERS
        constant = value_term(Bits(4, rng.randrange(16)))
    terms: list[Term] = []
    for _ in range(rng.choice((1, 2, 3))):
        a, b, c = (rng.choice(names) for _ in names)
        terms.append((rng.choice(orders), (rng.choice(words), a, (rng.choice(words), b, c)), constant))
    lines = [f"(declare-const {name} {sort})" for name in names]
    return Statement(kind="smt", text="\n".join([*lines, *(f"(assert {term_text(one)})" for one in terms)]))


def drawn_model(problem: Problem, reference: dict[str, Term], rng: Random) -> dict[str, Term]:
    """Values near those of the reference, or anywhere."""
    made = dict(reference)
    far = rng.random() < 0.3
    for name in rng.sample(list(problem.declared), rng.randint(1, len(problem.declared))):
        sort = problem.declared[name][1]
        if isinstance(sort, tuple):
            width = int(str(sort[2]))
            old = Evaluation().value(made[name], {}) if name in made else Bits(width, 0)
            near = old.number + rng.choice((-1, 1, 2)) if isinstance(old, Bits) else 0
            made[name] = value_term(Bits(width, (rng.randrange(1 << width) if far else near) % (1 << width)))
        else:
            made[name] = value_term(rng.randint(-9, 9)) if far or name not in made else ("+", made[name], "1")
    return made


def model_text(problem: Problem, values: dict[str, Term]) -> str:
    """A model as an artefact."""
    sorts = {name: sort for name, (_, sort) in problem.declared.items()}
    return "\n".join(["sat", *(term_text(("define-fun", name, (), sorts[name], one)) for name, one in values.items())])


def settled_models(rng: Random) -> tuple[int, int, int, int]:
    """Wrong models accepted and tried, right ones refused and tried; the truth is what z3 and cvc5 say of each."""
    checker, cases, scripts = SmtChecker(), list[bool](), list[str]()
    for number in range(PROBLEMS):
        maker = (numbers_problem, bits_problem)[number % 2]
        one = loose_problem(rng) if number % 3 == 0 else maker(rng, 1 + number % 8)
        problem = read_problem(one.text)
        reference = {term[1]: term[4] for term in read_terms(one.given.get(REFERENCE, ""))[1:]}
        if not reference:
            sorts = {name: sort for name, (_, sort) in problem.declared.items()}
            reference = {name: "0" if sort == "Int" else value_term(Bits(4, 0)) for name, sort in sorts.items()}
        models = [reference, *(drawn_model(problem, reference, rng) for _ in range(MODELS))]
        for values in models:
            cases.append(checker.check(one, model_text(problem, values)).valid)
            fixed: list[Term] = [("=", name, value) for name, value in values.items()]
            scripts.append(problem.script([*problem.assertions, *fixed]))
    truths = [ask(solver, scripts)[1] for solver in installed_solvers()]
    if any({*said} - {"sat", "unsat"} for said in truths) or any(one != truths[0] for one in truths):
        raise RuntimeError("the solvers do not agree on what is true")
    right = [one == "sat" for one in truths[0]]
    wrong_accepted = sum(valid and not truth for valid, truth in zip(cases, right, strict=True))
    right_refused = sum(truth and not valid for valid, truth in zip(cases, right, strict=True))
    return wrong_accepted, len(right) - sum(right), right_refused, sum(right)


def differences(terms: Sequence[Term]) -> list[tuple[str, str, int]]:
    """`(>= (- b a) least)` as a, b and least."""
    found = []
    for term in terms:
        _, (_, b, a), least = term
        value = Evaluation().value(least, {})
        found.append((str(a), str(b), int(value)))
    return found


def is_contradiction(bounds: Sequence[tuple[str, str, int]]) -> bool:
    """Whether bounds on differences cannot hold together: the longest ways grow for ever."""
    names = {name for a, b, _ in bounds for name in (a, b)}
    far = dict.fromkeys(names, 0)
    for _ in names:
        for a, b, least in bounds:
            far[b] = max(far[b], far[a] + least)
    return any(far[b] < far[a] + least for a, b, least in bounds)


def settled_cores(rng: Random) -> tuple[int, int, int, int]:
    """Wrong cores accepted and tried, right ones refused and tried."""
    checker, accepted, tried, refused, right = SmtChecker(), 0, 0, 0, 0
    for number in range(CORES):
        one = core_problem(rng, 1 + number % 5)
        problem = read_problem(one.text)
        most = int(str(problem.about[":core-at-most"]))
        names = list(problem.named)
        (core,) = read_terms(one.given[REFERENCE])[1:]
        chosen = [[str(name) for name in core]]
        for _ in range(SUBSETS):
            near = list(chosen[0])
            near[rng.randrange(len(near))] = rng.choice(names)
            chosen.append(near if rng.random() < 0.5 else rng.sample(names, min(len(names), most + rng.choice((0, 1)))))
        for some in chosen:
            fits = len({*some}) == len(some) <= most
            good = fits and is_contradiction(differences([problem.named[name] for name in some]))
            valid = checker.check(one, f"unsat\n({' '.join(some)})").valid
            accepted, tried = accepted + (valid and not good), tried + (not good)
            refused, right = refused + (good and not valid), right + good
    return accepted, tried, refused, right


def theorem_problem(rng: Random) -> Statement:
    """Two presuppositions about three bits, and the negation of what follows from both of them, but not from one."""
    while True:
        low, high = sorted(rng.sample(range(1, 7), 2))
        first: Term = ("bvuge", "x", value_term(Bits(WIDTH, low)))
        second: Term = ("bvule", "x", value_term(Bits(WIDTH, high)))
        up = 7 - high  # so that the sum does not overflow
        goal: Term = ("bvuge", ("bvadd", "x", value_term(Bits(WIDTH, up))), value_term(Bits(WIDTH, low + up)))
        text = "\n".join(
            [
                "(set-info :requires (low high))",
                f"(declare-const x (_ BitVec {WIDTH}))",
                f"(assert (! {term_text(first)} :named low))",
                f"(assert (! {term_text(second)} :named high))",
                f"(assert (! {term_text(('not', goal))} :named goal))",
            ]
        )
        one = Statement(kind="smt", text=text, given={REFERENCE: "unsat (low high goal)"})
        if is_right(one, None):
            return one


def models_of(problem: Problem, names: Sequence[str]) -> set[tuple[int, ...]]:
    """All models of named assertions, by trying them all."""
    widths = [int(str(sort[2])) for _, sort in problem.declared.values()]
    found = set()
    for numbers in product(*(range(1 << width) for width in widths)):
        values = {
            name: Function((), sort_of(Bits(width, number)), value_term(Bits(width, number)))
            for name, width, number in zip(problem.declared, widths, numbers, strict=True)
        }
        evaluation = Evaluation(values)
        if all(evaluation.value(problem.named[name], {}) for name in names):
            found.add(numbers)
    return found


def is_right(one: Statement, original: Statement | None) -> bool:
    """Whether equations have the model of the original alone; without one, whether a contradiction needs its parts."""
    problem = read_problem(one.text)
    everything = models_of(problem, list(problem.named))
    if not all(models_of(problem, [name]) for name in problem.named):
        return False
    if original is not None:
        first = read_problem(original.text)
        return everything == models_of(first, list(first.named))
    others = [name for name in problem.named if name not in problem.required]
    return not everything and bool(models_of(problem, problem.required)) and bool(models_of(problem, others))


def changed_problems(one: Statement, rng: Random) -> Iterator[Statement]:
    """Problems with one change in an assertion, harmful or not."""
    commands = read_terms(one.text)
    for at, command in enumerate(commands):
        match command:
            case ("assert", ("!", term, ":named", name)):
                for new in changed_terms(term, rng):
                    made = [*commands[:at], ("assert", ("!", new, ":named", name)), *commands[at + 1 :]]
                    yield replace(one, text="\n".join(map(term_text, made)))


def changed_terms(term: Term, rng: Random) -> Iterator[Term]:
    """Terms with one change."""
    yield ("not", term)
    yield ("not", ("not", term))
    yield ("and", term, "true")
    yield ("or", term, ("=", "true", "true"))
    yield ("=>", ("distinct", "true", "true"), term)
    yield ("and", term, ("not", term))
    if isinstance(term, tuple) and len(term) == 3:
        yield (term[0], term[2], term[1])
    places = [*_places(term)]
    for path, old in rng.sample(places, min(len(places), 6)):
        for new in _others(old):
            yield _with(term, path, new)


def _places(term: Term, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], str]]:
    if isinstance(term, str):
        yield path, term
    elif term[0] != "_":
        for at, inner in enumerate(term):
            yield from _places(inner, (*path, at))


def _others(symbol: str) -> list[str]:
    if symbol.startswith("#b"):
        width, number = len(symbol) - 2, int(symbol[2:], 2)
        return [f"#b{(number + step) % (1 << width):0{width}b}" for step in (1, -1)]
    for words in (("bvadd", "bvsub", "bvxor"), ("bvuge", "bvugt", "bvule", "bvult"), ("=", "distinct", "bvule")):
        if symbol in words:
            return [one for one in words if one != symbol]
    return []


def _with(term: Term, path: tuple[int, ...], new: str) -> Term:
    if not path or isinstance(term, str):
        return new
    return (*term[: path[0]], _with(term[path[0]], path[1:], new), *term[path[0] + 1 :])


def planted_problems(rng: Random, count: int = PLANTED) -> tuple[int, int, int, int]:
    """Spoilt problems found and planted; sound ones with a finding, and how many."""
    cases: list[tuple[Statement, bool]] = []
    while len(cases) < count:
        one = bits_problem(rng, 1) if rng.random() < 0.6 else theorem_problem(rng)
        original = one if one.given[REFERENCE].split()[0] == "sat" else None
        cases.append((one, is_right(one, original)))
        cases += [(new, is_right(new, original)) for new in changed_problems(one, rng)]
    answers = SmtChecker().validate_all([one for one, _ in cases])
    found = sum(bool(one) and not right for one, (_, right) in zip(answers, cases, strict=True))
    alarms = sum(bool(one) and right for one, (_, right) in zip(answers, cases, strict=True))
    sound = sum(right for _, right in cases)
    return found, len(cases) - sound, alarms, sound


def bars() -> Iterator[Bar]:
    """Wrong answers that are accepted, right ones that are refused, and what the validator finds."""
    rng = Random("smt")
    missing = len(installed_solvers()) < len(SOLVERS)
    for name, settle in (("models", settled_models), ("cores", settled_cores)):
        wrong, tried, refused, right = (0, 0, 0, 1) if missing else settle(rng)
        figure, share = (None, None) if missing else (wrong, 100 * refused / right)
        note = MISSING if missing else f"{tried:,} tried; {refused} of {right:,} right ones refused"
        yield Bar(name=f"wrong {name} accepted", figure=figure, bar=0.0, aim=0.0, note=note)
        yield Bar(name=f"right {name} refused", figure=share, bar=0.1, aim=0.0, unit="%", note=note)
    found, planted, alarms, sound = (0, 1, 0, 1) if missing else planted_problems(rng)
    yield Bar(
        name="spoilt problems found by the validator",
        figure=None if missing else 100 * found / planted,
        bar=95.0,
        aim=98.0,
        unit="%",
        better="higher",
        note=MISSING if missing else f"{found} of {planted}",
    )
    yield Bar(
        name="sound problems with a finding",
        figure=None if missing else 100 * alarms / sound,
        bar=3.0,
        aim=0.0,
        unit="%",
        note=MISSING if missing else f"{alarms} of {sound}",
    )
