"""`wander verify`: stored artefacts, checked again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wanderlust.cli.options import JsonFlag, MorePaths
from wanderlust.cli.output import show_result
from wanderlust.errors import UsageError
from wanderlust.runner.terminal import Table
from wanderlust.store.reader import RunReader
from wanderlust.store.run_folder import find_evaluation
from wanderlust_proofs.checkers import Verified, verify_artefact, verify_file
from wanderlust_proofs.contract import artefact_of


def verify_command(artefact: Path, /, *artefacts: MorePaths, json: JsonFlag = False) -> int:
    """Check artefacts again, each from itself alone: proofs, models, cores, refutations, programs.

    A file holds the statement, what may be used, and the artefact. Of a run, the artefacts of all its rollouts are
    checked; the table has those that are wrong, and their number. Ends with status 1 where one is invalid or undecided
    (a prover is missing or gave up), or where the validator has a finding: malformed, vacuous, weak.

    Parameters
    ----------
    artefact:
        A file of an artefact, or the folder of a run.
    """
    paths = (artefact, *artefacts)
    rows = [_row(place, one) for path in paths for place, one in _verified(path)]
    wrong = [row for row in rows if not row["valid"] or row["findings"]]
    files = {str(path) for path in paths if not path.is_dir()}
    shown = [row for row in rows if row in wrong or row["file"] in files]
    lines = [f"{len(rows) - len(wrong)} of {len(rows)} artefacts are valid"] if len(shown) < len(rows) else []
    show_result({"artefacts": rows}, *lines, table=_table(shown) if shown else None, json=json)
    return int(bool(wrong))


def _verified(path: Path) -> Iterator[tuple[str, Verified]]:
    """What a file has, or each rollout of a run, with its place."""
    if not path.is_dir():
        yield str(path), verify_artefact(path)
        return
    found = False
    with RunReader(find_evaluation(path)[0]) as reader:
        for row in reader.rollouts():
            made, place = reader.get(row.id).state.get("artefact"), f"{path}#{row.id}"
            if isinstance(made, dict):
                found = True
                yield place, verify_file(artefact_of(made, place))
    if not found:
        raise UsageError(f"{path}: no rollout of this run has an artefact")


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table()
    for column in ("file", "kind", "statement", "valid", "why"):
        table.add_column(column)
    for row in rows:
        why = "; ".join([row["reason"], *(f"{name}: {text}" for name, text in row["findings"].items())])
        valid = "yes" if row["valid"] else "undecided" if row["undecided"] else "no"
        table.add_row(row["file"], row["kind"], row["name"], valid, why.strip("; "))
    return table


def _row(place: str, one: Verified) -> dict[str, Any]:
    return {
        "file": place,
        "kind": one.file.statement.kind,
        "name": one.file.statement.name,
        "valid": one.verdict.valid,
        "undecided": one.verdict.undecided,
        "reason": one.verdict.reason,
        "findings": {finding.name: finding.why for finding in one.findings},
        "checker": one.verdict.checker,
        "figures": dict(one.verdict.figures),
    }
