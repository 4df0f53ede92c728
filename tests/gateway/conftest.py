"""A gateway on a port of its own over a real Redis, and requesters that are called back."""

import contextlib
import http.client
import http.server
import itertools
import json
import ssl
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from streamtopic.dashboard.dashboard_server import dashboard_server, listening
from streamtopic.dashboard.gate import Access
from streamtopic.gateway.callback_sender import CallbackSender, SenderOptions
from streamtopic.gateway.gateway_routes import GatewayOptions, gateway
from streamtopic.gateway.response_signing import ResponseSigner
from streamtopic.local.certificates import Authority
from streamtopic.service.requests.request_door import RequestDoor
from streamtopic.settings import Settings
from streamtopic.state import Connection

DOMAIN = "example-processor.com"
TOKEN = "a token of the tests alone"
_numbers = itertools.count()


@dataclass(frozen=True)
class Said:
    """What the gateway answered."""

    status: int
    headers: dict
    body: bytes

    @property
    def fields(self):
        """The body as JSON."""
        return json.loads(self.body)


@dataclass
class Gateway:
    """A gateway that runs, with what is behind it."""

    port: int
    door: RequestDoor
    signer: ResponseSigner
    now: list
    token: str | None = TOKEN
    headers: dict = field(default_factory=dict)

    def ask(self, method, path, body=None, **headers):
        """Ask it; a body that is no bytes is sent as JSON."""
        content = json.dumps(body).encode() if isinstance(body, dict) else body
        given = {"Content-Type": "application/json", "Host": DOMAIN}
        if self.token:
            given["Authorization"] = f"Bearer {self.token}"
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        with contextlib.closing(connection):
            connection.request(method, path, content, {name: value for name, value in given.items() if value})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Said(answer.status, found, answer.read())

    def sender(self, private=True, context=None):
        """What sends its callbacks."""
        options = SenderOptions("example_controller_id", private, context or ssl.create_default_context())
        return CallbackSender(self.door.requests, self.signer, options, lambda: self.now[0])


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    """An authority that the tests trust."""
    return Authority.opened(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def signer(authority):
    """Signs as the processor of the specification's examples."""
    return ResponseSigner.load(DOMAIN, *key_files(authority, DOMAIN), datetime.now(UTC))


@pytest.fixture(scope="session")
def certified(authority):
    """Return a function: files of a certificate of a name, and of its key."""
    return lambda name: key_files(authority, name)


def key_files(authority, name):
    """The certificate of a name, and its key in a file of its own."""
    both = authority.issue(name, [name, "127.0.0.1", "localhost"])
    data = both.read_bytes()
    key = both.with_suffix(".key")
    private = load_pem_private_key(data, password=None)
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    certificate = both.with_suffix(".crt")
    certificate.write_bytes(x509.load_pem_x509_certificate(data).public_bytes(Encoding.PEM))
    return certificate, key


@pytest.fixture
def served(redis_server, signer):
    """Start a gateway: settings of the service, whether callbacks may be private, another address of Redis."""
    with contextlib.ExitStack() as stack:

        def start(*, private=True, token=TOKEN, url=redis_server.url, **settings):
            now = [time.time()]
            made = Settings(model=f"gate{next(_numbers)}", redis_url=url, **settings)
            connection = stack.enter_context(Connection(url))
            door = RequestDoor(made, connection, lambda: now[0])
            kinds = {"controller_customer_id": "document", "email": "document", "person": "subject"}
            options = GatewayOptions(Access(token, reading=True), "example_controller_id", kinds, private)
            listener = stack.enter_context(listening("127.0.0.1", 0))
            server = dashboard_server(gateway(door, signer, options))
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
            thread.start()

            def end():
                server.should_exit = True
                thread.join(20)

            stack.callback(end)
            return Gateway(listener.getsockname()[1], door, signer, now, token)

        yield start


class Requester:
    """A server that is called back. status, seconds: what it answers and when; seen: headers and body of each call."""

    def __init__(self, context=None):
        self.status = 202
        self.seconds = 0.0
        self.headers = {}
        self.seen = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.seen.append(({name.lower(): value for name, value in self.headers.items()}, body))
                time.sleep(outer.seconds)
                self.send_response(outer.status)
                for name, value in outer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}/opendsr/callbacks"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self):
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


@pytest.fixture
def requester():
    """A requester without TLS on this machine."""
    made = Requester()
    yield made
    made.close()


@pytest.fixture
def slow_requester():
    """A requester that answers after 0.3 seconds."""
    made = Requester()
    made.seconds = 0.3
    yield made
    made.close()


@pytest.fixture
def secure_requester(authority):
    """A requester with TLS, under a certificate of the authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("requester", ["127.0.0.1"]))
    made = Requester(context)
    yield made
    made.close()


@pytest.fixture
def verified():
    """Return a function: whether headers sign a body, as the specification says that a requester checks it."""
    import base64

    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    def check(certificate, headers, body):
        assert headers["x-opendsr-processor-domain"] == DOMAIN
        assert headers["x-opendsr-signature"] == headers["x-opengdpr-signature"]
        public = x509.load_pem_x509_certificate(certificate).public_key()
        try:
            public.verify(base64.b64decode(headers["x-opendsr-signature"]), body, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True

    return check
