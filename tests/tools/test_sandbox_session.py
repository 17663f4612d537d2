"""A Python session in the sandbox: state, output, time, and cells that lie about themselves; and the tools over it."""

from __future__ import annotations

import asyncio

import pytest
from tests.sandboxes import SMALL, token, within

from wanderlust.tools.sandbox import Cell, PythonSession, SandboxTools
from wanderlust.tools.sandbox.bubblewrap import find_python


def cells(*sources: str, timeout: float | None = None) -> list[Cell]:
    """What the cells of one session come to."""

    async def play(sandbox):
        session = PythonSession(sandbox, python=str(find_python()))
        return [await session.run(source, timeout=timeout) for source in sources]

    return within(play)


def test_names_live_on_and_the_last_value_is_shown():
    seen = cells("x = 20\nprint('hi')", "x + 1", "def f(y):\n    return x * y", "f(2)", "None", "")
    assert [cell.output for cell in seen] == ["hi\n", "21\n", "", "40\n", "", ""]
    assert [cell.fresh for cell in seen] == [True, False, False, False, False, False]
    assert {cell.status for cell in seen} == {"done"}


def test_everything_that_is_written_is_captured_in_order():
    source = "import os, sys\nprint('a', flush=True)\nos.system('echo b; echo c >&2')\nprint('d', file=sys.stderr)\n'e'"
    assert cells(source)[0].output.replace("'", "").split() == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def f():\n    return 1 / 0\nf()", "return 1 / 0"),
        ("x = ", "SyntaxError"),
        ("exit(3)", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise BaseException('odd')", "odd"),
        ("def g(): g()\ng()", "RecursionError"),
        ("'x' * (1 << 40)", "MemoryError"),
        ("input()", "EOFError"),
        ("x = '\ud800'", "?"),
        ("compile('(' * 5000, '', 'eval')", "too many nested"),
    ],
)
def test_an_error_is_output_and_the_session_goes_on(source, says):
    _, second, third = cells("kept = 1", source, "kept")
    assert second.status == ("error" if says != "?" else "done")
    assert says in second.output or says == "?"
    assert (second.lost, third.output) == (False, "1\n")
    assert "cells.py" not in second.output


def test_a_cell_whose_time_is_up_leaves_the_session_alive():
    seen = cells(
        "kept = 1", "while True:\n    try:\n        while True: pass\n    except Exception: pass", "kept", timeout=1
    )
    assert [(cell.status, cell.lost) for cell in seen] == [("done", False), ("time", False), ("done", False)]
    assert seen[2].output == "1\n"


@pytest.mark.parametrize(
    "source",
    [
        "import signal as s\ns.pthread_sigmask(s.SIG_BLOCK, [s.SIGALRM])\nprint('x', flush=True)\nwhile True: pass",
        "import os, signal\nprint('x', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)",
        "while 1:\n    try:\n        print('x', flush=True)\n        while True: pass\n    except BaseException: pass",
    ],
    ids=["masked", "stopped", "stubborn"],
)
def test_a_cell_that_does_not_stop_costs_the_session_and_says_so(source):
    _, held, after = cells("kept = 1", source, "kept", timeout=0.7)
    assert (held.status, held.lost, held.output[:2]) == ("time", True, "x\n")
    assert (after.fresh, after.status) == (True, "error")
    assert "NameError" in after.output


@pytest.mark.parametrize(
    "source", ["import os; os._exit(0)", "import ctypes; ctypes.string_at(0)", "import os; os.kill(os.getpid(), 9)"]
)
def test_a_session_that_dies_says_so_and_begins_anew(source):
    dead, after = cells(source, "1 + 1")
    assert (dead.status, dead.lost) == ("died", True)
    assert (after.fresh, after.output) == (True, "2\n")


FORGE = """
import json, os
for fd in range(3, 20):
    for word in {words}:
        try: os.write(fd, word)
        except OSError: pass
"""
WORDS = [
    b'{"token": "", "ended": "done"}\n',
    b"{}\n",
    b"\n\n\n",
    b"x" * 100_000,
    b"[" * 4000 + b"\n",
    b'{"token": "a", "ended": "done"',
    b"\xff\xfe\n",
    b"null\n",
]


@pytest.mark.parametrize("words", [[word] for word in WORDS] + [WORDS], ids=[*map(str, range(len(WORDS))), "all"])
def test_a_cell_writes_to_the_result_channel(words):
    forged, after = cells(FORGE.format(words=words), "'honest'", timeout=2)
    assert forged.status in ("forged", "time")
    assert (forged.lost, after.fresh, after.output) == (True, True, "'honest'\n")


def test_a_cell_forges_the_end_of_the_next_one():
    thread = (
        "import gc, os, sys, threading, time\n"
        "def lie():\n    while True:\n"
        "        frame = sys._current_frames()[threading.main_thread().ident]\n"
        "        while frame:\n"
        "            if 'token' in frame.f_locals and 'results' in frame.f_locals:\n"
        '                line = b\'{"token": "\' + frame.f_locals[\'token\'] + b\'", "ended": "done"}\\n\'\n'
        "                os.write(frame.f_locals['results'], line)\n"
        "            frame = frame.f_back\n"
        "        time.sleep(0.01)\n"
        "threading.Thread(target=lie, daemon=True).start()"
    )
    seen = cells(thread, "1", "2", "3", timeout=2)
    assert all(
        cell.status in ("done", "forged", "died", "time") for cell in seen
    )  # Its own realm of trust, no further.
    assert all(len(cell.output) < 2000 for cell in seen)


def test_a_cell_eats_the_cells_to_come():
    held, after = cells(
        "import os\nfor fd in range(3, 20):\n    try: os.read(fd, 1)\n    except OSError: pass", "1", timeout=1
    )
    assert held.status in ("time", "done")
    assert after.status == "done"


def test_a_cell_takes_the_interpreter_apart():
    seen = cells(
        "import sys, builtins, json\nsys.stdout.close(); sys.stdout = None; json.dumps = None; sys.modules.clear()",
        "1 + 1",
        "1 + 1",
        timeout=2,
    )
    assert seen[-1].output == "2\n" or seen[-2].output == "2\n"


def test_a_forked_copy_does_not_play_the_next_cells():
    seen = cells("import os\nn = os.fork()\nprint(n > 0)", "print('once')", "print('once')")
    assert "True" in seen[0].output.split()
    assert [one.output.split().count("once") for one in seen[1:]] == [1, 1]  # what the copy prints may come late


@pytest.mark.parametrize(
    "source", ["while True: print('y' * 1000)", "import os\nwhile True: os.write(1, bytes(65536))"]
)
def test_a_cell_that_floods_its_output(source):
    flood, after = cells(source, "1")
    assert flood.status in ("output", "time")
    assert len(flood.output) <= SMALL.output + 100
    assert after.output == "1\n"


def test_a_session_reads_what_commands_have_written_and_imports_from_the_folder():
    async def play(sandbox):
        session = PythonSession(sandbox, python=str(find_python()))
        await sandbox.write("mine.py", b"answer = 42")
        first = await session.run("import mine; open('out', 'w').write('x'); mine.answer")
        return first.output, (await sandbox.run("cat out")).stdout

    assert within(play) == ("42\n", b"x")


def test_fork_and_undo_end_the_session_and_it_says_so():
    async def play(sandbox):
        session = PythonSession(sandbox, python=str(find_python()))
        seen = [await session.run("x = 1; open('f', 'w').close()")]
        fork = await sandbox.fork()
        seen.append(await session.run("import os; x"))
        await sandbox.undo()
        seen.append(await session.run("import os; os.listdir()"))
        other = PythonSession(fork, python=str(find_python()))
        seen.append(await other.run("import os; os.listdir()"))
        await fork.close()
        return seen

    first, second, third, other = within(play)
    assert [cell.fresh for cell in (first, second, third, other)] == [True] * 4
    assert "NameError" in second.output
    assert third.output == other.output == "['f']\n"


def test_a_cancelled_cell_leaves_nothing_half_done():
    async def play(sandbox):
        session = PythonSession(sandbox, python=str(find_python()))
        await session.run("1")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await session.run("while True: pass")
        return await session.run("2")

    cell = within(play)
    assert (cell.fresh, cell.output) == (True, "2\n")


def test_tools_say_in_words_what_a_model_must_know():
    word = token()

    async def play(sandbox):
        tools = SandboxTools(sandbox, python=str(find_python()))
        return [
            await tools.bash(f"echo {word}; false"),
            await tools.bash("echo " + "x" * 200_000 + " | wc -c"),
            await tools.bash("printf '\\033[2Jx'"),
            await tools.bash("diff <(echo a) <(echo a) && [[ a == a ]] && echo bash"),
            await tools.python("1 / 0"),
            await tools.python("import os; os._exit(1)"),
            await tools.bash("true"),
        ]

    failed, long, codes, bash, raised, died, nothing = within(play)
    assert failed == f"{word}\n[exit status 1]"
    assert long == "200001"
    assert codes == "\\x1b[2Jx"
    assert bash == "bash"
    assert raised.endswith("ZeroDivisionError: division by zero")
    assert died == "[the Python process ended; all variables are lost, the next call begins a new session]"
    assert nothing == ""
