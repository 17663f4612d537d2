"""Run the README's commands word for word: `python tests/readme.py [--slow]`.

Every `sh` block carries a marker on the line above it, invisible to the reader: `<!-- ci: run -->`, `<!-- ci: slow -->`
(left out unless --slow is given) or `<!-- ci: no, reason -->`. The blocks run in order, in one folder that holds only
the README's first Python block as `game.py`, with this interpreter's programs first on the PATH and no input; whatever
a block started is ended with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
MARKER = re.compile(r"<!-- ci: (run|slow|no)(?:, (.+))? -->")
BLOCK_SECONDS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block of a page."""

    language: str
    code: str
    line: int
    """Number of its first line of code, counted from 1."""
    marker: str | None
    """`run`, `slow`, `no`, or None where there is none."""


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a Markdown page, in order; a fence that is never closed runs to the end."""
    found: list[Block] = []
    opened, last = None, ""
    for number, text in enumerate([*page.splitlines(), "```"], 1):
        if opened is not None and text.strip() == "```":
            language, marker, first, code = opened
            found.append(Block(language=language, code="\n".join(code) + "\n", line=first, marker=marker))
            opened, last = None, ""
        elif opened is not None:
            opened[3].append(text)
        elif text.startswith("```"):
            marked = MARKER.fullmatch(last.strip())
            opened = (text[3:].strip(), marked and marked[1], number + 1, [])
        elif text.strip():
            last = text
    return found


def first_environment() -> str:
    """The README's first Python block, which readers save as `game.py`."""
    return next(one.code for one in blocks(README.read_text(encoding="utf-8")) if one.language == "python")


def run(block: Block, folder: Path) -> int:
    """The exit status of the block's commands; the first that fails ends it, 124 means out of time."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    process = subprocess.Popen(
        ["bash", "-euxo", "pipefail", "-c", block.code],
        cwd=folder,
        env=os.environ | {"PATH": path},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(BLOCK_SECONDS)
    except subprocess.TimeoutExpired:
        return 124
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Nothing of the block is left running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main(arguments: Sequence[str]) -> int:
    """Run what is marked; 1 as soon as a block fails, 2 if one has no marker."""
    wanted = {"run", "slow"} if "--slow" in arguments else {"run"}
    commands = [block for block in blocks(README.read_text(encoding="utf-8")) if block.language == "sh"]
    unmarked = [block.line for block in commands if block.marker is None]
    if unmarked:
        print(f"README.md: sh blocks without a ci marker above them, at lines {unmarked}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="wanderlust-readme-") as folder:
        (Path(folder) / "game.py").write_text(first_environment(), encoding="utf-8")
        for block in (block for block in commands if block.marker in wanted):
            started = time.monotonic()
            status = run(block, Path(folder))
            print(f"README.md:{block.line}: status {status} after {time.monotonic() - started:.0f} s", flush=True)
            if status:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
