"""Redis loses a key of a partition: somebody says so before a count is wrong, and no key is read as nothing."""

from dataclasses import replace

import pytest
from state_reference import Run, as_words

from added_documents import added_documents
from streamtopic.documents.events import subject_digest
from streamtopic.errors import StateCorrupt, StateMismatch, StateMissing
from streamtopic.state import (
    Applied,
    CutGone,
    DocumentChanges,
    Forget,
    ForgetKind,
    Reader,
    Stale,
)
from streamtopic.state.meta import require_keys

DOCUMENTS = 12


@pytest.fixture
def run(connection, model):
    """A partition with something in every key, whose first changes are gone."""
    run = Run(connection, model)
    for number in range(DOCUMENTS):
        write(run, number)
        if number in {3, 6, 9}:
            assert run.state.sum_changes() == Applied()
    return run


def planned(run, number):
    """Return a flush of a document of a subject, with all that one may bring beside it; an older document goes."""
    document, offset, digest = f"d{number}".encode(), run.offset, subject_digest(f"person{number}", run.state.secret)
    added = replace(added_documents(run.state, (document, offset, passages(number))), subjects=[(digest,)])
    gone, _ = run.state.documents([f"d{number - 5}".encode()])
    kind = ForgetKind.DELETED
    changes = DocumentChanges(
        offset + 1,
        added,
        gone,
        [Forget(offset, name, kind, "r", b"s", stored.offset, 1, 1) for name, stored in gone.items()],
    )
    return run.state.plan(changes)


def passages(number):
    """The text of a document."""
    return ((5, {f"w{number}": 2, "common": 3}),)


def write(run, number):
    """Commit such a flush."""
    result = run.state.commit(planned(run, number))
    if result == Applied():
        run.offset += 1
        run.live.documents[f"d{number}".encode()] = (0, passages(number), {})
        run.live.documents.pop(f"d{number - 5}".encode(), None)
    return result


def keys_of(run):
    """Return a key of each kind by what is lost with it."""
    keys = run.state.keys
    now, before = keys.changes[run.state.meta.generation % 2], keys.changes[(run.state.meta.generation + 1) % 2]
    subject = subject_digest("person11", run.state.secret)
    return {
        "position": keys.meta,
        "statistics": keys.statistics,
        "changes": now,
        "earlier changes": before,
        "deletions": keys.forgets,
        "facts of deletions": keys.forget_facts,
        "secret": keys.subject_secret,
        "subjects": keys.subjects(keys.bucket(subject)),
        "documents": keys.documents(keys.bucket(b"d11")),
    }


NOTICED = {
    "changes": "changes: ",
    "statistics": "word statistics: ",
    "deletions": "deletions that wait for receipts: ",
    "facts of deletions": "deletions that wait for receipts: ",
    "secret": "secret of the index of subjects: ",
    "subjects": "entries of the index of subjects: ",
    "documents": "documents: ",
}
"""What is lost, and what `require_keys` says of it. Of a position and of earlier changes it says nothing: see below."""


def lost(run, kind):
    """Lose the key of a kind."""
    assert run.connection.call("DEL", keys_of(run)[kind]) == 1


def test_changes_that_nobody_needs_may_be_lost(connection, run):
    """Those of the generation before are for readers that began earlier: who begins or follows counts all."""
    follower = Reader(connection, run.model, 1)
    follower.counts()
    lost(run, "earlier changes")
    require_keys(connection, run.state.keys)
    run.open()
    for reader in (follower, Reader(connection, run.model, 1)):
        assert as_words(reader.counts()) == run.live.recount()


def test_a_partition_is_not_begun_anew_beside_what_is_left(connection, run):
    """Any key of counts that is there without a position refuses the claim, which would count its documents twice."""
    keys, saved = run.state.keys, run.dump()
    connection.call("DEL", *saved)
    # A rebuild keeps the secret that digests were made with, and deletions that wait.
    kept = {name.encode() for name in (keys.meta, keys.subject_secret, keys.forgets, keys.forget_facts)}
    for key in saved.keys() - kept:
        connection.call("RESTORE", key, 0, saved[key])
        with pytest.raises(StateCorrupt, match=rf"has {key.decode()} still"):
            run.open()
        assert connection.call("KEYS", keys.tag + "*") == [key]
        connection.call("DEL", key)
    run.open()
    assert run.state.meta.documents == 0


@pytest.mark.parametrize("kind", NOTICED)
def test_a_loss_is_said_by_whoever_begins_and_whoever_goes_on(connection, run, kind):
    """A writer that opens, one that reads its state again, a reader that begins and one that follows: all name it."""
    follower = Reader(connection, run.model, 1)
    follower.counts()
    lost(run, kind)
    for look in (
        lambda: require_keys(connection, run.state.keys),
        run.state.require_keys,
        run.state.reload,
        run.open,
        Reader(connection, run.model, 1).counts,
        follower.counts,
        lambda: Reader(connection, run.model, 1).counts(before={0: 1}),
    ):
        with pytest.raises(StateCorrupt, match=rf"{NOTICED[kind]}.*streamtopic rebuild"):
            look()


@pytest.mark.parametrize(("field", "error"), [("facts", StateCorrupt), ("schema", StateMismatch)])
def test_half_a_position_is_no_position_that_is_missing(connection, run, field, error):
    """Its facts are damage then, and without its number nobody knows its format."""
    assert connection.call("HDEL", run.state.keys.meta, field) == 1
    with pytest.raises(error, match="streamtopic rebuild"):
        Reader(connection, run.model, 1).positions()


def test_without_a_position_nothing_is_written_or_read(connection, run):
    """Who reads says that there is no state, and who writes changes no key."""
    follower = Reader(connection, run.model, 1)
    counts = follower.counts()
    flush = planned(run, 20)
    lost(run, "position")
    before, gone = run.dump(), Stale("another writer took the partition over, or the state is gone")
    assert run.state.commit(flush) == gone
    assert run.state.sum_changes() == gone
    assert run.dump() == before
    for look in (follower.counts, Reader(connection, run.model, 1).counts, run.state.reload, follower.positions):
        with pytest.raises(StateMissing, match="no state"):
            look()
    with pytest.raises(StateCorrupt, match="lost the position"):
        run.open()
    with pytest.raises(CutGone, match="set back"):
        as_words(counts)
