"""A model that costs nothing: answers every chat completion at once with the same words.

Run as a process of its own, so that its work is not counted: `python -m benchmarks.model_server` prints its port.
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
            self.transport.write(ANSWER)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Model, "127.0.0.1", 0, backlog=8192)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until whoever started it leaves


if __name__ == "__main__":
    asyncio.run(main())
