"""What tests of the server share: a server in a thread, and a client that can lie in every header."""

import contextlib
import http.client
import ssl
import threading
import time
from dataclasses import dataclass

from streamtopic.monitoring.http_server import http_server, listening
from streamtopic.pages.gate import Access
from streamtopic.pages.service_view import ServiceView
from streamtopic.pages.web_pages import web_pages
from streamtopic.settings import Settings

MINUTES = 180_000
"""Milliseconds that a loaded machine may take for a page in a browser."""
TOKEN = "a token of the tests alone"
HOSTILE = '"><img src=x onerror=alert(1)></script>\u202egnitrevid'
SECRET_ID = "patient-4711"
SECRET_TEXT = "xylograph"


@dataclass(frozen=True)
class Prepared:
    """A service that was prepared.

    settings: how it is opened.
    done: a request whose document is gone from the published version; with its salt.
    """

    settings: Settings
    done: object


@dataclass(frozen=True)
class Reply:
    """What a server said."""

    status: int
    headers: dict
    text: str


class Asking:
    """Asks a server as a program would that has no token, unless told otherwise."""

    def __init__(self, port, trust=None):
        self.port = port
        self.trust = trust
        self.address = f"{'https' if trust else 'http'}://127.0.0.1:{port}"

    def __call__(self, path, body=None, *, method=None, token=None, **headers):
        """Ask; body: is sent by POST. A header of None is left out."""
        given = {"Host": f"127.0.0.1:{self.port}"}
        if token is not None:
            given["Authorization"] = f"Bearer {token}"
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        if self.trust:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=120, context=self.trust)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        with contextlib.closing(connection):
            connection.putrequest(method or ("GET" if body is None else "POST"), path, skip_host=True)
            if body is not None:
                given.setdefault("Content-Length", str(len(body.encode())))
            for name, value in given.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(None if body is None else body.encode())
            answer = connection.getresponse()
            said = answer.read().decode()
            return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, said)


@contextlib.contextmanager
def served(settings, access=None, names=frozenset(), certificate=None, trust=None):
    """A server that runs as it does under the command, in a thread; yields how it is asked."""
    # Answers last a twentieth of their time, for tests that wait for a newer one.
    view = ServiceView(settings, ticks=lambda: 20 * time.monotonic())
    access = access or Access(TOKEN, reading=False)
    with listening("127.0.0.1", 0) as listener:
        server = http_server(web_pages(view, access, names), listener, certificate)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            context = None if trust is None else ssl.create_default_context(cafile=trust)
            yield Asking(listener.getsockname()[1], context)
        finally:
            server.should_exit = True
            thread.join(60)
            view.close()
    assert not thread.is_alive()
