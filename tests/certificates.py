"""A certificate authority for tests, also for certificates that have ended, or that name another host."""

import datetime as dt
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_USES = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])


class Authority:
    """An authority whose files `ca.pem` and `ca.key` lie in a folder, as those of deploy/certificate.sh do."""

    def __init__(self, folder, certificate, key):
        self.folder = folder
        self.file = folder / "ca.pem"
        self._certificate = certificate
        self._key = key

    @classmethod
    def opened(cls, folder):
        """Return the authority of a folder, a new one if there is none."""
        if (folder / "ca.key").exists():
            certificate = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
            return cls(folder, certificate, load_pem_private_key((folder / "ca.key").read_bytes(), None))
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _named(f"authority {x509.random_serial_number()}")
        made = _begun(name, name, key.public_key(), 3650)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        # Of the nine uses of a key, these two: to sign certificates, and lists of revoked ones.
        uses = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        certificate = made.add_extension(uses, critical=True).sign(key, hashes.SHA256())
        _write(folder / "ca.key", _key_bytes(key))
        (folder / "ca.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
        return cls(folder, certificate, key)

    def issue(self, name, hosts=(), days=825):
        """Write `NAME.pem`, a new private key and its certificate; return its path. days: below 0, it has ended."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = _begun(_named(name), self._certificate.subject, key.public_key(), days)
        made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        made = made.add_extension(_USES, critical=False)
        if hosts:
            made = made.add_extension(x509.SubjectAlternativeName(list(map(_place, hosts))), critical=False)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = made.add_extension(authority, critical=False).sign(self._key, hashes.SHA256())
        file = self.folder / f"{name}.pem"
        _write(file, _key_bytes(key) + certificate.public_bytes(Encoding.PEM))
        return file


def _begun(subject, issuer, public, days):
    """Return a certificate without its uses."""
    now = dt.datetime.now(dt.UTC)
    until = now + dt.timedelta(days=days)
    made = x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=public)
    made = made.serial_number(x509.random_serial_number())
    made = made.not_valid_before(min(now, until) - dt.timedelta(hours=1)).not_valid_after(until)
    return made.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)


def _named(name):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _place(host):
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_bytes(key):
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(file, content):
    file.touch(mode=0o600)
    file.write_bytes(content)
