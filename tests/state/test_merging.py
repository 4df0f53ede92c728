"""Merging beside ingest: exact however rows are cut into chunks, small steps, room for what was replaced bounded."""

import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from older_segments import as_older
from state_reference import as_words
from test_exactness import Run
from whole_segments import decode

from streamtopic.counts import Cooccurrence
from streamtopic.errors import CountsOverflow, TakenOver
from streamtopic.state import Applied, Compactor, Reader, Stale, compact, compaction, cut, segments
from streamtopic.state.compaction import due, merge, swap
from streamtopic.state.merge_segments import Source, fused_rows
from streamtopic.state.segments import PairChunk

words = st.dictionaries(st.sampled_from([f"w{k}" for k in range(9)]), st.integers(1, 3), min_size=1, max_size=9)


def filled(run, number):
    """Commit documents in as many flushes."""
    for k in range(number):
        run.add(k, ((9, {f"w{k % 5}": 2, "all": 3, f"v{k}": 1}),))
        run.flush()
    return run


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    documents=st.lists(words, min_size=2, max_size=12),
    pairs=st.sampled_from([1, 2, 7, 50]),
    gone=st.sets(st.integers(0, 11)),
)
def test_rows_may_be_cut_anywhere(connection, new_model, documents, pairs, gone):
    """Chunks of one pair or of many, in the flushes and in what is merged, add up to the same counts."""
    model = new_model()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "CHUNK_PAIRS", pairs)
        patch.setattr(segments, "CHUNK_PAIRS", pairs)
        run = Run(connection, model)
        for k, counts in enumerate(documents):
            run.add(k, ((sum(counts.values()), counts),))
            run.flush()
        for k in gone:
            run.delete(k)
        run.flush()
        assert compact(run.state, everything=True) == Applied()
        run.add(99, ((4, {"w0": 2, "w8": 2}),))
        run.flush()
        compact(run.state, everything=True)
    assert len(run.state.manifest) == 1
    assert as_words(Reader(connection, model, 1).snapshot()) == run.live.recount()


@pytest.mark.parametrize("packed_from", [0, 1 << 27])
def test_packed_or_not_counts_are_the_same(connection, model, monkeypatch, packed_from):
    """Whether a merge packs its chunks is a matter of size only."""
    monkeypatch.setattr(compaction, "_PACKED_FROM", packed_from)
    run = filled(Run(connection, model), 9)
    assert compact(run.state, everything=True) == Applied()
    assert as_words(Reader(connection, model, 1).snapshot()) == run.live.recount()


def test_sums_that_leave_64_bits_are_refused():
    """Two segments whose pair adds up beyond the range raise, and do not wrap around."""
    chunk = PairChunk(np.array([0], np.int32), np.array([1]), np.array([0], np.int32), np.array([1 << 61]))
    sources = [Source(np.array([0]), iter([chunk])) for _ in range(4)]
    with pytest.raises(CountsOverflow):
        list(fused_rows(sources, 1))


def test_flushes_go_on_while_a_merge_is_under_way(connection, model):
    """What is committed between a merge and its swap is kept beside it."""
    run = filled(Run(connection, model), 8)
    merged = merge(run.state, due(run.state))
    run.add(50, ((5, {"late": 3, "all": 2}),))
    run.delete(3)
    run.flush()
    assert swap(run.state, merged) == Applied()
    assert len(run.state.manifest) == 2
    assert as_words(Reader(connection, model, 1).snapshot()) == run.live.recount()


def test_a_merge_of_segments_that_are_gone_changes_nothing(connection, model):
    """A second merge of the same segments comes too late."""
    run = filled(Run(connection, model), 8)
    group = due(run.state)
    first, second = merge(run.state, group), merge(run.state, group)
    assert swap(run.state, first) == Applied()
    assert isinstance(swap(run.state, second), Stale)
    assert as_words(Reader(connection, model, 1).snapshot()) == run.live.recount()


def test_a_merge_can_be_stopped(connection, model):
    """It answers Stale, and what it had uploaded expires by itself."""
    run = filled(Run(connection, model), 8)
    assert merge(run.state, due(run.state), lambda: True) == Stale("stopped")
    assert len(run.state.manifest) == 8


def test_large_merges_are_done_by_a_thread(connection, model, monkeypatch):
    """A step starts one and comes back at once; a later step takes it over, whatever was committed meanwhile."""
    monkeypatch.setattr(compaction, "_AT_ONCE", 0)
    run = filled(Run(connection, model), 8)
    worker = Compactor(run.state)
    assert not worker.step(None)
    run.add(60, ((5, {"late": 3, "all": 2}),))
    run.flush()
    deadline = time.monotonic() + 60
    while not worker.step(None):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert len(run.state.manifest) == 2
    assert not worker.step(None)
    assert as_words(Reader(connection, model, 1).snapshot()) == run.live.recount()


def test_a_change_beside_the_writer_is_read_again(connection, model):
    """After a cut, the first step merges nothing but learns of it, and the next one merges."""
    run = filled(Run(connection, model), 8)
    assert cut(connection, model, 0, epoch=1, leader=1) == Applied()
    worker = Compactor(run.state)
    assert not worker.step(None)
    assert run.state.meta.epoch == 1
    assert worker.step(None)


def test_who_lost_the_partition_does_not_merge_it(connection, model):
    """A step says that another writer has it, rather than trying again for ever."""
    run = filled(Run(connection, model), 8)
    worker = Compactor(run.state)
    run.open()
    with pytest.raises(TakenOver):
        worker.step(None)
    assert len(run.state.manifest) == 8


def test_too_many_segments_make_ingest_wait_for_the_merge(connection, model, monkeypatch):
    """The number of segments is bounded however slow merging is."""
    monkeypatch.setattr(compaction, "_AT_ONCE", 0)
    monkeypatch.setattr(compaction, "_MOST_SEGMENTS", 8)
    run = filled(Run(connection, model), 8)
    assert Compactor(run.state).step(None)
    assert len(run.state.manifest) == 1


def test_an_error_in_a_background_merge_is_raised_by_a_step(connection, model, monkeypatch):
    """It is not lost, and the next step tries again."""
    monkeypatch.setattr(compaction, "_AT_ONCE", 0)
    monkeypatch.setattr(compaction, "_MOST_SEGMENTS", 8)
    run, real = filled(Run(connection, model), 8), compaction.merge

    def fail(*_):
        raise CountsOverflow("too many")

    monkeypatch.setattr(compaction, "merge", fail)
    worker = Compactor(run.state)
    with pytest.raises(CountsOverflow):
        worker.step(None)
    monkeypatch.setattr(compaction, "merge", real)
    assert worker.step(None)


def names_of(run):
    """Return the keys of all strings in the manifest."""
    return [run.state.keys.segment(entry.name, k) for entry in run.state.manifest for k in range(entry.keys)]


def test_replaced_segments_make_room_early_where_they_are_large(connection, model, monkeypatch):
    """Beyond the room for them, the oldest go after seconds rather than minutes; readers take a new snapshot."""
    monkeypatch.setattr(compaction, "_LEAST_ROOM", 0)
    run = filled(Run(connection, model), 8)
    # Pairs, since rows take less room than the segment that they become.
    as_older(connection, run.state)
    worker, first = Compactor(run.state), names_of(run)
    assert worker.step(None)
    assert all(10_000 < connection.call("PTTL", name) <= compaction.GRACE_SECONDS * 1000 for name in first)
    filled(run, 8)
    as_older(connection, run.state)
    assert worker.step(None)
    assert all(0 < connection.call("PTTL", name) <= 10_000 for name in first)
    assert all(connection.call("PTTL", name) == -1 for name in names_of(run))


def test_segments_that_count_again_are_kept(connection, model, monkeypatch):
    """After Redis was set back to before a merge, what that merge had replaced must not be made to go."""
    monkeypatch.setattr(compaction, "_LEAST_ROOM", 0)
    run = filled(Run(connection, model), 8)
    worker = Compactor(run.state)
    keys = sorted(connection.call("KEYS", run.state.keys.tag + "*"))
    saved = {key: connection.call("DUMP", key) for key in keys}
    assert worker.step(None)
    connection.call("DEL", *connection.call("KEYS", run.state.keys.tag + "*"))
    for key, value in saved.items():
        connection.call("RESTORE", key, 0, value)
    run.state.reload()
    for _ in range(3):
        filled(run, 8)
        worker.step(None)
    assert all(connection.call("PTTL", name) == -1 for name in names_of(run))
    assert as_words(Reader(connection, model, 1).snapshot()) == run.live.recount()


def test_a_word_that_cancels_out_goes_but_one_with_pairs_stays(connection, model):
    """A word whose frequency is zero may still have pairs, where a document of an older segment was replaced."""
    run = Run(connection, model)
    run.add(0, ((4, {"x": 2, "y": 2}),))
    run.flush()
    run.add(0, ((4, {"x": 2, "z": 2}),))
    run.flush()
    run.add(1, ((4, {"p": 2, "q": 2}),))
    run.flush()
    run.delete(1)
    run.flush()
    later = run.state.manifest[1:]
    assert swap(run.state, merge(run.state, later)) == Applied()
    counts = decode([connection.call("GET", run.state.keys.segment(run.state.manifest[1].name, k)) for k in range(2)])
    assert len(counts.ids) == 3
    assert isinstance(counts.counts, Cooccurrence)
    assert as_words(Reader(connection, model, 1).snapshot()) == run.live.recount()


def test_a_word_that_is_heavy_no_longer_is_kept_by_a_merge(connection, model):
    """A longer text in a document's place may leave nothing of a word in a segment but that it was heavy."""
    run = Run(connection, model)
    run.add(0, ((10, {"x": 1}),))
    run.flush()
    run.add(0, ((30, {"x": 1}),))
    run.flush()
    run.add(1, ((5, {"y": 1}),))
    run.flush()
    later = run.state.manifest[1:]
    assert swap(run.state, merge(run.state, later)) == Applied()
    assert as_words(Reader(connection, model, 1).snapshot()) == run.live.recount()
    assert run.live.recount()[3] == {"y": 1}


def test_a_lexicon_that_is_full_of_gone_words_is_replaced(connection, model, monkeypatch):
    """Words that came and went are not remembered for ever, and counting goes on as before."""
    monkeypatch.setattr("streamtopic.state.partition_writer._SPARE_WORDS", 10)
    run = Run(connection, model)
    for k in range(20):
        run.add(0, ((9, {"all": 3, f"u{k}": 3, f"v{k}": 3}),))
        run.flush()
        run.state.tidy()
    assert len(run.state.lexicon) <= 2 * 3 + 12
    assert as_words(Reader(connection, model, 1).snapshot()) == run.live.recount()
