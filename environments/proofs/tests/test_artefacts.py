"""Artefacts: Metamath proofs, models and refutations; their files, the command, and the environment of proofs."""

import asyncio
import json
import shutil
import subprocess
from itertools import product
from pathlib import Path
from random import Random

import pycosat
import pytest

from wanderlust.cli.main import main
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust_proofs.checkers import CHECKERS, verify_artefact
from wanderlust_proofs.contract import ArtefactFile, Statement, names_of
from wanderlust_proofs.metamath import MetamathChecker, normal_proof, verify_proof
from wanderlust_proofs.metamath_database import Database, MetamathError, given_text, theorem_text
from wanderlust_proofs.proofs import Proofs
from wanderlust_proofs.sat import SatChecker

DATABASE = """
$( Implication, one quantifier, and a condition on variables. $)
$c |- wff var ( ) -> A. $.
$v p q r x y $.
wp $f wff p $.  wq $f wff q $.  wr $f wff r $.  vx $f var x $.  vy $f var y $.
wi $a wff ( p -> q ) $.
wal $a wff A. x p $.
ax-1 $a |- ( p -> ( q -> p ) ) $.
ax-2 $a |- ( ( p -> ( q -> r ) ) -> ( ( p -> q ) -> ( p -> r ) ) ) $.
${ mp.1 $e |- p $.  mp.2 $e |- ( p -> q ) $.  mp $a |- q $. $}
${ $d x p $.  ax-5 $a |- ( p -> A. x p ) $. $}
${ a1i.1 $e |- p $.  a1i $p |- ( q -> p ) $= wp wq wp wi a1i.1 wp wq ax-1 mp $. $}
id $p |- ( p -> p ) $= ( wi ax-1 ax-2 mp ) AAABZBZFAACAFABBGFBAFCAFADEE $.
${ $d y q $.  gen.1 $e |- q $.  gen $p |- A. y q $= wq wq vy wal gen.1 wq vy ax-5 mp $. $}
idd $p |- ( q -> ( p -> p ) ) $= ( wi id a1i ) AACBADE $.
"""
CHECKER = MetamathChecker()


def theorem(label, *, using=()):
    """The statement of a theorem of the small database, with what stands before it, or with a part of that."""
    database = Database(DATABASE)
    labels = list(database.assertions)
    given = using or labels[: labels.index(label)]
    one = database.assertions[label]
    text = {"axioms": given_text(database, one, given)}
    return Statement(kind="metamath", name=label, text=theorem_text(one), given=text), " ".join(one.proof)


@pytest.mark.parametrize("label", ["a1i", "id", "gen", "idd"])
def test_sound_proofs_are_accepted_in_both_formats(label):
    statement, proof = theorem(label)
    assert CHECKER.check(statement, proof).valid
    database = Database(DATABASE)
    plain = normal_proof(database.assertions[label], database.assertions)
    verdict = CHECKER.check(statement, " ".join(plain))
    assert (verdict.valid, verdict.figures["steps"]) == (True, len(plain))
    assert CHECKER.validate(statement) == []


WRONG = {
    "a gap": ("id", "?", "gap"),
    "a gap among letters": ("id", "( wi ax-1 ) AA?", "gap"),
    "the theorem itself": ("id", "wp id", "nothing that this proof may use"),
    "a later theorem": ("id", "wp wp idd", "nothing that this proof may use"),
    "too little on the stack": ("id", "wp ax-1", "ax-1 needs 2 expressions, and there are 1"),
    "two results": ("id", "wp wp", "ends with 2 expressions"),
    "nothing": ("id", "", "ends with 0 expressions"),
    "another theorem": ("id", "wp wq ax-1", "'|- ( p -> ( q -> p ) )'"),
    "a wrong type": ("gen", "wq wq wq wal gen.1 wq vy ax-5 mp", "x is a var, not a wff"),
    "an order of its own": ("gen", "wq vy wq wal gen.1 wq vy ax-5 mp", "p is a wff, not a var"),
    "a number too large": ("id", "( ) YYYYYYYYYYYYYYYA", "no meaning"),
    "an unkept result": ("id", "( wi ) AAC", "was not kept"),
    "a list without an end": ("id", "( wi ax-1", "does not end"),
    "a label twice": ("id", "( wi wi ) A", "listed twice"),
    "a keep before all": ("id", "( wi ) ZA", "no meaning"),
    "a definition within": ("id", "$( x $) wp wp wi", "nothing that this proof may use"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_proofs_are_refused_with_a_reason(name):
    label, proof, reason = WRONG[name]
    verdict = CHECKER.check(theorem(label)[0], proof)
    assert not verdict.valid
    assert reason in verdict.reason
    assert "\n" not in verdict.reason


def test_variables_that_must_differ_do():
    """Without its own `$d`, the theorem would say that everything holds of every variable."""
    statement, proof = theorem("gen")
    loose = Statement(**{**as_dict(statement), "text": statement.text.replace("$d q y $.", "")})
    assert "different variables" in CHECKER.check(loose, proof).reason
    assert CHECKER.check(statement, proof).valid


def as_dict(statement):
    return {name: getattr(statement, name) for name in ("kind", "name", "text", "given", "informal")}


def test_axioms_are_not_smuggled_in():
    statement, proof = theorem("id", using=["wi", "ax-1", "mp"])
    assert not CHECKER.check(statement, proof).valid  # ax-2 is not given
    for text in (
        "${ false $a |- p $. $}\n" + statement.text,
        statement.text.replace("$p", "$a").replace("$= ? $.", "$."),
        statement.text + "\n" + statement.text.replace("id ", "id2 "),
        "${\n" + statement.text,
        "$[ other.mm $]",
        "$c |- $.",
    ):
        changed = Statement(kind="metamath", text=text, given=statement.given)
        assert not CHECKER.check(changed, proof).valid
        assert names_of(CHECKER.validate(changed)) == ["malformed"]
    proved = Statement(kind="metamath", text=statement.text, given={"axioms": DATABASE.split("idd", maxsplit=1)[0]})
    assert "as $a" in CHECKER.check(proved, "wp id").reason


def test_vacuous_statements_are_found():
    statement, _ = theorem("id")
    for other in ("( p -> p )", "( q -> q )"):
        given = {"axioms": f"{statement.given['axioms']}other $a |- {other} $.\n"}
        found = CHECKER.validate(Statement(kind="metamath", text=statement.text, given=given))
        assert names_of(found) == ["vacuous"]
    assumed = statement.text.replace("id $p", "h $e |- ( p -> p ) $. id $p")
    found = CHECKER.validate(Statement(kind="metamath", text=assumed, given=statement.given))
    assert names_of(found) == ["vacuous"]


def letters(number):
    """A number of a compressed proof."""
    out, number = chr(65 + number % 20), number // 20
    while number:
        number -= 1
        out, number = chr(85 + number % 5) + out, number // 5
    return out


def test_a_proof_that_grows_without_bound_is_ended():
    statement, _ = theorem("id")
    doubling = "wp " + " ".join("wp wi" for _ in range(30_000))
    assert "too l" in CHECKER.check(statement, doubling).reason
    kept = [*map(letters, (0, 1, 3)), "Z"]  # p, q, and their implication as the first result that is kept
    for number in range(60):  # each doubles the last one
        kept += [*map(letters, (4 + number, 4 + number, 3)), "Z"]
    assert "too l" in CHECKER.check(theorem("a1i")[0], f"( wi ) {''.join(kept)}").reason
    long = Statement(kind="metamath", text="x" * (5 << 20))
    assert "more than 4 MB" in CHECKER.check(long, "").reason


def test_spoilt_proofs_are_refused():
    rng, database = Random(0), Database(DATABASE)
    tried = 0
    for label in ("a1i", "id", "gen", "idd"):
        one, statement = database.assertions[label], theorem(label)[0]
        plain = normal_proof(one, database.assertions)
        names = [*database.assertions, *database.floats]
        for _ in range(100):
            spoilt, at = list(plain), rng.randrange(len(plain))
            kind = rng.randrange(3)
            if kind == 0:
                del spoilt[at]
            elif kind == 1:
                spoilt[at] = rng.choice(names)
            else:
                other = rng.randrange(len(plain))
                spoilt[at], spoilt[other] = spoilt[other], spoilt[at]
            if spoilt != plain:
                tried += 1
                assert not CHECKER.check(statement, " ".join(spoilt)).valid, (label, spoilt)
    assert tried > 300


@pytest.mark.parametrize(
    "text",
    [
        "$c a",
        "a $a b $.",
        "$v x $. $v x $.",
        "$c a $. ${ $c b $. $}",
        "$}",
        "$( open",
        "$c a $. l $a a $. l $a a $.",
        "ä",
    ],
)
def test_malformed_databases_are_one_line(text):
    with pytest.raises(MetamathError) as refused:
        Database(text)
    assert "\n" not in str(refused.value)


# --- formulas

SAT = SatChecker()


def formula(clauses, variables):
    lines = [f"p cnf {variables} {len(clauses)}", *(" ".join(map(str, [*clause, 0])) for clause in clauses)]
    return Statement(kind="sat", text="\n".join(lines) + "\n")


def model(literals):
    return f"s SATISFIABLE\nv {' '.join(map(str, literals))} 0\n"


def refutation(*clauses):
    return "s UNSATISFIABLE\n" + "".join(" ".join(map(str, [*clause, 0])) + "\n" for clause in clauses)


def test_models_are_checked_against_a_solver():
    rng = Random(1)
    for _ in range(60):
        clauses = [[v * rng.choice((1, -1)) for v in rng.sample(range(1, 9), 3)] for _ in range(30)]
        statement, found = formula(clauses, 8), pycosat.solve(clauses)
        for bits in product((1, -1), repeat=8):
            literals = [bit * variable for variable, bit in enumerate(bits, 1)]
            holds = all(any(one in literals for one in clause) for clause in clauses)
            assert SAT.check(statement, model(literals)).valid == holds
        if found == "UNSAT":
            assert SAT.check(statement, refutation(*all_prefixes(8), ())).valid
        else:
            assert SAT.check(statement, model(found)).valid
            assert not SAT.check(statement, refutation(*all_prefixes(8), ())).valid


def all_prefixes(count):
    """The longest clauses over all variables first: each follows when its two extensions do."""
    for length in range(count, 0, -1):
        for bits in product((1, -1), repeat=length):
            yield [bit * variable for variable, bit in enumerate(bits, 1)]


PIGEONS = [[1, 2], [3, 4], [5, 6], [-1, -3], [-1, -5], [-3, -5], [-2, -4], [-2, -6], [-4, -6]]
"""Three pigeons in two holes."""


def test_refutations():
    statement = formula(PIGEONS, 6)
    assert SAT.check(statement, refutation([1], [])).valid
    assert not SAT.check(statement, refutation([])).valid  # no unit to begin with
    assert "does not reach" in SAT.check(statement, refutation([1])).reason
    assert "line 2" in SAT.check(formula([[1, 2], [-1, 2]], 2), refutation([2], [-2], [])).reason
    deleting = "s UNSATISFIABLE\nd 1 2 0\n1 0\n0\n"
    assert not SAT.check(statement, deleting).valid
    assert "to be deleted" in SAT.check(statement, "s UNSATISFIABLE\nd 1 3 0\n").reason


def test_a_clause_may_be_rat():
    """A definition of a fresh variable does not follow, and changes nothing that can be met."""
    clauses = [[1, 2], [1, -2], [-1, 2], [-1, -2]]
    statement = formula(clauses, 3)
    assert SAT.check(statement, refutation([3, -1], [-3, 1], [1], [])).valid
    assert not SAT.check(formula([[1, 2]], 3), refutation([3, -1], [])).valid


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "begins neither"),
        ("s SATISFIABLE\nx 1 0\n", "does not begin with `v `"),
        ("s SATISFIABLE\nv 1 -1 2 0\n", "has 1 and -1"),
        ("s SATISFIABLE\nv 7 0\n", "no literal"),
        ("s SATISFIABLE\nv 1e3 0\n", "no literal"),
        ("s UNSATISFIABLE\n1 2\n", "does not end with 0"),
        ("s UNSATISFIABLE\n1 0 2 0\n", "is no clause"),
    ],
)
def test_wrong_answers_have_a_reason(text, reason):
    verdict = SAT.check(formula(PIGEONS, 6), text)
    assert not verdict.valid
    assert reason in verdict.reason


def test_formulas_that_say_nothing_are_found():
    for text, name in (
        ("p cnf 2 0\n", "vacuous"),
        ("p cnf 2 1\n1 -1 0\n", "vacuous"),
        ("p cnf 2 1\n0\n", "vacuous"),
        ("p cnf 2 2\n1 0\n", "malformed"),
        ("p cnf 999999999 1\n1 0\n", "malformed"),
        ("1 2 0\n", "malformed"),
    ):
        assert names_of(SAT.validate(Statement(kind="sat", text=text))) == [name]
    assert SAT.validate(formula(PIGEONS, 6)) == []


# --- files and the command


def stored(folder, statement, artefact, name="one.json"):
    ArtefactFile(statement=statement, artefact=artefact, checker="x").write(folder / name)
    return folder / name


def test_an_artefact_is_checked_again_from_its_file_alone(tmp_path, capsys):
    good = stored(tmp_path, *theorem("id"))
    bad = stored(tmp_path, theorem("id")[0], "wp", "bad.json")
    assert verify_artefact(good).verdict.valid
    with pytest.raises(SystemExit) as left:
        main(["verify", str(good), str(bad), "--json"])
    rows = json.loads(capsys.readouterr().out)["artefacts"]
    assert (left.value.code, [row["valid"] for row in rows]) == (1, [True, False])
    with pytest.raises(SystemExit) as left:
        main(["verify", str(good)])
    assert (left.value.code, "metamath" in capsys.readouterr().out) == (0, True)
    with pytest.raises(SystemExit) as left:
        main(["verify"])
    assert (left.value.code, capsys.readouterr().err) == (
        2,
        "wander: wander verify needs ARTEFACT (see wander verify --help)\n",
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": "wanderlust-artefact-1"}',
        '{"format": "wanderlust-artefact-1", "statement": {"kind": "sat"}, "artefact": "", "checker": ""}',
        '{"format": "wanderlust-artefact-1", "statement": {"kind": "sat", "text": 3}, "artefact": "", "checker": ""}',
        '{"format": "wanderlust-artefact-1", "statement": {"kind": "x", "text": ""}, "artefact": "", "checker": ""}',
        '{"format": "wanderlust-artefact-1", "statement": {"kind": "sat", "text": "", "given": {"a": 1}}, '
        '"artefact": "", "checker": ""}',
    ],
)
def test_files_that_are_no_artefacts_are_one_line(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UsageError) as refused:
        verify_artefact(tmp_path / "x.json")
    assert "\n" not in str(refused.value)
    with pytest.raises(UsageError, match="cannot read"):
        verify_artefact(tmp_path / "none.json")


@pytest.mark.parametrize("kind", CHECKERS)
def test_statements_of_ten_megabytes_are_refused_unread(kind, tmp_path, capsys):
    path = stored(tmp_path, Statement(kind=kind, text="( " * (5 << 20)), "x")
    with pytest.raises(SystemExit) as left:
        main(["verify", str(path), "--json"])
    (row,) = json.loads(capsys.readouterr().out)["artefacts"]
    assert (left.value.code, row["valid"], [*row["findings"]]) == (1, False, ["malformed"])
    assert row["reason"] == row["findings"]["malformed"] == "the statement has more than 4 MB"


# --- the environment


@pytest.fixture
def proofs(tmp_path):
    (tmp_path / "small.mm").write_text(DATABASE)
    return Proofs(str(tmp_path / "small.mm"), longest=50, lemmas=1)


def test_theorems_are_played_and_their_proofs_stored(proofs, tmp_path):
    tasks = [*proofs.tasks(), *proofs.tasks("eval")]
    assert sorted(task.id for task in tasks) == ["a1i", "gen", "id", "idd"]
    for task in tasks:
        played = asyncio.run(rollout(proofs, task, proofs.oracle(task)))
        assert played.trajectory.score.reward == 1.0
        path = tmp_path / "made.json"
        path.write_text(json.dumps({"format": "wanderlust-artefact-1", **played.state["artefact"]}))
        assert verify_artefact(path).verdict.valid
        wrong = asyncio.run(rollout(proofs, task, Scripted(["```\nwp ?\n```"])))
        assert (wrong.trajectory.score.reward, wrong.state["artefact"]) == (0.0, None)
        assert (wrong.state["findings"], wrong.trajectory.score.metrics["accepted/undecided"]) == ({}, 0.0)


def test_what_is_no_database_is_one_line(tmp_path):
    (tmp_path / "bad.mm").write_text("$c")
    for path, reason in ((tmp_path / "none.mm", "install metamath-databases"), (tmp_path / "bad.mm", "the text ends")):
        with pytest.raises(UsageError, match=reason):
            Proofs(str(path))


def test_the_checker_agrees_with_metamath_itself(tmp_path):
    if not shutil.which("metamath"):
        pytest.skip("metamath is not installed: make peers")
    (tmp_path / "small.mm").write_text(DATABASE)
    words = "set scroll continuous\nread small.mm\nverify proof *\nexit\n"
    said = subprocess.run(["metamath"], input=words, capture_output=True, text=True, cwd=tmp_path, check=False).stdout
    assert "All proofs in the database were verified" in said
    database = Database.of_file(Path(tmp_path / "small.mm"))
    assert all(verify_proof(one, one.proof, database.assertions) for one in database.assertions.values() if one.proof)
