"""Programs with contracts: the small Python, the checker, and the validator."""

from __future__ import annotations

import ast

import pytest

from contracts import changed, contracts, is_as_right
from wanderlust_proofs.contract import Statement, names_of
from wanderlust_proofs.programs import REFERENCE, ProgramChecker, mutants, read_contract
from wanderlust_proofs.small_python import (
    MAX_STEPS,
    ProgramError,
    evaluate_expression,
    parse_expression,
    parse_program,
)

CHECKER = ProgramChecker()
CONTRACTS = contracts()


@pytest.mark.parametrize("name", CONTRACTS)
def test_sound_contracts_take_right_programs_and_have_no_finding(name):
    text, program = CONTRACTS[name]
    verdict = CHECKER.check(Statement(kind="program", text=text), program)
    assert (verdict.valid, verdict.reason) == (True, "")
    assert verdict.figures["cases"] > 8
    assert CHECKER.validate(Statement(kind="program", text=text)) == []
    assert CHECKER.validate(Statement(kind="program", text=text, given={REFERENCE: program})) == []


@pytest.mark.parametrize("name", ["larger", "quotient", "first", "backwards"])
def test_mutants_that_break_a_contract_are_refused_with_the_case(name):
    text, program = CONTRACTS[name]
    contract = read_contract(text)
    broken = [reason for one in mutants(parse_program(program)) if (reason := contract.broken_by(one))]
    assert len(broken) > 2
    assert all(reason.startswith(contract.name) and "\n" not in reason for reason in broken)


@pytest.mark.parametrize("name", ["clamp", "root", "middle"])
def test_spoilt_contracts_are_found(name):
    text, program = CONTRACTS[name]
    wrong = [one for one in dict.fromkeys(changed(text)) if not is_as_right(one, read_contract(text), program)]
    found = [CHECKER.validate(Statement(kind="program", text=one, given={REFERENCE: program})) for one in wrong]
    assert len(wrong) > 8
    assert all(found)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", "malformed"),
        ("def f(x)\nwhere x in 0..3\n", "malformed"),
        ("def f(x)\nensures result == x", "malformed"),
        ("def f(x)\nwhere y in 0..3\nensures result == x", "malformed"),
        ("def f(x, x)\nwhere x in 0..3\nensures result == x", "malformed"),
        ("def f(x)\nwhere x in zero..3\nensures result == x", "malformed"),
        ("def f(a, b, c)\nwhere a in 0..99, b in 0..99, c in 0..99\nensures result == a", "malformed"),
        ("def f(xs)\nwhere xs in lists of 0..99 up to 9\nensures result == 0", "malformed"),
        ("def f(x)\nwhere x in 0..3\nensures result ==", "malformed"),
        ("def f(x)\nwhere x in 0..3\nwishes result == x", "malformed"),
        ("def f(x)\nwhere x in 0..3\nrequires x > 5\nensures result == x", "unsatisfiable"),
        ("def f(x)\nwhere x in 3..0\nensures result == x", "unsatisfiable"),
        ("def f(x)\nwhere x in 0..3\nensures result == result", "vacuous"),
        ("def f(x)\nwhere x in 0..3\nensures x < 9", "vacuous"),
    ],
)
def test_contracts_that_cannot_be_meant_are_found(text, name):
    assert names_of(CHECKER.validate(Statement(kind="program", text=text))) == [name]
    if name != "vacuous":
        assert not CHECKER.check(Statement(kind="program", text=text), "def f(x):\n    return x").valid


def test_a_reference_that_breaks_its_contract_and_a_weak_one():
    text = "def f(x)\nwhere x in 0..3\nensures result >= x"
    (found,) = CHECKER.validate(Statement(kind="program", text=text, given={REFERENCE: "def f(x):\n    return x"}))
    assert (found.name, "f(0) may be 1 as well as 0" in found.why) == ("weak", True)
    (found,) = CHECKER.validate(Statement(kind="program", text=text, given={REFERENCE: "def f(x):\n    return x - 1"}))
    assert (found.name, found.why) == ("unsatisfiable", "the reference breaks it: f(0) is -1")


ANY = Statement(kind="program", text="def f(x)\nwhere x in 0..3\nensures result == x")
HOSTILE = {
    "no function": "x = 1",
    "two functions": "def f(x):\n    return x\ndef g(x):\n    return x",
    "another name": "def g(x):\n    return x",
    "other arguments": "def f(x, y):\n    return x",
    "a default": "def f(x=0):\n    return x",
    "a decorator": "@print\ndef f(x):\n    return x",
    "no return": "def f(x):\n    pass",
    "an import": "def f(x):\n    import os\n    return x",
    "an attribute": "def f(x):\n    return x.__class__",
    "a text": "def f(x):\n    return 'x'",
    "a float": "def f(x):\n    return x + 0.0",
    "a lambda": "def f(x):\n    return (lambda: x)()",
    "a name from outside": "def f(x):\n    return eval",
    "a function from outside": "def f(x):\n    return open(x)",
    "an endless loop": "def f(x):\n    while 1 == 1:\n        x = x\n    return x",
    "endless recursion": "def f(x):\n    return f(x)",
    "a long list": "def f(x):\n    return [0] * 9999999999",
    "a doubling list": "def f(x):\n    y = [0]\n    for i in range(99):\n        y = y + y\n    return x",
    "a large number": "def f(x):\n    y = 3\n    for i in range(99):\n        y = y * y\n    return x",
    "a large power": "def f(x):\n    return 9 ** 9 ** 9",
    "a long range": "def f(x):\n    for i in range(10 ** 9):\n        x = x\n    return x",
    "a huge range": "def f(x):\n    return len(range(99999999999999999999999))",
    "a class": "class f:\n    pass",
    "a try": "def f(x):\n    try:\n        return x\n    except Exception:\n        return x",
    "a global": "def f(x):\n    global y\n    return x",
    "a walrus": "def f(x):\n    return (y := x)",
    "a star": "def f(*x):\n    return x",
    "break alone": "def f(x):\n    break",
    "division by zero": "def f(x):\n    return x // 0",
    "an index": "def f(x):\n    return [x][7]",
    "deep brackets": "def f(x):\n    return " + "(" * 500 + "x" + ")" * 500,
    "a deep sum": "def f(x):\n    return " + "+".join(["x"] * 5000),
    "no Python": "def f(x: return x",
    "bytes of zero": "def f(x):\n    return x\0",
    "a long text": "def f(x):\n" + "    x = x\n" * 9000,
    "the arguments changed": "def f(x):\n    x = 9\n    return x",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_programs_are_refused_in_one_line(name):
    verdict = CHECKER.check(ANY, HOSTILE[name])
    assert not verdict.valid
    assert verdict.reason
    assert "\n" not in verdict.reason


def test_arguments_are_copies():
    text = "def f(xs)\nwhere xs in lists of 0..2 up to 2\nensures result == len(xs)\nensures len(xs) < 3"
    program = "def f(xs):\n    n = len(xs)\n    if n > 0:\n        xs[0] = 9\n    return n"
    assert CHECKER.check(Statement(kind="program", text=text), program).valid


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 < 2 < 3", True),
        ("[x for x in range(5) if x % 2 == 1]", [1, 3]),
        ("sum([1 for a in range(2) for b in range(3)])", 6),
        ("[3, 1, 2][1:]", [1, 2]),
        ("sorted([3, 1, 2])[-1]", 3),
        ("-7 // 2", -4),
        ("1 if not 2 > 3 else 0", 1),
        ("0 or 5", 5),
        ("all([]) and any([0, 1])", True),
    ],
)
def test_expressions_have_the_value_that_python_gives_them(text, value):
    assert evaluate_expression(parse_expression(text), {}) == value == eval(text)


def test_steps_are_bounded():
    program = parse_program("def f(n):\n    s = 0\n    for i in range(n):\n        s = s + i\n    return s")
    assert program.run([100]) == 4950
    with pytest.raises(ProgramError, match=f"more than {MAX_STEPS:,} steps"):
        program.run([9000])


def test_odd_spellings_are_read_without_a_warning(recwarn):
    assert parse_program("def f(a):\n    return 1if a else 0") is not None
    assert ast.unparse(parse_expression("1or 2")) == "1 or 2"
    assert [one.category for one in recwarn] == []
