"""`wander rerun`: a run made again from its `wander.lock`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from wanderlust.cli.output import print_note
from wanderlust.errors import UsageError
from wanderlust.store.provenance import LOCK_FILE, Lock, changed_inputs, installed_packages, read_lock


def rerun_command(
    run: Annotated[Path, Parameter(help="Folder with a wander.lock, or that file.")], /, *, out: Path
) -> int:
    """Make a run again from its wander.lock: the same command, with the environment's files as they were.

    Says which packages have other versions here, and whether code, rubric, tasks and settings are the same as then.
    Policies are not in a lock: a checkpoint has to lie where the command names it.

    Parameters
    ----------
    out:
        New folder of the run; the environment's files are written to a folder of that name with .sources at its end.
    """
    folder = run.parent if run.name == LOCK_FILE else run
    lock = read_lock(folder)
    if lock is None:
        raise UsageError(f"{folder} has no {LOCK_FILE}: it was made by an older version, or is no run")
    if lock.command is None:
        raise UsageError(f"{folder} was begun from Python: run that program again")
    if out.exists():
        raise UsageError(f"{out} exists already: name another folder with --out")
    here = installed_packages()
    other = [
        f"{name} {had} -> {here.get(name, 'none')}" for name, had in lock.packages.items() if here.get(name) != had
    ]
    if other:
        print_note(f"packages with another version here: {', '.join(other[:8])}{' ...' if len(other) > 8 else ''}")
    sources = out.with_name(f"{out.name}.sources").resolve()
    _write_sources(lock, sources)
    words = [_absolute(word, lock) for word in lock.command]
    program = [sys.executable, "-m", "wanderlust.cli.main", *words, "--out", str(out.resolve())]
    code = subprocess.run(program, cwd=sources, check=False).returncode
    again = read_lock(out)
    if again is not None:
        changed = changed_inputs(lock.made_by[0]["inputs"], again.made_by[-1]["inputs"])
        same = "code, rubric, tasks and settings are the same as then"
        print_note(f"not the same as then: {', '.join(changed)}" if changed else same)
    return code


def _write_sources(lock: Lock, folder: Path) -> None:
    """Write the environment's files. Raises UsageError for one that lay outside of the folder of the command."""
    outside = [name for name in lock.sources if Path(name).is_absolute() or ".." in Path(name).parts]
    if outside:
        raise UsageError(f"{outside[0]} lay outside of the folder where the run was begun: run its command by hand")
    for name, text in lock.sources.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    folder.mkdir(parents=True, exist_ok=True)


def _absolute(word: str, lock: Lock) -> str:
    """A word that names something here (a checkpoint) as a whole path, as the command runs in another folder."""
    path = word.partition(",")[0]
    if (
        word.startswith("-")
        or word == (lock.command or [""])[0]
        or path.partition(":")[0] in lock.sources
        or not os.path.lexists(path)
    ):
        return word
    return str(Path(path).resolve()) + word[len(path) :]
