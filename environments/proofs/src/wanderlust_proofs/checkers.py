"""The checkers by kind, and the verification of stored artefacts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wanderlust.errors import UsageError, nearest_names, quoted
from wanderlust_proofs.contract import ArtefactFile, ArtefactVerdict, Checker, Finding, read_artefact
from wanderlust_proofs.coq import CoqChecker
from wanderlust_proofs.metamath import MetamathChecker
from wanderlust_proofs.programs import ProgramChecker
from wanderlust_proofs.sat import SatChecker
from wanderlust_proofs.smt import SmtChecker

CHECKERS: Mapping[str, Checker] = {
    one.kind: one for one in (MetamathChecker(), SatChecker(), ProgramChecker(), SmtChecker(), CoqChecker())
}
"""Checkers by the kind of statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A stored artefact, checked again."""

    file: ArtefactFile
    verdict: ArtefactVerdict
    findings: list[Finding]
    """What the validator says of the statement."""


def checker_of(kind: str) -> Checker:
    """The checker of a kind. Raises UsageError, with the nearest ones."""
    if kind not in CHECKERS:
        raise UsageError(f"no checker of {quoted(kind)}; {nearest_names(kind, [*CHECKERS], kind='checkers')}")
    return CHECKERS[kind]


def verify_artefact(path: Path | str) -> Verified:
    """Check a stored artefact again, from its file alone.

    Raises UsageError of one line for a file that is none, and for a kind that there is no checker of.

    Example:
        >>> verify_artefact("proof.json").verdict.valid
        True
    """
    return verify_file(read_artefact(Path(path)))


def verify_file(file: ArtefactFile) -> Verified:
    """Check an artefact again, with its statement. Raises UsageError for a kind that there is no checker of."""
    checker = checker_of(file.statement.kind)
    return Verified(
        file=file,
        verdict=checker.check(file.statement, file.artefact),
        findings=checker.validate(file.statement),
    )
