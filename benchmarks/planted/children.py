"""Python that a policy wrote, run in a child process.

Not isolated: the child has limits of time, memory and output, and a folder of its own, no more. For the policies of a
benchmark, which are scripts that somebody read, not for a model.
"""

from __future__ import annotations

import json
import signal
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from wanderlust.rubrics.parsing import last_code
from wanderlust.tools.sandbox.base import MEBI, NotIsolatedWarning, Result, SandboxBounds
from wanderlust.tools.sandbox.unsandboxed import UnisolatedSandbox

SECONDS = 60.0
"""Wall-clock seconds that a child may take, on a machine with much else to do."""
BUSY = 1
"""Seconds of the processor that it may take."""
BOUNDS = SandboxBounds(
    seconds=SECONDS, memory=256 * MEBI, processes=8, files=64, disk=MEBI, entries=50, output=16 << 10
)

CALLING = """
import json, sys
inputs = json.load(sys.stdin)
space = {"__name__": "solution"}
exec(open("solution.py").read(), space)
print("\\n" + json.dumps([space["solve"](*one) for one in inputs]))
"""
"""Calls what was written with inputs; what should come out is not in this process."""


async def ran(files: Mapping[str, str], program: str, *, stdin: bytes = b"") -> Result:
    """What a program came to that runs beside the files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotIsolatedWarning)
        sandbox = UnisolatedSandbox(BOUNDS, why="scripted policies of a benchmark")
    try:
        for name, text in files.items():
            await sandbox.write(name, text.encode(errors="replace"))
        await sandbox.write("program.py", program.encode(errors="replace"))
        return await sandbox.run(["prlimit", f"--cpu={BUSY}", "python3", "-I", "-S", "program.py"], stdin=stdin)
    finally:
        await sandbox.close()


def out_of_time(done: Result) -> bool:
    """Whether the program was ended because it took too long, by the clock or of the processor."""
    return done.reached_limit == "time" or done.code in (128 + signal.SIGXCPU, 128 + signal.SIGKILL)


async def outputs(code: str, inputs: Sequence[Sequence[Any]]) -> list[Any] | None:
    """What the written function returns for each of the inputs, as plain data; None when it does not get that far."""
    done = await ran({"solution.py": code}, CALLING, stdin=json.dumps(inputs).encode())
    if done.code or done.reached_limit:
        return None
    try:
        said = json.loads(done.stdout.decode(errors="replace").rstrip().rpartition("\n")[2])
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, list) else None


async def right_apart(completion: str, answer: Mapping[str, Any]) -> float:
    """1 when the written function gives what it should on every input; compared outside its process."""
    code = last_code(completion)
    tests = answer["tests"]
    said = None if code is None else await outputs(code, [inputs for inputs, _ in tests])
    return float(said is not None and said == [expected for _, expected in tests])


def fenced(code: str) -> str:
    """Code as a model writes it down."""
    return f"```python\n{code}\n```"
