"""Clients that nobody here wrote play episodes: SDKs and frameworks in Python and node, from `make peers`."""

from __future__ import annotations

import asyncio

import pytest
from benchmarks.bars_clients import first_bytes
from benchmarks.clients import ClientMode, ClientProcess, client_modes, play_mode, runtime_command
from benchmarks.peer import NotMeasured

from wanderlust.serving.http import AgentServer

MODES = client_modes()


@pytest.fixture(scope="module")
def loop():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def processes(loop):
    """The processes of the runtimes, each started when it is first wanted."""
    started = {}

    def process_of(runtime):
        if runtime not in started:
            made = ClientProcess.started(runtime)
            started[runtime] = (made, loop.run(made.__aenter__()))
        return started[runtime][1]

    yield process_of
    for made, _ in started.values():
        loop.run(made.__aexit__(None, None, None))


def test_there_are_modes_of_every_kind():
    names = [mode.name for mode in MODES]
    assert len(names) == len(set(names)) >= 100
    assert {mode.runtime for mode in MODES} == {"python", "litellm", "node"}


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_a_client_plays_with_exact_tokens(mode: ClientMode, processes, loop):
    try:
        runtime_command(mode.runtime)
    except NotMeasured as why:
        pytest.skip(str(why))

    async def go(process):
        async with AgentServer() as server:
            return await play_mode(mode, process, server)

    assert loop.run(go(processes(mode.runtime))) == ""


def test_the_first_byte_does_not_wait_for_the_answer():
    taken = asyncio.run(first_bytes())
    assert len(taken) == 4
    assert max(taken.values()) < 1.5
