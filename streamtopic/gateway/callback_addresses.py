"""Which addresses may be called back, and a connection that goes to nothing else.

Whoever sends a request names the address of its callbacks. Without these checks the gateway would speak for a stranger
to every server that it can reach (server-side request forgery).
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from streamtopic.errors import UsageError
from streamtopic.monitoring.endpoint import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NO_ANSWER", "CallbackAddress", "CallbackFailed", "post"]

TIMEOUT = 10.0
"""Seconds for each turn of a callback."""
LONGEST = 20.0
"""Seconds for a callback as a whole."""
NO_ANSWER = "no answer"
"""What a CallbackFailed says of a server that is not there, or hangs."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_GIVEN_OUT = ipaddress.ip_network("2000::/3")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class CallbackFailed(Exception):
    """A callback was not taken; the text is a short code without an address."""


@dataclass(frozen=True, slots=True)
class CallbackAddress:
    """An address that may be called back, as far as its text tells."""

    secure: bool
    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, url: str, *, private: bool) -> CallbackAddress:
        """Return the parts of an address.

        private: whether private addresses are allowed, and plain HTTP on this machine.

        Raises UsageError for an address that is not HTTPS, has a user or a fragment, or is a private one in numbers.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise UsageError("a callback address cannot be read: give https://HOST/PATH") from None
        plain = parts.scheme == "http" and private and is_loopback(host)
        if not host or not (parts.scheme == "https" or plain):
            raise UsageError("a callback address must be https://HOST/PATH")
        if "@" in parts.netloc or parts.fragment or not url.isascii() or not url.isprintable() or " " in url:
            raise UsageError("a callback address must be plain: no user, no fragment, no blank, in ASCII")
        if not _has_labels(host):
            raise UsageError("a callback address must have a name of labels, 1 to 63 letters each, or a number")
        number = _number(host)
        unfit = host == "localhost" if number is None else not _is_public(number)
        if unfit and not private:
            raise UsageError("a callback address must not be a private one; `gateway_private_callbacks` allows it")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(not plain, host, port or (80 if plain else 443), path)

    def resolve(self, *, private: bool) -> str:
        """Return the number to connect to. Raises CallbackFailed for a name that leads, or may lead, to a private one.

        private: as in `parse`.
        """
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        # Of a name with a label that is empty or too long, Python says that it cannot be encoded.
        except (OSError, UnicodeError):
            raise CallbackFailed("no such host") from None
        numbers = [str(entry[4][0]).partition("%")[0] for entry in found]
        if not private and not all(_is_public(ipaddress.ip_address(number)) for number in numbers):
            raise CallbackFailed("private address")
        return numbers[0]


def post(
    address: CallbackAddress, body: bytes, headers: Mapping[str, str], *, private: bool, context: ssl.SSLContext
) -> None:
    """Send a callback once. Redirections are not followed.

    private: as in CallbackAddress.parse.
    context: trusts the authorities of requesters.

    Raises CallbackFailed unless the answer is of the kind 2xx.
    """
    number = address.resolve(private=private)
    connection = _Pinned(address, number, context if address.secure else None)
    # Each turn has its timeout, and a server that sends one byte in each would hold the sender for hours.
    end = threading.Timer(LONGEST, connection.give_up)
    end.daemon = True
    end.start()
    with closing(connection):
        try:
            connection.request("POST", address.path, body, dict(headers))
            status = connection.getresponse().status
        except ssl.SSLError:
            raise CallbackFailed("tls") from None
        # Python's TLS refuses some names by a ValueError.
        except (OSError, ValueError, http.client.HTTPException):
            raise CallbackFailed(NO_ANSWER) from None
        finally:
            end.cancel()
    if not 200 <= status < 300:
        raise CallbackFailed(f"status {status}")


class _Pinned(http.client.HTTPConnection):
    """A connection to the number that was checked: a name that is looked up again may lead elsewhere."""

    def __init__(self, address: CallbackAddress, number: str, context: ssl.SSLContext | None) -> None:
        super().__init__(address.host, address.port, timeout=TIMEOUT)
        self._number = number
        self._context = context

    def connect(self) -> None:
        """Connect, and speak TLS under the name of the host."""
        self.sock = socket.create_connection((self._number, self.port), TIMEOUT)
        if self._context is not None:
            self.sock = self._context.wrap_socket(self.sock, server_hostname=self.host)

    def give_up(self) -> None:
        """End the connection from another thread."""
        with suppress(OSError, AttributeError):
            self.sock.shutdown(socket.SHUT_RDWR)


def _has_labels(host: str) -> bool:
    """Return whether a name, or a number, can be looked up at all."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def _number(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_public(number: Address) -> bool:
    """Return whether a number leads to the public network; those that hold another number are as public as that."""
    if isinstance(number, ipaddress.IPv4Address):
        return number.is_global and not number.is_multicast
    inner = number.ipv4_mapped or number.sixtofour or (number.teredo or (None, None))[1]
    if number in _NAT64:
        inner = ipaddress.IPv4Address(int(number) & 0xFFFFFFFF)
    if inner is not None:
        return _is_public(inner)
    # Python's lists of private numbers lack some that lead into a network, such as fec0::/10 and 64:ff9b:1::/48. All
    # that is given out for the public network lies in here.
    return number in _GIVEN_OUT and number.is_global
