"""A model that costs nothing: answers every chat completion with the same words, at once or after a while.

Run as a process of its own, so that its work is not counted: `python -m benchmarks.model_server [SECONDS]` prints its
port; SECONDS is how long each answer takes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import cast

MESSAGE = {"role": "assistant", "content": "The answer is <answer>42</answer> ."}
CHOICE = {"index": 0, "message": MESSAGE, "finish_reason": "stop"}
USAGE = {"prompt_tokens": 40, "completion_tokens": 16, "total_tokens": 56}
COMPLETION = {
    "id": "x",
    "object": "chat.completion",
    "created": 0,
    "model": "mock",
    "choices": [CHOICE],
    "usage": USAGE,
}
BODY = json.dumps(COMPLETION).encode()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
LENGTH = b"content-length:"


class Model(asyncio.Protocol):
    """Just enough HTTP: keep-alive, bodies with a length."""

    def __init__(self, latency: float):
        self.latency = latency

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.waiting = cast(asyncio.Transport, transport), b""

    def data_received(self, data: bytes) -> None:
        self.waiting += data
        while (head := self.waiting.find(b"\r\n\r\n")) >= 0:
            start = self.waiting[:head].lower().find(LENGTH) + len(LENGTH)
            end = head + 4 + int(self.waiting[start:head].partition(b"\r\n")[0])
            if len(self.waiting) < end:
                return
            self.waiting = self.waiting[end:]
            if self.latency:
                asyncio.get_running_loop().call_later(self.latency, self.transport.write, ANSWER)
            else:
                self.transport.write(ANSWER)


async def main(latency: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Model(latency), "127.0.0.1", 0, backlog=8192)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)  # until whoever started it leaves


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0))
