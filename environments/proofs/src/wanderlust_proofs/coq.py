"""Proofs in Coq, where it is installed.

A statement is a proposition; `given` may have `preamble`, which is imported and defined before it, and `axioms`, the
names that a proof may rest on besides. An artefact is a proof script: tactics alone, neither `Proof.` nor `Qed.`. A
sentence of it that is a command is refused, so that it can neither add an axiom nor change what the statement means.
`coqc` compiles statement and script in the sandbox; a second run prints what the theorem rests on, where the script has
nothing to say. Not covered: faults of Coq's own kernel.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from wanderlust.errors import SandboxFailure, WanderlustError, one_line
from wanderlust.tools.sandbox import open_sandbox
from wanderlust.tools.sandbox.base import MEBI, Result, Sandbox, SandboxBounds
from wanderlust_proofs.contract import ArtefactVerdict, Finding, Statement, refused_unread

PREAMBLE, AXIOMS = "preamble", "axioms"
"""Keys in `Statement.given`. Axioms are named as Coq does without imports: `Classical_Prop.classic`."""
SECONDS = 60.0
"""Seconds for each file."""
MISSING = "coqc is not installed (Debian package coq)"
COMMANDS = ("Require", "From", "Import", "Open", "Definition", "Fixpoint", "Inductive", "Record", "Axiom", "Parameter")
"""What a preamble may have. Axioms count only where `axioms` names them."""
CLOSED = "Closed under the global context"
_MEMORY = 4096 * MEBI
_COMMENT = re.compile(r"\(\*|\*\)")
_SENTENCE_END = re.compile(r"\.(?=\s|$)")
_TACTIC = re.compile(r"[-+*{}\s]*(?:(?:\d+(?:\s*[-,]\s*\d+)*|all)\s*:\s*)?[{}\s]*(?:[a-z(].*)?", re.DOTALL)
_COMMAND_AFTER_BRACE = re.compile(r"[{}][-+*{}\s]*[A-Z#]")
"""A brace ends a sentence without a dot."""
_AXIOM = re.compile(r"([\w.']+)(?: :.*)?")
_VALIDATE = """
Goal {text}.
Proof.
tryif assert_succeeds (solve [intros; exfalso; solve [assumption | discriminate | contradiction | congruence | easy]])
then idtac "wanderlust-contradiction" else idtac.
tryif assert_succeeds (solve [intros; exact I | intros; assumption]) then idtac "wanderlust-vacuous" else idtac.
tryif assert_succeeds (assert (~ ({text})) by (solve [intro H; easy | intro H; discriminate H | intro H; congruence]))
then idtac "wanderlust-false" else idtac.
Abort.
"""


class CoqError(WanderlustError):
    """A statement or proof that is refused, in one line."""


class CoqUndecided(WanderlustError):
    """Coq is missing, or could not be run to its end."""


def without_comments(text: str) -> str:
    """The text with a blank in the place of each comment. Raises CoqError for strings and for comments without end."""
    if '"' in text or "\0" in text:
        raise CoqError('strings (") are not taken')
    kept, depth, at = list[str](), 0, 0
    for found in _COMMENT.finditer(text):
        if found.start() < at:
            continue
        if depth == 0:
            kept.append(text[at : found.start()])
        depth += 1 if found[0] == "(*" else -1
        at = found.end()
        if depth < 0:
            raise CoqError("a comment ends that did not begin")
    if depth:
        raise CoqError("a comment does not end")
    return " ".join([*kept, text[at:]])


def sentences(text: str) -> list[str]:
    """The sentences of a text without comments. Raises CoqError where the last one does not end."""
    parts = _SENTENCE_END.split(text)
    if parts[-1].strip(" \t\r\n{}"):
        raise CoqError(f"{one_line(parts[-1].strip(), 60)!r} does not end with a dot")
    return [one.strip() for one in parts[:-1]]


def read_script(artefact: str) -> str:
    """A proof script without comments. Raises CoqError for one that has a command."""
    script = without_comments(artefact)
    for one in sentences(script):
        if not _TACTIC.fullmatch(one) or _COMMAND_AFTER_BRACE.search(one):
            raise CoqError(f"{one_line(one, 60)!r} is no tactic: a proof is a script without Proof and Qed")
    return script


def read_statement(statement: Statement) -> tuple[str, str, frozenset[str]]:
    """Preamble, proposition, and the names of allowed axioms; Coq checks that it is a proposition. Raises CoqError."""
    preamble = without_comments(statement.given.get(PREAMBLE, ""))
    for one in sentences(preamble):
        if one.split(None, 1)[:1] not in [[word] for word in COMMANDS]:
            raise CoqError(f"{one_line(one, 60)!r} is nothing that a preamble may have")
    text = without_comments(statement.text).strip()
    if not text or _SENTENCE_END.search(text):
        raise CoqError("the statement is one proposition, without a dot at its end")
    return f"{preamble}\nCheck (({text}) : Prop).", f"({text})", frozenset(statement.given.get(AXIOMS, "").split())


@dataclass(frozen=True, slots=True)
class Compiled:
    """What `coqc` did with files, one after the other, up to the first that it refused."""

    version: str
    results: list[Result]


def run_coq(files: Mapping[str, str]) -> Compiled:
    """Compile files by name, in their order, in a sandbox. Raises CoqUndecided."""
    found = shutil.which("coqc")
    if found is None:
        raise CoqUndecided(MISSING)
    with ThreadPoolExecutor(1) as pool:  # the caller may be in an event loop of its own
        return pool.submit(asyncio.run, _run(Path(found).resolve(), files)).result()


async def _run(program: Path, files: Mapping[str, str]) -> Compiled:
    readable = () if Path("/usr") in program.parents else (program.parents[1],)
    try:
        sandbox = await open_sandbox(SandboxBounds(seconds=SECONDS, memory=_MEMORY), readable=readable)
    except SandboxFailure as error:
        raise CoqUndecided(f"no sandbox for coqc: {error}") from error
    try:
        where = await _output(sandbox, [str(program), "-where"])
        version = await _output(sandbox, [str(program), "-print-version"])
        # Debian's coqc reads a file of /etc, which the sandbox does not have.
        await sandbox.write("findlib.conf", f'path="{Path(where).parent}"\n'.encode())
        results: list[Result] = []
        for name, text in files.items():
            await sandbox.write(f"{name}.v", text.encode("utf-8", "replace"))
            command = ["env", "OCAMLFIND_CONF=findlib.conf", str(program), "-q", "-w", "none", "-R", ".", "Wanderlust"]
            results.append(await sandbox.run([*command, f"{name}.v"]))
            if results[-1].reached_limit or results[-1].code > 1:
                raise CoqUndecided(f"coqc ended with {results[-1].reached_limit or f'status {results[-1].code}'}")
            if results[-1].code:
                break
        return Compiled(f"coq {version.split()[0]}", results)
    finally:
        await sandbox.close()


async def _output(sandbox: Sandbox, command: Sequence[str]) -> str:
    result = await sandbox.run(command)
    text = result.stdout.decode(errors="replace").strip()
    if result.code or result.reached_limit or not text:
        raise CoqUndecided(f"coqc cannot be started: {one_line(result.text, 120)}")
    return text


def _error(said: Result) -> str:
    """Coq's error without the place in our file, in one line."""
    text = said.stderr.decode(errors="replace")
    return one_line(" ".join(text.rpartition("Error:")[2].split()), 200) or "coqc refuses it"


class CoqChecker:
    """Checks proof scripts by `coqc`, and what the theorem rests on by `Print Assumptions`."""

    kind = "coq"
    label = "wanderlust.coq 1"

    def check(self, statement: Statement, artefact: str) -> ArtefactVerdict:
        """As in Checker."""
        if why := refused_unread(statement, artefact):
            return ArtefactVerdict(valid=False, reason=why, checker=self.label)
        try:
            preamble, text, allowed = read_statement(statement)
            theorem = f"{preamble}\nTheorem wanderlust : {text}.\nProof.\n{read_script(artefact)}\nQed.\n"
            asked = "Require Wanderlust.Proved.\nPrint Assumptions Wanderlust.Proved.wanderlust.\n"
            done = run_coq({"Proved": theorem, "Asked": asked})
        except CoqUndecided as error:
            return ArtefactVerdict(valid=False, reason=f"nobody knows: {error}", undecided=True, checker=self.label)
        except CoqError as error:
            return ArtefactVerdict(valid=False, reason=str(error), checker=self.label)
        last = done.results[-1]
        reason = resting_on(last.text, allowed) if len(done.results) == 2 and not last.code else _error(last)
        return ArtefactVerdict(valid=not reason, reason=reason, checker=f"{self.label}, {done.version}")

    def validate(self, statement: Statement) -> list[Finding]:
        """Statements that Coq cannot read, whose presuppositions contradict each other, or that nothing can prove.

        Only what a few simple tactics see is found.
        """
        if why := refused_unread(statement, ""):
            return [Finding(name="malformed", why=why)]
        try:
            preamble, text, _ = read_statement(statement)
            (said,) = run_coq({"Stated": f"{preamble}\n{_VALIDATE.format(text=text)}"}).results
        except CoqUndecided as error:
            return [Finding(name="undecided", why=str(error))]
        except CoqError as error:
            return [Finding(name="malformed", why=str(error))]
        if said.code:
            return [Finding(name="malformed", why=_error(said))]
        for mark, name, why in (
            ("contradiction", "unsatisfiable", "what it presupposes contradicts itself"),
            ("vacuous", "vacuous", "it is True, or one of its presuppositions"),
            ("false", "unsatisfiable", "its negation is proved at once"),
        ):
            if f"wanderlust-{mark}" in said.text:
                return [Finding(name=name, why=why)]
        return []


def resting_on(said: str, allowed: frozenset[str]) -> str:
    """Why a theorem rests on what is not allowed, by the output of `Print Assumptions`; empty where it does not."""
    lines = [line for line in said.splitlines() if line.strip()]
    if lines == [CLOSED]:
        return ""
    if lines[:1] != ["Axioms:"]:
        return one_line(f"it rests on {' '.join(lines)}", 200)
    for line in lines[1:]:
        name = _AXIOM.fullmatch(line)
        if not line.startswith(" ") and (name is None or name[1] not in allowed):
            return one_line(f"it rests on the axiom {line}", 200)
    return ""
