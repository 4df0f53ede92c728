"""The certificate of the gateway's answers, and the private key that signs them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from streamtopic.errors import SettingsError

if TYPE_CHECKING:
    import datetime as dt
    from pathlib import Path

__all__ = ["ResponseSigner"]


class ResponseSigner:
    """Signs bodies of answers and callbacks. See `load`.

    domain: the name that the certificate is for, as headers say it.
    certificate: its PEM, with the certificates between it and its authority, for whoever verifies.
    self_signed: whether no authority stands behind it, which the specification forbids.
    """

    def __init__(
        self,
        domain: str,
        certificate: bytes,
        key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey,
        *,
        self_signed: bool,
    ) -> None:
        self.domain = domain
        self.certificate = certificate
        self.self_signed = self_signed
        self._key = key

    @classmethod
    def load(cls, domain: str, certificate: Path, key: Path, now: dt.datetime) -> ResponseSigner:
        """Read a certificate and its key, both in PEM.

        domain: must be among the certificate's names.
        now: the time, with its zone.

        Raises SettingsError for files that cannot be read, do not belong together, are of another name, or are expired.
        """
        try:
            chain = x509.load_pem_x509_certificates(certificate.read_bytes())
            private = load_pem_private_key(key.read_bytes(), password=None)
        except OSError as error:
            raise SettingsError(f"{error.filename} cannot be read: {error.strerror}") from None
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise SettingsError(
                f"settings `gateway_certificate` and `gateway_key`: {certificate} and {key} must hold a certificate "
                "and its private key in PEM, without a passphrase"
            ) from None
        own = chain[0]
        if not isinstance(private, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
            raise SettingsError(f"{key} must be a key of RSA or of an elliptic curve: FIPS 186-4 knows these")
        if private.public_key() != own.public_key():
            raise SettingsError(f"{key} is not the key of {certificate}: name the two files that belong together")
        if not _is_for(own, domain):
            raise SettingsError(
                f"{certificate} is not for {domain}: set `gateway_domain` to a name of the certificate, or renew it"
            )
        if not own.not_valid_before_utc <= now <= own.not_valid_after_utc:
            raise SettingsError(f"{certificate} is not valid now: renew it")
        # Not the file itself: it may hold the key as well.
        public = b"".join(one.public_bytes(Encoding.PEM) for one in chain)
        return cls(domain, public, private, self_signed=own.issuer == own.subject)

    def sign(self, body: bytes) -> str:
        """Return the signature of a body's SHA-256 digest in Base64: PKCS 1 v1.5 with RSA, else ECDSA."""
        if isinstance(self._key, rsa.RSAPrivateKey):
            signature = self._key.sign(body, padding.PKCS1v15(), hashes.SHA256())
        else:
            signature = self._key.sign(body, ec.ECDSA(hashes.SHA256()))
        return base64.b64encode(signature).decode()

    def headers(self, body: bytes) -> dict[str, str]:
        """Return the headers of an answer or callback, under the names of OpenDSR and under those of OpenGDPR."""
        signature = self.sign(body)
        found = {"Content-Type": "application/json"}
        for prefix in ("X-OpenDSR", "X-OpenGDPR"):
            found[f"{prefix}-Processor-Domain"] = self.domain
            found[f"{prefix}-Signature"] = signature
        return found


def _is_for(certificate: x509.Certificate, domain: str) -> bool:
    """Return whether a domain is among a certificate's names; a star stands for one label."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    wanted = domain.lower()
    parent = wanted.partition(".")[2]
    allowed = {name.lower() for name in names.get_values_for_type(x509.DNSName)}
    return wanted in allowed or f"*.{parent}" in allowed
