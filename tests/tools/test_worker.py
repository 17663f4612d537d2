"""A worker answers one request at a time; what is late, too long, forged or never comes is no answer."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from patience import wait_until
from wanderlust.tools.process import Child, end_all, wait_readable
from wanderlust.tools.worker import LocalWorker, NoReply, Worker, encode_request, worker_command

PATIENCE = 120.0
SOURCE = """
import ctypes, json, os, sys, time

def answer(request):
    if request == "hang":
        time.sleep(6000)
    if request == "die":
        os._exit(7)
    if request == "abort":
        os.abort()
    if request == "print":
        print("0", flush=True)
        os.write(1, b"0\\n")
        sys.stdin.read()
    if request == "dumpable":
        return ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
    if isinstance(request, dict):
        for fd in range(3, 20):
            try:
                os.write(fd, request["write"].encode())
            except OSError:
                pass
    return ["long" * request] if isinstance(request, int) else request
"""


@pytest.fixture
def worker() -> Any:
    with LocalWorker(SOURCE, max_bytes=100, start_seconds=PATIENCE) as one:
        yield one


def ask(worker: Worker, request: Any, seconds: float = PATIENCE) -> Any:
    return json.loads(worker.ask_blocking(encode_request(request), seconds=seconds))


def test_requests_are_answered_one_after_the_other(worker: LocalWorker) -> None:
    assert [ask(worker, one) for one in ("a", ["ü\n"], None)] == ["a", ["ü\n"], None]
    assert worker.alive


def test_what_a_source_prints_and_reads_is_no_part_of_the_conversation(worker: LocalWorker) -> None:
    assert [ask(worker, one) for one in ("print", "a")] == ["print", "a"]


def test_other_processes_cannot_read_a_worker(worker: LocalWorker) -> None:
    assert ask(worker, "dumpable") == 0


@pytest.mark.parametrize(
    ("request_", "why", "status"),
    [
        ("hang", "time", None),
        (1000, "length", None),
        ("die", "died", 7),
        ("abort", "died", -signal.SIGABRT),
        ({"write": "0\n0\n"}, "forged", None),  # in one piece: what comes after the answer is told by the next request
        ({"write": "x" * 1000}, "length", None),
    ],
)
def test_there_is_no_answer_and_no_other_request(
    worker: LocalWorker, request_: Any, why: str, status: int | None
) -> None:
    with pytest.raises(NoReply) as none:
        ask(worker, request_, seconds=0.2 if why == "time" else PATIENCE)
    assert (none.value.why, none.value.status, worker.alive) == (why, status, False)
    with pytest.raises(NoReply):
        ask(worker, "a")


def test_an_answer_that_nobody_asked_for_is_not_that_to_the_next_request() -> None:
    later = "    threading.Timer(0.05, lambda: write({'write': '0\\n'})).start()\n    return request\n"
    source = f"import threading\n{SOURCE.replace('answer', 'write')}\ndef answer(request):\n{later}"
    with LocalWorker(source, start_seconds=PATIENCE) as worker:
        assert ask(worker, 1) == 1
        while worker.alive:
            asyncio.run(_answers(worker))
            with pytest.raises(NoReply, match="forged"):
                ask(worker, 2)


async def _answers(worker: Worker) -> None:
    await wait_readable(worker.child.stdout)


def test_in_an_event_loop_it_waits_for_nothing_else() -> None:
    async def go() -> tuple[list[Any], str]:
        children = [Child([sys.executable, "-I", *worker_command(SOURCE)], env={}) for _ in range(2)]
        first, second = (Worker(child, max_bytes=100) for child in children)
        try:
            for one in (first, second):
                assert await one.ask(b"", seconds=PATIENCE) == b'"ready"'
            hanging = asyncio.create_task(second.ask(encode_request("hang"), seconds=0.2))
            answers = [await first.ask(encode_request(n), seconds=PATIENCE) for n in "ab"]
            with pytest.raises(NoReply) as none:
                await hanging
            return answers, none.value.why
        finally:
            await end_all(children)

    assert asyncio.run(go()) == ([b'"a"', b'"b"'], "time")


def test_a_cancelled_request_has_no_successor() -> None:
    async def go() -> bool:
        child = Child([sys.executable, "-I", *worker_command(SOURCE)], env={})
        worker = Worker(child, max_bytes=100)
        try:
            await worker.ask(b"", seconds=PATIENCE)
            hanging = asyncio.create_task(worker.ask(encode_request("hang"), seconds=PATIENCE))
            await asyncio.sleep(0)
            hanging.cancel()
            await asyncio.wait([hanging])
            return worker.alive
        finally:
            await end_all([child])

    assert not asyncio.run(go())


def test_a_source_that_does_not_start_is_told_with_its_status() -> None:
    for source, status in (("raise SystemExit(3)", 3), ("import nothing_like_it", 1), ("x = 1", 1)):
        with pytest.raises(NoReply) as none:
            LocalWorker(source, start_seconds=PATIENCE)
        assert (none.value.why, none.value.status) == ("died", status)


def test_arguments_are_the_source_s_and_the_environment_is_empty() -> None:
    source = "import os, sys\ndef answer(request):\n    return [sys.argv[1:], 'HOME' in os.environ]\n"
    with LocalWorker(source, "one", "two", start_seconds=PATIENCE) as worker:
        assert ask(worker, None) == [["one", "two"], False]


def test_the_process_ends_with_the_object() -> None:
    worker = LocalWorker(SOURCE, start_seconds=PATIENCE)
    place = Path(f"/proc/{worker.child.pid}")
    assert place.exists()
    del worker
    gc.collect()
    wait_until(lambda: not place.exists())
