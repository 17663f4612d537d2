"""A model's server that fails in every way we know, the same way for the same request and try."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from random import Random

from aiohttp import web

SHARE = 0.3
HUGE = 10 * 2**20
HANG_SECONDS = 3600


def answer(message, finish="stop"):
    return {
        "choices": [{"message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    }


def call(name, arguments):
    return answer(
        {"content": None, "tool_calls": [{"id": "c", "function": {"name": name, "arguments": arguments}}]}, "tool_calls"
    )


def well(messages):
    """What the model says: it calls `add` until the result is there, then says that."""
    results = [m["content"] for m in messages if m["role"] == "tool" and m["content"].isdecimal()]
    return answer({"content": results[-1]}) if results else call("add", '{"a": 40, "b": 2}')


class Faults:
    """Counts what it did, by name."""

    def __init__(self):
        self.told = Counter()
        self._tries = Counter()

    async def handle(self, request):
        body = await request.json()
        place = (body["seed"], len(body["messages"]))
        self._tries[place] += 1
        rng = Random(f"{place}/{self._tries[place]}")
        kind = rng.choice(KINDS) if rng.random() < SHARE else None
        self.told[kind.__name__ if kind else "well"] += 1
        if kind is None:
            return web.json_response(well(body["messages"]))
        return await kind(request)


async def busy(request):
    return web.Response(status=429, headers={"Retry-After": "0"})


async def broken(request):
    return web.Response(status=500, text="Traceback")


async def reset(request):
    request.transport.abort()
    return web.Response()


async def hang(request):
    await asyncio.sleep(HANG_SECONDS)
    raise AssertionError


async def garbage(request):
    return web.Response(body=bytes(range(256)) * 4)


async def cut(request):
    return web.Response(body=json.dumps(answer({"content": "42"})).encode()[:30])


async def wrong_tool(request):
    return web.json_response(call("rm -rf", "{}"))


async def wrong_arguments(request):
    return web.json_response(call("add", '{"a": [1, "b"'))


async def empty(request):
    return web.json_response({"choices": [{"message": {"content": ""}, "finish_reason": "stop"}]})


async def huge(request):
    return web.json_response(answer({"content": "4" * HUGE}))


KINDS = [busy, broken, reset, hang, garbage, cut, wrong_tool, wrong_arguments, empty, huge]


def app(faults):
    application = web.Application()
    application.router.add_post("/v1/chat/completions", faults.handle)
    return application
