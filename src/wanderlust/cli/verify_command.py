"""`wander verify`: stored artefacts, checked again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from wanderlust.artefacts.checkers import Verified, verify_artefact
from wanderlust.cli.options import JsonFlag
from wanderlust.cli.output import print_json, print_result
from wanderlust.errors import UsageError


def verify_artefacts_command(*artefacts: Path, json: JsonFlag = False) -> int:
    """Check artefacts again, each from its file alone: proofs, models, cores, refutations, programs.

    A file holds the statement, what may be used, and the artefact. Ends with status 1 where one is invalid or undecided
    (a prover is missing or gave up), or where the validator has a finding: malformed, vacuous, weak.

    Parameters
    ----------
    artefacts:
        Files of artefacts.
    """
    if not artefacts:
        raise UsageError("wander verify needs files of artefacts")
    found = [(path, verify_artefact(path)) for path in artefacts]
    if json:
        print_json({"artefacts": [_row(path, one) for path, one in found]})
    else:
        table = Table()
        for column in ("file", "kind", "statement", "valid", "why"):
            table.add_column(column)
        for path, one in found:
            row = _row(path, one)
            why = "; ".join([row["reason"], *(f"{name}: {text}" for name, text in row["findings"].items())])
            valid = "yes" if row["valid"] else "undecided" if row["undecided"] else "no"
            table.add_row(str(path), row["kind"], row["name"], valid, why.strip("; "))
        print_result(table)
    return int(any(not one.verdict.valid or one.findings for _, one in found))


def _row(path: Path, one: Verified) -> dict[str, Any]:
    return {
        "file": str(path),
        "kind": one.file.statement.kind,
        "name": one.file.statement.name,
        "valid": one.verdict.valid,
        "undecided": one.verdict.undecided,
        "reason": one.verdict.reason,
        "findings": {finding.name: finding.why for finding in one.findings},
        "checker": one.verdict.checker,
        "figures": dict(one.verdict.figures),
    }
