"""Requests for deletions in Redis: each is taken in once, moves by compare-and-set, and leaves no ids behind."""

import dataclasses

import pytest

from streamtopic.errors import UsageError
from streamtopic.state import Applied, Stale
from streamtopic.state.deletion_requests import (
    MOST_DOCUMENTS,
    DeletionRequest,
    DeletionRequests,
    RequestState,
    Wanted,
    received_near,
)
from streamtopic.state.model_state import Lease, ModelSettings, ModelState
from streamtopic.state.redis_keys import ModelKeys
from streamtopic.state.scripts import AlreadyApplied

SALT = "s" * 32
MINUTE = 60_000


@pytest.fixture
def requests(connection, model):
    """The requests of a model that no other test uses."""
    return DeletionRequests(connection, model)


def request(name="r-1", documents=2, received=10 * MINUTE, **changes):
    """A request that waits."""
    made = DeletionRequest(name, RequestState.WAITING, documents, received, received, received)
    return dataclasses.replace(made, **changes)


def wanted(documents=2):
    """What such a request asks for."""
    return Wanted(tuple(f"doc-{k}" for k in range(documents)), SALT)


def everything(connection, model):
    """All bytes that Redis holds of a model's requests, which are hashes."""
    names = list(connection.names(f"{{st:{model}}}:deletions*"))
    hashes = [connection.call("HGETALL", name) for name in names]
    return repr(hashes).encode()


def test_a_request_is_taken_in_once(requests):
    """The same request again, with a salt of its own, changes nothing; other documents under its id are refused."""
    first = requests.receive(request(), wanted())
    again = requests.receive(request(received=99 * MINUTE), Wanted(wanted().documents, "t" * 32))
    assert again == first == requests.get("r-1")
    assert requests.receive(request(), Wanted(wanted().documents[::-1], SALT)) == first
    assert requests.wanted("r-1") == wanted()
    with pytest.raises(UsageError, match="another id"):
        requests.receive(request(documents=3), wanted(3))
    assert requests.tally() == {10: 2}


@pytest.mark.parametrize("documents", [0, MOST_DOCUMENTS + 1])
def test_a_request_names_some_documents_and_not_too_many(requests, documents):
    """Its ids are in memory, so their number is bounded."""
    with pytest.raises(UsageError, match="send several"):
        requests.receive(request(documents=documents), wanted(documents))


@pytest.mark.parametrize("name", ["", "a b", "x" * 101, "ä", "{st:other}"])
def test_an_id_of_a_request_is_plain(requests, name):
    """It is part of a key in Redis."""
    with pytest.raises(UsageError, match="request id"):
        requests.receive(request(name), wanted())
    assert requests.get(name) is None


def test_open_requests_are_bounded(requests, monkeypatch):
    """Where too many are open, the next is refused and nothing of it is stored."""
    monkeypatch.setattr("streamtopic.state.deletion_requests.MOST_OPEN_DOCUMENTS", 3)
    first = requests.receive(request(), wanted())
    with pytest.raises(UsageError, match="are open"):
        requests.receive(request("r-2"), wanted())
    assert requests.get("r-2") is None
    assert requests.wanted("r-2") is None
    # Room is made by a request that ends.
    assert requests.move(first, first.cancel(20 * MINUTE)) == Applied()
    requests.receive(request("r-2"), wanted())


def test_of_two_moves_one_is_stale(requests):
    """Whoever has seen an older state reads again; a repetition is a success."""
    before = requests.receive(request(), wanted())
    cancelled, sending = before.cancel(1), before.moved(RequestState.SENDING, 1)
    assert requests.move(before, cancelled) == Applied()
    assert requests.move(before, cancelled) == AlreadyApplied()
    assert isinstance(requests.move(before, sending), Stale)
    assert requests.get("r-1") == cancelled
    assert requests.open() == []
    assert requests.ended() == [cancelled]


def test_only_the_leader_moves_a_request_on(requests, connection, model):
    """A scheduler that lost the lease changes nothing, also under the token that it had."""
    state = ModelState.open(connection, model, ModelSettings(1, 256))
    lease = state.acquire("a", 60_000)
    before = requests.receive(request(), wanted())
    sending = before.moved(RequestState.SENDING, 1)
    assert isinstance(requests.move(before, sending, Lease("b", lease.token)), Stale)
    assert isinstance(requests.move(before, sending, Lease("a", lease.token - 1)), Stale)
    assert requests.move(before, sending, lease) == Applied()


@pytest.mark.parametrize("state", [RequestState.SENDING, RequestState.SENT, RequestState.COMPLETED])
def test_what_is_on_its_way_cannot_be_recalled(state):
    """A tombstone may be in the log by then."""
    for act in ("cancel", "approve"):
        with pytest.raises(UsageError, match="waiting or paused"):
            getattr(request(state=state), act)(1)


def test_an_ended_request_leaves_no_id_of_a_document(requests, connection, model):
    """What stays says when and how many, and an id that ended cannot be used again."""
    before = requests.receive(request(), wanted())
    assert b"doc-0" in everything(connection, model)
    requests.move(before, before.moved(RequestState.COMPLETED, 5))
    assert b"doc-0" not in everything(connection, model)
    assert SALT.encode() not in everything(connection, model)
    assert requests.wanted("r-1") is None
    with pytest.raises(UsageError, match="has ended"):
        requests.receive(request(), wanted())


def test_the_tally_counts_what_nobody_has_looked_at(requests):
    """Approved and cancelled requests count no longer, each once; a window reaches to both sides."""
    first = requests.receive(request("a", 3, 10 * MINUTE), wanted(3))
    second = requests.receive(request("b", 5, 12 * MINUTE), wanted(5))
    far = requests.receive(request("c", 7, 90 * MINUTE), wanted(7))
    near = {one.id: received_near(one, 2 * MINUTE, requests.tally()) for one in (first, second, far)}
    assert near == {"a": 8, "b": 8, "c": 7}
    approved = first.approve(1)
    requests.move(first, approved)
    requests.move(approved, approved.cancel(2))
    assert requests.tally() == {10: 0, 12: 5, 90: 7}
    requests.move(second, second.moved(RequestState.SENDING, 1))
    assert requests.tally() == {10: 0, 12: 5, 90: 7}


def test_what_is_kept_is_bounded(requests, monkeypatch):
    """Minutes that no window reaches, and the oldest of many ended requests, are forgotten."""
    monkeypatch.setattr("streamtopic.state.deletion_requests.MOST_ENDED", 2)
    for number in range(4):
        made = requests.receive(request(f"r-{number}", received=number * MINUTE), wanted())
        requests.move(made, made.moved(RequestState.SENT, number + 1))
        sent = requests.get(made.id)
        requests.move(sent, sent.moved(RequestState.COMPLETED, number + 1))
    requests.trim(5 * MINUTE, MINUTE)
    assert [one.id for one in requests.ended()] == ["r-2", "r-3"]
    assert requests.tally() == {3: 2}


def test_facts_of_a_later_version_are_read(requests, connection, model):
    """A field that this version does not know is passed over, and one that is missing has its default."""
    import msgpack

    values = {"id": "r-9", "state": "waiting", "documents": 1, "received_ms": 1, "due_ms": 2, "changed_ms": 3, "new": 4}
    connection.call("HSET", ModelKeys(model).named("deletions:open"), "r-9", msgpack.packb(values))
    assert requests.get("r-9") == DeletionRequest("r-9", RequestState.WAITING, 1, 1, 2, 3)
