"""The pipes to the process of an isolated environment, and the conversations over them.

A channel is used by one event loop at a time, or by code that blocks. Everything that is read is bounded. A process
that breaks the protocol, ends, or no longer answers is killed. What was under way is then a failure of the environment.
"""

from __future__ import annotations

import asyncio
import os
import select
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import count

from wanderlust.errors import EnvironmentFailure, SandboxFailure, WanderlustError, one_line
from wanderlust.runner.engine import run_blocking
from wanderlust_hub.launch import Source, launch
from wanderlust_hub.wire import AnyReply, Cancel, Declared, Failed, FrameBuffer, Request, pack, read_reply

CHUNK_BYTES = 1 << 16
MAX_UNREAD_FRAMES, MAX_STRAY_FRAMES, MAX_UNSENT_BYTES = 1_024, 10_000, 1 << 26
START_SECONDS, ANSWER_SECONDS, CANCEL_SECONDS = 60.0, 300.0, 10.0
"""Wall-clock seconds for the start, for an answer that code waits for, and for the end of an episode that was cut."""


@cache
def _starter() -> ThreadPoolExecutor:
    """The thread that starts all processes: they end with the thread that started them, and this one lasts."""
    return ThreadPoolExecutor(1, thread_name_prefix="wanderlust-start")


@dataclass(slots=True, kw_only=True)
class Inbox:
    """Replies of one conversation that nobody has taken yet."""

    frames: deque[AnyReply] = field(default_factory=deque)
    waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Let who waits look again."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class Channel:
    """One process, and the conversations with it."""

    def __init__(self, source: Source, target: str):
        self.name = source.name
        self.loop: asyncio.AbstractEventLoop | None = None
        self.users, self.blocked = 0, False
        self.fault: EnvironmentFailure | None = None
        self._buffer, self._unsent = FrameBuffer(), bytearray()
        self._inboxes, self._cancelled, self._strays = {0: Inbox()}, dict[int, float](), 0
        self._numbers = count(1)
        self.launched = _starter().submit(lambda: asyncio.run(launch(source, target))).result()
        self._in, self._out = self.launched.child.stdout, self.launched.child.stdin
        try:
            first = self.wait(self._inboxes[0], START_SECONDS)
            if isinstance(first, Failed):
                raise first.fault.error()
            if not isinstance(first, Declared):
                raise EnvironmentFailure("its process did not begin with what the environment is like")
        except WanderlustError as error:
            written = self.fault.output if error is self.fault else ""
            self.close()
            if told := one_line(written.rpartition("\n")[2]):
                what = f"the process of {self.name} did not start: {told}"
                raise EnvironmentFailure(what, output=written) from None
            raise
        self.declared = first

    def open(self) -> tuple[int, Inbox]:
        """Begin a conversation."""
        number, inbox = next(self._numbers), Inbox()
        self._inboxes[number] = inbox
        return number, inbox

    def inbox(self, number: int) -> Inbox:
        """The inbox of a conversation, which is open again if it had ended."""
        return self._inboxes.setdefault(number, Inbox())

    def forget(self, number: int, *, cancel: bool = False) -> None:
        """End a conversation; `cancel` tells the other side, which has to confirm it."""
        self._inboxes.pop(number, None)
        if cancel and self.fault is None:
            self._cancelled[number] = time.monotonic()
            self.send(Cancel(number=number))

    def send(self, frame: Request) -> None:
        """Hand a frame over. Raises the failure of a process that has ended."""
        if self.fault is not None:
            raise self.fault
        self._unsent += pack(frame)
        self._flush()
        if len(self._unsent) > MAX_UNSENT_BYTES:
            self.fail(f"it left {len(self._unsent):,} bytes unread")

    async def next(self, inbox: Inbox) -> AnyReply:
        """The next reply of a conversation."""
        while not inbox.frames:
            if self.fault is not None:
                raise self.fault
            inbox.waiter = asyncio.get_running_loop().create_future()
            await inbox.waiter
        return inbox.frames.popleft()

    def wait(self, inbox: Inbox, seconds: float = ANSWER_SECONDS) -> AnyReply:
        """The next reply, for code that blocks; replies of other conversations are put into their inboxes."""
        end = time.monotonic() + seconds
        while not inbox.frames:
            if self.fault is not None:
                raise self.fault
            left = end - time.monotonic()
            if left <= 0:
                self.fail(f"it gave no answer within {seconds:g} s")
                continue
            poll = select.poll()
            poll.register(self._in, select.POLLIN)
            if self._unsent:
                poll.register(self._out, select.POLLOUT)
            poll.poll(1000 * min(left, 1.0))
            self._flush()
            self.read()
        return inbox.frames.popleft()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let a loop read; it is one user more."""
        self.users += 1
        if self.loop is None:
            self.loop = loop
            loop.add_reader(self._in, self.read)

    def detach(self) -> None:
        """One user less; without any, nobody reads."""
        self.users -= 1
        if self.users == 0 and self.loop is not None:
            if self.fault is None:
                self.loop.remove_reader(self._in)
                self.loop.remove_writer(self._out)
            self.loop = None

    def ending_time(self) -> asyncio.Timeout:
        """The time that an episode has to close after a limit has ended its play."""
        return asyncio.timeout(CANCEL_SECONDS)

    def check(self) -> None:
        """Give up a process that did not confirm the end of an episode in time."""
        if self._cancelled and self.fault is None:
            self.read()
        late = [at for at in self._cancelled.values() if time.monotonic() - at > CANCEL_SECONDS]
        if late and self.fault is None:
            self.fail(f"it did not end a cut episode within {CANCEL_SECONDS:g} s")

    def read(self) -> None:
        """Take what is there to be read."""
        if self.fault is not None:
            return
        try:
            data = os.read(self._in, CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            self.fail("it has ended")
            return
        try:
            for body in self._buffer.take(data):
                self._dispatch(read_reply(body))
        except EnvironmentFailure as failure:
            self.fail(str(failure))

    def _dispatch(self, reply: AnyReply) -> None:
        inbox = self._inboxes.get(reply.number)
        if inbox is None:
            self._strays += self._cancelled.pop(reply.number, None) is None
            if self._strays > MAX_STRAY_FRAMES:
                raise EnvironmentFailure("it talks of what nobody asked")
            return
        if len(inbox.frames) >= MAX_UNREAD_FRAMES:
            raise EnvironmentFailure("it sent more than was asked for")
        inbox.frames.append(reply)
        inbox.wake()

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: os.write(self._out, self._unsent)]
        except BlockingIOError:
            if self.loop is not None:
                self.loop.add_writer(self._out, self._flush)
            return
        except OSError:
            self.fail("it has ended")
            return
        if self.loop is not None:
            self.loop.remove_writer(self._out)

    def fail(self, why: str) -> None:
        """Kill the process, and let every conversation fail."""
        if self.fault is not None:
            return
        written = self.launched.child.unread_errors
        self.fault = EnvironmentFailure(f"the process of {self.name} is gone: {why}", output=written)
        if self.loop is not None:
            self.loop.remove_reader(self._in)
            self.loop.remove_writer(self._out)
        self.launched.child.kill()
        for inbox in self._inboxes.values():
            inbox.wake()

    def close(self) -> None:
        """End the process and its sandbox."""
        self.fail("it was closed")
        with suppress(SandboxFailure):
            run_blocking(self.launched.close)


class ChannelPool:
    """The channels of one environment: as many as there are event loops that use it at once."""

    def __init__(self, source: Source, target: str):
        self._source, self._target, self._lock = source, target, threading.RLock()
        self.channels = list[Channel]()
        self._finalizer = weakref.finalize(self, _close_all, self.channels)

    def close(self) -> None:
        """End all processes."""
        self._finalizer()

    @asynccontextmanager
    async def attached(self) -> AsyncIterator[Channel]:
        """A channel that the running loop reads."""
        loop = asyncio.get_running_loop()
        with self._lock:
            channel = self._choose(loop)
            channel.attach(loop)
        try:
            yield channel
        finally:
            with self._lock:
                channel.detach()

    @contextmanager
    def blocking(self, before: Channel | None = None) -> Iterator[Channel]:
        """A channel for code that waits without a loop; the one of `before` where that is free."""
        try:
            running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        with self._lock:
            channel = self._choose(running, before)
            alone = channel.loop is None
            channel.blocked |= alone
        try:
            yield channel
        finally:
            channel.blocked &= not alone

    def _choose(self, loop: asyncio.AbstractEventLoop | None, before: Channel | None = None) -> Channel:
        for channel in [*self.channels]:
            if channel.loop in (None, loop) and not channel.blocked:
                channel.check()
            if channel.fault is not None:
                self.channels.remove(channel)
                threading.Thread(target=channel.close, daemon=True).start()
        free = [one for one in self.channels if (one.loop is None and not one.blocked) or (loop and one.loop is loop)]
        if before in free:
            return before
        own = [one for one in free if one.loop is not None]
        if own or free:
            return (own or free)[0]
        channel = Channel(self._source, self._target)
        self.channels.append(channel)
        return channel


def _close_all(channels: list[Channel]) -> None:
    while channels:
        channels.pop().close()
