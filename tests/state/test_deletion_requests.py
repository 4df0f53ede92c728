"""Requests for deletions in Redis: each is taken in once, moves by compare-and-set, and leaves no ids behind."""

import dataclasses

import pytest

from streamtopic.errors import UsageError
from streamtopic.state import Applied, Stale
from streamtopic.state.connection import AlreadyApplied
from streamtopic.state.deletion_requests import DeletionRequest, DeletionRequests, RequestState, received_near
from streamtopic.state.model_state import Lease, ModelSettings, ModelState

DIGEST = "d" * 64
MINUTE = 60_000


@pytest.fixture
def requests(connection, model):
    """The requests of a model that no other test uses."""
    return DeletionRequests(connection, model)


def request(name="r-1", documents=2, received=10 * MINUTE, **changes):
    """A request that waits."""
    made = DeletionRequest(name, DIGEST, RequestState.WAITING, documents, received, received, received)
    return dataclasses.replace(made, **changes)


def taken(requests, *arguments, **changes):
    """Take a request in; return it."""
    made = request(*arguments, **changes)
    assert requests.receive(made) == Applied()
    return made


def test_a_request_is_taken_in_once(requests):
    """The same request again changes nothing, whenever it came; one that has ended is not begun again."""
    first = taken(requests)
    assert requests.receive(request(received=99 * MINUTE)) == AlreadyApplied()
    assert requests.get("r-1") == first
    requests.move(first, first.cancel(1))
    assert requests.receive(request()) == Stale("ended")
    assert requests.get("nobody") is None


def test_a_version_parts_a_request_that_it_reflects_in_part():
    """Not before its first tombstone, and not once all are counted and within the cut."""
    sent = request(state=RequestState.SENT, ends={0: 9, 1: 7})
    states = {state: dataclasses.replace(sent, state=state) for state in RequestState}
    cuts = [{0: 8, 1: 9}, {0: 9, 1: 7}, {0: 20, 1: 20}]
    assert [sent.parted_by(cut) for cut in cuts] == [True, True, True]
    assert [states[RequestState.SENDING].parted_by(cut) for cut in cuts] == [True, True, True]
    assert [states[RequestState.COUNTED].parted_by(cut) for cut in cuts] == [True, False, False]
    assert not request().parted_by({0: 0})


def test_of_two_moves_one_is_stale(requests):
    """Whoever has seen an older state reads again; a repetition is a success."""
    before = taken(requests)
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
    before = taken(requests)
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


def test_the_brake_counts_what_nobody_has_looked_at(requests):
    """Approved and cancelled requests count no longer; a window reaches to both sides; the oldest comes first."""
    second, first = taken(requests, "b", 5, 130 * MINUTE), taken(requests, "a", 3, 100 * MINUTE)
    assert requests.open() == [first, second]
    tally = {100: 3, 130: 5, 230: 7}
    near = [received_near(one, tally) for one in (first, second, request("c", 7, 230 * MINUTE))]
    assert near == [8, 8, 7]
    approved = first.approve(1)
    requests.move(first, approved)
    requests.move(second, second.moved(RequestState.SENDING, 1))
    assert [one.id for one in requests.unseen()] == ["b"]
    requests.move(approved, approved.cancel(2))
    assert [one.id for one in requests.unseen()] == ["b"]


def test_the_oldest_of_many_ended_requests_are_forgotten(requests, monkeypatch):
    """But for those that the brake counts still: they came within two waves."""
    monkeypatch.setattr("streamtopic.state.deletion_requests.MOST_ENDED", 2)
    for number, minute in enumerate([1, 2, 3, 500, 501, 502]):
        one = taken(requests, f"r-{number}", 1, minute * MINUTE)
        requests.move(one, one.moved(RequestState.COMPLETED, number))
    requests.trim(510 * MINUTE)
    assert [one.id for one in requests.ended()] == ["r-3", "r-4", "r-5"]
    requests.trim(5000 * MINUTE)
    assert [one.id for one in requests.ended()] == ["r-4", "r-5"]
