"""A person at the terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock, Thread

from wanderlust.core.contracts import Tool
from wanderlust.core.errors import PolicyFailure, Stop, UsageError, WanderlustError, boundary
from wanderlust.core.messages import Message, assistant
from wanderlust.core.text import visible
from wanderlust.core.types import Completion
from wanderlust.policies.typed_calls import HINT, explained, typed_call


class Human:
    """Shows what is new since the person's last turn and takes one line as the answer.

    Where there are tools, a line that begins with a tool's name calls it (`typed_calls.py` says how), and `?` explains
    them. The end of the input (Ctrl-D) ends the episode with Stop("quit"). Text from the environment cannot steer
    the terminal. Episodes that run at once take turns at asking.
    """

    def __init__(self, ask: Callable[[str], str] = input, say: Callable[[str], object] = print):
        self._ask, self._say = ask, say
        self._terminal = Lock()
        self._shown: dict[str, list[Message]] = {}

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The person's line; other tasks go on meanwhile."""
        shown = self._shown.get(key, [])
        known = len(shown) if list(messages[: len(shown)]) == shown else 0
        answer = await _apart(lambda: self._turn(messages[known:], tools, number=len(messages), first=not known))
        self._shown[key] = [*messages, answer]
        return Completion(message=answer)

    def release(self, key: str) -> None:
        """Forget what was shown of the conversation `key`."""
        self._shown.pop(key, None)

    def _turn(self, new: Sequence[Message], tools: Sequence[Tool], *, number: int, first: bool) -> Message:
        with self._terminal:
            for message in new:
                self._say(f"[{message.role}] {visible(message.content)}")
            if tools and first:
                self._say(HINT)
            while True:
                line = self._line()
                if tools and line.startswith("?"):
                    for told in explained(line, tools):
                        self._say(visible(told))
                    continue
                try:
                    call = typed_call(line, tools, number=number)
                except UsageError as wrong:
                    self._say(visible(str(wrong)))
                    continue
                return assistant("", call) if call is not None else assistant(line)

    def _line(self) -> str:
        try:
            line = self._ask("> ")
        except EOFError as error:
            raise Stop("quit") from error
        return line.encode(errors="replace").decode()  # undecodable input arrives as lone surrogates


async def _apart(call: Callable[[], Message]) -> Message:
    """The result of a blocking call in a thread that nothing waits for.

    Not `asyncio.to_thread`: after Ctrl-C the loop would wait for that thread, and so for one more line.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Message] = loop.create_future()

    def settle(answer: Message | None, error: WanderlustError | None) -> None:
        if done.done():  # the episode was cancelled meanwhile
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(answer or assistant(""))

    def work() -> None:
        answer, failed = None, None
        try:
            with boundary(PolicyFailure):
                answer = call()
        except WanderlustError as error:
            failed = error
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, answer, failed)

    Thread(target=work, daemon=True).start()
    return await done
