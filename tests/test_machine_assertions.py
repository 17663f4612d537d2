"""`make check` refuses assertions whose outcome depends on the machine, and the check knows them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from machine_assertions import helpers, machine_assertions, suspects
from project_files import python_files

ROOT = Path(__file__).parent.parent
CLOCKS = {
    "WALL": "time.monotonic()",
    "CPU": "time.process_time()",
    "SINCE": "time.time()",
    "FINE": "time.perf_counter()",
}
"""Written out where they are used only, so that nothing here reads as an assertion of this file."""
FAULTS = {
    "wall time": "began = WALL\nf()\nassert WALL - began < 2",
    "processor time": "assert CPU < 5",
    "another name": "from time import perf_counter as now\nassert now() < 5",
    "named first": "began = SINCE\ntaken = round(SINCE - began, 1)\nquick = taken < 2\nassert quick",
    "in a tuple": "began = WALL\nassert (f(), WALL - began < 2) == (1, True)",
    "helper": "def timed(f):\n    t = WALL\n    return f(), WALL - t\n_, s = timed(g)\nassert s < 3",
    "coroutine": "async def go():\n    return 1, SINCE\n_, s = asyncio.run(go())\nassert s < 5",
    "helper inside": "def f():\n    def go():\n        return SINCE\n    assert go() < 5",
    "helper of a helper": "def a():\n    return SINCE\ndef b():\n    return a() + 1\nassert b() < 9",
    "the least of several": "times = []\nfor _ in range(3):\n    times.append(FINE)\nassert min(times) < 1",
    "fail behind a comparison": "if WALL > 5:\n    pytest.fail('slow')",
    "raise behind a comparison": "late = WALL + 1\nif WALL > late:\n    raise AssertionError",
    "in a loop": "late = SINCE + 1\nwhile f():\n    assert SINCE < late",
    "of an event loop": "async def f():\n    assert asyncio.get_running_loop().time() < 1",
    "memory": "assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 10**6",
    "memory of Python": "kept, _ = tracemalloc.get_traced_memory()\nassert kept < 100",
    "memory in a file": "with open('/proc/self/statm') as file:\n    pages = int(file.read().split()[0])\nassert pages < 9",  # noqa: E501
    "memory of another process": "assert psutil.Process(1).memory_info().rss < 10",
    "a program in a string": "CODE = '''\nimport time\nt = SINCE\nimport {module}\nassert SINCE - t < {limit}\n'''",
    "recorded": "assert played.seconds < 15",
    "the date": "assert datetime.now().year == 2026",
}
SOUND = {
    "waiting": "late = WALL + 60\nwhile not f() and WALL < late:\n    pass\nassert f()",
    "the end of a hang": "late = SINCE + 60\nif SINCE > late:\n    raise TimeoutError('it did not come')",
    "timeout": "done = subprocess.run(words, timeout=60)\nassert done.returncode == 0",
    "result beside a time": "def timed(f):\n    t = SINCE\n    return f(), SINCE - t\nmade, s = timed(g)\nassert made == 1",  # noqa: E501
    "simulated time": "assert world.time() == 5",
    "a date that is given": "assert datetime(2026, 1, 1).year == 2026",
    "counted": "result, lines = lines_run(f)\nassert lines < 100",
    "recorded at all": "assert played.seconds > 0",
    "name of a clock": "assert 'time.monotonic' in text",
    "shown": "print(WALL)\nassert f()",
    "a function of the same name": "def f():\n    def go():\n        return SINCE\ndef g():\n    def go():\n        return 1\n    assert go() < 5",  # noqa: E501
    "a parameter of the same name": "s = SINCE\ndef f(s):\n    assert s < 5",
    "another function": "def f():\n    s = SINCE\ndef g():\n    s = 3\n    assert s < 5",
    "a mark in a file": "assert 'NoNewPrivs' in open('/proc/self/status').read()",
    "seed": "rng = Random(0)\nassert rng.random() < 1",
}


def lines_of(text: str) -> list[int]:
    for word, clock in CLOCKS.items():
        text = text.replace(word, clock)
    return [line for tree in suspects({"one": text}).values() for line in machine_assertions(tree)]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name: str) -> None:
    assert lines_of(FAULTS[name]) != []


@pytest.mark.parametrize("name", SOUND)
def test_what_is_sound_is_left_alone(name: str) -> None:
    assert lines_of(SOUND[name]) == []


def test_helpers_of_other_files_are_known() -> None:
    shared = helpers({"clocks": ast.parse("def took(f):\n    t = time.time()\n    f()\n    return time.time() - t")})
    assert machine_assertions(ast.parse("from clocks import took as t\nassert t(f) < 3"), shared) == [2]
    assert machine_assertions(ast.parse("from games import took\nassert took(f) < 3"), shared) == []


def test_what_imports_from_such_a_file_is_read_and_what_has_no_clock_is_not() -> None:
    clock = f"def x():\n    return {CLOCKS['WALL']}"
    texts = {"a": clock, "b": "from tests.a import x", "c": "from b import y", "d": "from e import x\nx()"}
    assert [*suspects(texts)] == ["a", "b", "c"]


def test_no_test_asserts_what_depends_on_the_machine() -> None:
    """Turn it into a count (`tests/counts.py`), into a wait (`tests/patience.py`), or into a bar in `benchmarks/`."""
    trees = suspects({path.stem: path.read_text(encoding="utf-8") for path in python_files("tests")})
    shared = helpers(trees)
    found = {name: lines for name, tree in trees.items() if (lines := machine_assertions(tree, shared))}
    found.pop(Path(__file__).stem, None)
    assert found == {}
