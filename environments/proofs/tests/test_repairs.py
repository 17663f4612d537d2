"""Repairs of small functions: tasks, held-out functions, hostile answers, many programs in one sandboxed process."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random

import pytest

from wanderlust.errors import RubricFailure, SandboxFailure, UsageError
from wanderlust.evals.evaluate import evaluate_sync
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.tools.process import Child
from wanderlust_proofs.function_calls import FunctionCalls
from wanderlust_proofs.repairs import (
    HIDDEN_TESTS,
    SHOWN_TESTS,
    Repairs,
    apply_answer,
    draw_repair,
    is_held_out_function,
    repair_sandbox,
)

PLAIN = "def f(a, b):\n    return [a, b, a + b]\n"


def test_the_oracle_passes_and_the_teacher_is_often_wrong():
    env = Repairs(eval_size=120)
    oracle = evaluate_sync(env, "oracle", progress=False)
    teacher = evaluate_sync(env, "teacher", progress=False)
    assert oracle.rewards["agent"].value == 1.0
    assert 0.5 < teacher.rewards["agent"].value < 0.95


def test_held_out_functions_occur_in_no_task_of_training():
    drawn = [[draw_repair(Random(n), held_out=held_out) for n in range(300)] for held_out in (False, True)]
    train, held_out = ({repair.right for repair in part} for part in drawn)
    assert not train & held_out
    assert all(map(is_held_out_function, held_out))
    for repair in drawn[1]:
        assert len(repair.tests) == SHOWN_TESTS + HIDDEN_TESTS
        assert sum(a != b for a, b in zip(repair.right, repair.wrong, strict=True)) == 1


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        ("2: y = b", ["x", "y = b", "z"]),
        ("  1 :  a ", ["a", "y", "z"]),
        ("4: a", None),
        ("y = b", None),
        ("1: a\n2: b", None),
        ("", None),
    ],
)
def test_an_answer_is_one_line_with_its_number(answer, lines):
    assert apply_answer(["x", "y", "z"], answer) == lines


HOSTILE = {
    "ends the process": "1: x = __import__('os')._exit(0)",
    "kills everybody": "1: x = __import__('os').kill(-1, 9)",
    "never ends": "1: x = [0 for _ in iter(int, 1)]",
    "does not parse": "1: x = (",
    "takes all memory": "1: x = 'a' * 10**11",
    "an object equal to all": "3: z = type('E', (int,), {'__eq__': lambda s, o: True})()",
    "true for one": "1: x = True",
    "prints results": "1: x = print([[1, 2, 3]])",
    "writes to every pipe": "1: x = [__import__('os').write(n, b'[[[1]]]\\n') for n in (0, 1, 2)]",
    "reads the answers": "1: x = len(open('/proc/1/cmdline').read())",
    "changes json": "1: x = setattr(__import__('json'), 'dumps', lambda x: '[[[1, 1, 1]]]')",
    "leaves a child": "1: x = __import__('os').fork()",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_earns_nothing(name):
    env = Repairs(eval_size=1)
    (task,) = env.tasks("eval")
    played = asyncio.run(rollout(env, task, Scripted([HOSTILE[name]])))
    assert played.error is None, played.error
    assert played.trajectory.score.reward == 0.0


def test_programs_share_a_process_and_none_can_keep_another_from_its_results():
    opened = []

    @asynccontextmanager
    async def counted():
        opened.append(1)
        async with repair_sandbox() as sandbox:
            yield sandbox

    calls = FunctionCalls(counted, seconds=1.0)

    async def go():
        async def first():
            return await calls.results(PLAIN, "f", [(1, 2)])

        kill = "import os\nos.kill(-1, 9)\n"
        many = [calls.results(PLAIN, "f", [(n, 1), ("x", 2)]) for n in range(20)]
        return await asyncio.gather(first(), *many[:10], calls.results(kill, "f", [(1,)]), *many[10:])

    found = asyncio.run(go())
    assert found[0] == [[[1, 2, 3]]]
    good = [*found[1:11], *found[12:]]
    assert good == [[[[n, 1, n + 1]], None] for n in range(20)]
    assert found[11] == [None]
    assert len(opened) <= 2 + 12  # the first alone, the rest together, and those after the kill one by one
    assert asyncio.run(go())[0] == [[[1, 2, 3]]]  # in another event loop


def test_equal_programs_that_wait_are_run_once():
    calls = FunctionCalls(repair_sandbox, seconds=1.0)
    code = "import os\ndef f(a):\n    return os.urandom(8).hex()\n"

    async def go():
        return await asyncio.gather(*(calls.results(code, "f", [(n % 2,)]) for n in range(8)))

    found = [one[0][0] for one in asyncio.run(go())]
    assert found[0] != found[1]
    assert found == [found[0], found[1]] * 4


def test_whoever_is_cancelled_leaves_the_others_their_results():
    calls = FunctionCalls(repair_sandbox, seconds=1.0)

    async def go():
        tasks = [asyncio.create_task(calls.results(PLAIN, "f", [(n, n)])) for n in range(6)]
        await asyncio.sleep(0.05)
        tasks[0].cancel()
        tasks[3].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(go())
    assert [isinstance(one, asyncio.CancelledError) for one in found] == [n in (0, 3) for n in range(6)]
    assert [found[n] for n in (1, 2, 4, 5)] == [[[[n, n, 2 * n]]] for n in (1, 2, 4, 5)]


def test_a_sandbox_that_fails_is_no_score():
    @asynccontextmanager
    async def broken():
        raise SandboxFailure("no isolation here")
        yield

    calls = FunctionCalls(broken)
    with pytest.raises(SandboxFailure, match="no isolation here"):
        asyncio.run(calls.results(PLAIN, "f", [(1, 2)]))

    class NoPython:
        async def write(self, path, data):
            pass

        async def start(self, command):
            return Child(["/bin/sh", "-c", "echo python3: not found >&2; exit 127"], env={})

    @asynccontextmanager
    async def bare():
        yield NoPython()

    with pytest.raises(RubricFailure, match="programs cannot be run in the sandbox: python3: not found"):
        asyncio.run(FunctionCalls(bare).results(PLAIN, "f", [(1, 2)]))


def test_sizes_are_checked():
    with pytest.raises(UsageError, match="at least 1"):
        Repairs(size=0)
    with pytest.raises(UsageError, match="there is no split 'test'"):
        Repairs().tasks("test")
