"""Access to the studio: only for browsers that were given the token, and only from its own page.

Defends against pages of other sites that call this server (Origin, SameSite, no CORS), foreign names that point to it
(Host), models' text that poses as a page (types, policy), and unbounded requests. Not covered: other programs of the
same user, who may read the run's files anyway; listeners in a network that this is opened to (no encryption).
"""

from __future__ import annotations

import ipaddress
import secrets
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES, MAX_QUERY_CHARS = 2**20, 16 * 2**10
"""Longest body of a request, and longest address."""
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; base-uri 'self'; form-action 'none'"
)
"""Permissions of the page; an exported page contains them."""
HEADERS = {
    "content-security-policy": f"{CONTENT_SECURITY_POLICY}; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """ASGI middleware that refuses unauthorized requests and adds security headers to every answer."""

    def __init__(self, app: ASGIApp, *, token: str, hosts: tuple[str, ...] = ()):
        """`hosts` are names of the server, beside addresses and localhost."""
        self.app, self.token = app, token
        self.hosts = ("localhost", *(host.lower() for host in hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refused = self._refusal_response(scope, headers)
        if refused is not None:
            await refused(scope, receive, _with_headers(send, private=True))
            return
        await self.app(
            scope, _limit_body(receive, headers), _with_headers(send, private=scope["path"].startswith("/api/"))
        )

    def _refusal_response(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer to a request that is refused, or that brings the token; None for all others."""
        if not self._is_own_host(headers.get("host", "")):
            return _refusal(421, "this address is not the studio's: it listens for its own name alone")
        if not _same_origin(headers):
            return _refusal(403, "this request comes from another page")
        if len(scope["query_string"]) + len(scope["path"]) > MAX_QUERY_CHARS:
            return _refusal(414, f"an address of more than {MAX_QUERY_CHARS} bytes")
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        token = dict(query).get("token")
        if token is not None and scope["method"] == "GET" and self._is(token):
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            path = "/" + scope["path"].lstrip("/\\")  # two slashes would name another host
            # The token moves from the address to a cookie.
            response = RedirectResponse(path + (f"?{rest}" if rest else ""), status_code=303)
            response.set_cookie(_cookie(headers), self.token, httponly=True, samesite="strict", path="/")
            return response
        if self._has_valid_cookie(headers):
            return None
        return _refusal(401, "the studio wants its token: open the address that `wander studio` printed")

    def _is_own_host(self, host: str) -> bool:
        """Whether a Host header is an address or a name of ours; a foreign name may point here (DNS rebinding)."""
        name = urlsplit(f"//{host}").hostname if host.isascii() and "/" not in host and "@" not in host else None
        if not name:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self.hosts
        return True

    def _is(self, token: str) -> bool:
        return secrets.compare_digest(token.encode(), self.token.encode())

    def _has_valid_cookie(self, headers: Headers) -> bool:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is(bearer.strip()):
            return True
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        cookie = cookies.get(_cookie(headers))
        return cookie is not None and self._is(cookie.value)


def _cookie(headers: Headers) -> str:
    """Name of the cookie; it contains the port, as cookies are shared by all ports of a host."""
    return f"wander-{_digits(headers.get('host', '').rpartition(':')[2])}"


def _digits(text: str) -> str:
    return text if text.isascii() and text.isdecimal() and len(text) < 16 else "0"


def _same_origin(headers: Headers) -> bool:
    """Whether the request comes from our page, from an address bar, or from no browser, by the browser's headers."""
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        # A link elsewhere may lead here, as long as it only opens the page.
        return headers.get("sec-fetch-mode") == "navigate" and "origin" not in headers
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == headers.get("host", "").lower()


def _limit_body(receive: Receive, headers: Headers) -> Receive:
    """End a body above MAX_BODY_BYTES as if its sender had hung up."""
    received_bytes = 0 if int(_digits(headers.get("content-length", "0"))) <= MAX_BODY_BYTES else MAX_BODY_BYTES + 1

    async def received() -> Message:
        nonlocal received_bytes
        message = await receive()
        received_bytes += len(message.get("body", b""))
        return {"type": "http.disconnect"} if received_bytes > MAX_BODY_BYTES else message

    return received


def _refusal(status: int, line: str) -> Response:
    return PlainTextResponse(line + "\n", status_code=status)


def _with_headers(send: Send, *, private: bool) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            if private:
                headers.setdefault("cache-control", "no-store")
        await send(message)

    return sent
