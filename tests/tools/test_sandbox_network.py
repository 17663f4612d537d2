"""Attempts to reach anything from inside the isolated sandbox: nobody outside hears of them."""

from __future__ import annotations

import socket

import pytest
from tests.sandboxes import TRIED, code, everybody, refused, shell, token


def listener(family, address, kind=socket.SOCK_STREAM):
    server = socket.socket(family, kind)
    try:
        server.bind(address)
    except OSError:
        server.close()
        raise
    if kind == socket.SOCK_STREAM:
        server.listen()
    server.setblocking(False)
    return server


def heard(server):
    """Whether anybody has connected or sent anything."""
    try:
        return server.accept() if server.type == socket.SOCK_STREAM else server.recv(100)
    except BlockingIOError:
        return None


CONNECT = """
def call(family, kind, address):
    s = socket.socket(family, kind)
    s.settimeout(0.5)
    s.connect(address)
    s.send(b"out")
    if kind == socket.SOCK_DGRAM:
        raise OSError("sent, and the other side knows whether it came")
"""


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM], ids=["tcp", "udp"])
@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")], ids=["4", "6"])
def test_reaches_a_server_of_this_machine(family, host, kind):
    with listener(family, (host, 0), kind) as server:
        port = server.getsockname()[1]
        tries = f"tried('it', lambda: call({int(family)}, {int(kind)}, ({host!r}, {port})))"
        assert refused(code(TRIED + CONNECT + tries))
        assert heard(server) is None


def test_reaches_this_machine_by_its_other_addresses():
    with listener(socket.AF_INET, ("0.0.0.0", 0)) as server:
        port, name = server.getsockname()[1], socket.gethostname()
        tries = (
            f"for h in ('0.0.0.0', '10.0.2.2', '172.17.0.1', {name!r}):\n    tried(h, lambda: call(2, 1, (h, {port})))"
        )
        assert refused(code(TRIED + CONNECT + tries))
        assert heard(server) is None


def test_has_no_network_device_but_its_own_loopback():
    devices = shell("cat /proc/net/dev | tail -n +3 | cut -d: -f1; cat /proc/net/route | tail -n +2").text.split()
    assert devices == ["lo"]


def name_server():
    """Where a program without a configuration asks for names, when this process may listen there."""
    try:
        return listener(socket.AF_INET, ("127.0.0.1", 53), socket.SOCK_DGRAM)
    except OSError:
        return listener(socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_DGRAM)


def test_asks_a_name_server():
    with name_server() as server:
        tries = """
tried("name", lambda: socket.getaddrinfo("example.org", 80))
tried("mail", lambda: socket.gethostbyname("example.org"))
"""
        assert refused(code(TRIED + tries))
        assert heard(server) is None


def test_reaches_a_unix_socket_of_this_machine(tmp_path):
    everybody(tmp_path)
    with listener(socket.AF_UNIX, str(tmp_path / "socket")) as server:
        (tmp_path / "socket").chmod(0o777)
        assert refused(code(TRIED + CONNECT + f"tried('it', lambda: call(1, 1, {str(tmp_path / 'socket')!r}))"))
        assert heard(server) is None


def test_reaches_an_abstract_socket_of_this_machine():
    name = "\0" + token()
    with listener(socket.AF_UNIX, name) as server:
        assert refused(code(TRIED + CONNECT + f"tried('it', lambda: call(1, 1, {name!r}))"))
        assert heard(server) is None


@pytest.mark.parametrize("family", [16, 17, 29, 38, 40, 44], ids=["netlink", "packet", "can", "alg", "vsock", "xdp"])
def test_opens_a_socket_that_no_namespace_holds(family):
    tries = f"for kind in (1, 2, 3):\n    tried(kind, lambda: socket.socket({family}, kind))"
    assert refused(code(TRIED + tries))


def test_opens_a_raw_socket():
    assert refused(
        code(TRIED + "tried('icmp', lambda: socket.socket(2, 3, 1))\ntried('ping', lambda: socket.socket(2, 2, 1))")
    )
