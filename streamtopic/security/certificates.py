"""A certificate authority of one deployment, and certificates of its servers and users."""

import datetime as dt
import ipaddress
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from streamtopic.errors import SettingsError
from streamtopic.security.private_files import write_whole

__all__ = ["AUTHORITY_DAYS", "SERVER_DAYS", "Authority"]

AUTHORITY_DAYS = 3650
# Apple's systems refuse certificates of servers that live longer.
SERVER_DAYS = 825
# The clocks of two machines differ.
_EARLIER = dt.timedelta(hours=1)
_USES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Authority:
    """A certificate authority whose files lie in one folder: `ca.pem` for everybody, `ca.key` for nobody else.

    folder: where the files are, and where those of servers are written.
    clock: the time now, with its zone.

    Elliptic-curve keys (P-256), which Kafka, Redis and Python read.
    """

    def __init__(
        self,
        folder: Path,
        certificate: x509.Certificate,
        key: ec.EllipticCurvePrivateKey,
        clock: Callable[[], dt.datetime] = _now,
    ) -> None:
        self.folder = folder
        self._certificate = certificate
        self._key = key
        self._clock = clock

    @classmethod
    def opened(cls, folder: Path, clock: Callable[[], dt.datetime] = _now) -> Self:
        """Return the authority of a folder, a new one where there is none. Raises SettingsError for a damaged one."""
        certificate_file = folder / "ca.pem"
        key_file = folder / "ca.key"
        if not key_file.exists():
            return cls._made(folder, clock)
        try:
            certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
            key = load_pem_private_key(key_file.read_bytes(), password=None)
        except (OSError, ValueError) as error:
            raise SettingsError(f"the authority in {folder} cannot be read ({error}): restore both files") from error
        fits = isinstance(key, ec.EllipticCurvePrivateKey) and key.public_key() == certificate.public_key()
        if not fits or not isinstance(key, ec.EllipticCurvePrivateKey):
            raise SettingsError(f"{key_file} is not the key of {certificate_file}: restore both files from one backup")
        return cls(folder, certificate, key, clock)

    @classmethod
    def _made(cls, folder: Path, clock: Callable[[], dt.datetime]) -> Self:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        # A number in the name, so that two authorities are told apart.
        name = _named(f"streamtopic authority {x509.random_serial_number() % 10**8:08d}")
        made = _begun(name, name, key.public_key(), clock(), AUTHORITY_DAYS)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        certificate = made.add_extension(_may_sign(), critical=True).sign(key, hashes.SHA256())
        write_whole(folder / "ca.key", _key_bytes(key))
        (folder / "ca.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
        return cls(folder, certificate, key, clock)

    @property
    def file(self) -> Path:
        """The file with the authority's certificate, which every client needs."""
        return self.folder / "ca.pem"

    def issue(self, name: str, hosts: Sequence[str] = (), days: float = SERVER_DAYS) -> Path:
        """Write `NAME.pem`, a new private key followed by its certificate; return its path.

        name: of the server or user, also the common name.
        hosts: names and addresses under which clients reach the server.
        days: how long it is valid; in the past where negative.

        A file of that name is replaced at once, as a renewal.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        made = _begun(_named(name), self._certificate.subject, key.public_key(), self._clock(), days)
        made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        made = made.add_extension(x509.ExtendedKeyUsage(_USES), critical=False)
        if hosts:
            places = [_place(host) for host in hosts]
            made = made.add_extension(x509.SubjectAlternativeName(places), critical=False)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        made = made.add_extension(authority, critical=False)
        certificate = made.sign(self._key, hashes.SHA256())
        file = self.folder / f"{name}.pem"
        write_whole(file, _key_bytes(key) + certificate.public_bytes(Encoding.PEM))
        return file

    def client_context(self, certificate: Path | None = None) -> ssl.SSLContext:
        """Return a context for a client that trusts this authority alone. certificate: file of the client's own."""
        context = ssl.create_default_context(cafile=str(self.file))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context


def _begun(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, now: dt.datetime, days: float
) -> x509.CertificateBuilder:
    """Return a certificate without its uses."""
    until = now + dt.timedelta(days=days)
    begin = min(now, until) - _EARLIER
    made = x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=public)
    made = made.serial_number(x509.random_serial_number())
    made = made.not_valid_before(begin).not_valid_after(until)
    return made.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _place(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _may_sign() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    # PKCS 8, the one form that Kafka reads.
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
