"""The gate before a version is published: run on the unpacked wheel, in a process of its own.

`python -m wanderlust_hub.admission TARGET NAME OUT [CARD [stored-only]]` runs in the folder of the unpacked wheel and
writes the card and the tasks into OUT. It runs the publisher's own code as `wander check` does, and is no sandbox.

A stored CARD is taken again as long as it is current: the environment's own file, its tasks, rubric, settings and
limits have the digests that they had. Other code may have changed since; the card says at which digest the gate ran.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from wanderlust.environment import Environment
from wanderlust.errors import UsageError, WanderlustError, one_line
from wanderlust.evals.gate import MAX_TASKS_COMPARED, SPLITS, OnProgress, check_gate
from wanderlust.runner.engine import run_blocking
from wanderlust.store.provenance import provenance_of, tasks_digest
from wanderlust.store.whole_files import write_whole
from wanderlust.tasks.registry import resolve_environment
from wanderlust.tasks.selection import iter_tasks
from wanderlust_hub.added import CODE_FOLDER, LIBRARY_FOLDER, open_package
from wanderlust_hub.entry import digest_of
from wanderlust_hub.isolated import IsolatedEnvironment
from wanderlust_hub.launch import Source
from wanderlust_hub.requirements import library_paths
from wanderlust_hub.unpack import unpack_wheel
from wanderlust_hub.wheel import Package

CARD_NAME, DATA_NAME, ERRORS_NAME = "card.json", "data.jsonl", "errors"
STORED_ONLY = "stored-only"
PASSING = ("wanderlust", "python")
"""Beginnings of the names of digests that may have changed since: our code beside the environment's own file."""
OWN_FILE = "own file"


def admit(
    package: Package, scratch: Path, *, card: Path | None = None, stored_only: bool = False, on_progress: OnProgress
) -> tuple[bytes, bytes]:
    """Run the gate on a wheel. Returns card and tasks; raises UsageError when the gate refuses the environment.

    A `card` is the file of a stored one, which the gate writes where it is not current; with `stored_only` the gate
    does not run, and the environment is refused.
    """
    folder, out = scratch / "unpacked", scratch / "admission"
    out.mkdir()
    with zipfile.ZipFile(package.wheel) as archive:
        archive.extractall(folder)
    stored = [str(card.resolve()), *([STORED_ONLY] if stored_only else [])] if card is not None else []
    _run(package, folder, out, stored=stored, on_progress=on_progress)
    try:
        body = (out / CARD_NAME).read_bytes()
        data = (out / DATA_NAME).read_bytes()
    except OSError:
        raise UsageError(f"{package.name} is not admitted: its check wrote no card") from None
    refuse(package.name, json.loads(body))
    if card is not None:
        write_whole(card, body)
    return body, data


def admit_wrapped(package: Package, scratch: Path, *, on_progress: OnProgress) -> tuple[bytes, bytes]:
    """The same for a package around an environment from elsewhere, whose code runs isolated, as once it is added."""
    folder = scratch / "wrapped"
    reserved = {path.name.partition(".")[0] for path in library_paths(package.requires)}
    unpack_wheel(package.wheel, folder / CODE_FOLDER, reserved=reserved)
    env = open_package(
        Source(
            name=package.name,
            code=folder / CODE_FOLDER,
            libraries=folder / LIBRARY_FOLDER,
            target=package.target,
            requires=package.requires,
            permissions=package.permissions,
            digest=digest_of(package.wheel.read_bytes()),
        )
    )
    try:
        card = run_blocking(lambda: check_gate(env, name=package.environment, on_progress=on_progress)).card()
        refuse(package.name, card)
        return card_bytes(card), b"".join(data_lines(env))
    finally:
        if isinstance(env, IsolatedEnvironment):
            env.close()


def refuse(name: str, card: dict[str, Any]) -> None:
    """Raises UsageError when a card has violations."""
    if not card["ok"]:
        first, *others = [f"{one['rule']}: {one['detail']}" for one in card["violations"]]
        more = f" (and {len(others)} more; wander check says all)" if others else ""
        raise UsageError(f"{name} is not admitted: {one_line(first, 300)}{more}")


def card_bytes(card: dict[str, Any]) -> bytes:
    """A card as its file."""
    return (json.dumps(card, indent=1, default=str) + "\n").encode()


def _run(package: Package, folder: Path, out: Path, *, stored: list[str], on_progress: OnProgress) -> None:
    words = [package.target, package.environment, str(out), *stored]
    command = [sys.executable, "-m", "wanderlust_hub.admission", *words]
    errors = out / ERRORS_NAME
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr) as child,
    ):
        for line in child.stdout or ():
            with suppress(ValueError, TypeError):
                on_progress(*json.loads(line))
    if child.returncode:
        lines = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        why = one_line(lines[-1], 300) if lines else f"its check ended with code {child.returncode}"
        raise UsageError(f"{package.name} is not admitted: {why}")


def data_lines(env: Environment) -> Iterator[bytes]:
    """The tasks of each split, a line of JSON each."""
    for split in SPLITS:
        with suppress(UsageError):  # an environment need not have every split
            for task in islice(iter_tasks(env, split), MAX_TASKS_COMPARED):
                yield msgspec.json.encode({"split": split, "task": task}, order="sorted", enc_hook=repr) + b"\n"


def main(words: list[str]) -> int:
    """Check one environment; progress goes to stdout as lines of JSON, errors to stderr."""
    target, name, out = words[0], words[1], Path(words[2])
    card_file, stored_only = Path(words[3]) if words[3:] else None, STORED_ONLY in words[4:]
    progress = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the environment prints is no progress

    def report(what: str, number: int, of: int) -> None:
        print(json.dumps([what, number, of]), file=progress)

    with redirect_stdout(sys.stderr):
        try:
            env = resolve_environment(target).env
            body = _card(env, name, card_file, stored_only=stored_only, on_progress=report)
            lines = list(data_lines(env)) if json.loads(body)["ok"] else []
        except WanderlustError as error:
            sys.stderr.write(f"{one_line(str(error), 500)}\n")
            return 1
    (out / CARD_NAME).write_bytes(body)
    (out / DATA_NAME).write_bytes(b"".join(lines))
    return 0


def _card(env: Environment, name: str, file: Path | None, *, stored_only: bool, on_progress: OnProgress) -> bytes:
    """The stored card where it is current, else that of the gate, which runs now."""
    digests = {} if file is None else current_digests(env)
    if file is not None:
        with suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
            body = file.read_bytes()
            stored = json.loads(body)
            if _lasting(stored["digests"]) == _lasting(digests) and stored["ok"]:
                return body
        if stored_only:
            raise UsageError(
                f"{file.name} is not its current card: wander hub publish with --card, and no --stored-only"
            )
    card = run_blocking(lambda: check_gate(env, name=name, on_progress=on_progress)).card()
    return card_bytes(card | {"digests": card["digests"] | digests})


def current_digests(env: Environment) -> dict[str, str]:
    """The digests of a stored card, and that of the file in which the environment's class stands."""
    found = {name: digest for name, digest in provenance_of(env).inputs.items() if name != "the tasks"}
    source = inspect.getsourcefile(type(env))
    if source is not None:
        found[OWN_FILE] = digest_of(Path(source).read_bytes())[:16]
    for split in SPLITS:
        with suppress(UsageError):  # an environment need not have every split
            found[f"tasks/{split}"] = tasks_digest(islice(iter_tasks(env, split), MAX_TASKS_COMPARED))
    return found


def _lasting(digests: Mapping[str, str]) -> dict[str, str]:
    return {name: digest for name, digest in digests.items() if not name.startswith(PASSING)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
