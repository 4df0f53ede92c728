"""What tests of the dashboard share: a server in a thread, and a client that can lie in every header."""

import contextlib
import http.client
import re
import ssl
import threading
import time
from dataclasses import dataclass
from urllib.parse import urlencode

from streamtopic.dashboard.dashboard_server import dashboard_server, listening
from streamtopic.dashboard.service_view import ServiceView
from streamtopic.dashboard.web_pages import dashboard
from streamtopic.documents.corpus import Document
from streamtopic.settings import Settings

MINUTES = 180_000
"""Milliseconds that a loaded machine may take for a page in a browser."""
TOKEN = "a token of the tests alone"
HOSTILE = '"><img src=x onerror=alert(1)></script>\u202egnitrevid'
SECRET_ID = "patient-4711"
SECRET_TEXT = "xylograph"
SUBJECTS = ["apple banana cherry damson elder", "iron copper silver gold tin"]


def documents(number=60):
    """Documents of two topics."""
    words = [subject.split() for subject in SUBJECTS]
    return [Document(f"d{n}", " ".join(words[n % 2][(n // 2 + k) % 5] for k in range(4)), {}) for n in range(number)]


@dataclass(frozen=True)
class Prepared:
    """A service that was prepared.

    settings: how it is opened.
    done: a request whose document is gone from the published version; with its salt.
    waiting: a request that waits for its version.
    """

    settings: Settings
    done: object
    waiting: object


@dataclass(frozen=True)
class Reply:
    """What a server said."""

    status: int
    headers: dict
    text: str

    @property
    def cookie(self):
        """The cookie that it set, as a browser sends it back."""
        return self.headers["set-cookie"].partition(";")[0]

    @property
    def form(self):
        """The secret of the visit, as a form of the page carries it."""
        return re.search(r'name="form" value="([^"]+)"', self.text)[1]


class Asking:
    """Asks a dashboard as a browser of its own pages would, unless told otherwise."""

    def __init__(self, port, trust=None):
        self.port = port
        self.trust = trust
        self.address = f"{'https' if trust else 'http'}://127.0.0.1:{port}"

    def __call__(self, path, fields=None, *, method=None, body=None, **headers):
        """Ask; fields: of a form, which is sent by POST. A header of None is left out."""
        given = {"Host": f"127.0.0.1:{self.port}"}
        if fields is not None:
            body = urlencode(fields)
        if body is not None:
            given |= {"Origin": self.address, "Content-Type": "application/x-www-form-urlencoded"}
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

    def login(self):
        """Open a visit; return its cookie."""
        return self("/login", {"token": TOKEN}).cookie


@contextlib.contextmanager
def served(settings, access, names=frozenset(), certificate=None):
    """A dashboard that runs as it does under the command, in a thread; yields how it is asked."""
    # Answers last a twentieth of their time, for tests that wait for a newer one.
    view = ServiceView(settings, ticks=lambda: 20 * time.monotonic())
    with listening("127.0.0.1", 0) as listener:
        server = dashboard_server(dashboard(view, access, names), listener, certificate)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            trust = None if certificate is None else ssl.create_default_context(cafile=certificate.certificate)
            yield Asking(listener.getsockname()[1], trust)
        finally:
            server.should_exit = True
            thread.join(60)
            view.close()
    assert not thread.is_alive()
