"""Global keys: one leader, versions staged once and whole, an outbox that neither loses nor repeats."""

import json

import pytest

from streamtopic.state import (
    AlreadyApplied,
    Applied,
    Base,
    Lease,
    ModelSettings,
    ModelState,
    RemainingBase,
    Stale,
)
from streamtopic.state.meta import Place
from streamtopic.state.model_state import remove_model
from streamtopic.streams import Message

SETTINGS = ModelSettings(2, 256)
START = RemainingBase({0: 5, 1: 7}, {0: Place(3, "c"), 1: Place(4, "d")}, 12)
RECORDS = [Message(b"1/0", b"\x00bytes", (("sha256", b"\xff"),)), Message(b"1/1", None)]


@pytest.fixture
def state(connection, model):
    """The global state of a fresh model."""
    return ModelState.open(connection, model, SETTINGS)


def stage(state, lease, version=1, **more):
    """Stage a version with plain contents."""
    contents = {"before": version - 1, "release": recorded(version), "records": RECORDS, **more}
    return state.stage(lease, version, **contents)


def recorded(version, digest="d"):
    """The record of a version, whose facts are in its entry. digest: of its bytes."""
    return {"entry": json.dumps({"version": version, "withdrawn": [], "release": f"{digest}{version}"})}


def test_there_is_one_leader_at_a_time(state):
    """A lease is renewed by its holder with the same token, refused to others, and passes on with a greater token."""
    first = state.acquire("one", 60_000)
    assert state.acquire("one", 60_000) == first
    assert state.acquire("two", 60_000) is None
    state.release(first)
    second = state.acquire("two", 60_000)
    assert second.token > first.token
    state.release(first)
    assert state.acquire("three", 60_000) is None


def test_a_version_is_staged_whole_and_once(state):
    """Release record, outbox and base appear together; a repetition changes nothing."""
    lease = state.acquire("one", 60_000)
    base = Base(1, START, ("oak",), rules={"trained": 7}, blob=b"x" * 10_000_000)
    assert state.base() is None
    assert stage(state, lease, base=base) == Applied()
    assert stage(state, lease, base=base) == AlreadyApplied()
    assert state.base() == base
    facts = {"version": 1, "withdrawn": [], "release": "d1"}
    assert state.releases() == [(1, recorded(1) | facts)]
    assert [entry.record for entry in state.outbox()] == RECORDS


def test_what_is_recorded_meanwhile_is_not_written_over(state, monkeypatch):
    """A version read from the ledger between the look at Redis and the write makes this one Stale."""
    lease, change = state.acquire("one", 60_000), state.connection.change

    def meanwhile(*given, **more):
        monkeypatch.setattr(state.connection, "change", change)
        assert state.adopt(lease, 1, recorded(1, "e")) == Applied()
        return change(*given, **more)

    monkeypatch.setattr(state.connection, "change", meanwhile)
    assert isinstance(stage(state, lease, 1), Stale)
    assert state.outbox() == []


def test_versions_have_no_gaps_and_no_second_content(state):
    """A version follows the last one that its maker knew, and one number never stands for two contents."""
    lease = state.acquire("one", 60_000)
    assert isinstance(stage(state, lease, 2), Stale)
    assert stage(state, lease, 1) == Applied()
    assert isinstance(stage(state, lease, 1, release=recorded(1, "e")), Stale)
    assert stage(state, lease, 2) == Applied()
    assert [(version, record["version"]) for version, record in state.releases(1)] == [(2, 2)]
    assert isinstance(stage(state, lease, 5, before=1), Stale)
    assert stage(state, lease, 5, before=2) == Applied()
    assert [version for version, _ in state.releases()] == [1, 2, 5]


def test_versions_of_the_ledger_are_adopted_in_order(state):
    """One that is recorded already, or was before the newest, changes nothing; the ledger decides between two."""
    lease = state.acquire("one", 60_000)
    known = {n: {"entry": json.dumps({"version": n, "release": f"{n:064x}"})} for n in (1, 3)}
    other = {"entry": json.dumps({"version": 3, "release": "e" * 64})}
    told = [state.adopt(lease, version, known[version]) for version in (1, 1, 3, 1, 3)]
    assert told == [Applied(), AlreadyApplied(), Applied(), AlreadyApplied(), AlreadyApplied()]
    assert state.adopt(lease, 3, other) == Applied()
    assert [version for version, _ in state.releases()] == [1, 3]
    assert state.releases(1)[0][1]["entry"] == other["entry"]


def test_a_new_base_replaces_the_old_one(state, monkeypatch):
    """The base is read whole, whatever it was before, also if it is replaced between the reads of its two keys."""
    lease = state.acquire("one", 60_000)
    first, second = (Base(version, START, blob=bytes([version]) * 20) for version in (1, 2))
    assert stage(state, lease, 1, base=first) == Applied()
    assert state.base() == first
    head = state.base_head

    def meanwhile():
        monkeypatch.setattr(state, "base_head", head)
        found = head()
        assert stage(state, lease, 2, base=second) == Applied()
        return found

    monkeypatch.setattr(state, "base_head", meanwhile)
    assert state.base() == second


def test_the_outbox_keeps_order_and_forgets_what_is_confirmed(connection, state):
    """Records leave in the order they came, once; nothing of them stays behind."""
    records = [Message(f"1/{k}".encode(), b"bytes") for k in range(3)]
    state.withdraw(state.acquire("one", 60_000), [1], records)
    assert [entry.record for entry in state.outbox()] == records
    state.confirm(state.outbox(2))
    assert [entry.record for entry in state.outbox()] == records[2:]
    state.confirm(state.outbox())
    state.confirm([])
    left = connection.call("KEYS", f"{{st:{state.model}}}:*")
    kept = ("fence", "lease", "outbox", "settings", "withdrawn")
    assert sorted(left) == [f"{{st:{state.model}}}:{name}".encode() for name in kept]


def test_whoever_lost_the_lease_stages_nothing_even_with_the_newest_token(state):
    """A Redis set back to an earlier moment may give one token twice: the lease's holder decides then."""
    lease = state.acquire("one", 60_000)
    state.release(lease)
    assert isinstance(stage(state, lease), Stale)
    assert isinstance(stage(state, Lease("two", lease.token)), Stale)
    assert isinstance(state.adopt(lease, 1, recorded(1)), Stale)
    assert isinstance(state.withdraw(lease, [1], []), Stale)
    assert (state.releases(), state.withdrawn()) == ([], set())


def test_versions_are_withdrawn_without_a_new_one(state):
    """Tombstones and the mark are written together, once."""
    lease = state.acquire("one", 60_000)
    assert stage(state, lease, 1) == Applied()
    state.confirm(state.outbox())
    gone = [Message(b"1/0", None)]
    assert state.withdraw(lease, [1], gone) == Applied()
    assert isinstance(state.withdraw(lease, [1], gone), AlreadyApplied)
    assert state.withdrawn() == {1}
    assert [entry.record for entry in state.outbox()] == gone


def test_a_request_is_removed_by_who_acted_on_it_only(state):
    """A request made while another is acted on is not lost."""
    assert state.requested() is None
    state.request("unlearn")
    first = state.requested()
    assert first.startswith("unlearn:")
    state.request("retrain")
    state.fulfil(first)
    second = state.requested()
    assert second.startswith("retrain:")
    state.fulfil(second)
    assert state.requested() is None


def test_a_model_goes_with_every_key(state, connection, model):
    """Whoever waits is told how many keys are gone; settings and lease are the last."""
    stage(state, state.acquire("a", 60_000))
    keys, told = {*connection.names(f"{{st:{model}[:}}]*")}, []
    assert remove_model(connection, model, lambda gone, _: told.append(gone)) == len(keys)
    assert told == [len(keys) - 2]
    assert remove_model(connection, model, lambda *_: None) == 0
