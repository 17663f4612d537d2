"""A person at the terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock, Thread

from wanderlust.core.contracts import Tool
from wanderlust.core.errors import PolicyFailure, Stop, WanderlustError, boundary
from wanderlust.core.messages import Message, assistant
from wanderlust.core.text import visible
from wanderlust.core.types import Completion


class Human:
    """Shows what is new since the person's last turn and takes one line as the answer.

    The end of the input (Ctrl-D) ends the episode with Stop("quit"). Text from the environment cannot steer
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
        answer = assistant(await _apart(lambda: self._turn(messages[known:])))
        self._shown[key] = [*messages, answer]
        return Completion(message=answer)

    def release(self, key: str) -> None:
        """Forget what was shown of the conversation `key`."""
        self._shown.pop(key, None)

    def _turn(self, new: Sequence[Message]) -> str:
        with self._terminal:
            for message in new:
                self._say(f"[{message.role}] {visible(message.content)}")
            try:
                line = self._ask("> ")
            except EOFError as error:
                raise Stop("quit") from error
        return line.encode(errors="replace").decode()  # undecodable input arrives as lone surrogates


async def _apart(call: Callable[[], str]) -> str:
    """The result of a blocking call in a thread that nothing waits for.

    Not `asyncio.to_thread`: after Ctrl-C the loop would wait for that thread, and so for one more line.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[str] = loop.create_future()

    def settle(line: str | None, error: WanderlustError | None) -> None:
        if done.done():  # the episode was cancelled meanwhile
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(line or "")

    def work() -> None:
        line, failed = None, None
        try:
            with boundary(PolicyFailure):
                line = call()
        except WanderlustError as error:
            failed = error
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, line, failed)

    Thread(target=work, daemon=True).start()
    return await done
