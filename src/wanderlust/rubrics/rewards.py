"""Reward functions that compare the answer with the task's: as text, as a number, by a pattern, as mathematics.

A model's mathematics may be an expression that no computer finishes, so `math-verify` (extra `math`) compares in
processes of their own, which a limit on processor time ends. What is not covered: the processes share this machine's
files and network, and trust that the parsers of math-verify and sympy run no code that stands in an expression.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import threading
import unicodedata
from collections import deque
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Any

from wanderlust.errors import RubricFailure, UsageError, one_line
from wanderlust.rubrics.parsing import AnswerReader, last_boxed, parse_number, whole
from wanderlust.rubrics.rubric import RewardFunction, RewardResult
from wanderlust.tools.worker import LocalWorker, NoReply, encode_request

Tolerance = float | Fraction


def exact(*, read: AnswerReader = whole, ignore_case: bool = False) -> RewardFunction:
    """`exact`: 1 when the text is the task's answer, or one of its answers where there is a list of them.

    Space counts only as being there; Unicode is normalized (NFC).
    """

    def exact(completion: str, answer: Any) -> float:
        text = read(completion)
        return float(
            text is not None
            and _plain(text, ignore_case) in {_plain(a, ignore_case) for a in _accepted_answers(answer)}
        )

    return exact


def numeric(
    *, read: AnswerReader = whole, relative: Tolerance = 0, absolute: Tolerance = 0, units: Sequence[str] = ()
) -> RewardFunction:
    """`numeric`: 1 when the text is a number no further from the task's answer than the larger tolerance.

    `relative` is a share of the task's answer. Compared exactly, as fractions: 0.1 is a tenth, and no digit of a
    large number is lost. One of the `units` may stand before or after the number, and then says nothing: `km`,
    `$`, `%`. Numbers are read by `model_input.number`.
    """
    near, far = _tolerance(relative), _tolerance(absolute)
    ignored = sorted(units, key=len, reverse=True)

    def numeric(completion: str, answer: Any) -> float:
        text = read(completion)
        value = None if text is None else parse_number(_bare(text, ignored))
        return float(
            value is not None
            and any(
                (abs(value - true) <= max(near * abs(true), far))
                for true in [_number(one, ignored) for one in _accepted_answers(answer)]
            )
        )

    return numeric


def matches(
    pattern: str, *, read: AnswerReader = whole, anywhere: bool = False, name: str = "matches"
) -> RewardFunction:
    """`matches`: 1 when the pattern fits all of the text, or with `anywhere` some of it.

    The pattern is the caller's: one that backtracks without end does so here too.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"{pattern!r} is no regular expression: {error}") from error
    fits = compiled.search if anywhere else compiled.fullmatch

    def matches(completion: str) -> float:
        text = read(completion)
        return float(text is not None and fits(text) is not None)

    matches.__name__ = name
    return matches


def _accepted_answers(answer: Any) -> Collection[Any]:
    if answer is None:
        raise RubricFailure("the task has no answer to compare with")
    return answer if isinstance(answer, list | tuple | set | frozenset) else (answer,)


def _plain(text: Any, ignore_case: bool) -> str:
    plain = " ".join(unicodedata.normalize("NFC", str(text)).split())
    return plain.casefold() if ignore_case else plain


def _number(answer: Any, units: Sequence[str]) -> Fraction:
    if isinstance(answer, int | Fraction):
        return Fraction(answer)
    # As it is written: the float 0.1 stands for a tenth, not for the binary number that is nearest to it.
    value = parse_number(_bare(str(answer), units))
    if value is None:
        raise RubricFailure(f"the task's answer {one_line(repr(answer), 60)} is no number")
    return value


def _bare(text: str, units: Sequence[str]) -> str:
    text = text.strip()
    for unit in units:
        if text.startswith(unit):
            return text[len(unit) :].strip()
        if text.endswith(unit):
            return text[: -len(unit)].strip()
        if text.startswith(("-" + unit, "+" + unit)):
            return text[0] + text[1 + len(unit) :].strip()
    return text


def _tolerance(value: Tolerance) -> Fraction:
    if not isfinite(value) or value < 0:
        raise UsageError(f"a tolerance is a number from 0 on, not {value!r}")
    return Fraction(value) if isinstance(value, Fraction) else Fraction(repr(value))


MAX_EXPRESSION_CHARS = 2_000
"""Characters of an expression; a longer one is no answer."""
MATH_START_TIMEOUT_SECONDS = 120.0
"""Wall-clock seconds for a process to come up: it imports sympy, on a machine that may be busy."""
WALL_CLOCK_FACTOR = 20
"""Wall-clock seconds to wait per second of processor time; what takes longer says something about the machine."""
_WORKER = Path(__file__).with_name("math_process.py")


def symbolic(*, read: AnswerReader = last_boxed, seconds: float = 5.0, processes: int = 2) -> RewardFunction:
    """`symbolic`: 1 when what was read is mathematically equal to the task's answer, LaTeX or plain.

    Decimals are compared after rounding to 6 places, as math-verify does. An answer of a model that takes more than
    `seconds` of processor time, or gigabytes, is not shown to be equal: 0, and the metric `symbolic/gave_up` is 1. A
    task's answer that cannot be read is a RubricFailure. Processes start when first needed and are then reused.
    """
    if find_spec("math_verify") is None:
        raise UsageError("this needs the package 'math-verify': install it with pip install 'wanderlust[math]'")
    pool = _Pool(processes)

    async def symbolic(completion: str, answer: Any) -> RewardResult:
        if answer is None:
            raise RubricFailure("the task has no answer to compare with")
        text = read(completion)
        if text is None or len(text) > MAX_EXPRESSION_CHARS:
            return RewardResult(value=0.0, metrics={"gave_up": 0.0})
        verdict = await pool.compare(str(answer), text, seconds)
        return RewardResult(value=float(verdict == "equal"), metrics={"gave_up": float(verdict == "gave up")})

    return symbolic


class _Pool:
    """Processes that compare, each busy with one question; one pool serves any number of event loops."""

    def __init__(self, size: int):
        self._size, self._idle, self._lock, self._owner = size, deque[LocalWorker](), threading.Lock(), 0

    async def compare(self, answer: str, text: str, seconds: float) -> str:
        with self._lock:
            if self._owner != os.getpid():  # a fork copies neither threads nor the right to the pipes
                self._owner, self._idle = os.getpid(), deque()
                self._threads = ThreadPoolExecutor(self._size, thread_name_prefix="wanderlust-math")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._compare, answer, text, seconds)

    def _compare(self, answer: str, text: str, seconds: float) -> str:
        try:
            worker = self._idle.pop()
        except IndexError:
            worker = _start()
        try:
            return _verdict(worker, answer, text, seconds=seconds)
        finally:
            if worker.alive:
                self._idle.append(worker)
            else:
                worker.end()


def _start() -> LocalWorker:
    # -P keeps the modules beside the worker's file from hiding others; nothing of our environment is its business.
    path = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    try:
        return LocalWorker(
            _WORKER.read_text("utf-8"), flags=("-P",), env=path, start_seconds=MATH_START_TIMEOUT_SECONDS
        )
    except NoReply as none:
        raise _failure(none, MATH_START_TIMEOUT_SECONDS) from none


def _verdict(worker: LocalWorker, answer: str, text: str, *, seconds: float) -> str:
    """`equal`, `different` or `gave up`."""
    verdicts, bound = list[Any](), seconds * WALL_CLOCK_FACTOR
    for question in ({"answer": answer, "seconds": seconds}, {"text": text}):
        try:
            verdicts.append(json.loads(worker.ask_blocking(encode_request(question), seconds=bound)))
        except NoReply as none:
            if none.status != -signal.SIGPROF:  # which says that its processor time was up
                raise _failure(none, bound) from none
            verdicts.append("gave up")
        if verdicts[0] != "read":
            raise RubricFailure(f"the task's answer {one_line(repr(answer), 80)} cannot be read as mathematics")
    return verdicts[-1] if verdicts[-1] in ("equal", "different") else "gave up"


def _failure(none: NoReply, seconds: float) -> RubricFailure:
    if none.why == "time":
        return RubricFailure(f"symbolic mathematics did not come to run in {seconds:g} s", transient=True)
    return RubricFailure(f"the process for symbolic mathematics died with status {none.status}", transient=True)
