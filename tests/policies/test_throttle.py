"""The throttle: never more than allowed, fewer for a server that cannot bear it, and back again."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from wanderlust.policies.endpoint import Throttle


class Server:
    """Bears `capacity` calls at once; each takes a few turns of the loop."""

    def __init__(self, capacity):
        self.capacity, self.live, self.peak = capacity, 0, 0

    async def call(self, throttle, rng):
        await throttle.enter()
        self.live += 1
        self.peak = max(self.peak, self.live)
        refused = self.live > self.capacity
        for _ in range(rng.randrange(1, 9)):
            await asyncio.sleep(0)
        self.live -= 1
        throttle.leave(overloaded=refused)
        return refused


async def traffic(throttle, server, calls=3000):
    refused = await asyncio.gather(*(server.call(throttle, Random(n)) for n in range(calls)))
    return sum(refused) / calls


def test_never_more_than_allowed_and_everybody_is_served():
    server = Server(10**6)
    assert asyncio.run(traffic(Throttle(7), server)) == 0
    assert server.peak == 7


@pytest.mark.parametrize("capacity", [1, 4, 20, 100])
def test_it_finds_what_a_server_bears_and_recovers_when_that_grows(capacity):
    async def go():
        throttle, server = Throttle(256), Server(capacity)
        await traffic(throttle, server)
        refused = await traffic(throttle, server)
        assert 0.7 * capacity <= throttle.limit <= 1.5 * capacity + 2
        server.capacity = 10**6
        await traffic(throttle, server, calls=8000)
        return refused, throttle.limit

    refused, limit = asyncio.run(go())
    assert refused < 0.25
    assert limit == 256


def test_a_few_refusals_at_random_do_not_throttle():
    async def go():
        throttle, rng = Throttle(64), Random(0)
        for _ in range(5000):
            await throttle.enter()
            throttle.leave(overloaded=rng.random() < 0.09)
        return throttle.limit

    assert asyncio.run(go()) > 48


def test_who_is_cancelled_while_waiting_costs_no_place():
    async def go():
        throttle = Throttle(1)
        await throttle.enter()
        waiting = [asyncio.create_task(throttle.enter()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.gather(waiting[0], return_exceptions=True)
        throttle.leave()
        waiting[1].cancel()  # in the moment in which it is admitted
        await asyncio.gather(waiting[1], return_exceptions=True)
        await waiting[2]
        throttle.leave()
        await throttle.enter()

    asyncio.run(go())
