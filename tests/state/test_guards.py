"""Commits are all or nothing: repeated ones are known, stale ones write nothing, readers survive merges."""

import numpy as np
import pytest
from added_documents import added_document
from state_reference import as_words, difference, words_by_id
from test_exactness import Run

from streamtopic.errors import ComponentUnreachable, StateCorrupt, StateMismatch
from streamtopic.state import (
    AlreadyApplied,
    Applied,
    Changes,
    ModelSettings,
    ModelState,
    PartitionWriter,
    Reader,
    SnapshotExpired,
    Stale,
    compact,
    compaction,
    cut,
)
from streamtopic.state.deletions import Forget, ForgetKind, Forgets
from streamtopic.state.redis_keys import ModelKeys
from streamtopic.state.removal import put_forgets


@pytest.fixture
def run(connection, model):
    """A partition with two documents in two segments."""
    run = Run(connection, model)
    for number in range(2):
        run.add(number, ((3, {"x": 2, f"w{number}": 1}),))
        run.flush()
    return run


def dump(connection, state):
    """Return everything under a partition's tag, except uploads that expire by themselves."""
    keys = sorted(connection.call("KEYS", state.keys.tag + "*"))
    return {key: connection.call("DUMP", key) for key in keys if connection.call("PTTL", key) == -1}


def planned(run):
    """Return a flush of one new document, not committed."""
    return run.state.plan(
        Changes(run.offset + 1, added=[added_document(run.state, b"new", run.offset, ((2, {"n": 2}),))])
    )


def test_a_repeated_commit_is_already_applied(connection, run):
    """The second time nothing is written, and the answer says so."""
    flush = planned(run)
    assert run.state.commit(flush) == Applied()
    before = dump(connection, run.state)
    assert run.state.commit(flush) == AlreadyApplied()
    assert dump(connection, run.state) == before
    assert run.state.meta.documents == 3


def test_a_zombie_writes_nothing(connection, run):
    """A writer that another one replaced is Stale, whatever it still wants to write."""
    flush, zombie = planned(run), run.state
    run.open()
    before = dump(connection, run.state)
    assert zombie.commit(flush) == Stale("another writer took the partition over")
    assert isinstance(compact(zombie, everything=True), Stale)
    assert dump(connection, run.state) == before
    with pytest.raises(StateMismatch, match="taken over"):
        zombie.reload()
    with pytest.raises(StateMismatch, match="taken over"):
        zombie.documents([b"d0"])


def test_two_plans_for_one_offset_commit_once(connection, run):
    """The offset moves by compare-and-set, so records are counted by one flush only."""
    first, second = planned(run), planned(run)
    assert run.state.commit(first) == Applied()
    before = dump(connection, run.state)
    assert run.state.commit(second) == Stale("the offset has moved")
    assert dump(connection, run.state) == before


def test_a_cut_makes_earlier_plans_stale(connection, run, model):
    """A document whose flush was planned before a cut must not be counted in the old epoch."""
    flush = planned(run)
    assert cut(connection, model, 0, epoch=1, leader=5) == Applied()
    before = dump(connection, run.state)
    assert run.state.commit(flush) == Stale("the manifest has changed")
    assert dump(connection, run.state) == before


def restore(connection, state, saved):
    """Put Redis back to what `dump` returned, as if it had been started from an older snapshot."""
    connection.call("DEL", *connection.call("KEYS", state.keys.tag + "*"))
    for key, value in saved.items():
        connection.call("RESTORE", key, 0, value)


def other_history(connection, run, saved, document):
    """Go back to `saved`, then change as much as was changed before, but otherwise; return its writer."""
    restore(connection, run.state, saved)
    state = PartitionWriter(connection, run.state.keys, 0, run.state.fence, run.state.weighting, lambda: document * 3)
    added = added_document(state, document.encode(), run.offset, ((2, {document: 2}),))
    assert state.commit(state.plan(Changes(run.offset + 1, added=[added]))) == Applied()
    return state


def test_a_plan_for_another_history_is_stale(connection, run):
    """Redis came back older and moved on to the same offset, version and token: the plan was made for what is gone."""
    saved = dump(connection, run.state)
    assert run.state.commit(planned(run)) == Applied()
    flush = run.state.plan(
        Changes(run.offset + 2, added=[added_document(run.state, b"next", run.offset + 1, ((2, {"n": 2}),))])
    )
    other = other_history(connection, run, saved, "other")
    same = [(m.next_offset, m.version, m.fence) for m in (run.state.meta, other.meta)]
    assert same[0] == same[1]
    before = dump(connection, run.state)
    assert run.state.commit(flush) == Stale("the state has another history")
    assert isinstance(compact(run.state, everything=True), Stale)
    assert dump(connection, run.state) == before


def test_a_writer_notices_that_its_history_is_gone(connection, run):
    """Looking documents up after a restart from an older snapshot reads words and position again."""
    saved = dump(connection, run.state)
    assert run.state.commit(planned(run)) == Applied()
    other_history(connection, run, saved, "other")
    assert set(run.state.documents([b"new", b"other"])) == {b"other"}
    assert set(words_by_id(run.state.vocabulary).values()) == {"x", "w0", "w1", "other"}


def test_a_reload_that_fails_leaves_nothing_half_read(connection, run, model, monkeypatch):
    """Position and words change together, so a failure in between is noticed and both are read again."""
    cut(connection, model, 0, epoch=1, leader=5)
    before, scan = run.state.meta, connection.scan

    def fail(*_):
        raise ComponentUnreachable("gone")

    monkeypatch.setattr(connection, "scan", fail)
    with pytest.raises(ComponentUnreachable):
        run.state.documents([b"d0"])
    assert run.state.meta == before
    monkeypatch.setattr(connection, "scan", scan)
    run.state.documents([b"d0"])
    assert run.state.meta.epoch == 1


def test_words_and_position_of_two_moments_are_not_mixed(connection, run, monkeypatch):
    """A commit that comes between the two is seen, and both are read once more."""
    other = PartitionWriter(connection, run.state.keys, 0, run.state.fence, run.state.weighting, lambda: "other" * 5)
    scan, tried = connection.scan, []

    def after_a_commit(key):
        if not tried:
            tried.append(key)
            added = added_document(other, b"new", run.offset, ((2000, {f"n{k}": 1 for k in range(2000)}),))
            assert other.commit(other.plan(Changes(run.offset + 1, added=[added]))) == Applied()
        return scan(key)

    monkeypatch.setattr(connection, "scan", after_a_commit)
    run.state.reload()
    assert run.state.meta.commit == other.meta.commit
    assert set(words_by_id(run.state.vocabulary).values()) == set(words_by_id(other.vocabulary).values())


def test_a_cut_begins_another_history(connection, run, model):
    """Two cuts at one offset and version are told apart, so a document's epoch is that of the cut that stands."""
    saved = dump(connection, run.state)
    assert cut(connection, model, 0, epoch=1, leader=5) == Applied()
    run.state.reload()
    flush = planned(run)
    restore(connection, run.state, saved)
    assert cut(connection, model, 0, epoch=2, leader=5) == Applied()
    assert run.state.commit(flush) == Stale("the state has another history")


def test_the_newest_time_of_a_counted_record_is_kept(run):
    """It never goes back, whatever the clocks of producers say."""
    for time_ms, kept in ((5_000, 5_000), (3_000, 5_000), (9_000, 9_000)):
        run.offset += 1
        assert run.state.commit(run.state.plan(Changes(run.offset, time_ms=time_ms))) == Applied()
        assert run.state.meta.time_ms == kept


def test_cuts_are_idempotent_and_fenced(connection, run, model):
    """A repeated cut changes nothing, an older leader's is refused, and a late partition catches up."""
    assert cut(connection, model, 0, epoch=2, leader=5) == Applied()
    assert cut(connection, model, 0, epoch=2, leader=5) == AlreadyApplied()
    assert cut(connection, model, 0, epoch=3, leader=4) == Stale("another scheduler leads")
    run.state.reload()
    assert run.state.meta.cuts == (run.offset, run.offset)
    assert [run.state.meta.epoch_of(offset) for offset in (run.offset - 1, run.offset)] == [0, 2]


def test_an_upload_that_expired_is_not_committed(connection, run, monkeypatch):
    """A manifest never names a segment that is not there."""
    flush = planned(run)
    commit = connection.script

    def after_expiry(text, keys, arguments):
        connection.call("DEL", run.state.keys.segment(flush.segments[0][0].name, 0))
        return commit(text, keys, arguments)

    monkeypatch.setattr(connection, "script", after_expiry)
    before = dump(connection, run.state)
    assert run.state.commit(flush) == Stale("a segment expired before it was committed")
    assert dump(connection, run.state) == before
    monkeypatch.undo()
    assert run.state.commit(flush) == Applied()


def test_committed_segments_do_not_expire(connection, run):
    """What the manifest names stays until a merge replaces it."""
    for entry in run.state.manifest:
        for k in range(entry.keys):
            assert connection.call("PTTL", run.state.keys.segment(entry.name, k)) == -1


def test_a_reader_that_misses_a_merged_segment_takes_a_new_manifest(connection, run, model, monkeypatch):
    """A merge between manifest and segments is not an error for the reader."""
    reader = Reader(connection, model, 1)
    expected = run.live.recount()
    read_heads, tried = reader._read_heads, []

    def after_a_merge(keys, manifest):
        if not tried:
            tried.append(manifest)
            compact(run.state, everything=True, grace=0.0)
        return read_heads(keys, manifest)

    monkeypatch.setattr(reader, "_read_heads", after_a_merge)
    assert as_words(reader.snapshot()) == expected
    assert tried


def test_an_expired_snapshot_says_so_and_read_takes_a_newer_one(connection, run, model):
    """Pairs of a snapshot whose segments are gone cannot be read; `read` begins again with a new snapshot."""
    reader = Reader(connection, model, 1)
    old = reader.snapshot()
    seen = []

    def use(snapshot):
        if not seen:
            compact(run.state, everything=True, grace=0.0)
        seen.append(snapshot)
        return as_words(snapshot)

    assert reader.read(use) == run.live.recount()
    assert len(seen) == 2
    with pytest.raises(SnapshotExpired):
        as_words(old)
    with pytest.raises(SnapshotExpired):
        as_words(reader.snapshot().since(old))


def test_a_snapshot_within_the_grace_period_stays_readable(connection, run, model):
    """Replaced segments outlive a merge, so learning from an older snapshot goes on; differences see nothing new."""
    reader = Reader(connection, model, 1)
    old, expected = reader.snapshot(), run.live.recount()
    assert compact(run.state, everything=True) == Applied()
    assert compact(run.state, everything=True) == AlreadyApplied()
    assert as_words(old) == expected
    delta = reader.snapshot().since(old)
    counts = delta.restrict(np.arange(len(delta.words)))
    assert (counts.pairs, delta.documents, delta.frequency.any()) == (0, 0, False)


def test_a_difference_reads_new_segments_only(connection, run, model, monkeypatch):
    """The cost of an update follows what changed, not what is stored."""
    reader = Reader(connection, model, 1)
    old = reader.snapshot()
    run.add(7, ((2, {"late": 2}),))
    run.flush()
    delta = reader.snapshot().since(old)
    read, string = [], reader.string
    monkeypatch.setattr(type(reader), "string", lambda _, one, k: read.append(one.entry.name) or string(one, k))
    assert as_words(delta)[1] == {"late": 1}
    assert read == [run.state.manifest[-1].name]
    assert list(delta.words) == ["late"]


@pytest.mark.parametrize("everything", [False, True])
def test_folded_epochs_are_one_and_cannot_be_told_apart_again(connection, run, model, everything):
    """Folding moves counters and documents of old epochs together; asking for one of them is refused."""
    cut(connection, model, 0, epoch=1, leader=1)
    run.state.reload()
    run.add(5, ((2, {"y": 2}),))
    run.flush()
    assert compact(run.state, base_epoch=1, everything=everything) == Applied()
    assert (run.state.meta.folded, dict(run.state.meta.live), run.state.meta.cuts) == (1, {1: 3}, ())
    assert {entry.epoch for entry in run.state.manifest} == {1}
    reader = Reader(connection, model, 1)
    assert as_words(reader.snapshot(through=1)) == run.live.recount()
    with pytest.raises(SnapshotExpired, match="folded"):
        reader.snapshot(through=0)


def test_a_word_that_died_and_came_back_is_one_word_in_a_difference(connection, model, monkeypatch):
    """A merged segment may hold the same word under its old and its new id; both count."""
    run = Run(connection, model)
    run.add(0, ((4, {"x": 2, "y": 2}),))
    run.flush()
    reader = Reader(connection, model, 1)
    old, before = reader.snapshot(), run.live.recount()
    run.delete(0)
    run.flush()
    run.add(1, ((6, {"x": 3, "z": 3}),))
    run.flush()
    monkeypatch.setattr(compaction, "_groups", lambda manifest, **_: [manifest[1:]] if len(manifest) > 2 else [])
    assert compact(run.state) == Applied()
    assert len(run.state.manifest) == 2
    assert as_words(reader.snapshot().since(old)) == difference(run.live.recount(), before)
    assert as_words(reader.snapshot()) == run.live.recount()


def test_a_damaged_segment_is_refused(connection, run, model):
    """One flipped byte in a segment is found by its checksum."""
    key = run.state.keys.segment(run.state.manifest[0].name, 1)
    data = bytearray(connection.call("GET", key))
    data[-1] ^= 1
    connection.call("SET", key, bytes(data))
    with pytest.raises(StateCorrupt, match="rebuild"):
        as_words(Reader(connection, model, 1).snapshot())


def test_a_lost_segment_is_refused_by_the_writer(connection, run, model):
    """A writer without all its segments would let words die that documents still hold."""
    connection.call("DEL", run.state.keys.segment(run.state.manifest[0].name, 0))
    with pytest.raises(StateCorrupt, match="rebuild"):
        run.open()


@pytest.mark.parametrize("layout", [2, 99])
def test_another_layout_is_refused(connection, run, model, layout):
    """A state of another version is not read as if it were of this one; the error names both ways out.

    Counts of layout 2 have no heavy documents, and gave every passage of a long text a mass of its own.
    """
    settings = ModelSettings(1, 256)
    ModelState.open(connection, model, settings)
    connection.call("HSET", run.state.keys.meta, "schema", layout)
    connection.call("HSET", ModelKeys(model).named("settings"), "schema", layout)
    for read in (
        run.open,
        Reader(connection, model, 1).snapshot,
        Reader(connection, model, 1).positions,
        lambda: ModelState.open(connection, model, settings),
        lambda: ModelState.find(connection, model),
    ):
        with pytest.raises(StateMismatch, match=rf"layout {layout}.*reads 3 and 4.*version.*`streamtopic rebuild`"):
            read()


def test_a_head_without_heavy_documents_is_refused(connection, run, model):
    """Even where the layout's number was lost, a segment of an older program is not taken for one of this."""
    key = run.state.keys.segment(run.state.manifest[0].name, 0)
    connection.call("SET", key, connection.call("GET", key).replace(b"STH3", b"STH2", 1))
    with pytest.raises(StateCorrupt, match="rebuild"):
        Reader(connection, model, 1).snapshot()


def test_there_must_be_a_state_to_read(connection, model):
    """A wrong model name or address is not an empty model."""
    with pytest.raises(StateMismatch, match="no state"):
        Reader(connection, model, 1).snapshot()


def test_deletions_that_are_put_back_twice_are_there_once(connection, model, monkeypatch):
    """A script whose answer was lost is sent again; it must not take what it put there for what it replaces."""
    forgets = [Forget(offset, b"d", ForgetKind.DELETED, "r", b"salt", 0, 0, 1, 2) for offset in (3, 5)]
    script = connection.script

    def twice(*arguments):
        script(*arguments)
        return script(*arguments)

    monkeypatch.setattr(connection, "script", twice)
    put_forgets(connection, model, 0, forgets)
    assert Forgets(connection, ModelKeys(model).partition(0)).read() == forgets
    put_forgets(connection, model, 0, [])
    assert len(Forgets(connection, ModelKeys(model).partition(0))) == 0
