"""SMT problems: models, and unsatisfiable cores.

A statement is a problem of SMT-LIB 2: declarations, definitions and assertions. An artefact settles it: `sat` and a
definition of every declared name; or `unsat` and the names of assertions that cannot hold together. Assertions without
a name always count. A model is evaluated here, without a solver; the assertions of a core, and they alone, are given
to z3 and cvc5, whichever are installed.

Three attributes of `set-info` belong to the statement: `:core-at-most 3` bounds a core, `:models several` says that the
models of the problem differ, and `:requires (a b)` names the assertions that are presuppositions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice

from wanderlust.errors import one_line
from wanderlust_proofs.contract import ArtefactVerdict, Finding, Statement, refused_unread
from wanderlust_proofs.smt_solvers import Decision, decide
from wanderlust_proofs.smt_terms import (
    Evaluation,
    Function,
    SmtError,
    Term,
    is_evaluated,
    is_name,
    read_terms,
    term_text,
)

MIN_MUTATION_SCORE = 0.9
"""Of changed models, the share that a problem of several models must refuse."""
REFERENCE = "reference"
"""Key in `Statement.given` of a right artefact."""
MAX_ALONE = 64
"""Assertions that the validator looks at one by one."""
_IGNORED = frozenset({"set-option", "check-sat", "get-model", "get-unsat-core", "exit"})
_SORTS = frozenset({"declare-sort", "define-sort", "declare-datatype", "declare-datatypes"})


@dataclass(slots=True)
class Problem:
    """A statement that was read."""

    logic: str = ""
    declarations: list[Term] = field(default_factory=list)
    """Sorts, names and definitions, in their order."""
    declared: dict[str, tuple[tuple[Term, ...], Term]] = field(default_factory=dict)
    """Sorts of the parameters and of the result, by name."""
    defined: dict[str, Function] = field(default_factory=dict)
    named: dict[str, Term] = field(default_factory=dict)
    unnamed: list[Term] = field(default_factory=list)
    about: dict[str, Term] = field(default_factory=dict)
    """The attributes of `set-info`."""

    @property
    def assertions(self) -> list[Term]:
        """All of them."""
        return [*self.unnamed, *self.named.values()]

    @property
    def required(self) -> tuple[str, ...]:
        """The names of what it presupposes."""
        names = self.about.get(":requires", ())
        return tuple(one for one in names if isinstance(one, str)) if isinstance(names, tuple) else ()

    @property
    def several(self) -> bool:
        """Whether its models may differ."""
        return self.about.get(":models") == "several"

    def script(self, assertions: Sequence[Term]) -> str:
        """What a solver reads: the declarations, and these assertions."""
        head = [f"(set-logic {self.logic or 'ALL'})", *map(term_text, self.declarations)]
        return "\n".join([*head, *(f"(assert {term_text(one)})" for one in assertions)])


def read_problem(text: str) -> Problem:
    """Read a statement. Raises SmtError."""
    problem = Problem()
    for command in read_terms(text):
        _read_command(problem, command)
    if not problem.assertions:
        raise SmtError("nothing is asserted")
    required = problem.about.get(":requires", ())
    if isinstance(required, str) or not all(isinstance(one, str) and one in problem.named for one in required):
        raise SmtError(":requires is a list of named assertions")
    most = problem.about.get(":core-at-most", "0")
    if not (isinstance(most, str) and most.isascii() and most.isdigit() and len(most) < 6):
        raise SmtError(":core-at-most is a whole number")
    return problem


def _read_command(problem: Problem, command: Term) -> None:
    word = command[0] if isinstance(command, tuple) and command else ""
    known = (*problem.declared, *problem.defined)
    match command:
        case ("set-logic", str(logic)) if not problem.logic:
            problem.logic = logic
        case ("set-info", str(key), value):
            problem.about[key] = value
        case ("assert", ("!", term, ":named", str(name))) if name not in problem.named:
            problem.named[name] = term
        case ("assert", term):
            problem.unnamed.append(term)
        case ("declare-const", str(name), sort) if name not in known and is_name(name):
            problem.declared[name] = ((), sort)
            problem.declarations.append(command)
        case ("declare-fun", str(name), tuple(sorts), sort) if name not in known and is_name(name):
            problem.declared[name] = (sorts, sort)
            problem.declarations.append(command)
        case ("define-fun", str(name), _, _, _) if name not in known and is_name(name):
            problem.defined[name] = _definition(command)[1]
            problem.declarations.append(command)
        case _ if word in _SORTS:
            problem.declarations.append(command)
        case _ if word not in _IGNORED:
            raise SmtError(f"{one_line(term_text(command), 60)!r} is no command that is taken, or defines a name anew")


def _definition(term: Term) -> tuple[str, Function]:
    match term:
        case ("define-fun", str(name), tuple(parameters), sort, body):
            pairs = [one for one in parameters if isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str)]
            given = tuple((str(one[0]), one[1]) for one in pairs)
            if len(pairs) == len(parameters) == len(dict(given)) and all(is_name(one) for one, _ in given):
                return name, Function(given, sort, body)
    raise SmtError(f"{one_line(term_text(term), 60)!r} is no (define-fun NAME (PARAMETERS) SORT BODY)")


def read_model(problem: Problem, terms: Sequence[Term]) -> dict[str, Function]:
    """The definitions of a model, one for each declared name. Raises SmtError."""
    if len(terms) == 1 and isinstance(terms[0], tuple) and terms[0][:1] != ("define-fun",):
        terms = terms[0][1:] if terms[0][:1] == ("model",) else terms[0]  # as solvers print it
    model: dict[str, Function] = {}
    for term in terms:
        name, function = _definition(term)
        sorts = tuple(sort for _, sort in function.parameters)
        if problem.declared.get(name) != (sorts, function.sort) or name in model:
            raise SmtError(f"{one_line(name, 60)} is not declared with these sorts, or defined twice")
        if not all(map(is_evaluated, (*sorts, function.sort))):
            raise SmtError(
                f"the values of {one_line(name, 60)} are not covered: only Bool, Int, Real and bit-vectors are"
            )
        model[name] = function
    if missing := next((name for name in problem.declared if name not in model), ""):
        raise SmtError(f"{one_line(missing, 60)} has no value")
    return model


def broken_by(problem: Problem, model: Mapping[str, Function]) -> str:
    """The first assertion that is false under a model; empty where all hold. Raises SmtError where one has no value."""
    evaluation = Evaluation({**problem.defined, **model})
    numbered = [*problem.named.items(), *((f"assertion {at}", one) for at, one in enumerate(problem.unnamed, 1))]
    for name, term in numbered:
        value = evaluation.value(term, {})
        if not isinstance(value, bool):
            raise SmtError(f"{one_line(name, 60)} is no truth value")
        if not value:
            return f"{one_line(name, 60)} is false: {one_line(term_text(term), 80)}"
    return ""


def read_core(problem: Problem, terms: Sequence[Term]) -> list[str]:
    """The names of a core. Raises SmtError."""
    if len(terms) == 1 and isinstance(terms[0], tuple):
        terms = terms[0]
    names = [one for one in terms if isinstance(one, str) and one in problem.named]
    if len({*names}) != len(terms):
        wrong = next((one for one in terms if one not in names), "")
        raise SmtError(f"{one_line(term_text(wrong), 60)!r} names no assertion, or a name stands twice")
    most = problem.about.get(":core-at-most")
    if isinstance(most, str) and len(names) > int(most):
        raise SmtError(f"the core has {len(names)} assertions, and at most {most} are allowed")
    return names


def changed_models(model: Mapping[str, Function]) -> Iterator[dict[str, Function]]:
    """Models with one other value, or with two values exchanged."""
    for name, one in model.items():
        for body in _other_bodies(one):
            yield {**model, name: Function(one.parameters, one.sort, body)}
    for a, b in combinations(model, 2):
        one, other = model[a], model[b]
        if not one.parameters and not other.parameters and one.sort == other.sort and one.body != other.body:
            yield {**model, a: other, b: one}


def _other_bodies(one: Function) -> Iterator[Term]:
    if one.sort == "Bool":
        yield ("not", one.body)
    elif isinstance(one.sort, tuple):
        unit = ("_", "bv1", one.sort[2])
        yield from (("bvadd", one.body, unit), ("bvsub", one.body, unit), ("bvnot", one.body))
    else:
        yield from (("+", one.body, "1"), ("-", one.body, "1"), ("+", one.body, "2"), ("+", one.body, "10"))


def _constant(sorts: Sequence[Term], sort: Term, number: int) -> Function:
    body: Term = str(number)
    if sort == "Bool":
        body = "true" if number else "false"
    elif isinstance(sort, tuple):
        body = ("_", f"bv{number}", sort[-1])
    return Function(tuple((f"p{at}", one) for at, one in enumerate(sorts)), sort, body)


def mutation_score(problem: Problem, model: Mapping[str, Function]) -> tuple[int, int]:
    """How many changed models a problem refuses, and how many there are."""
    refused = total = 0
    for one in changed_models(model):
        total += 1
        try:
            refused += bool(broken_by(problem, one))
        except SmtError:
            refused += 1
    return refused, total


@dataclass(frozen=True, slots=True)
class _Questions:
    """What the validator asks the solvers about a problem."""

    problem: Problem
    asked: list[tuple[list[Term], str, Finding]]
    """Assertions, the answer that a sound problem does not have, and the finding."""

    @property
    def scripts(self) -> list[str]:
        return [self.problem.script(assertions) for assertions, _, _ in self.asked]

    def findings(self, answers: Sequence[Decision]) -> list[Finding]:
        """The first finding."""
        for said, (_, wrong, finding) in zip(answers, self.asked, strict=True):
            if said.answer == "malformed":
                return [Finding(name="malformed", why=said.why)]
            if said.answer == wrong:
                return [finding]
        unknown = [one.why for one in answers if one.answer == "unknown"]
        return [Finding(name="undecided", why=unknown[0])] if unknown else []


class SmtChecker:
    """Checks models by evaluation, and cores by the solvers that are installed."""

    kind = "smt"
    label = "wanderlust.smt 1"

    def check(self, statement: Statement, artefact: str) -> ArtefactVerdict:
        """As in Checker; `figures` has the assertions that were looked at."""
        if why := refused_unread(statement, artefact):
            return ArtefactVerdict(valid=False, reason=why, checker=self.label)
        try:
            problem, terms = read_problem(statement.text), read_terms(artefact)
            if terms[:1] == ["unsat"]:
                return self._core(problem, read_core(problem, terms[1:]))
            reason = "it begins neither with sat nor with unsat"
            if terms[:1] == ["sat"]:
                reason = broken_by(problem, read_model(problem, terms[1:]))
        except SmtError as error:
            return ArtefactVerdict(valid=False, reason=str(error), checker=self.label)
        count = {"assertions": len(problem.assertions)}
        return ArtefactVerdict(valid=not reason, reason=reason, checker=self.label, figures=count)

    def _core(self, problem: Problem, names: Sequence[str]) -> ArtefactVerdict:
        chosen = [*problem.unnamed, *(problem.named[name] for name in names)]
        said = decide([problem.script(chosen)])[0]
        reasons = {"unsat": "", "sat": "these assertions can hold together", "malformed": said.why}
        return ArtefactVerdict(
            valid=said.answer == "unsat",
            reason=reasons.get(said.answer, f"nobody knows: {said.why}"),
            checker=f"{self.label}, {said.by}" if said.by else self.label,
            undecided=said.answer == "unknown",
            figures={"assertions": len(chosen)},
        )

    def validate(self, statement: Statement) -> list[Finding]:
        """Problems that are malformed, that say nothing, that contradict what they require, or that say too little.

        A reference in `given` must settle the problem. A problem with a reference model must have no other model; one
        of several models must refuse most changed ones. Without a reference, constants alone must not be models.
        """
        return self.validate_all([statement])[0]

    def validate_all(self, statements: Sequence[Statement]) -> list[list[Finding]]:
        """As `validate` of each, with one call of each solver for all of them."""
        found = [self._before_solvers(one) for one in statements]
        scripts = [script for one in found if not isinstance(one, list) for script in one.scripts]
        answers = iter(decide(scripts) if scripts else [])
        return [one if isinstance(one, list) else one.findings([*islice(answers, len(one.scripts))]) for one in found]

    def _before_solvers(self, statement: Statement) -> list[Finding] | _Questions:
        if why := refused_unread(statement, ""):
            return [Finding(name="malformed", why=why)]
        try:
            problem = read_problem(statement.text)
            terms = read_terms(statement.given.get(REFERENCE, ""))
            model = read_model(problem, terms[1:]) if terms[:1] == ["sat"] else None
            core = read_core(problem, terms[1:]) if terms[:1] == ["unsat"] else None
        except SmtError as error:
            return [Finding(name="malformed", why=str(error))]
        found = self._by_evaluation(problem, model, core)
        return found or _Questions(problem, [*_questions(problem, model, core)])

    def _by_evaluation(
        self, problem: Problem, model: Mapping[str, Function] | None, core: Sequence[str] | None
    ) -> list[Finding]:
        if model is None:
            return [] if core or problem.several else self._of_constants(problem)
        try:
            reason = broken_by(problem, model)
        except SmtError as error:
            reason = str(error)
        if reason:
            return [Finding(name="unsatisfiable", why=f"the reference breaks it: {reason}")]
        refused, total = mutation_score(problem, model)
        if total and not refused:
            return [Finding(name="vacuous", why=f"all of {total} changed models keep it")]
        if problem.several and refused < MIN_MUTATION_SCORE * total:
            return [Finding(name="weak", why=f"{total - refused} of {total} changed models keep it")]
        return []

    def _of_constants(self, problem: Problem) -> list[Finding]:
        """A finding where models that give all names one value keep the problem, and there are two of them."""
        passing = 0
        for number in (0, 1, 2):
            model = {name: _constant(sorts, sort, number) for name, (sorts, sort) in problem.declared.items()}
            try:
                passing += not broken_by(problem, model)
            except SmtError:
                return []
        if passing < 2:
            return []
        return [Finding(name="vacuous", why=f"{passing} of 3 models that give all names one value keep it")]


def _questions(
    problem: Problem, model: Mapping[str, Function] | None, core: Sequence[str] | None
) -> Iterator[tuple[list[Term], str, Finding]]:
    everything = problem.assertions
    required = [problem.named[name] for name in problem.required]
    others = [*problem.unnamed, *(term for name, term in problem.named.items() if name not in problem.required)]
    if required:
        yield required, "unsat", Finding(name="unsatisfiable", why="what it requires contradicts itself")
    always = Finding(name="vacuous", why="whatever the names mean, it holds")
    yield [("not", ("and", *everything, "true"))], "unsat", always
    if required and others:
        yield others, "unsat", Finding(name="vacuous", why="it is settled without what it requires")
    if core is not None:
        chosen = [*problem.unnamed, *(problem.named[name] for name in core)]
        yield chosen, "sat", Finding(name="unsatisfiable", why="the assertions of the reference can hold together")
    status = problem.about.get(":status")
    if core is not None or status == "unsat":
        yield everything, "sat", Finding(name="unsatisfiable", why="it has a model, and is said to have none")
    elif status == "sat":
        yield everything, "unsat", Finding(name="unsatisfiable", why="it has no model, and is said to have one")
    if 1 < len(everything) <= MAX_ALONE:
        for at, one in enumerate(everything):
            name = [*[""] * len(problem.unnamed), *problem.named][at] or f"assertion {at + 1}"
            yield (
                [one],
                "unsat",
                Finding(name="vacuous", why=f"{one_line(name, 60)} cannot hold, whatever the others say"),
            )
    if model and not problem.several and not any(one.parameters for one in model.values()):
        differences: list[Term] = [("not", ("=", name, one.body)) for name, one in model.items()]
        other = ("or", "false", *differences)
        yield [*everything, other], "sat", Finding(name="weak", why="it has another model than the reference")
