"""A small service with deletions and refused records, and its dashboard on a port of its own."""

import shutil

import msgpack
import pytest

from streamtopic.dashboard.gate import Access
from streamtopic.documents.events import encode_add
from streamtopic.local import LocalRedis
from streamtopic.service.app import Service
from streamtopic.settings import Settings
from streamtopic.signed import new_secret
from streamtopic.streams import Message


@pytest.fixture(scope="module")
def chromium():
    """A browser that this machine has; none is fetched."""
    from dashboard_client import MINUTES

    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed; the extra `test` brings it"
    )
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("pages in a browser: needs chromium")
    with sync_api.sync_playwright() as playwright:
        # In a container the browser's own sandbox may not start; it opens this test's pages alone.
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"], timeout=MINUTES)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """Two versions, a deletion that has its receipt, one that has waited too long, refused records, and requests."""
    from dashboard_client import HOSTILE, SECRET_ID, SECRET_TEXT, Prepared, documents

    folder = tmp_path_factory.mktemp("dashboard") / "instance"
    plain = {"dir": folder, "topics": 2, "min_df": 1, "max_df": 1.0, "capacity": "fixed", "capacity_fixed": 50}
    with LocalRedis() as redis:
        settings = Settings(**plain, max_forget_lag=0.0, redis_url=redis.url)
        keys = folder / "keys"
        keys.mkdir(mode=0o700, parents=True)
        new_secret(keys / "suppression.key")
        with Service(settings) as service:
            service.suppress(["nobody-1", "nobody-2"], ["somebody"])
            service.add(documents())
            service.settle()
            (done,) = service.delete(["d1"])
            service.settle()
            refused = [Message(SECRET_ID.encode(), SECRET_TEXT.encode()), Message(None, SECRET_TEXT.encode())]
            service.send(refused)
            service.settle()
            forged = msgpack.packb({"partition": 0, "offset": 10**6, "reason": HOSTILE, "topic": "x"})
            service.log.append_many(service.names.rejected, [Message(HOSTILE.encode(), forged)])
        patient = Settings(**plain, max_forget_lag=3600.0, redis_url=redis.url)
        with Service(patient) as service:
            (waiting,) = service.delete(["d2"])
            service.settle()
        braked = Settings(**plain, hold_seconds=1e6, brake_share=0.01, redis_url=redis.url)
        with Service(braked) as service:
            service.door.receive(["d3"])
            service.door.receive(["d4", "d5"])
            service.door.receive([], subjects=["nobody"])
            service.move_requests()
            service.door.cancel(service.door.receive(["d6"]).request.id)
        held = Settings(**plain, hold_seconds=1e6, redis_url=redis.url)
        with Service(held) as service:
            service.door.receive(["d7"])
        # Whatever time has passed since is more than this.
        yield Prepared(Settings(**plain, max_forget_lag=1e-6, redis_url=redis.url), done, waiting)


@pytest.fixture(scope="session")
def ask(prepared):
    """Ask a dashboard that anybody may read, and where the token opens visits."""
    from dashboard_client import TOKEN, served

    with served(prepared.settings, Access(TOKEN, reading=False)) as asking:
        yield asking


@pytest.fixture
def refused_again(prepared):
    """Return a function that writes a record which was refused once and is accepted now; its id."""

    def write(name):
        with Service(prepared.settings) as service:
            ((_, offset),) = service.send([encode_add(name, text="apple banana cherry")])
            pointer = {"partition": 0, "offset": offset, "reason": "format", "topic": service.names.documents}
            service.log.append_many(service.names.rejected, [Message(name.encode(), msgpack.packb(pointer))])

    return write
