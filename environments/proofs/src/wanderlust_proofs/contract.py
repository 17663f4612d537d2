"""The contract of verified artefacts: statement, artefact, checker and validator, and the file that holds them.

A *checker* decides whether an artefact is what its statement asks for, and is the only part that has to be right. A
*validator* looks at the statement alone: whether it says something, and something that can be met. Both are pure
functions of texts: the same texts have the same verdict on every machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

from wanderlust.errors import UsageError, one_line

MAX_STATEMENT_BYTES, MAX_ARTEFACT_BYTES = 4 << 20, 16 << 20
"""Longer texts are refused unread."""
FORMAT = "wanderlust-artefact-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What is to be shown or made."""

    kind: str
    """Names the checker: `metamath`, `sat`, `program`, `smt`, `coq`."""
    text: str
    """The formal statement, in the notation of its kind."""
    name: str = ""
    given: Mapping[str, str] = field(default_factory=dict)
    """Further texts that the checker reads, by name: the axioms and lemmas that may be used, for instance."""
    informal: str = ""
    """What the statement means, for people and models. Nothing checks that it says the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtefactVerdict:
    """What a checker says."""

    valid: bool
    reason: str = ""
    """Why not, in one line; empty where it is valid."""
    checker: str = ""
    """Name and version of the checker."""
    undecided: bool = False
    """Whether nobody knows: a prover is missing, gave up, hung or crashed. Then `valid` is False."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Steps, cases and the like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is wrong with a statement."""

    name: str
    """`malformed`, `vacuous`, `unsatisfiable`, `weak`; `undecided` where a prover is missing or has given up;
    `disagrees` where a judge says that the words beside it mean something else."""
    why: str


class Checker(Protocol):
    """Checks artefacts of one kind. Wrong or hostile texts are invalid, with a reason; they never raise."""

    kind: str
    label: str
    """Name and version."""

    def check(self, statement: Statement, artefact: str) -> ArtefactVerdict:
        """Whether the artefact is what the statement asks for."""
        ...

    def validate(self, statement: Statement) -> list[Finding]:
        """What is wrong with the statement itself; empty for a sound one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtefactFile:
    """A statement with its artefact, as it is stored: everything that checking it again needs."""

    statement: Statement
    artefact: str
    checker: str
    """Name and version of the checker that accepted it."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """Who made it: environment, task, policy, seed."""

    def write(self, path: Path) -> None:
        """Write one JSON object."""
        body = {"format": FORMAT, **asdict(self)}
        path.write_text(json.dumps(body, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


def read_artefact(path: Path) -> ArtefactFile:
    """Read an artefact's file. Raises UsageError of one line: the file and what is wrong."""
    try:
        if path.stat().st_size > 2 * (MAX_STATEMENT_BYTES + MAX_ARTEFACT_BYTES):
            raise UsageError(f"{path} is too large to be an artefact")
        body = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no JSON: {one_line(str(error))}") from error
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise UsageError(f"{path} is no artefact: its format is not {FORMAT}")
    return artefact_of(body, str(path))


def artefact_of(body: Mapping[str, Any], place: str) -> ArtefactFile:
    """The artefact of a JSON object, as a rollout's `state["artefact"]` is one. Raises UsageError of one line."""
    statement = body.get("statement")
    texts = {"kind": str, "text": str, "name": str, "informal": str, "given": dict}
    if not isinstance(statement, dict) or {*statement} - {one.name for one in fields(Statement)}:
        raise UsageError(f"{place}: its statement is no object of {', '.join(texts)}")
    wrong = [name for name, value in statement.items() if not isinstance(value, texts[name])]
    wrong += [name for name in ("kind", "text") if name not in statement]
    wrong += [name for name in ("artefact", "checker") if not isinstance(body.get(name), str)]
    if wrong or not all(isinstance(one, str) for one in statement.get("given", {}).values()):
        raise UsageError(f"{place}: {(wrong or ['given'])[0]} is missing, or no text")
    return ArtefactFile(
        statement=Statement(**statement),
        artefact=body["artefact"],
        checker=body["checker"],
        origin=dict(body.get("origin") or {}),
    )


def refused_unread(statement: Statement, artefact: str) -> str:
    """Why texts are too long to be checked; empty where they are not."""
    given = sum(map(len, statement.given.values()))
    if len(statement.text) + given > MAX_STATEMENT_BYTES:
        return f"the statement has more than {MAX_STATEMENT_BYTES >> 20} MB"
    if len(artefact) > MAX_ARTEFACT_BYTES:
        return f"the artefact has more than {MAX_ARTEFACT_BYTES >> 20} MB"
    return ""


def names_of(findings: Sequence[Finding]) -> list[str]:
    """The findings' names, in their order."""
    return [finding.name for finding in findings]
