"""A proxy through which a sandbox reaches the servers on a list, and no others.

It speaks HTTP's CONNECT, which clients use for TLS, and forwards plain requests of `http://` addresses, one a
connection. It looks names up itself, once, and connects to the address that it has checked: a name on the list whose
address is private, of this machine or of its link is refused. An address stands for itself: written on the list as
digits it is reached, private or not.

Not covered: what a listed server does with what it is sent. A server that hands requests on, or takes uploads, is a way
out. Inside a tunnel nothing is read, so a server behind a shared front is reached by the front's listed name.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from wanderlust.errors import UsageError, WanderlustError, one_line

MAX_TUNNELS = 32
"""Connections of one sandbox at once."""
MAX_EGRESS_BYTES = 2 << 30
"""Bytes that a sandbox may send and receive in all."""
MAX_HEAD_BYTES = 16 << 10
MAX_NAMES = 32
"""Different targets that the record names; the rest is counted as `others`."""
HEAD_SECONDS = 10.0
CONNECT_SECONDS = 15.0
IDLE_SECONDS = 120.0
_CHUNK_BYTES = 64 << 10
_TARGET = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})", re.ASCII)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_OWN_HEADERS = frozenset({"host", "connection", "proxy-connection", "proxy-authorization", "keep-alive", "upgrade"})

Target = tuple[str, int]
"""A host in lower case, without brackets or a last dot, and a port."""


class EgressRefused(WanderlustError):
    """A request that the egress proxy refused: the text names the target and the reason."""


def parse_target(text: str) -> Target:
    """Read `host:port`. Raises UsageError."""
    found = _TARGET.fullmatch(text)
    if found is None or not 0 < int(found["port"]) < 65_536:
        raise UsageError(f"egress goes to 'host:port', like 'pypi.org:443', and not to {one_line(text)!r}")
    return found["host"].strip("[]").lower().removesuffix("."), int(found["port"])


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet, and embeds no other (IPv4 in IPv6, 6to4, Teredo, NAT64)."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and (ip not in _UNICAST or ip.sixtofour or ip.teredo):
        return False
    return ip.is_global and not ip.is_multicast


_UNICAST = ipaddress.ip_network("2000::/3")
"""What of IPv6 is handed out to the internet."""


class EgressProxy:
    """The proxy of one sandbox: `async with proxy.serving(await sandbox.listen()) as url: ...`."""

    def __init__(self, allowed: Iterable[str]):
        """`allowed` are targets as `host:port`; nothing else is reached. Raises UsageError for what is no target."""
        self.allowed = frozenset(map(parse_target, allowed))
        self._tunnels: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._bytes = {"sent": 0, "received": 0}
        self._open = 0

    @property
    def record(self) -> dict[str, Any]:
        """What went through and what was refused, by target, as plain data."""
        return {"tunnels": dict(self._tunnels), "refused": dict(self._refused), "bytes": dict(self._bytes)}

    @asynccontextmanager
    async def serving(self, listener: socket.socket) -> AsyncIterator[str]:
        """Answer on `listener`, which is closed at the end of the block with all connections; gives the proxy's URL."""
        tasks: set[asyncio.Task[None]] = set()

        def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._answer(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        port = listener.getsockname()[1]
        server = await asyncio.start_server(answer, sock=listener, limit=MAX_HEAD_BYTES, backlog=MAX_TUNNELS)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open > MAX_TUNNELS:
                raise EgressRefused(f"more than {MAX_TUNNELS} connections at once")  # noqa: TRY301
            async with asyncio.timeout(HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            await self._pass(head, reader, writer)
        except EgressRefused as error:
            self._count(self._refused, str(error))
            why = one_line(f"egress refused: {error}").encode()
            writer.write(b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(why) + why)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            with suppress(OSError):
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        finally:
            self._open -= 1
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(1):
                    await writer.drain()
            writer.close()

    async def _pass(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        method, address, _ = (*request.split(" "), "", "")[:3]
        if method == "CONNECT":
            target, first, length = _read_target(address), b"", None
        else:
            target, first, length = _read_plain(method, address, lines)
        upstream_reader, upstream = await self._connect(target)
        self._count(self._tunnels, _name(target))
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            upstream.write(first)
            sending = asyncio.create_task(self._pump(reader, upstream, way="sent", length=length))
            try:
                await self._pump(upstream_reader, writer, way="received")
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
        finally:
            upstream.close()

    async def _connect(self, target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a target of the list at an address that has been checked."""
        host, port = target
        if target not in self.allowed:
            raise EgressRefused(f"{_name(target)} is not on the list")
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
                literal = _is_address(host)
                addresses = [str(place[4][0]) for place in found if literal or is_public(str(place[4][0]))]
                if not addresses:
                    raise EgressRefused(f"{_name(target)} has no public address")
                return await _connect_to_first(addresses, port)
        except socket.gaierror as error:
            raise OSError(f"{_name(target)}: {error.strerror}") from error

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, way: str, length: int | None = None
    ) -> None:
        """Pass bytes on to the end of the source, or `length` of them."""
        with suppress(OSError, TimeoutError):
            while length is None or length > 0:
                async with asyncio.timeout(IDLE_SECONDS):
                    data = await source.read(_CHUNK_BYTES if length is None else min(length, _CHUNK_BYTES))
                self._bytes[way] += len(data)
                if not data or sum(self._bytes.values()) > MAX_EGRESS_BYTES:
                    break
                length = None if length is None else length - len(data)
                sink.write(data)
                async with asyncio.timeout(IDLE_SECONDS):
                    await sink.drain()
            if length is None and sink.can_write_eof():
                sink.write_eof()

    def _count(self, counts: Counter[str], name: str) -> None:
        counts[name if name in counts or len(counts) < MAX_NAMES else "others"] += 1


async def _connect_to_first(addresses: list[str], port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first of the addresses that answers."""
    *others, last = dict.fromkeys(addresses)
    for address in others:
        with suppress(OSError):
            return await asyncio.open_connection(address, port, limit=_CHUNK_BYTES)
    return await asyncio.open_connection(last, port, limit=_CHUNK_BYTES)


def _name(target: Target) -> str:
    host, port = target
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _read_target(address: str) -> Target:
    try:
        return parse_target(address)
    except UsageError as error:
        raise EgressRefused(f"{one_line(address, 60)!r} is no host:port") from error


def _read_plain(method: str, address: str, lines: list[str]) -> tuple[Target, bytes, int]:
    """The target of a plain request, the request as its server gets it, and the length of its body."""
    if method not in _METHODS or not address.startswith("http://"):
        raise EgressRefused(f"{one_line(method + ' ' + address, 80)!r} is no request to an http:// address")
    try:
        parts = urlsplit(address)
        host = _read_target(f"[{parts.hostname}]:1" if ":" in (parts.hostname or "") else f"{parts.hostname}:1")[0]
        target = (host, 80 if parts.port is None else parts.port)
    except ValueError as error:
        raise EgressRefused(f"{one_line(address, 60)!r} is no address") from error
    fields = [(name.lower(), value.strip()) for name, colon, value in (line.partition(":") for line in lines) if colon]
    sizes = [value for name, value in fields if name == "content-length"]
    spaced = any(not line.partition(":")[1] or line[:1].isspace() or "\n" in line or "\r" in line for line in lines)
    if spaced or len(sizes) > 1 or any(name == "transfer-encoding" for name, _ in fields):
        raise EgressRefused(f"{_name(target)}: a request whose end is not plain")
    if sizes and not (sizes[0].isascii() and sizes[0].isdecimal()):
        raise EgressRefused(f"{_name(target)}: a request whose end is not plain")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    passed = [f"{name}: {value}" for name, value in fields if name not in _OWN_HEADERS]
    place = host if target[1] == 80 else _name(target)
    whole = [f"{method} {path} HTTP/1.1", f"host: {place}", "connection: close", *passed]
    return target, "\r\n".join([*whole, "", ""]).encode("latin-1"), int(sizes[0]) if sizes else 0
