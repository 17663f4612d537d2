"""Programs with contracts: for every case of a domain, what is required of the arguments ensures the result.

A statement has one line for each part:

    def clamp(x, low, high)
    where x in -4..4, low in -2..2, high in -2..2
    requires low <= high
    ensures low <= result <= high
    ensures result == x or x < low or x > high

`xs in lists of 0..3 up to 3` is a domain of lists. A line `allows several results` says that a case may have more than
one. An artefact is a function of `small_python`. The checker runs it on every case; the validator looks for results and
plants programs that a contract should not let through.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product

from wanderlust.errors import one_line
from wanderlust_proofs.contract import ArtefactVerdict, Finding, Statement, refused_unread
from wanderlust_proofs.small_python import (
    ProgramError,
    SmallProgram,
    Value,
    evaluate_expression,
    parse_expression,
    parse_program,
)

MAX_CASES = 20_000
SEVERAL = "allows several results"
MIN_MUTATION_SCORE = 0.9
"""Of planted programs that are wrong, the share that a contract of several results must refuse."""
REFERENCE = "reference"
"""Key in `Statement.given` of a right program, from which wrong ones are made."""
_HEAD = re.compile(r"def (\w+)\((\w+(?:, ?\w+)*)\)")
_RANGE = re.compile(r"(\w+) in (-?\d{1,4})\.\.(-?\d{1,4})")
_LISTS = re.compile(r"(\w+) in lists of (-?\d{1,4})\.\.(-?\d{1,4}) up to (\d)")
_SWAPPED: Mapping[type[ast.AST], Sequence[type[ast.AST]]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add,),
    ast.FloorDiv: (ast.Mod,),
    ast.Mod: (ast.FloorDiv,),
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}


@dataclass(frozen=True, slots=True)
class Contract:
    """A parsed statement."""

    name: str
    parameters: tuple[str, ...]
    cases: tuple[tuple[Value, ...], ...]
    """The arguments that meet what is required."""
    ensures: tuple[ast.expr, ...]
    several: bool = False
    """Whether a case may have more than one result."""

    def broken_by(self, program: SmallProgram) -> str:
        """The first case for which a program breaks the contract; empty where it keeps it."""
        if program.parameters != [*self.parameters] or program.name != self.name:
            return f"the function is not {self.name}({', '.join(self.parameters)})"
        for case in self.cases:
            try:
                result = program.run(case)
            except ProgramError as error:
                return f"{self.call(case)}: {error}"
            if not self.allows(case, result):
                return f"{self.call(case)} is {one_line(str(result), 60)}"
        return ""

    def allows(self, case: Sequence[Value], result: Value) -> bool:
        """Whether a result is ensured. An expression that fails, as by the kind of the result, ensures nothing."""
        names = {**dict(zip(self.parameters, case, strict=True)), "result": result}
        try:
            return all(evaluate_expression(one, names) for one in self.ensures)
        except ProgramError:
            return False

    def call(self, case: Sequence[Value]) -> str:
        """A call with the arguments of a case."""
        return f"{self.name}({', '.join(map(str, case))})"


def read_contract(text: str) -> Contract:
    """Read a statement. Raises ProgramError."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    head = _HEAD.fullmatch(lines[0]) if lines else None
    if head is None:
        raise ProgramError("a contract begins with a line like `def name(a, b)`")
    parameters = tuple(re.split(", ?", head[2]))
    parts: dict[str, list[str]] = {"where": [], "requires": [], "ensures": []}
    for line in lines[1:]:
        if line == SEVERAL:
            continue
        word, _, rest = line.partition(" ")
        if word not in parts or not rest:
            raise ProgramError(f"{one_line(line, 60)!r} begins with none of where, requires and ensures")
        parts[word].append(rest)
    if not parts["ensures"]:
        raise ProgramError("nothing is ensured")
    domains = _domains(", ".join(parts["where"]))
    if {*domains} != {*parameters} or len({*parameters}) != len(parameters):
        raise ProgramError(f"`where` must name each of {', '.join(parameters)} once")
    cases = list(_product([domains[name] for name in parameters]))
    required = [parse_expression(one) for one in parts["requires"]]
    kept = [case for case in cases if _meets(required, dict(zip(parameters, case, strict=True)))]
    ensures = tuple(parse_expression(one) for one in parts["ensures"])
    return Contract(head[1], parameters, tuple(kept), ensures, several=SEVERAL in lines)


def _meets(required: Sequence[ast.expr], names: Mapping[str, Value]) -> bool:
    return all(evaluate_expression(one, names) for one in required)


def _product(domains: Sequence[Sequence[Value]]) -> Iterator[tuple[Value, ...]]:
    count = 1
    for domain in domains:
        count *= len(domain)
    if count > MAX_CASES:
        raise ProgramError(f"the domain has {count:,} cases, and at most {MAX_CASES:,} are checked")
    return product(*domains)


def _domains(text: str) -> dict[str, list[Value]]:
    found: dict[str, list[Value]] = {}
    for part in re.split(r", ?", text) if text else []:
        numbers, lists = _RANGE.fullmatch(part), _LISTS.fullmatch(part)
        if lists:
            items = range(int(lists[2]), int(lists[3]) + 1)
            length = int(lists[4])
            if len(items) ** length > MAX_CASES:
                raise ProgramError(f"{part!r} has more than {MAX_CASES:,} cases")
            every = chain.from_iterable(product(items, repeat=n) for n in range(length + 1))
            found[lists[1]] = [list(one) for one in every]
        elif numbers:
            found[numbers[1]] = list(range(int(numbers[2]), int(numbers[3]) + 1))
        else:
            raise ProgramError(f"{one_line(part, 60)!r} is no domain like `x in 0..9` or `xs in lists of 0..3 up to 3`")
    return found


def mutants(program: SmallProgram) -> Iterator[SmallProgram]:
    """Programs with one change: an operator, a number, a name, a condition, a result."""
    places = len([*ast.walk(program.node)])
    for at in range(places):
        for change in range(4):
            node = copy.deepcopy(program.node)
            if _change([*ast.walk(node)][at], change, program.parameters):
                yield SmallProgram(node)


def _change(node: ast.AST, change: int, names: Sequence[str]) -> bool:
    """Change a node in place in one of several ways; False where there is no such way."""
    match node:
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if change < len(_SWAPPED.get(type(op), ())):
            node.op = _SWAPPED[type(op)][change]()  # type: ignore[assignment]
        case ast.Compare(ops=[op, *_]) if change < len(_SWAPPED.get(type(op), ())):
            node.ops[0] = _SWAPPED[type(op)][change]()  # type: ignore[call-overload]
        case ast.Constant(value=int() as value) if change < 2 and not isinstance(value, bool):
            node.value = value + (1, -1)[change]
        case ast.Name(id=name, ctx=ast.Load()) if name in names and change < len(names) and names[change] != name:
            node.id = names[change]
        case ast.If(test=test) | ast.While(test=test) if change == 0:
            node.test = ast.UnaryOp(op=ast.Not(), operand=test)
        case ast.Return(value=value) if change < 2 and value is not None:
            node.value = (ast.Constant(value=0), ast.UnaryOp(op=ast.USub(), operand=value))[change]
        case _:
            return False
    return True


def trivial_programs(contract: Contract) -> Iterator[SmallProgram]:
    """Programs that do nothing: they return a number, an empty list, or an argument."""
    head = f"def {contract.name}({', '.join(contract.parameters)}):\n    return "
    for result in ("0", "1", "-1", "2", "[]", "[0]", *contract.parameters):
        yield parse_program(head + result)


def near_results(result: Value, case: Sequence[Value]) -> Iterator[Value]:
    """Results near a right one: other numbers, and lists with an item more, less, changed or exchanged."""
    if isinstance(result, list):
        for at, item in enumerate(result):
            yield [*result[:at], *result[at + 1 :]]
            if isinstance(item, int):
                yield from ([*result[:at], item + step, *result[at + 1 :]] for step in (1, -1))
            yield from ([*result[:at], result[at + 1], item, *result[at + 2 :]] for _ in result[at + 1 : at + 2])
        yield from ([*result, 0], [0, *result], [*result, *result], list(reversed(result)), [])
        return
    numbers = {one for one in case if isinstance(one, int)} | {one for xs in case if isinstance(xs, list) for one in xs}
    known = [0, 1, *numbers, result]
    yield from range(min(known) - 2, max(known) + 3)
    yield from (-result, 2 * result, 10 * result + 7)


def other_result(contract: Contract, reference: SmallProgram) -> str:
    """A case for which a contract allows another result than the reference's; empty where none was found."""
    for case in contract.cases:
        right = reference.run(case)
        for other in near_results(right, case):
            if other != right and contract.allows(case, other):
                return f"{contract.call(case)} may be {other} as well as {right}"
    return ""


def mutation_score(contract: Contract, reference: SmallProgram) -> tuple[int, int]:
    """Of the planted programs with other results than the reference, how many the contract refuses; and how many."""
    right = [_result(reference, case) for case in contract.cases]
    refused = total = 0
    for one in chain(trivial_programs(contract), mutants(reference)):
        if [_result(one, case) for case in contract.cases] != right:
            total += 1
            refused += bool(contract.broken_by(one))
    return refused, total


def _is_trivial(expression: ast.expr) -> bool:
    """Whether an expression says nothing of the result."""
    names = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
    if "result" not in names:
        return True
    return (
        isinstance(expression, ast.Compare) and len({*map(ast.dump, (expression.left, *expression.comparators))}) == 1
    )


def _result(program: SmallProgram, case: Sequence[Value]) -> Value:
    try:
        return program.run(case)
    except ProgramError:
        return "failed"


class ProgramChecker:
    """Checks programs on every case of their contract."""

    kind = "program"
    label = "wanderlust.programs 1"

    def check(self, statement: Statement, artefact: str) -> ArtefactVerdict:
        """As in Checker; `figures` has the cases."""
        if why := refused_unread(statement, artefact):
            return ArtefactVerdict(valid=False, reason=why, checker=self.label)
        try:
            contract = read_contract(statement.text)
            reason = contract.broken_by(parse_program(artefact)) if contract.cases else "no case meets what is required"
        except ProgramError as error:
            return ArtefactVerdict(valid=False, reason=str(error), checker=self.label)
        return ArtefactVerdict(
            valid=not reason, reason=reason, checker=self.label, figures={"cases": len(contract.cases)}
        )

    def validate(self, statement: Statement) -> list[Finding]:
        """Malformed and unsatisfiable contracts, and such as let wrong programs through.

        With a reference program, a contract must allow its results alone; one that `allows several results` must refuse
        most of its mutants that have others. Without one, a contract is vacuous when two programs that do nothing, with
        different results, keep it.
        """
        if why := refused_unread(statement, ""):
            return [Finding(name="malformed", why=why)]
        try:
            contract = read_contract(statement.text)
            text = statement.given.get(REFERENCE)
            reference = parse_program(text) if text is not None else None
        except ProgramError as error:
            return [Finding(name="malformed", why=str(error))]
        if not contract.cases:
            return [Finding(name="unsatisfiable", why="no case meets what is required")]
        return self._without_reference(contract) if reference is None else self._with(contract, reference)

    def _with(self, contract: Contract, reference: SmallProgram) -> list[Finding]:
        if broken := contract.broken_by(reference):
            return [Finding(name="unsatisfiable", why=f"the reference breaks it: {broken}")]
        if not contract.several and (other := other_result(contract, reference)):
            name = "vacuous" if all(map(_is_trivial, contract.ensures)) else "weak"
            return [Finding(name=name, why=f"{other}: ensure more, or write `{SEVERAL}`")]
        refused, total = mutation_score(contract, reference)
        if not refused and total:
            return [Finding(name="vacuous", why=f"all of {total} wrong programs keep it")]
        if total and refused < MIN_MUTATION_SCORE * total:
            return [Finding(name="weak", why=f"{total - refused} of {total} wrong programs keep it")]
        return []

    def _without_reference(self, contract: Contract) -> list[Finding]:
        passing = [one for one in trivial_programs(contract) if not contract.broken_by(one)]
        results = {str([_result(one, case) for case in contract.cases]) for one in passing}
        if len(results) > 1 and not contract.several:
            return [Finding(name="vacuous", why=f"{len(results)} programs that do nothing keep it")]
        return []
