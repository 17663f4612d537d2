"""Short proofs: statements, held-out statements, hostile answers; and what truth tables find in statements."""

import asyncio
import json
from dataclasses import replace
from random import Random

import pytest

from wanderlust import evaluate_sync
from wanderlust.cli.main import main
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.store.reader import RunReader
from wanderlust_proofs.brief_proofs import (
    BriefProofs,
    Derivation,
    careless_proof,
    draw_derivation,
    is_held_out_derivation,
    noted_proof,
    read_derivation,
    shortest_proof,
)
from wanderlust_proofs.checkers import verify_artefact
from wanderlust_proofs.contract import ArtefactFile, Statement, names_of
from wanderlust_proofs.metamath import MetamathChecker

CHECKER = MetamathChecker()
ONE = Derivation(implications=("ab", "bc", "dc"), fact="a", goal="c")
PROOF = "CBbcBAab1MM"


def played(answer, one=ONE):
    """A rollout of a statement with this answer."""
    env = BriefProofs(size=1, eval_size=1)
    task = replace(env.tasks()[0], prompt=(), info={"statement": statement_fields(one)})
    return asyncio.run(rollout(env, task, Scripted([answer])))


def statement_fields(one):
    made = one.statement("one")
    return {"kind": made.kind, "name": made.name, "text": made.text, "given": dict(made.given), "informal": ""}


def follows(one):
    """Whether the goal can be reached, found without a checker."""
    known = {one.fact}
    for _ in one.implications:
        known |= {second for first, second in one.implications if first in known}
    return one.goal in known


def test_each_statement_is_sound_and_its_proof_is_accepted():
    env = BriefProofs(size=40, eval_size=40)
    for task in (*env.tasks(), *env.tasks("eval")):
        statement = Statement(**task.info["statement"])
        assert CHECKER.check(statement, env.read_artefact(task.answer)).valid
        assert CHECKER.validate(statement) == []


def test_no_statement_of_the_evaluation_is_one_of_training():
    env = BriefProofs(size=60, eval_size=60)
    for split in ("train", "eval"):
        shown = [read_derivation(task.prompt[0].content) for task in env.tasks(split)]
        assert {is_held_out_derivation(one) for one in shown} == {split == "eval"}
    again = replace(ONE, implications=ONE.implications[::-1])
    assert is_held_out_derivation(again) == is_held_out_derivation(ONE)


def test_a_statement_is_read_from_its_text():
    for number in range(20):
        one = draw_derivation(Random(number), held_out=False)
        assert read_derivation(one.text()) == one
        assert follows(one)


def test_a_proof_earns_its_reward_and_is_checked_again_from_its_file(tmp_path):
    assert shortest_proof(ONE) == PROOF
    result = played(PROOF)
    assert result.trajectory.score.reward == 1.0
    stored = result.state["artefact"]
    file = ArtefactFile(
        statement=Statement(**stored["statement"]), artefact=stored["artefact"], checker=stored["checker"]
    )
    file.write(tmp_path / "proof.json")
    assert verify_artefact(tmp_path / "proof.json").verdict.valid


def test_the_artefacts_of_a_whole_run_are_checked_again(tmp_path, capsys):
    env = BriefProofs(size=1, eval_size=6)
    evaluate_sync(env, env.players["teacher"](), samples=4, out=tmp_path / "run", progress=False)
    with pytest.raises(SystemExit) as left:
        main(["verify", str(tmp_path / "run"), "--json"])
    rows = json.loads(capsys.readouterr().out)["artefacts"]
    with RunReader(tmp_path / "run" / "rollouts.db") as reader:
        paid = [row.id for row in reader.rollouts({"reward": 1.0})]
    assert [row["file"] for row in rows] == [f"{tmp_path / 'run'}#{number}" for number in paid]
    assert (left.value.code, len(rows) > 0, all(row["valid"] for row in rows)) == (0, True, True)
    with pytest.raises(SystemExit) as left:
        main(["verify", str(tmp_path / "run")])
    assert (left.value.code, capsys.readouterr().out) == (0, f"{len(rows)} of {len(rows)} artefacts are valid\n")
    evaluate_sync(env, Scripted(["1"]), out=tmp_path / "none", progress=False)
    with pytest.raises(SystemExit) as left:
        main(["verify", str(tmp_path / "none")])
    assert (left.value.code, "no rollout of this run has an artefact" in capsys.readouterr().err) == (2, True)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "ends with 0 expressions"),
        ("1", "ends with 1 expressions, the last of them '|- a'"),
        ("CDdc1M", "M wants '|- d', and gets '|- a'"),
        ("T", "nothing that this proof may use"),
        ("?", "gap"),
        ("CAac1M", "nothing that this proof may use"),
        ("x $e |- c $. x", "nothing that this proof may use"),
        ("M" * 50, "M needs 4 expressions"),
    ],
)
def test_wrong_proofs_earn_nothing_and_have_a_reason(answer, reason):
    result = played(answer)
    assert result.trajectory.score.reward == 0.0
    assert result.state["artefact"] is None
    assert reason in result.state["feedback"]


def test_notes_before_a_proof_are_not_checked():
    for notes in ("ab\nbc", "bc", "zz\n\n1"):
        result = played(f"{notes}\n{PROOF}\n")
        assert result.trajectory.score.reward == 1.0
        assert result.state["artefact"]["artefact"] == "C B bc B A ab 1 M M"
    assert played(f"{PROOF}\n1").trajectory.score.reward == 0.0


def test_the_teacher_notes_what_it_uses_and_is_often_wrong():
    assert noted_proof(ONE, ["ab", "bc"]) == PROOF
    assert noted_proof(ONE, ["dc"]) == "CDdc1M"
    assert noted_proof(replace(ONE, goal="d"), ["ab"]) == "1"
    answers = {careless_proof(ONE, Random(number)) for number in range(40)}
    assert {f"ab\nbc\n{PROOF}", "bc\nCBbc1M", "dc\nCDdc1M"} <= answers
    env = BriefProofs(size=200, eval_size=1)
    rng = Random(0)
    right = 0
    for task in env.tasks():
        answer = careless_proof(read_derivation(task.prompt[0].content), rng)
        right += CHECKER.check(Statement(**task.info["statement"]), env.read_artefact(answer)).valid
    assert 0.4 < right / 200 < 0.6


def test_wrong_settings_are_one_line():
    with pytest.raises(UsageError, match="at least 1"):
        BriefProofs(size=0)
    with pytest.raises(UsageError, match="no split 'test'"):
        BriefProofs().tasks("test")


# --- truth tables


def test_statements_without_a_proof_are_found_and_no_others():
    for number in range(40):
        one = draw_derivation(Random(number), held_out=False)
        for left_out in one.implications:
            rest = replace(one, implications=tuple(pair for pair in one.implications if pair != left_out))
            names = [] if follows(rest) else ["unsatisfiable"]
            assert names_of(CHECKER.validate(rest.statement("rest"))) == names


LOGIC = """$c |- wff ( ) -> <-> /\\ \\/ -. T. $.  $v p q $.
wp $f wff p $.  wq $f wff q $.
wi $a wff ( p -> q ) $.  wb $a wff ( p <-> q ) $.  wa $a wff ( p /\\ q ) $.  wo $a wff ( p \\/ q ) $.
wn $a wff -. p $.  wt $a wff T. $.
"""
RULE = "${ m.1 $e |- p $.  m.2 $e |- ( p -> q ) $.  mp $a |- q $. $}"


@pytest.mark.parametrize(
    ("given", "text", "name", "why"),
    [
        (RULE, "t $p |- ( p \\/ -. p ) $= ? $.", "", ""),
        (RULE, "${ h $e |- ( p <-> q ) $. t $p |- ( q -> p ) $= ? $. $}", "", ""),
        (RULE, "t $p |- ( p -> q ) $= ? $.", "unsatisfiable", "it is false where p is true, q is false"),
        (RULE, "t $p |- -. T. $= ? $.", "unsatisfiable", "it has no proof: it is false"),
        (
            RULE,
            "${ h $e |- ( p /\\ -. p ) $. t $p |- ( q -> p ) $= ? $. $}",
            "unsatisfiable",
            "its hypotheses cannot be true together",
        ),
        ("all $a |- p $.", "t $p |- ( p -> p ) $= ? $.", "vacuous", "all, which is given, is false where p is false"),
        (
            "${ a.1 $e |- ( p -> q ) $.  con $a |- ( q -> p ) $. $}",
            "t $p |- ( p -> p ) $= ? $.",
            "vacuous",
            "con, which is given, is false where p is false, q is true",
        ),
    ],
)
def test_truth_tables(given, text, name, why):
    findings = CHECKER.validate(Statement(kind="metamath", text=text, given={"axioms": LOGIC + given}))
    assert names_of(findings) == [name] * bool(name)
    assert why in "".join(finding.why for finding in findings)


def test_other_logics_are_left_alone():
    axioms = "$c |- wff ( ) => $.  $v p q $.  wp $f wff p $.  wq $f wff q $.  wi $a wff ( p => q ) $."
    statement = Statement(kind="metamath", text="t $p |- ( p => q ) $= ? $.", given={"axioms": axioms})
    assert CHECKER.validate(statement) == []
