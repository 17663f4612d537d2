"""The egress proxy: what is on the list is reached, by TLS's tunnel and by plain requests, and nothing else is."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.boxes import MEDIUM, in_box

from wanderlust.errors import UsageError
from wanderlust.tools.sandbox.box import Box
from wanderlust.tools.sandbox.egress import MAX_NAMES, EgressProxy, is_public, parse_target


class Answers(BaseHTTPRequestHandler):
    """A server that says what it was asked."""

    heard: list[str]

    def do_GET(self):
        self.server.heard.append(f"{self.command} {self.path} {self.headers['Host']}")
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()
            return
        body = b"heard: " + self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *args):
        """Not on the tests' output."""


@contextmanager
def server():
    """A server of this machine, and its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as listening:
        listening.heard = []
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield listening, listening.server_address[1]
        finally:
            listening.shutdown()
            thread.join()


SAY = "\nprint(ask('say it'))"
OPEN = """
opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": os.environ["HTTP_PROXY"]}))
def get(url, data=None):
    direct = {name: os.environ.pop(name) for name in ("NO_PROXY", "no_proxy")}
    try:
        print(opener.open(url, data, timeout=60).read())
    except (urllib.error.URLError, ConnectionError) as error:
        print(error, error.read() if hasattr(error, "read") else "")
    finally:
        os.environ |= direct
PROXY = int(os.environ["HTTPS_PROXY"].rsplit(":", 1)[1])
"""


def test_a_listed_server_is_reached_and_counted():
    with server() as (listening, port):
        box = Box(bounds=MEDIUM, egress=(f"127.0.0.1:{port}",))
        inside = "\\r\\n\\r\\nGET /t HTTP/1.0\\r\\nHost: h\\r\\n\\r\\n"
        tunnel = f"print(raw(b'CONNECT 127.0.0.1:{port} HTTP/1.1{inside}', PROXY))"
        played = in_box(OPEN + f"get('http://127.0.0.1:{port}/a?b=c', b'body')\n" + tunnel + SAY, box=box)
        assert played.error is None
        assert listening.heard == [f"POST /a?b=c 127.0.0.1:{port}", "GET /t h"]
    said = played.state["program"]["stdout"]
    assert "b'heard: body'" in said
    assert "200 Connection established" in said
    record = played.state["egress"]
    assert record["tunnels"] == {f"127.0.0.1:{port}": 2}
    assert record["refused"] == {}
    assert record["bytes"]["received"] > 50


def test_what_is_not_listed_is_refused_and_recorded():
    with server() as (listening, port):
        box = Box(bounds=MEDIUM, egress=("files.example:443", f"localhost:{port}"))
        source = f"get('http://127.0.0.1:{port}/')\nget('http://localhost:{port}/')\nget('http://example.org/')"
        played = in_box(OPEN + source + SAY, box=box)
        assert played.error is None
        assert listening.heard == []
    assert played.state["egress"]["refused"] == {
        f"127.0.0.1:{port} is not on the list": 1,
        f"localhost:{port} has no public address": 1,
        "example.org:80 is not on the list": 1,
    }
    assert "egress refused: example.org:80 is not on the list" in played.state["program"]["stdout"]


def test_a_redirect_leads_no_further_than_the_list():
    with server() as (listening, port):
        played = in_box(OPEN + f"get('http://127.0.0.1:{port}/away')" + SAY, box=Box(egress=(f"127.0.0.1:{port}",)))
        assert len(listening.heard) == 1
    assert played.state["egress"]["refused"] == {"127.0.0.1:1 is not on the list": 1}


def test_without_egress_there_is_no_proxy():
    played = in_box("print([name for name in os.environ if 'PROXY' in name.upper()])" + SAY)
    assert played.state["program"]["stdout"].startswith("[]")
    assert "egress" not in played.state


@pytest.mark.parametrize(
    "address",
    """127.0.0.1 127.9.9.9 0.0.0.0 10.0.0.1 172.16.0.1 192.168.1.1 100.64.0.1 169.254.169.254 224.0.0.1 240.0.0.1
    255.255.255.255 198.18.0.1 192.0.0.1 :: ::1 fe80::1 fe80::1%eth0 fc00::1 fd12::1 ff02::1 ::ffff:127.0.0.1
    ::ffff:8.8.8.8 ::127.0.0.1 64:ff9b::7f00:1 64:ff9b:1::1 2002:7f00:1::1 2001:0:7f00:1::1
    2001:db8::1 100::1""".split(),  # noqa: SIM905
)
def test_addresses_that_are_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "151.101.0.223", "2606:4700::1111", "2a04:4e42::223"])
def test_addresses_that_are_public(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "text",
    ["", "pypi.org", "pypi.org:0", "pypi.org:65536", "pypi.org:443/x", "user@pypi.org:443", "a b:1", "*:443", "[::1:2"],
)
def test_what_is_no_target(text):
    with pytest.raises(UsageError, match="egress goes to"):
        parse_target(text)


def test_targets_are_read_alike():
    assert parse_target("PyPI.org.:443") == ("pypi.org", 443)
    assert parse_target("[::1]:80") == ("::1", 80)


def test_the_record_stays_small_and_an_open_proxy_ends():
    async def play():
        proxy = EgressProxy([])
        listener = socket.create_server(("127.0.0.1", 0))
        async with proxy.serving(listener) as url:
            port = int(url.rsplit(":", 1)[1])
            for number in range(MAX_NAMES + 20):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"CONNECT name%d.example:443 HTTP/1.1\r\n\r\n" % number)
                assert b"403" in await reader.readline()
                writer.close()
            _, silent = await asyncio.open_connection("127.0.0.1", port)
        silent.close()
        return proxy.record["refused"]

    refused = asyncio.run(asyncio.wait_for(play(), 20))
    assert len(refused) == MAX_NAMES + 1
    assert refused["others"] == 20
