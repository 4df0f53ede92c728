"""Reads when the TLS certificates of this process and of its servers end."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from cryptography import x509

from streamtopic.security.concealing import clear_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamtopic.settings import Settings

__all__ = ["Ending", "endings"]

_PATIENCE = 3.0


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of one certificate.

    name: the setting that names its file, or the kind of its server.
    place: its file, or host and port of its server.
    ends: seconds since 1970.
    """

    name: str
    place: str
    ends: float


def endings(settings: Settings) -> Iterator[Ending]:
    """Yield the end of each certificate in a file that settings name, and of each that a server shows.

    A file that cannot be read and a server that does not answer are left out: whoever uses them says so.
    """
    for name, path in _files(settings):
        ends = _end_in(path)
        if ends is not None:
            yield Ending(name, str(path), ends)
    for name, place in _servers(settings):
        ends = _end_shown(place)
        if ends is not None:
            yield Ending(name, place, ends)


def _files(settings: Settings) -> Iterator[tuple[str, Path]]:
    """Yield the files with certificates: of authorities, and of this process."""
    for name in ("kafka_ssl_cafile", "kafka_ssl_certfile"):
        path: Path | None = getattr(settings, name)
        if path is not None:
            yield name, path
    if settings.redis_url is None:
        return
    options = parse_qs(urlsplit(settings.redis_url.get_secret_value()).query)
    for option in ("ssl_ca_certs", "ssl_certfile"):
        for path_of_option in options.get(option, ()):
            yield f"redis_url {option}", Path(path_of_option)


def _servers(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the servers that are reached by TLS, as host:port."""
    if settings.kafka is not None and settings.kafka_security_protocol in {"SSL", "SASL_SSL"}:
        yield from (("kafka", place) for place in settings.kafka.split(","))
    found = None if settings.redis_url is None else clear_address(settings.redis_url.get_secret_value())
    if found is not None and found["scheme"].startswith("rediss"):
        yield from (("redis", place) for place in found["server"].split(","))


def _end_in(path: Path) -> float | None:
    """Return when the first of the certificates in a file ends; None if it holds none."""
    try:
        certificates = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError):
        return None
    return min(one.not_valid_after_utc.timestamp() for one in certificates)


def _end_shown(place: str) -> float | None:
    """Return when the certificate that a server shows ends; None if it shows none."""
    host, _, port = place.rpartition(":")
    host = host.strip("[]")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Nothing is sent and nothing is trusted: a certificate that has ended must be seen as well.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, int(port)), _PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname=host or None) as secure,
        ):
            shown = secure.getpeercert(binary_form=True)
        return None if shown is None else x509.load_der_x509_certificate(shown).not_valid_after_utc.timestamp()
    except (OSError, ValueError):
        return None
