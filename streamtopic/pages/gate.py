"""Checks each request to the server: its host, its size, and its token.

A page of another site must not read a page of this server through a visitor's browser. So a name of a host is answered
only if the operator gave it: else a stranger's name could be pointed at this machine. And what changes anything takes
its token as a program sends it, never as a browser adds it by itself.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

from streamtopic.errors import SettingsError
from streamtopic.monitoring.open_connections import is_loopback
from streamtopic.pages.rendering import policy

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from streamtopic.settings import Settings

__all__ = ["Access", "Gate", "access_of"]

logger = logging.getLogger(__name__)

MOST_BYTES = 2 << 20
"""Bytes of the body of a request."""
OPEN = frozenset({"/livez", "/readyz"})
"""Addresses that need no token: probes have none, and learn one word."""
_HEADERS = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


@dataclass(frozen=True, slots=True)
class Access:
    """What the token guards.

    token: the secret; None if none is set, so that nobody can send a request for a deletion.
    reading: whether reading needs it too.
    """

    token: str | None = field(repr=False)
    reading: bool

    def opens(self, authorization: str, *, browser: bool) -> bool:
        """Return whether a header `Authorization` holds the token. The time that it takes tells nothing about it.

        browser: whether the token may come as the password that a browser asks its user for.
        """
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() == "basic" and browser:
            given = _password(given)
        elif scheme.lower() != "bearer":
            return False
        if self.token is None:
            return False
        # Digests have one length, so that the time does not tell the token's length either.
        digests = [hashlib.sha256(text.encode(errors="replace")).digest() for text in (given, self.token)]
        return hmac.compare_digest(*digests)


def _password(encoded: str) -> str:
    try:
        return base64.b64decode(encoded).decode(errors="replace").partition(":")[2]
    except (binascii.Error, ValueError):
        return ""


def access_of(settings: Settings, host: str) -> Access:
    """Return what the token guards: reading too, once it is set.

    Raises SettingsError for a host that others reach, without a token.
    """
    if settings.serve_token is not None:
        return Access(settings.serve_token.get_secret_value(), reading=True)
    if not is_loopback(host):
        raise SettingsError(
            f"--host {host} lets other machines read: set `serve_token`, 16 characters or more, in "
            "STREAMTOPIC_SERVE_TOKEN or a file of secrets; or leave out --host"
        )
    return Access(None, reading=False)


class Gate:
    """Lets requests through to the pages, and adds headers to each answer.

    hosts: names of this server besides `localhost`; addresses in numbers are always its own.
    """

    def __init__(self, pages: ASGIApp, access: Access, hosts: frozenset[str] = frozenset()) -> None:
        self._pages = pages
        self._access = access
        self._hosts = hosts | {"localhost"}
        self._headers = {**_HEADERS, "content-security-policy": f"{policy()}; frame-ancestors 'none'"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._pages)(scope, receive, answer)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        method = scope["method"]
        if not self._is_own(headers.get("host", "")):
            return _refused(421, "this server has another name: open it by its address, or start it with --name NAME")
        if method not in {"GET", "HEAD", "POST"}:
            return _refused(405, "everything is read with GET, and requests are sent with POST")
        guarded = method == "POST" or (self._access.reading and scope["path"] not in OPEN)
        if guarded and not self._access.opens(headers.get("authorization", ""), browser=method != "POST"):
            return self._unknown(method, headers)
        # Read by those alone who have the token; a body without its length could be of any length.
        length = headers.get("content-length", "")
        if method == "POST" and not (length.isascii() and length.isdigit() and int(length[:12]) <= MOST_BYTES):
            return _refused(413, f"a request has a length, of {MOST_BYTES:,} bytes at most: send several requests")
        return None

    def _unknown(self, method: str, headers: Headers) -> PlainTextResponse:
        if "authorization" in headers:
            logger.warning("a wrong token was given", extra={"event": "serve_refused"})
        if self._access.token is None:
            return _refused(403, "no token is set, so nothing can be sent here: set `serve_token`, start it again")
        asked = "Bearer" if method == "POST" else "Basic"
        challenge = {"www-authenticate": f'{asked} realm="streamtopic", charset="UTF-8"'}
        return _refused(401, "give the token: as a header, `Authorization: Bearer TOKEN`", challenge)

    def _is_own(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        return name in self._hosts or _is_address(name)


def _refused(status: int, text: str, headers: dict[str, str] | None = None) -> PlainTextResponse:
    return PlainTextResponse(f"{text}\n", status, headers)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
