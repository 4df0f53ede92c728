"""A small service with deletions and refused records, and its dashboard on a port of its own."""

import sys
from pathlib import Path

import msgpack
import pytest

from streamtopic.dashboard.gate import Access
from streamtopic.events import encode_add
from streamtopic.local import LocalRedis
from streamtopic.service.app import Service
from streamtopic.settings import Settings
from streamtopic.streams import Message

sys.path += [str(Path(__file__).parent), str(Path(__file__).parent.parent)]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """Two versions, a deletion that has its receipt, one that has waited too long, and records that were refused."""
    from dashboard_client import HOSTILE, SECRET_ID, SECRET_TEXT, Prepared, documents

    folder = tmp_path_factory.mktemp("dashboard") / "instance"
    plain = {"dir": folder, "topics": 2, "min_df": 1, "max_df": 1.0, "capacity": "fixed", "capacity_fixed": 50}
    with LocalRedis() as redis:
        settings = Settings(**plain, max_forget_lag=0.0, redis_url=redis.url)
        with Service(settings) as service:
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
