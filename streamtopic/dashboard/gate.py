"""Checks each request to the dashboard: its host, size and headers, the token, and the visit that the token opened.

A page of another site must neither read a page of this server nor press its buttons through the visitor's browser. So
a name of a host is answered only if the operator gave it (else a stranger's name could be pointed at this machine), a
form must come from this server's own page, and a visit's cookie goes to this server alone.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["PICTURES_POLICY", "Access", "Gate", "Visit", "Visits", "nobody_waits"]

MOST_BYTES = 8192
"""Bytes of a form; the forms here have two fields."""
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
# Pages of pictures carry their style with them, and run and load nothing.
PICTURES_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Not `no-referrer`: with that a browser sends no origin with our own forms.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_SECONDS = 12 * 3600.0
_MOST_VISITS = 256


@dataclass(frozen=True, slots=True)
class Access:
    """What the token guards.

    token: the secret that opens a visit; None where nobody can act.
    reading: whether reading needs a visit too.
    """

    token: str | None = field(repr=False)
    reading: bool

    def opens(self, given: str) -> bool:
        """Return whether this is the token. The time that it takes tells nothing about the token."""
        if self.token is None:
            return False
        # Digests have one length, so that the time does not tell the token's length either.
        digests = [hashlib.sha256(text.encode(errors="replace")).digest() for text in (given, self.token)]
        return hmac.compare_digest(*digests)


@dataclass(slots=True)
class Visit:
    """What a visitor may do who gave the token.

    until: seconds on the visits' clock.
    form: the secret that a form of this visit carries.
    said: the page that shows the outcome of the last act, and this outcome, until it was shown.
    asked: a mark of the last page that asked before an act, and the requests that this page was about.
    """

    until: float
    form: str = field(repr=False)
    said: tuple[str, Mapping[str, int]] | None = None
    asked: tuple[str, tuple[str, ...]] | None = field(default=None, repr=False)

    def owns(self, form: str) -> bool:
        """Return whether a form was sent from a page of this visit."""
        return hmac.compare_digest(form.encode(errors="replace"), self.form.encode())

    def take_said(self, page: str) -> Mapping[str, int] | None:
        """Return the outcome of the last act that a page is to show, once; None without one."""
        if self.said is None or self.said[0] != page:
            return None
        said, self.said = self.said, None
        return said[1]

    def ask(self, requests: tuple[str, ...]) -> str:
        """Note which requests a page asks about; return the mark that the page's forms carry."""
        mark = secrets.token_urlsafe(16)
        self.asked = mark, requests
        return mark

    def asked_about(self, mark: str) -> tuple[str, ...]:
        """Return the requests of the page with this mark; none where another page has asked since."""
        if self.asked is None or not hmac.compare_digest(mark.encode(errors="replace"), self.asked[0].encode()):
            return ()
        return self.asked[1]


class Visits:
    """The open visits, in memory: they end with the process. Safe with several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._mutex = threading.Lock()
        self._open: dict[str, Visit] = {}
        # Cookies do not know ports: two dashboards of one machine must not end each other's visits.
        self.cookie = f"streamtopic-{secrets.token_hex(4)}"

    def begin(self) -> str:
        """Open a visit; return the name that its cookie holds."""
        name = secrets.token_urlsafe(32)
        with self._mutex:
            self._open[name] = Visit(self._clock() + _SECONDS, secrets.token_urlsafe(32))
            while len(self._open) > _MOST_VISITS:
                del self._open[next(iter(self._open))]
        return name

    def find(self, name: str) -> Visit | None:
        """Return the open visit of this name, None without one."""
        with self._mutex:
            visit = self._open.get(name)
        return visit if visit is not None and self._clock() < visit.until else None

    def end(self, name: str) -> None:
        """Close a visit."""
        with self._mutex:
            self._open.pop(name, None)


class Gate:
    """Lets requests through to the pages, and adds headers to each answer.

    pages: the application behind it.
    hosts: names of this server beside `localhost`; addresses in numbers are always its own.
    """

    def __init__(self, pages: ASGIApp, hosts: frozenset[str] = frozenset()) -> None:
        self._pages = pages
        self._hosts = hosts | {"localhost"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._pages(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, answer)
            return
        await self._pages(scope, receive, answer)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_own(host):
            text = "this server has another name: open it by its address, or start it with --name NAME\n"
            return PlainTextResponse(text, 421)
        if scope["method"] not in {"GET", "HEAD", "POST"}:
            return PlainTextResponse("pages are read with GET, and forms are sent with POST\n", 405)
        # Browsers send the origin with every form. Its scheme may differ from ours behind a server that ends TLS.
        if scope["method"] == "POST" and _server_of(headers.get("origin", "")) != host.lower():
            return PlainTextResponse("this form was not sent from a page of this server: open the page anew\n", 403)
        # A form without its length could be of any length.
        length = headers.get("content-length", "")
        if scope["method"] == "POST" and not (length.isascii() and length.isdigit() and int(length) <= MOST_BYTES):
            return PlainTextResponse(f"a form has a length, of {MOST_BYTES} bytes at most\n", 413)
        return None

    def _is_own(self, host: str) -> bool:
        name = _host_name(host)
        return name in self._hosts or _is_address(name)


def _host_name(host: str) -> str:
    """Return the name in a Host header, without its port, in small letters; "" for one that cannot be read."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


async def nobody_waits(_request: Request, _error: Exception) -> Response:
    """Answer a request whose sender left in the middle of it: nothing went wrong here, and nobody reads this."""
    return PlainTextResponse("", 400)


def _server_of(origin: str) -> str:
    """Return host and port of an origin; "null" for one that cannot be read."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return "null"
    return parts.netloc.lower() if parts.scheme in {"http", "https"} else "null"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
