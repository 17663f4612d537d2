"""Hostile agents in boxes: none gets out, plays in a neighbour's episode, or keeps a neighbour from its work."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.box_attempts import BREACHES, EXHAUSTIONS, HARNESS, HOLD, RUN
from tests.boxes import ASK, MEDIUM, TASK
from tests.sandboxes import bearing, everybody, token

from patience import PATIENCE
from wanderlust.adapters.external_program import Program, open_endpoint
from wanderlust.environment import Limits
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.serving.http import HttpResponse
from wanderlust.tools.process import wait_readable
from wanderlust.tools.sandbox import LocalSandbox
from wanderlust.tools.sandbox.base import run_bounded
from wanderlust.tools.sandbox.box import Box
from wanderlust.tools.sandbox.bubblewrap import find_python
from wanderlust.types import assistant

PYTHON = str(find_python())


class _Echo(BaseHTTPRequestHandler):
    """The server that is listed says what it got, or sends away to the machine's server."""

    def do_GET(self):
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.server.elsewhere}/")
            self.end_headers()
            return
        said = f"{self.requestline}\n{self.headers}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_POST = do_GET

    def log_message(self, *args):
        """Not on the tests' output."""


class _Machine(_Echo):
    """The machine's own server, which nobody may reach."""

    def do_GET(self):
        self.server.heard.append(self.requestline)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"the machine's server")


@contextmanager
def serving(handler, **attributes):
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        vars(server).update(attributes)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def listener(stack, family, address, kind=socket.SOCK_STREAM):
    server = stack.enter_context(socket.socket(family, kind))
    server.bind(address)
    if kind == socket.SOCK_STREAM:
        server.listen()
    server.setblocking(False)
    return server


async def attack(known, box, said):
    """Play a neighbour's episode, and while it waits for its second turn an attacker's, who knows all about it."""
    word, learnt, over = token(), asyncio.Event(), asyncio.Event()

    async def answer(messages, rng):
        text = messages[-1].content
        if text.startswith("{"):
            known.update(json.loads(text))
            learnt.set()
        if text == "two":
            await over.wait()
        return assistant(said if text.startswith("{") else f"echo: {text}")

    source = f"'{word}'; ask(json.dumps({{'key': KEY, 'door': PORT}})); print(ask('two'))"
    neighbour = Program([PYTHON, "-c", ASK + source], sandbox=Box(bounds=MEDIUM))
    playing = asyncio.create_task(rollout(neighbour, TASK, Scripted(answer)))
    await learnt.wait()
    known["pid"] = max(bearing(word))
    known["uid"] = os.stat(f"/proc/{known['pid']}").st_uid
    exposed = bearing(known["key"])
    table = f"TABLE = {json.dumps(BREACHES)!r}\n"
    env = Program(
        [PYTHON, "-c", table + HARNESS + RUN.replace("sys.stdin.readline()", "TABLE")],
        environment={"KNOWN": json.dumps(known)},
        sandbox=box,
    )
    attacker = await rollout(env, TASK, Scripted(answer), limits=Limits(max_turns=1000))
    over.set()
    return attacker, await playing, exposed


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    folder, said, abstract = everybody(tmp_path_factory.mktemp("box")), token(), token()
    (folder / "shown").mkdir(mode=0o777)
    (folder / "shown").chmod(0o777)
    (folder / "shown" / "file").write_text("before")
    (folder / "shown" / "file").chmod(0o666)
    with ExitStack() as stack:
        machine = stack.enter_context(serving(_Machine, heard=[]))
        listed = stack.enter_context(serving(_Echo, elsewhere=machine.server_port))
        sockets = [
            listener(stack, socket.AF_UNIX, str(folder / "socket")),
            listener(stack, socket.AF_UNIX, "\0" + abstract),
            listener(stack, socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_DGRAM),
        ]
        known = {
            "port": machine.server_port,
            "listed": listed.server_port,
            "datagram": sockets[-1].getsockname()[1],
            "unix": str(folder / "socket"),
            "abstract": abstract,
            "host": socket.gethostname(),
            "machine": os.getpid(),
            "shown": str(folder / "shown"),
            "response": "resp_0_agent",
            "said": "never",
        }
        (folder / "socket").chmod(0o777)
        egress = (f"127.0.0.1:{listed.server_port}", f"localhost:{machine.server_port}", "allowed.example:443")
        box = Box(bounds=MEDIUM, readable=(folder / "shown",), egress=egress)
        attacker, neighbour, exposed = asyncio.run(attack(known, box, said))
        heard = [*machine.heard]
        for server in sockets:
            try:
                heard.append(server.accept() if server.type == socket.SOCK_STREAM else server.recv(9))
            except BlockingIOError:
                continue
    shown = [(path.name, path.read_text()) for path in (folder / "shown").iterdir()]
    return attacker, neighbour, {"heard": heard, "shown": shown, "exposed": exposed, "said": said}


def test_there_are_enough_attempts():
    assert len(BREACHES) + len(EXHAUSTIONS) >= 120


@pytest.mark.parametrize("name", BREACHES)
def test_attempt(attacked, name):
    attacker, _, _ = attacked
    assert attacker.error is None
    assert json.loads(attacker.state["program"]["stdout"])[name] == "refused"


def test_the_neighbour_has_its_own_turns_and_no_others(attacked):
    attacker, neighbour, outside = attacked
    assert neighbour.error is None
    assert [turn.action.content for turn in neighbour.trajectory.turns] == [outside["said"], "echo: two"]
    assert neighbour.state["door"] == {"requests": 2, "refused": {}}
    assert outside["said"] not in attacker.state["program"]["stdout"]


def test_nobody_outside_has_heard_of_it(attacked):
    _, _, outside = attacked
    assert outside["heard"] == []
    assert outside["shown"] == [("file", "before")]
    assert outside["exposed"] == [], "a key stands on a command line, which every user of this machine may read"


def test_what_was_refused_is_in_the_record(attacked):
    attacker, _, _ = attacked
    assert attacker.state["door"]["refused"]["wrong_key"] > 10
    refused = attacker.state["egress"]["refused"]
    assert any(name.endswith("is not on the list") for name in refused)
    assert any(name.endswith("has no public address") for name in refused)


WORK = (
    """
import fcntl, os, time
r, w = os.pipe()
assert fcntl.fcntl(w, 1032) == 65536, "a pipe is small"
import ctypes
libc = ctypes.CDLL(None)
assert not WATCHES or libc.inotify_init1(0) >= 0, "no watch of files"
child = os.fork()
if child == 0: os._exit(7)
assert os.waitpid(child, 0)[1] == 7 << 8
with open("/work/own", "wb") as file:
    file.write(bytes(4 << 20))
    fcntl.lockf(file, fcntl.LOCK_EX)
held = [os.eventfd(0) for _ in range(50)]
block = bytearray(b"x" * (32 << 20))
import threading
thread = threading.Thread(target=lambda: None)
thread.start()
thread.join()
"""
    + ASK.replace("task = json.loads(sys.stdin.readline())", "")
    + """
assert ask("x") == "echo: x"
print("worked")
"""
)


@pytest.mark.parametrize("name", EXHAUSTIONS)
def test_a_neighbour_works_while_a_box_exhausts(name):
    """The attacker holds all it could get; its neighbour's pipes, watches, processes, files and model are as ever."""

    async def play():
        async with Box(bounds=MEDIUM).opened() as attacker, Box(bounds=MEDIUM).opened() as neighbour:
            assert isinstance(neighbour, LocalSandbox)
            if not neighbour.own_user:
                pytest.skip("this process cannot hand out users: its sandboxes share what the kernel counts per user")
            async with (
                open_endpoint(await attacker.listen(), Answers()) as front,
                open_endpoint(await neighbour.listen(), Answers()) as door,
            ):
                source = f"{HOLD}\nPORT = {front.url.split(':')[2].split('/')[0]}\n{EXHAUSTIONS[name]}\n"
                child = await attacker.start([PYTHON, "-c", source + "os.write(1, b'held')\ntime.sleep(60)"])
                async with asyncio.timeout(PATIENCE):
                    await wait_readable(child.stdout)
                variables = {"OPENAI_BASE_URL": door.url, "OPENAI_API_KEY": door.key}
                work = WORK.replace("WATCHES", str(neighbour.bounded_as_a_whole))
                job = await neighbour.start([PYTHON, "-c", work], env=variables)
                result = await run_bounded(job, stdin=b"", seconds=PATIENCE, output=9999)
                return result, len(os.listdir("/proc/self/fd"))

    result, files = asyncio.run(play())
    assert result.stdout.startswith(b"worked"), result.text
    assert files < 400


class Answers:
    """An endpoint without an episode: says what it was told."""

    async def answer(self, method, path, body, *, prefer="", style="openai"):
        said = json.loads(body)["messages"][-1]["content"]
        reply = {"choices": [{"message": {"role": "assistant", "content": f"echo: {said}"}}]}
        return HttpResponse(200, json.dumps(reply).encode())
