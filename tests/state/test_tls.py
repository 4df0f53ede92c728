"""Redis behind TLS: the certificate must be of an authority that is named, and of the host that was asked for."""

import datetime as dt
import ipaddress
import socket
import socketserver
import ssl
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from servers.redis_cluster import LocalRedisCluster, LocalSentinel
from streamtopic.errors import ComponentUnreachable, SettingsError
from streamtopic.state import Connection

pytestmark = pytest.mark.slow


def _certificate(subject, issuer, issuer_key, host=None):
    """Return a key and its certificate; without a host, of an authority that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    name, by = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in (subject, issuer))
    builder = x509.CertificateBuilder(by, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - dt.timedelta(hours=1))
    builder = builder.not_valid_after(now + dt.timedelta(hours=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=host is None, path_length=None), critical=True)
    if host is not None:
        places = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
        builder = builder.add_extension(places, critical=False)
    return key, builder.sign(issuer_key or key, hashes.SHA256())


def _write(path, *parts):
    data = b""
    for part in parts:
        if isinstance(part, x509.Certificate):
            data += part.public_bytes(serialization.Encoding.PEM)
        else:
            data += part.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
    path.write_bytes(data)
    return path


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Files: of the authority; a server's key and certificate by it, for 127.0.0.1 and for another host."""
    folder = tmp_path_factory.mktemp("tls")
    key, own = _certificate("authority", "authority", None)
    server_key, server = _certificate("redis", "authority", key, "127.0.0.1")
    other_key, other = _certificate("redis", "authority", key, "127.0.0.9")
    return {
        "ca": _write(folder / "ca.pem", own),
        "right": _write(folder / "right.pem", server_key, server),
        "elsewhere": _write(folder / "elsewhere.pem", other_key, other),
    }


class _Forward(socketserver.BaseRequestHandler):
    """One connection: TLS on this side, a Redis in the clear on the other."""

    def handle(self):
        try:
            secure = self.server.context.wrap_socket(self.request, server_side=True)
        except (ssl.SSLError, OSError):
            return
        with secure, socket.create_connection(("127.0.0.1", self.server.to)) as plain:
            back = threading.Thread(target=_copy, args=(plain, secure), daemon=True)
            back.start()
            _copy(secure, plain)


def _copy(source, target):
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
    except OSError:
        pass


@pytest.fixture
def secured(authority):
    """Return a function: the port of a TLS front for a port, with one of the certificates."""
    fronts = []

    def front(to, name="right"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority[name])
        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Forward)
        server.daemon_threads, server.block_on_close = True, False
        server.context, server.to = context, to
        threading.Thread(target=server.serve_forever, daemon=True).start()
        fronts.append(server)
        return server.server_address[1]

    yield front
    for server in fronts:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def redis():
    """One Redis on a port, with a sentinel, and no TLS of its own."""
    with LocalSentinel(replicas=0, sentinels=1) as servers:
        yield servers


def test_a_server_behind_tls_is_used(redis, secured, authority):
    """Commands, scripts and batches pass once the authority is named."""
    url = f"rediss://127.0.0.1:{secured(redis.servers[0].port)}?ssl_ca_certs={authority['ca']}"
    with Connection(url) as connection:
        assert connection.call("SET", "a", 1) is True
        assert connection.script("return redis.call('INCR', KEYS[1])", ["a"], []) == 2
        assert connection.batch([("GET", "a"), ("GET", "b")]) == [b"2", None]


@pytest.mark.parametrize(("named", "name"), [(False, "right"), (True, "elsewhere")], ids=["authority", "host"])
def test_an_impostor_is_refused(redis, secured, authority, named, name):
    """Without the authority, or with another host's certificate, nothing is said to the server."""
    query = f"?ssl_ca_certs={authority['ca']}" if named else ""
    url = f"rediss://127.0.0.1:{secured(redis.servers[0].port, name)}{query}"
    with Connection(url) as connection, pytest.raises(SettingsError, match=r"(?i)certificate"):
        connection.ping()


def test_a_cluster_is_asked_over_tls(secured, authority):
    """Its map is read over TLS too: nodes in the clear that it names are not spoken to."""
    with LocalRedisCluster(replicas=0, masters=3) as cluster:
        url = f"rediss+cluster://127.0.0.1:{secured(cluster.nodes[0].port)}?ssl_ca_certs={authority['ca']}"
        with Connection(url, timeout=1.0) as connection, pytest.raises(ComponentUnreachable, match=r"(?i)ssl|connecti"):
            # The nodes themselves speak no TLS, so whoever spoke to them in the clear would succeed.
            connection.ping()
