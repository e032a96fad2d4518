# SPDX-License-Identifier: Apache-2.0
"""Access checks of the local page and the security headers of its answers.

Other users of this machine can connect too, and a store may be its owner's alone: each request needs the token that
was printed with the address, in the query, as a bearer's, or in the cookie that the first one sets. Other sites must
not reach the page through the user's browser: DNS rebinding is detected by the Host header, cross-origin requests by
`Origin` and `Sec-Fetch-Site`.
"""

import hmac
import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1")

CONTENT_SECURITY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
"""No scripts, no external resources, no framing by other pages."""

LIVE_SECURITY = f"script-src 'self'; connect-src 'self'; {CONTENT_SECURITY}"
"""The page of a running study also runs the scripts that this server has, which ask this server only."""

LIVE = "/live/"

_HEADERS = {
    "content-security-policy": CONTENT_SECURITY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}

_HOST = re.compile(r"(\[[0-9a-f:]+\]|[a-z0-9.-]+)(?::([0-9]{1,5}))?", re.IGNORECASE | re.ASCII)
"""A Host header: a name or an address, with a port or without."""

_OWN_SITE = ("same-origin", "none")
"""The browser's header values for a request from the page itself, and for a typed address."""


class Guard:
    """Lets requests with the token to this machine's own names through, and puts headers on every answer."""

    def __init__(self, app: Application, *, token: str, hosts: tuple[str, ...] = LOOPBACK) -> None:
        self.app, self.token, self.hosts = app, token, hosts

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it in a sentence."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        own = _HEADERS | ({"content-security-policy": LIVE_SECURITY} if scope["path"].startswith(LIVE) else {})

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [pair for pair in message.get("headers", []) if pair[0].decode().lower() not in own]
                message["headers"] = kept + [(name.encode(), value.encode()) for name, value in own.items()]
            await send(message)

        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        status, why = refusal(scope["method"], headers, self.hosts)
        asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        cookie = f"virtune-{_place(headers)[1]}"  # a host's cookies are those of all its ports
        if not status and not hmac.compare_digest(_given(asked, headers, cookie).encode(), self.token.encode()):
            status, why = 403, "this page needs the token in the address that `virtune serve` printed"
        elif not status and any(name == "token" for name, _ in asked):
            own["set-cookie"] = f"{cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"
            if "text/html" in headers.get("accept", ""):  # a browser keeps and shows addresses
                rest = urlencode([pair for pair in asked if pair[0] != "token"])
                own["location"] = f"/{quote(scope['path'].lstrip('/'))}{rest and '?'}{rest}"
                status, why = 303, "the token is kept in a cookie"
        if status:
            head = [(b"content-type", b"text/plain")]
            await with_headers({"type": "http.response.start", "status": status, "headers": head})
            await with_headers({"type": "http.response.body", "body": f"{why}\n".encode()})
            return
        await self.app(scope, receive, with_headers)


def refusal(method: str, headers: dict[str, str], hosts: tuple[str, ...]) -> tuple[int, str]:
    """Return the status and the reason with which a request is refused; 0 where it is answered."""
    if method not in ("GET", "HEAD"):
        return 405, "this page is read-only"
    if _place(headers)[0] not in hosts:
        return 421, "this page answers to 127.0.0.1 and localhost only"
    if headers.get("sec-fetch-site", "none") not in _OWN_SITE:
        return 403, "this page answers no other site; type its address"
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != headers["host"]:
        return 403, "this page answers no other origin"
    return 0, ""


def _place(headers: dict[str, str]) -> tuple[str, str]:
    """Return the name and the port in the Host header; empty for an invalid one."""
    found = _HOST.fullmatch(headers.get("host", ""))
    return (found[1].strip("[]").lower(), found[2] or "80") if found else ("", "")


def _given(asked: Sequence[tuple[str, str]], headers: dict[str, str], cookie: str) -> str:
    """Return the token of a request; empty where it has none."""
    kind, _, bearers = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return bearers.strip()
    kept = dict(part.strip().partition("=")[::2] for part in headers.get("cookie", "").split(";"))
    return dict(asked).get("token") or kept.get(cookie, "")
