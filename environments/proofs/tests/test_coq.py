"""Proofs in Coq: what a script and a statement may have, and what `coqc` says of them."""

import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from wanderlust_proofs import coq
from wanderlust_proofs.checkers import verify_artefact
from wanderlust_proofs.contract import ArtefactFile, Statement, names_of
from wanderlust_proofs.coq import MISSING, CoqChecker, CoqError, read_script, read_statement, resting_on

CHECKER = CoqChecker()
needs_coq = pytest.mark.skipif(shutil.which("coqc") is None, reason="Coq is not installed: make peers")


def theorem(text, **given):
    return Statement(kind="coq", text=text, given=given)


ZERO = theorem("forall n : nat, n + 0 = n")
EXCLUDED = theorem(
    "forall p : Prop, p \\/ ~ p", preamble="Require Import Classical_Prop.", axioms="Classical_Prop.classic"
)


# --- texts, without Coq


@pytest.mark.parametrize(
    "script",
    [
        "induction n.\n- reflexivity.\n- simpl. rewrite IHn. reflexivity.",
        "induction n; simpl; [reflexivity | rewrite IHn; reflexivity].",
        "induction n. { reflexivity. } { simpl. now rewrite IHn. }",
        "1: auto. all: apply Nat.add_0_r. (* a comment (* within *) here. Qed. *) auto.",
        "exact (fun n => eq_refl).",
        "intros. assert (H : {n = 0} + {n <> 0}) by (decide equality). auto...",
    ],
)
def test_scripts_of_tactics_are_taken(script):
    assert "(*" not in read_script(script)


@pytest.mark.parametrize(
    "script",
    [
        "Admitted.",
        "admit. Admitted.",
        "auto. Qed. Axiom cheat : False.",
        "auto.\tAbort. Axiom wanderlust : False.",
        "auto.(* *)Admitted.",
        "auto... Admitted.",
        "- Admitted.",
        "{ Admitted. }",
        "1: { Admitted. }",
        "all: { - Admitted. }",
        "all: { 1: { Admitted. } }",
        "[x]: { Admitted. }",
        "par: { Admitted. }",
        "auto. }Admitted.",
        "#[global] Unset Guard Checking.",
        "Unset Guard Checking. auto.",
        "Require Import Classical. auto.",
        'Redirect "x" Print nat.',
        'idtac "x".',
        "auto",
        "auto. (* open",
        "auto. *) auto.",
        "Proof. auto. Qed.",
    ],
)
def test_scripts_with_commands_are_refused(script):
    with pytest.raises(CoqError) as refused:
        read_script(script)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "preamble"),
    [
        ("", ""),
        ("True.", ""),
        ("True. Axiom a : False", ""),
        ("True (* open", ""),
        ("True", "Unset Universe Checking."),
        ("True", "Declare ML Module x."),
        ("True", "Definition a := 1. Admitted."),
        ("True", "Definition a := 1"),
        ("True", "#[global] Set Printing All."),
    ],
)
def test_statements_are_one_proposition_after_a_plain_preamble(text, preamble):
    with pytest.raises(CoqError) as refused:
        read_statement(theorem(text, preamble=preamble))
    assert "\n" not in str(refused.value)
    assert not CHECKER.check(theorem(text, preamble=preamble), "auto.").valid
    assert names_of(CHECKER.validate(theorem(text, preamble=preamble))) == ["malformed"]


def test_what_a_theorem_rests_on_is_read_from_the_output():
    assert resting_on("Closed under the global context\n", frozenset()) == ""
    listed = "Axioms:\nclassic : forall P : Prop,\n          P \\/ ~ P\n"
    assert resting_on(listed, frozenset({"classic"})) == ""
    assert "classic" in resting_on(listed, frozenset({"other"}))
    assert "guarded" in resting_on("Axioms:\nf is assumed to be guarded.\n", frozenset({"f"}))
    for odd in ("", "Section Variables:\nx : nat\n", "Closed under the global context\nAxioms:\nx : False\n"):
        assert resting_on(odd, frozenset({"x"})) != ""


def test_without_coq_nobody_knows(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    verdict = CHECKER.check(ZERO, "auto.")
    assert (verdict.valid, verdict.undecided, verdict.reason) == (False, True, f"nobody knows: {MISSING}")
    assert names_of(CHECKER.validate(ZERO)) == ["undecided"]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 3", "coqc cannot be started"),
        ("kill -9 $$", "coqc cannot be started"),
        ("case $1 in -where | -print-version) echo 9;; *) kill -9 $$;; esac", "coqc ended with status 137"),
    ],
)
def test_a_coq_that_crashes_has_not_answered(monkeypatch, script, why):
    with TemporaryDirectory() as open_to_all:  # the sandbox's user is another one than root
        Path(open_to_all).chmod(0o755)
        folder = Path(open_to_all) / "coq" / "bin"
        folder.mkdir(parents=True)
        (folder / "coqc").write_text(f"#!/bin/sh\n{script}\n")
        for path in (folder.parent, folder, folder / "coqc"):
            path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        verdict = CHECKER.check(ZERO, "auto.")
    assert (verdict.valid, verdict.undecided) == (False, True)
    assert verdict.reason.startswith(f"nobody knows: {why}")


def test_texts_that_are_too_long_are_refused_unread():
    assert "more than 4 MB" in CHECKER.check(theorem("x" * (10 << 20)), "auto.").reason
    assert "more than 16 MB" in CHECKER.check(ZERO, "x" * (17 << 20)).reason
    assert names_of(CHECKER.validate(theorem("x" * (10 << 20)))) == ["malformed"]


# --- with Coq


@needs_coq
def test_a_proof_is_compiled_and_checked_again_from_its_file_alone(tmp_path):
    script = "induction n.\n- reflexivity.\n- simpl. rewrite IHn. reflexivity."
    ArtefactFile(statement=ZERO, artefact=script, checker="x").write(tmp_path / "one.json")
    again = verify_artefact(tmp_path / "one.json")
    assert (again.verdict.valid, again.verdict.reason, again.findings) == (True, "", [])
    assert again.verdict.checker.startswith("wanderlust.coq 1, coq 8.")


@needs_coq
@pytest.mark.parametrize(
    ("statement", "script", "reason"),
    [
        (ZERO, "induction n; reflexivity.", "Unable to unify"),
        (ZERO, "admit.", "given up goals"),
        (ZERO, "intros. give_up.", "given up goals"),
        (ZERO, "", "incomplete proof"),
        (ZERO, "exact cheat.", "not found"),
        (theorem("forall n : nat, n + 1 = n"), "induction n. - reflexivity. - simpl. rewrite IHn. reflexivity.", ""),
        (theorem("False", preamble="Axiom cheat : False."), "exact cheat.", "cheat : False"),
        (
            theorem(EXCLUDED.text, preamble=EXCLUDED.given["preamble"]),
            "exact classic.",
            "rests on the axiom Classical_Prop.classic",
        ),
        (ZERO, "fix f 1. exact f.", "ill-formed"),
    ],
)
def test_wrong_proofs_are_refused_with_a_reason(statement, script, reason):
    verdict = CHECKER.check(statement, script)
    assert (verdict.valid, verdict.undecided) == (False, False)
    assert reason in verdict.reason != ""
    assert "\n" not in verdict.reason


@needs_coq
def test_axioms_that_are_allowed_may_be_used():
    assert CHECKER.check(EXCLUDED, "exact classic.").valid


@needs_coq
def test_a_proof_that_hangs_is_undecided(monkeypatch):
    monkeypatch.setattr(coq, "SECONDS", 20.0)
    verdict = CHECKER.check(ZERO, "repeat (pose proof I).")
    assert (verdict.valid, verdict.undecided) == (False, True)


@needs_coq
@pytest.mark.parametrize(
    ("statement", "names"),
    [
        (ZERO, []),
        (EXCLUDED, []),
        (theorem("forall n m : nat, n = m -> m = n"), []),
        (theorem("forall n : nat, n = S m"), ["malformed"]),
        (theorem("nat"), ["malformed"]),
        (theorem("forall n : nat, 0 = 1 -> n = 3"), ["unsatisfiable"]),
        (theorem("forall p q : Prop, p -> ~ p -> q"), ["unsatisfiable"]),
        (theorem("forall p : Prop, p -> p"), ["vacuous"]),
        (theorem("forall n : nat, n = n -> True"), ["vacuous"]),
        (theorem("0 = 1"), ["unsatisfiable"]),
    ],
)
def test_the_validator(statement, names):
    assert names_of(CHECKER.validate(statement)) == names


def test_folder_of_a_private_coq_is_seen():
    """A `coqc` outside of /usr, as of opam, is visible to the sandbox with its folder."""
    found = shutil.which("coqc")
    if found is None or Path("/usr") in Path(found).resolve().parents:
        pytest.skip("no Coq outside of /usr, as opam installs it: opam install coq")
    assert CHECKER.check(theorem("1 = 1"), "reflexivity.").valid
