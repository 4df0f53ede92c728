"""Moves requests of a model without a scheduler: for tests of what becomes of them in the log."""

from types import SimpleNamespace

from streamtopic.service.requests.request_mover import RequestMover
from streamtopic.settings import Settings
from streamtopic.state import Reader
from streamtopic.state.model_state import lead


def mover(connection, names, partitions, log, send, clock, partitioner="murmur2"):
    """Return a function that moves all requests once, as a leader; whether there was something to do.

    send: appends a list of records, each to the partition of its key.
    """
    # No request has a receipt of its own here.
    ledger = SimpleNamespace(catch_up=lambda: None, find=lambda _: {}, ledger=SimpleNamespace(size=0))
    reader = Reader(connection, names.model, partitions)
    settings = Settings(model=names.model, partitions=partitions, partitioner=partitioner)
    moving = RequestMover(settings, connection, reader, log, send, ledger, clock)
    return lambda: bool(moving.step(lead(connection, names.model, "test", 60_000)))
