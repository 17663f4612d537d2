"""SMT problems: models and cores, the validator, the solvers, and the environment."""

import asyncio
import json
import sys
from dataclasses import replace

import pytest

from wanderlust.cli.main import main
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust_proofs import smt_solvers
from wanderlust_proofs.checkers import verify_artefact
from wanderlust_proofs.contract import ArtefactFile, Statement, names_of
from wanderlust_proofs.smt import REFERENCE, SmtChecker
from wanderlust_proofs.smt_problems import FAMILIES, SmtProblems, is_held_out_problem
from wanderlust_proofs.smt_solvers import MISSING, ask, decide, installed_solvers

CHECKER = SmtChecker()
needs_solvers = pytest.mark.skipif(len(installed_solvers()) < 2, reason="not installed: pip install 'wanderlust[smt]'")

PUZZLE = """
(set-logic QF_LIA)
(declare-const x Int)
(declare-const y Int)
(assert (! (= (+ (* 3 x) y) 11) :named sum))
(assert (! (= (- x y) 1) :named gap))
"""
LOOP = """
(set-option :produce-unsat-cores true)
(set-info :core-at-most 3)
(declare-fun a () Int) (declare-fun b () Int) (declare-fun c () Int)
(assert (! (< a b) :named ab))
(assert (! (< b c) :named bc))
(assert (! (< c a) :named ca))
(assert (! (> a 0) :named low))
(assert (! (< c 9) :named high))
(check-sat)
"""


def lines_run(call, *arguments):
    """What a call returns, and the lines of Python that it runs, which no machine's speed changes."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        result = call(*arguments)
    finally:
        sys.settrace(before)
    return result, count


def problem(text, reference=None):
    return Statement(kind="smt", text=text, given={} if reference is None else {REFERENCE: reference})


def model(**values):
    return "sat\n" + "".join(f"(define-fun {name} () Int {value})\n" for name, value in values.items())


# --- models


def test_a_model_is_evaluated_without_a_solver(monkeypatch):
    monkeypatch.setattr(smt_solvers, "SOLVERS", ())
    verdict = CHECKER.check(problem(PUZZLE), model(x=3, y=2))
    assert (verdict.valid, verdict.checker, verdict.figures) == (True, "wanderlust.smt 1", {"assertions": 2})
    printed = "sat\n(\n  (define-fun y () Int\n    2)\n  (define-fun x () Int\n    3)\n)"
    assert CHECKER.check(problem(PUZZLE), printed).valid


@pytest.mark.parametrize(
    ("artefact", "reason"),
    [
        (model(x=3, y=3), "sum is false"),
        (model(x=4, y="(- 1)"), "gap is false"),
        (model(x=3), "y has no value"),
        (model(x=3, y=2, z=1), "z is not declared"),
        (model(x=3, y=2) + "(define-fun x () Int 3)", "defined twice"),
        ("sat (define-fun x () Real 3.0) (define-fun y () Int 2)", "x is not declared with these sorts"),
        (model(x=3, y="2.0"), "which is no Int"),
        (model(x=3, y="(div 2 0)"), "divides by zero"),
        (model(x=3, y="y"), "takes more than"),
        (model(x=3, y="(choose 2)"), "nothing that is evaluated here"),
        ("sat (define-fun x () Int 3) (assert true)", "is no (define-fun"),
        ("sat (define-fun x () Int 3) (define-fun + ((a Int) (b Int)) Int 11)", "+ is not declared"),
        ("sat", "x has no value"),
        ("", "begins neither"),
        ("unknown", "begins neither"),
        ("sat (", "not closed"),
        ("unsat (sum gap other)", "names no assertion"),
        ("unsat (sum sum)", "stands twice"),
        ("unsat ((sum))", "names no assertion"),
    ],
)
def test_wrong_answers_have_a_reason(artefact, reason):
    verdict = CHECKER.check(problem(PUZZLE), artefact)
    assert not verdict.valid
    assert reason in verdict.reason
    assert "\n" not in verdict.reason


def test_functions_and_definitions_are_evaluated():
    text = """
    (declare-fun f (Int Bool) Int)
    (declare-const |a b| (_ BitVec 4))
    (define-fun twice ((n Int)) Int (+ n n))
    (assert (= (f 1 true) (twice (f 2 false))))
    (assert (> (f 2 false) 0))
    (assert (= (bvmul |a b| #x3) #x9))
    """
    good = "sat (define-fun f ((n Int) (b Bool)) Int (ite b 8 4)) (define-fun |a b| () (_ BitVec 4) #x3)"
    assert CHECKER.check(problem(text), good).valid
    assert not CHECKER.check(problem(text), good.replace("8 4", "4 8")).valid
    assert not CHECKER.check(problem(text), good.replace("#x3", "#x2")).valid
    assert "which is no" in CHECKER.check(problem(text), good.replace("#x3", "#b1")).reason


def test_what_is_not_covered_is_refused():
    text = "(declare-const a (Array Int Int)) (assert (= (select a 1) 2))"
    verdict = CHECKER.check(problem(text), "sat (define-fun a () (Array Int Int) ((as const (Array Int Int)) 2))")
    assert "not covered" in verdict.reason
    text = "(declare-const a Int) (assert (forall ((x Int)) (= (* a x) 0)))"
    assert "nothing that is evaluated here" in CHECKER.check(problem(text), "sat (define-fun a () Int 0)").reason


def test_large_work_is_ended():
    doubled = "".join(f"(define-fun f{at} () Int (+ f{at - 1} f{at - 1}))" for at in range(1, 60))
    text = f"(declare-const f0 Int) {doubled} (assert (= f59 0))"
    assert "takes more than" in CHECKER.check(problem(text), "sat (define-fun f0 () Int 0)").reason
    squared = "".join(f"(define-fun f{at} () Int (* f{at - 1} f{at - 1}))" for at in range(1, 16))
    text = f"(declare-const f0 Int) {squared} (assert (= f15 0))"
    assert "more than 4096 bits" in CHECKER.check(problem(text), "sat (define-fun f0 () Int 7)").reason
    for long, artefact in ((f"; {'x' * (10 << 20)}", "sat"), (PUZZLE, "sat" + " " * (17 << 20))):
        verdict, lines = lines_run(CHECKER.check, problem(long), artefact)
        assert "MB" in verdict.reason
        assert lines < 1_000
    assert names_of(CHECKER.validate(problem("x" * (10 << 20)))) == ["malformed"]


# --- cores


@needs_solvers
def test_a_core_is_solved_again_by_both_solvers():
    verdict = CHECKER.check(problem(LOOP), "unsat (ab bc ca)")
    assert (verdict.valid, verdict.undecided, verdict.figures) == (True, False, {"assertions": 3})
    assert [name in verdict.checker for name in ("wanderlust.smt 1", "z3 ", "cvc5 ")] == [True] * 3
    assert CHECKER.check(problem(LOOP), "unsat\nca ab bc").valid
    assert CHECKER.check(problem(LOOP), "unsat (ab bc low)").reason == "these assertions can hold together"
    assert "at most 3" in CHECKER.check(problem(LOOP), "unsat (ab bc ca low)").reason
    unnamed = LOOP.replace("(assert (! (< c a) :named ca))", "(assert (< c a))")
    assert CHECKER.check(problem(unnamed), "unsat (ab bc)").valid
    assert not CHECKER.check(problem(unnamed), "unsat (ab)").valid
    assert "ca" in CHECKER.check(problem(unnamed), "unsat (ab bc ca)").reason


@needs_solvers
def test_a_core_may_have_what_no_model_can():
    text = """(declare-const a (Array Int Int)) (declare-sort U 0) (declare-fun g (U) U)
    (assert (! (forall ((i Int)) (> (select a i) i)) :named all))
    (assert (! (exists ((i Int)) (= (select a i) i)) :named one))
    (assert (! (exists ((u U)) (distinct (g u) u)) :named moves))"""
    assert CHECKER.check(problem(text), "unsat (all one)").valid
    assert not CHECKER.check(problem(text), "unsat (all moves)").valid


@pytest.mark.parametrize(
    "text",
    [
        "(push 1) (assert true)",
        '(include "/etc/passwd")',
        "(assert true) (reset)",
        "(define-fun-rec f ((n Int)) Int (f n)) (assert true)",
        "(define-fun and ((a Bool) (b Bool)) Bool true) (assert true)",
        "(declare-const x Int) (declare-const x Int) (assert true)",
        "(set-info :core-at-most many) (assert true)",
        "(set-info :requires (nothing)) (assert true)",
        "(set-info :requires nothing) (assert true)",
        "(set-logic QF_LIA) (set-logic QF_LRA) (assert true)",
        "check-sat",
        "()",
        "",
        "(check-sat)",
    ],
)
def test_malformed_problems_are_found_without_a_solver(text):
    (finding,) = CHECKER.validate(problem(text))
    assert (finding.name, "\n" in finding.why) == ("malformed", False)
    assert not CHECKER.check(problem(text), "unsat ()").valid


# --- the solvers


HARD = """(declare-const x Int) (declare-const y Int) (declare-const z Int)
(assert (! (and (> x 0) (> y 0) (> z 0)) :named positive))
(assert (! (= (+ (* x x x) (* y y y)) (* z z z)) :named cubes))"""


STUB = """
import os, sys, time
asked = []

def answer(script):
    asked.append(script)
    if len(asked) < 3:
        return ("1.0", "unsat")[len(asked) - 1]
    {then}
"""
"""A solver that answers one script."""


@needs_solvers
def test_a_solver_that_hangs_has_not_answered(monkeypatch, tmp_path):
    process = tmp_path / "process.py"
    process.write_text(STUB.format(then="time.sleep(6000)"))
    monkeypatch.setattr(smt_solvers, "_PROCESS", process)
    monkeypatch.setattr(smt_solvers, "SECONDS", 1.0)
    monkeypatch.setattr(smt_solvers, "PER_SCRIPT", 0)
    first, second = decide(["(assert false)", "(assert true)"])
    assert first.answer == "unsat"  # what came before it is kept
    assert (second.answer, "z3 took more than 1 s" in second.why) == ("unknown", True)


@needs_solvers
def test_a_solver_that_crashes_has_not_answered(monkeypatch, tmp_path):
    process = tmp_path / "process.py"
    process.write_text(STUB.format(then="os.abort()"))
    monkeypatch.setattr(smt_solvers, "_PROCESS", process)
    assert ask("z3", ["(assert false)"] * 2) == ("1.0", ["unsat", "unknown z3 ended with status -6"])
    process.write_text("raise SystemExit(3)")
    verdict = CHECKER.check(problem(LOOP), "unsat (ab bc ca)")
    assert (verdict.valid, verdict.undecided) == (False, True)
    assert verdict.reason == "nobody knows: z3 ended with status 3; cvc5 ended with status 3"
    process.write_text("import sys\ndef answer(script): return 'sat' if sys.argv[1] == 'z3' else 'unsat'")
    assert "contradict each other" in CHECKER.check(problem(LOOP), "unsat (ab bc ca)").reason


@needs_solvers
def test_a_solver_has_bounded_work():
    """The bound is the solvers' own count, so that a slower machine comes to the same verdict."""
    verdict = CHECKER.check(problem(HARD), "unsat (positive cubes)")
    assert (verdict.valid, verdict.undecided) == (False, True)
    assert verdict.reason.startswith("nobody knows: z3 ")


def test_without_a_solver_nobody_knows(monkeypatch):
    monkeypatch.setattr(smt_solvers, "SOLVERS", ())
    verdict = CHECKER.check(problem(LOOP), "unsat (ab bc ca)")
    assert (verdict.valid, verdict.undecided, verdict.reason) == (False, True, f"nobody knows: {MISSING}")
    assert names_of(CHECKER.validate(problem(LOOP))) == ["undecided"]
    assert CHECKER.validate(problem(PUZZLE, model(x=3, y=3)))[0].name == "unsatisfiable"


# --- the validator


REQUIRES = """(set-info :requires (positive small))
(declare-const n Int)
(assert (! (> n 0) :named positive))
(assert (! (< n 10) :named small))
(assert (! (not (and (>= n 1) (<= n 9))) :named goal))
"""
"""What is asserted last is the negation of what follows from the rest."""


@needs_solvers
@pytest.mark.parametrize(
    ("text", "reference"),
    [
        (PUZZLE, model(x=3, y=2)),
        (PUZZLE, None),
        (LOOP, "unsat (ab bc ca)"),
        (LOOP, None),
        (REQUIRES, "unsat (positive small goal)"),
        ("(set-info :models several) (declare-const x Int) (assert (= (mod x 100) 3))", model(x=3)),
    ],
)
def test_sound_problems_have_no_finding(text, reference):
    assert CHECKER.validate(problem(text, reference)) == []


@needs_solvers
@pytest.mark.parametrize(
    ("text", "reference", "name", "why"),
    [
        (PUZZLE, model(x=3, y=3), "unsatisfiable", "sum is false"),
        (PUZZLE.replace("(- x y) 1", "(- x y) (- x y)"), model(x=3, y=2), "weak", "another model"),
        (PUZZLE.replace("= (", ">= ("), model(x=3, y=2), "weak", "another model"),
        ("(declare-const x Int) (assert (or (= x 3) (= x x)))", model(x=3), "vacuous", "changed"),
        ("(declare-const x Int) (assert (>= (* x x) 0))", None, "vacuous", "one value"),
        ("(declare-fun f (Int) Int) (assert (= (f 1) (f 1)))", None, "vacuous", "one value"),
        ("(declare-sort U 0) (declare-const u U) (assert (= u u))", None, "vacuous", "whatever"),
        (LOOP.replace("(< c a)", "(< c c)"), None, "vacuous", "ca cannot hold"),
        (LOOP.replace("(< c a)", "(< a c)"), "unsat (ab bc ca)", "unsatisfiable", "can hold together"),
        (LOOP.replace("(< c a)", "(< a c)").replace("(check", "(set-info :status unsat) (check"), None,
         "unsatisfiable", "said to have none"),
        (PUZZLE + "(set-info :status sat) (assert (> x 3))", None, "unsatisfiable", "said to have one"),
        (REQUIRES.replace("(< n 10)", "(< n 1)"), None, "unsatisfiable", "contradicts itself"),
        (REQUIRES.replace("(not (and (>= n 1) (<= n 9)))", "(< n n)"), None, "vacuous", "without what it requires"),
        ("(declare-const x Int) (assert (= x y))", None, "malformed", "y"),
        ("(declare-const x Int) (assert (+ x 1))", None, "malformed", ""),
        (PUZZLE, "sat (", "malformed", "not closed"),
        ("(set-info :models several) (declare-const x Int) (assert (> x 3))", model(x=30), "vacuous", "changed models"),
        ("(set-info :models several) (declare-const x Int) (assert (> x 29))", model(x=30), "weak", "changed models"),
    ],
)  # fmt: skip
def test_problems_that_say_too_little_or_the_wrong_thing_are_found(text, reference, name, why):
    (finding,) = CHECKER.validate(problem(text, reference))
    assert finding.name == name
    assert why in finding.why
    assert "\n" not in finding.why


# --- files, the command, and the environment


@needs_solvers
def test_a_core_is_checked_again_from_its_file_alone(tmp_path, capsys, monkeypatch):
    good, hard = tmp_path / "good.json", tmp_path / "hard.json"
    ArtefactFile(statement=problem(LOOP), artefact="unsat (ab bc ca)", checker="x").write(good)
    ArtefactFile(statement=problem(HARD), artefact="unsat (positive cubes)", checker="x").write(hard)
    with pytest.raises(SystemExit) as left:
        main(["verify", str(good), "--json"])
    (row,) = json.loads(capsys.readouterr().out)["artefacts"]
    assert (left.value.code, row["valid"], row["undecided"], "cvc5" in row["checker"]) == (0, True, False, True)
    monkeypatch.setattr(smt_solvers, "CPU_SECONDS", 0)
    monkeypatch.setattr(smt_solvers, "PER_SCRIPT", 1)
    with pytest.raises(SystemExit) as left:
        main(["verify", str(hard)])
    assert left.value.code == 1
    assert "undecided" in capsys.readouterr().out


@needs_solvers
@pytest.mark.parametrize("family", FAMILIES)
def test_problems_are_played_and_their_artefacts_stored(family, tmp_path):
    env = SmtProblems(family, level=2, size=4)
    tasks = [*env.tasks(), *env.tasks("eval")]
    assert len({task.prompt for task in tasks}) == 8
    assert [is_held_out_problem(task.info["statement"]["text"]) for task in tasks] == [False] * 4 + [True] * 4
    assert [task.prompt for task in SmtProblems(family, level=2, size=4).tasks()] == [task.prompt for task in tasks[:4]]
    assert SmtProblems(family, level=2, size=4, seed=1).tasks()[0].prompt != tasks[0].prompt
    for task in tasks[:2]:
        played = asyncio.run(rollout(env, task, env.oracle(task)))
        assert (played.trajectory.score.reward, played.state["findings"]) == (1.0, {})
        path = tmp_path / "made.json"
        path.write_text(json.dumps({"format": "wanderlust-artefact-1", **played.state["artefact"]}))
        again = verify_artefact(path)
        assert (again.verdict.valid, again.verdict.checker, again.findings) == (
            True,
            played.state["verdict"]["checker"],
            [],
        )
        wrong = asyncio.run(rollout(env, task, Scripted(["I think\n```\nunsat (a1)\n```"])))
        assert (wrong.trajectory.score.reward, wrong.state["artefact"]) == (0.0, None)
        assert wrong.state["feedback"] == wrong.state["verdict"]["reason"] != ""


@needs_solvers
def test_a_spoilt_statement_and_a_lost_solver_are_counted(monkeypatch):
    env = SmtProblems("core", level=1, size=1)
    (task,) = env.tasks()
    spoilt = {**task.info["statement"], "text": task.info["statement"]["text"] + "(assert false)\n"}
    played = asyncio.run(rollout(env, replace(task, info={**task.info, "statement": spoilt}), Scripted(["unsat ()"])))
    assert played.state["verdict"]["valid"]
    assert (played.trajectory.score.reward, [*played.state["findings"]]) == (0.0, ["vacuous"])
    monkeypatch.setattr(smt_solvers, "SOLVERS", ())
    score = asyncio.run(rollout(env, task, env.oracle(task))).trajectory.score
    assert (score.reward, score.metrics["accepted/undecided"]) == (0.0, 1.0)


def test_wrong_settings_are_one_line(monkeypatch):
    for settings, reason in (
        ({"family": "sets"}, "no family 'sets'"),
        ({"level": 9}, "level is 1 to 8"),
        ({"size": 0}, "size at least 1"),
    ):
        with pytest.raises(UsageError, match=reason):
            SmtProblems(**settings)
    monkeypatch.setattr(smt_solvers, "SOLVERS", ())
    with pytest.raises(UsageError, match="no SMT solver is installed"):
        SmtProblems()
