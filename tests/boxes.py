"""What the tests of agents in boxes share: a program in Python with a client, and one episode of it."""

from __future__ import annotations

import asyncio

from wanderlust.adapters.external_program import Program
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.tools.sandbox.base import SandboxBounds
from wanderlust.tools.sandbox.box import Box
from wanderlust.tools.sandbox.bubblewrap import find_python
from wanderlust.types import Task, assistant, user

MEDIUM = SandboxBounds(
    seconds=120, memory=512 << 20, processes=64, files=256, disk=64 << 20, entries=2_000, output=16 << 10
)
"""Bounds of a box in tests: room for Python and Node."""
TASK = Task(id="t", prompt=(user("say it"),), answer="hidden", info={"n": 3})
ASK = """
import http.client, json, os, socket, subprocess, sys, time, urllib.error, urllib.request
task = json.loads(sys.stdin.readline())
URL, KEY = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
PORT = int(URL.split(":")[2].split("/")[0])
def post(body, key=KEY, path="/chat/completions", **headers):
    headers |= {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
    return json.load(urllib.request.urlopen(urllib.request.Request(URL + path, body, headers)))
def ask(*messages, key=KEY, model="m"):
    body = {"model": model, "messages": [{"role": "user", "content": m} for m in messages]}
    return post(json.dumps(body).encode(), key)["choices"][0]["message"]["content"]
def raw(data, port=PORT, seconds=5):
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as s:
        s.sendall(data)
        got = b""
        try:
            while more := s.recv(65536): got += more
        except (TimeoutError, ConnectionError): pass
        return got
"""
"""Put before a program in Python."""


class Said(Program):
    """Worth a point when the program printed what the model said."""

    async def judge(self, episode, ended, folder):
        episode.reward("said", float(ended.stdout.strip().endswith("echo: say it")))


def echo(messages, rng):
    return assistant(f"echo: {messages[-1].content}")


def in_box(source, *, kind=Said, policy=None, limits=None, box=None, **options):
    """The rollout of one episode, whose agent is this Python in a box."""
    env = kind([str(find_python()), "-c", ASK + source], sandbox=box or Box(bounds=MEDIUM), **options)
    return asyncio.run(rollout(env, TASK, policy or Scripted(echo), limits=limits))
