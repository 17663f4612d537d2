"""Access to the studio: only for browsers that were given the token, and only from its own page.

Defends against pages of other sites that call this server (Origin, SameSite, no CORS), foreign names that point to it
(Host), models' text that poses as a page (types, policy), and unbounded requests. Not covered: other programs of the
same user, who may read the run's files anyway; listeners in a network that this is opened to (no encryption).
"""

from __future__ import annotations

import ipaddress
import os
import secrets
from base64 import b64encode
from hashlib import sha256
from html import escape
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
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
        navigates = headers.get("sec-fetch-mode") == "navigate" and scope["method"] == "GET"
        line = "the studio wants its token: open the address that `wander studio` printed"
        return _token_form(query, wrong=token is not None) if navigates else _refusal(401, line)

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


FORM_STYLE = (
    ":root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}"
    "main{max-width:30rem;margin:15vh auto;padding:0 1rem}h1{font-size:1.25rem;font-weight:600}"
    "label{display:block;font-weight:600}form{display:grid;gap:.5rem}"
    "input,button{font:inherit;padding:.5rem .75rem;min-width:0}p{margin:.5rem 0}"
)
FORM_POLICY = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(FORM_STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Permissions of the page that asks for the token."""


def _token_form(query: list[tuple[str, str]], *, wrong: bool) -> Response:
    """A page with a field for the token, which leads to the address that was opened."""
    kept = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
        for name, value in query
        if name != "token"
    )
    refused = '<p role="alert">This is not the token of the running studio.</p>' if wrong else ""
    body = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Wanderlust studio: token</title><style>{FORM_STYLE}</style>"
        f"<main><h1>The studio wants its token</h1>{refused}<p>It is the part after <code>token=</code> in the address "
        f'that <code>wander studio</code> printed.</p><form method="get">{kept}<label for="token">Token</label>'
        '<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>'
        "<button>Open</button></form></main></html>"
    )
    return HTMLResponse(body, status_code=401, headers={"content-security-policy": FORM_POLICY})


TOKEN_BYTES = 24


def lasting_token(port: int) -> str:
    """The token of this user's studio on a port, which stays the same across restarts so that open tabs go on.

    It is stored in a file that only the user may read. A new one is made for port 0, where the file was open to others,
    and where it cannot be written.
    """
    fresh = secrets.token_urlsafe(TOKEN_BYTES)
    if port == 0:
        return fresh
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    file = Path(state) / "wanderlust" / f"studio-{port}.token"
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if token := _stored_token(file):
            return token
        file.unlink(missing_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(fresh)
    except OSError:
        pass
    return fresh


def _stored_token(file: Path) -> str:
    """The token in a private file of this user; empty for any other file."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return ""
    with os.fdopen(descriptor) as opened:
        status = os.fstat(descriptor)
        token = opened.read(200).strip()
    private = status.st_uid == os.getuid() and not status.st_mode & 0o077
    return token if private and len(token) >= TOKEN_BYTES and token.isascii() else ""


def _refusal(status: int, line: str) -> Response:
    return PlainTextResponse(line + "\n", status_code=status)


def _with_headers(send: Send, *, private: bool) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            if private:
                headers.setdefault("cache-control", "no-store")
        await send(message)

    return sent
