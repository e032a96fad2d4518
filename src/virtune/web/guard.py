# SPDX-License-Identifier: Apache-2.0
"""Access checks of the local page and the security headers of its answers.

The page has no login, so other sites must not reach it through the user's browser: DNS rebinding is detected by the
Host header, cross-origin requests by `Origin` and `Sec-Fetch-Site`.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

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

_OWN_SITE = ("same-origin", "none")
"""The browser's header values for a request from the page itself, and for a typed address."""


class Guard:
    """Lets requests to this machine's own names through, and puts headers on every answer."""

    def __init__(self, app: Application, *, hosts: tuple[str, ...] = LOOPBACK) -> None:
        self.app, self.hosts = app, hosts

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

        status, why = refusal(scope["method"], _headers(scope), self.hosts)
        if status:
            await with_headers(
                {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]}
            )
            await with_headers({"type": "http.response.body", "body": f"{why}\n".encode()})
            return
        await self.app(scope, receive, with_headers)


def refusal(method: str, headers: dict[str, str], hosts: tuple[str, ...]) -> tuple[int, str]:
    """Return the status and the reason with which a request is refused; 0 where it is answered."""
    if method not in ("GET", "HEAD"):
        return 405, "this page is read-only"
    host = headers.get("host", "")
    if _name(host) not in hosts:
        return 421, "this page answers to 127.0.0.1 and localhost only"
    if headers.get("sec-fetch-site", "none") not in _OWN_SITE:
        return 403, "this page answers no other site; type its address"
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        return 403, "this page answers no other origin"
    return 0, ""


def _name(host: str) -> str:
    """Return the name in a Host header without its port; empty for an invalid one."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _headers(scope: Message) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
