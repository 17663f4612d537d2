"""Terms of SMT-LIB: their reader, and their values against both solvers."""

import re
from fractions import Fraction
from random import Random

import pytest

from wanderlust_proofs.smt_solvers import ask, installed_solvers
from wanderlust_proofs.smt_terms import Bits, Evaluation, SmtError, read_terms, sort_of, term_text, value_term

SOLVERS = installed_solvers()
needs_solvers = pytest.mark.skipif(len(SOLVERS) < 2, reason="not installed: pip install 'wanderlust[smt]'")


def drawn_value(sort, rng):
    if sort == "Bool":
        return rng.random() < 0.5
    if sort == "Int":
        return rng.randint(-9, 9)
    if sort == "Real":
        return Fraction(rng.randint(-9, 9), rng.randint(1, 4))
    return Bits(int(sort[2]), rng.randrange(1 << int(sort[2])))


FIVE = ("_", "BitVec", "5")
SIGNED = [f"bv{sign}{name}" for sign in "us" for name in ("lt", "le", "gt", "ge")]
ONE = ["bvnot", "bvneg", ("_", "rotate_left", "3"), ("_", "rotate_right", "2")]
TWO = ["and", "or", "xor", "nand", "nor", "xnor", "add", "sub", "mul", "udiv", "urem", "sdiv", "srem", "smod"]
OTHER = [("_", "extract", "3", "1"), ("_", "sign_extend", "2"), ("_", "repeat", "2"), "concat", "bvcomp"]
"""Operations whose result has another width."""


def drawn_term(sort, rng, depth):
    """A term of a sort, from constants."""

    def make(of, count=2):
        return tuple(drawn_term(of, rng, depth - 1) for _ in range(count))

    def drawn_bits():
        kind = rng.choice(["one", "two", "other"])
        if kind == "one":
            return (rng.choice(ONE), *make(sort, 1))
        if kind == "two":
            return (rng.choice([*(f"bv{name}" for name in TWO), "bvshl", "bvlshr", "bvashr"]), *make(sort))
        word = rng.choice(OTHER)
        inner = (word, *make(sort, 1 if isinstance(word, tuple) else 2))
        return (("_", "extract", "4", "0"), (("_", "zero_extend", "5"), inner))

    if depth == 0 or rng.random() < 0.1:
        return value_term(drawn_value(sort, rng))
    if rng.random() < 0.15:
        return ("ite", *make("Bool", 1), *make(sort))
    if sort == FIVE:
        return drawn_bits()
    if sort == "Bool":
        words, of = rng.choice(
            [
                (["=", "distinct", "<", "<=", ">", ">="], "Int"),
                (["=", "distinct", "<", ">="], "Real"),
                (["and", "or", "xor", "=>"], "Bool"),
                (["=", "distinct", *SIGNED], FIVE),
            ]
        )
        return (rng.choice(words), *make(of, 2 if of == FIVE else rng.choice((2, 3))))
    word = rng.choice(["+", "-", "*", *(["div", "mod"] if sort == "Int" else ["/"])])
    return (word, *make(sort)) if rng.random() < 0.8 else ("-", *make(sort, 1))


@needs_solvers
def test_values_are_those_of_both_solvers():
    rng, scripts = Random("terms"), []
    for _ in range(600):
        sort = rng.choice(["Bool", "Int", "Real", FIVE])
        term = drawn_term(sort, rng, 3)
        try:
            value = Evaluation().value(term, {})
        except SmtError:
            assert {"div", "mod", "/"} & {*re.findall(r"[^\s()]+", term_text(term))}  # by zero
            continue
        assert sort_of(value) == sort or (sort, sort_of(value)) == ("Real", "Int")
        scripts.append(f"(set-logic ALL)\n(assert (distinct {term_text(term)} {term_text(value_term(value))}))")
    assert len(scripts) > 400
    for solver in SOLVERS:
        _, answers = ask(solver, scripts)
        assert [(script, said) for script, said in zip(scripts, answers, strict=True) if said != "unsat"] == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(let ((x 1) (y 2)) (let ((x y) (y x)) (- x y)))", 1),
        ("(ite (and false (= 1 (div 1 0))) 1 2)", 2),
        ("(=> false true false)", True),
        ("(=> true (or false false))", False),
        ("(mod (- 7) (- 2))", 1),
        ("(div (- 7) 2)", -4),
        ("(to_int (/ (- 7) 2))", -4),
        ("(bvudiv #b0101 #x0)", Bits(4, 15)),
        ("((_ extract 3 2) #xa)", Bits(2, 2)),
        ("(_ bv5 3)", Bits(3, 5)),
        ("(= 1.0 1)", True),
        ("(! (< 1 2 3) :named here)", True),
        ("(distinct 1 2 1)", False),
    ],
)
def test_terms_have_the_value_of_the_standard(text, value):
    (term,) = read_terms(text)
    assert Evaluation().value(term, {}) == value


@pytest.mark.parametrize(
    "text",
    [
        "(+ 1 true)",
        "(and true 1)",
        "(= 1 true)",
        "(bvadd #b1 #b01)",
        "((_ extract 9 0) #b1)",
        "((_ repeat 99999) #b1)",
        "((_ rotate_left 1 2) #b1)",
        "(div 1 0)",
        "(/ 1.0 0.0)",
        "(div 1 1.5)",
        "(forall ((x Int)) (= x x))",
        "(select a 1)",
        "x",
        "()",
        "((f) 1)",
        "(let ((true false)) true)",
        "(let ((x 1) (x 2)) x)",
        "(let (x) x)",
        "(_ bv1 99999)",
        "(_ bv1 0)",
        f"1{'0' * 5000}",
        f"#b{'1' * 5000}",
    ],
)
def test_terms_without_a_value_are_one_line(text):
    with pytest.raises(SmtError) as refused:
        Evaluation().value(read_terms(text)[0], {})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["(", ")", '"open', "|open", "(" * 500 + ")" * 500])
def test_texts_that_are_no_terms_are_one_line(text):
    with pytest.raises(SmtError):
        read_terms(text)
