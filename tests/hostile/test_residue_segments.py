"""Segments: what came and what left with a deleted document goes in time, whatever the sizes of segments."""

import itertools
import random
from dataclasses import replace

import pytest
from added_documents import added_document
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamtopic.counts import Weighting
from streamtopic.state import Changes, Compactor, Forget, ForgetKind, PartitionWriter, RemovedDocument, cut
from streamtopic.state.segments import MOST_PASSAGES, decode_head

_numbers = itertools.count()
FOREVER = 1e9


@pytest.fixture
def state(connection):
    """The writer of a partition that no other test uses."""
    return opened(connection)


def opened(connection):
    """The writer of a fresh partition."""
    return PartitionWriter.open(connection, f"seg{next(_numbers)}", 0, partitions=1, weighting=Weighting())


def flush(state, add=(), remove=(), kind=ForgetKind.DELETED):
    """Commit one flush: (id, words) to add, ids to remove."""
    offset = state.meta.next_offset
    stored = state.documents(remove)
    added = [
        added_document(state, name, offset + k, [(len(words), {word: words.count(word) for word in words})])
        for k, (name, words) in enumerate(add)
    ]
    end = offset + len(added) + len(remove)
    forgets = [
        Forget(end - 1, name, kind, *_request(), have.offset, 0, 1, 1, part)
        for part, (name, have) in enumerate(stored.items())
    ]
    removed = [RemovedDocument(name, have) for name, have in stored.items()]
    changes = Changes(end, added, removed, forgets, counted={state.meta.epoch: len(added)})
    assert state.commit(state.plan(changes)).__class__.__name__ == "Applied"


def miss(state, remove):
    """Commit deletions that left the log before they were read, where no record waits."""
    end, stored = state.meta.next_offset, state.documents(remove)
    forgets = [
        Forget(end - 1, name, ForgetKind.MISSED, *_request(), have.offset, 0, 1, 1, part)
        for part, (name, have) in enumerate(stored.items(), start=1)
    ]
    removed = [RemovedDocument(name, have) for name, have in stored.items()]
    assert state.commit(state.plan(Changes(end, [], removed, forgets))).__class__.__name__ == "Applied"


def _request():
    return ("r", b"") if "salt" in Forget.__slots__ else ("r", 3)


def held(state):
    """Numbers of the words that any segment names."""
    heads = [decode_head(state.connection.call("GET", state.keys.segment(e.name, 0))) for e in state.manifest]
    return {number for head in heads for number in head.ids.tolist()}


def live(state):
    """Numbers of the words that live documents hold."""
    return {int(number) for _, number in state.connection.scan(state.keys.words)}


def test_a_small_deletion_from_a_large_segment_leaves_it_in_time(state):
    """Size tiers never join the two; age does, and then no segment names the word."""
    many = [(b"d%d" % n, [f"w{n}-{k}" for k in range(400)]) for n in range(4)]
    flush(state, add=many)
    flush(state, add=[(b"r", ["rare", "word"])])
    flush(state, remove=[b"d0", b"r"])
    patient = Compactor(state, max_age=FOREVER)
    while patient.step(None):
        pass
    assert held(state) > live(state)
    assert state.meta.holds_removed
    hasty = Compactor(state, max_age=0.0, grace=0.0)
    while hasty.step(None):
        pass
    assert held(state) == live(state)
    assert len(state.manifest) == 1
    assert (state.meta.holds_removed, state.meta.erased) == (False, state.meta.next_offset)


def test_a_deletion_after_the_merge_was_begun_waits_for_the_next(state):
    """The mark is that of when the merge was begun: a later deletion is not taken for gone."""
    flush(state, add=[(b"a", ["one"]), (b"b", ["two"])])
    flush(state, remove=[b"a"])
    compactor = Compactor(state, max_age=0.0)
    compactor._begin_clearing()
    begun = state.meta.next_offset
    flush(state, remove=[b"b"])
    while compactor.step(None) or compactor._clearing is not None:
        if not state.meta.holds_removed or state.meta.erased:
            break
    assert state.meta.erased == begun
    assert state.meta.holds_removed
    while compactor.step(None):
        pass
    assert held(state) == set()
    assert not state.meta.holds_removed


def test_a_missed_deletion_waits_where_marks_had_come_to_the_end(state):
    """It is committed without a record, behind marks that say that all is done; they cannot mean it as well."""
    flush(state, add=[(b"a", ["one"]), (b"b", ["two"]), (b"c", ["three"])])
    flush(state, remove=[b"a"])
    compactor = Compactor(state, max_age=0.0)
    while compactor.step(None):
        pass
    end = state.meta.next_offset
    assert (state.meta.erased, state.meta.removals) == (end, 1)
    miss(state, [b"b"])
    assert (state.meta.removed, state.meta.removals) == (end + 1, 2)
    assert state.meta.holds_removed
    while compactor.step(None):
        pass
    assert held(state) == live(state)
    flush(state, add=[(b"d", ["four"])])
    while compactor.step(None) or state.meta.holds_removed:
        pass
    assert held(state) == live(state)


@pytest.mark.parametrize("kind", [ForgetKind.REFUSED, ForgetKind.REPLACED])
def test_a_document_that_a_change_took_away_is_noted(state, kind):
    """A refused change and a replacement leave traces as a deletion does."""
    flush(state, add=[(b"a", ["one"]), (b"b", ["two"])])
    flush(state, remove=[b"a"], kind=kind)
    assert (state.meta.removed, state.meta.removals) == (state.meta.next_offset, 1)


def test_another_writer_does_not_go_on_with_a_merge_that_it_did_not_begin(connection, state):
    """A writer that was killed while it cleared leaves no mark, and its successor clears everything itself."""
    flush(state, add=[(b"a", ["one"]), (b"b", ["two"])])
    flush(state, remove=[b"a"])
    Compactor(state, max_age=0.0)._begin_clearing()
    model = state.keys.tag[4:-3]
    other = PartitionWriter.open(connection, model, 0, partitions=1, weighting=Weighting())
    assert other.meta.erased == 0
    compactor = Compactor(other, max_age=0.0)
    while compactor.step(None):
        pass
    assert held(other) == live(other)
    assert not other.meta.holds_removed


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), flushes=st.integers(1, 12))
def test_any_history_that_was_cleared_names_live_words_alone(connection, seed, flushes):
    """Whatever was added, deleted, merged and cut into epochs: cleared segments hold the live documents' words."""
    rng, state, alive = random.Random(seed), opened(connection), []
    compactor = Compactor(state, max_age=0.0)
    for number in range(flushes):
        add = [(b"%d-%d" % (number, k), rng.choices("abcdefgh", k=3)) for k in range(rng.randrange(4))]
        gone = rng.sample(alive, rng.randrange(len(alive) + 1))
        flush(state, add, gone)
        alive = [name for name in alive if name not in gone] + [name for name, _ in add]
        if rng.random() < 0.3:
            cut(connection, state.keys.tag[4:-3], 0, epoch=state.meta.epoch + 1, leader=1)
            state.reload()
        if rng.random() < 0.5:
            compactor.step(None if rng.random() < 0.5 else state.meta.epoch - 1)
    while compactor.step(None) or state.meta.holds_removed:
        pass
    assert held(state) == live(state)


def bulk(state):
    """Commit a flush of a bulk load; return its number of rows."""
    start = state.meta.next_offset
    flush(state, [(b"bulk%d" % (start + k), ["x", "y", "x"]) for k in range(MOST_PASSAGES + 1)])
    return MOST_PASSAGES + 1


def rows_of(state):
    """The number of rows of each segment."""
    return [entry.rows for entry in state.manifest]


def test_rows_of_a_bulk_load_become_pairs_in_time(state):
    """However few they are, with a deletion beside them and without one, and those of later flushes too."""
    bulk(state)
    worker = Compactor(state, max_age=FOREVER, rows_age=0)
    while worker.step(None):
        pass
    assert rows_of(state) == [0]
    flush(state, remove=[b"bulk0"])
    for number in range(2, 5):
        bulk(state)
        for _ in range(3):
            worker.step(None)
        assert sorted(rows_of(state)) == [0] * number + [1]


def test_rows_that_come_while_others_wait_do_not_wait_anew(state):
    """Once the oldest rows of a bulk load have waited for long enough, all are merged, the newest with them."""
    worker = Compactor(state, max_age=FOREVER, rows_age=FOREVER)
    bulk(state)
    worker.step(None)
    flush(state, remove=[b"bulk0"])
    bulk(state)
    worker._rows_wait = replace(worker._rows_wait, until=0.0)
    assert worker.step(None)
    assert sorted(rows_of(state)) == [0, 1]


def test_rows_of_a_bulk_load_wait_a_while_beside_a_deletion(state):
    """A load with deletions among its records is still counted many flushes at once."""
    rows = bulk(state)
    flush(state, remove=[b"bulk0"])
    worker = Compactor(state, max_age=FOREVER, rows_age=FOREVER)
    for _ in range(5):
        assert not worker.step(None)
    assert rows_of(state) == [rows, 1]


def test_many_flushes_of_a_bulk_load_are_counted_at_once(state):
    """The first merge takes 32 of them, and fewer of small flushes, whose passages an update needs."""
    worker = Compactor(state, max_age=FOREVER, rows_age=FOREVER)
    rows = [bulk(state) for _ in range(31)]
    for number in range(7):
        flush(state, [(b"small%d" % number, ["x", "y"])])
    while worker.step(None):
        pass
    assert sorted(rows_of(state)) == [1] * 7 + rows
    bulk(state)
    while worker.step(None):
        pass
    assert sorted(rows_of(state)) == [0] + [1] * 7
    flush(state, [(b"small7", ["x", "y"])])
    while worker.step(None):
        pass
    assert rows_of(state) == [0, 0]
    assert held(state) == live(state)


def test_no_row_of_a_deleted_document_is_left_in_time(state):
    """All of its segments become one, which holds pairs of the documents that are left."""
    flush(state, [(b"kept", ["a", "b"]), (b"gone", ["c", "d"])])
    flush(state, remove=[b"gone"])
    worker = Compactor(state, max_age=0)
    while state.meta.holds_removed:
        worker.step(None)
    assert rows_of(state) == [0]
    assert held(state) == live(state)
