"""Flushes hold the rows of their documents; whoever needs pairs counts them, and the first merge writes them down."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from older_segments import as_older
from state_reference import as_words
from test_exactness import Run, passages

from streamtopic.errors import StateCorrupt
from streamtopic.state import Applied, Reader, compact, compaction
from streamtopic.state.meta import ManifestEntry
from streamtopic.state.word_ids import number_rows

TEXT = ((6, {"x": 1, "m": 2, "a": 3}),)
step = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 5), passages),
    st.tuples(st.just("delete"), st.integers(0, 5)),
    st.tuples(st.just("flush")),
    st.tuples(st.just("older")),
    st.tuples(st.just("merge")),
)


def digest(connection, model):
    """Return the digest of all counts as a reader gives them."""
    snapshot = Reader(connection, model, 1).snapshot()
    return snapshot.restrict(np.arange(len(snapshot.words))).digest(snapshot.words)


def rows_of(run):
    """Return the number of rows of each segment."""
    return [entry.rows for entry in run.state.manifest]


def flushes(run, number):
    """Commit documents in as many flushes."""
    for _ in range(number):
        run.add(run.offset, ((9, {f"w{run.offset % 5}": 2, "all": 3, f"v{run.offset}": 1}),))
        run.flush()
    return run


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(step, max_size=30))
def test_rows_and_pairs_give_the_same_counts(connection, new_model, history):
    """After any history of flushes, merges and segments of an older program, counts are those of a recount."""
    model = new_model()
    run = Run(connection, model)
    for name, *arguments in history:
        if name == "older":
            as_older(connection, run.state)
        elif name == "merge":
            compact(run.state, everything=True)
        else:
            getattr(run, name)(*arguments)
    run.flush()
    assert as_words(Reader(connection, model, 1).snapshot()) == run.live.recount()
    compact(run.state, everything=True)
    assert as_words(Reader(connection, model, 1).snapshot()) == run.live.recount()


def test_the_first_merge_counts_rows_and_changes_no_bit(connection, model):
    """Eight flushes of rows become one segment of pairs, with the same digest of all counts."""
    run = flushes(Run(connection, model), 8)
    run.delete(3)
    run.add(50, TEXT)
    run.flush()
    assert rows_of(run) == [1] * 8 + [2]
    before = digest(connection, model)
    assert compact(run.state) == Applied()
    assert sorted(rows_of(run)) == [0, 2]
    assert digest(connection, model) == before


def test_segments_of_an_older_program_count(connection, model):
    """Pairs with passages beside them, or without, are read, given as passages where they are, and merged with rows."""
    run = Run(connection, model)
    reader = Reader(connection, model, 1)
    before = reader.snapshot()
    flushes(run, 2)
    as_older(connection, run.state)
    assert rows_of(run) == [0, 0]
    delta = reader.snapshot().since(before)
    assert delta.passages().passages == 2
    assert as_words(delta) == run.live.recount()
    flushes(run, 2)
    as_older(connection, run.state, passages=False)
    flushes(run, 1)
    delta = reader.snapshot().since(before)
    assert delta.passages() is None
    assert as_words(delta) == run.live.recount()
    assert compact(run.state, everything=True) == Applied()
    assert as_words(reader.snapshot()) == run.live.recount()


def test_an_entry_of_pairs_is_written_as_older_programs_read_it():
    """Only an entry with rows has a sixth number, so that an older program refuses it and no other."""
    pairs = ManifestEntry("a", 1, 2, 3, 4, 5)
    rows = ManifestEntry("a", 1, 2, 3, 4, 5, 6)
    assert (pairs.pack(), rows.pack()) == ("1:2:3:4:5", "1:2:3:4:5:6")
    for entry in (pairs, rows):
        assert ManifestEntry.parse(b"a", entry.pack().encode()) == entry


def test_an_entry_with_rows_but_without_their_string_is_damage(connection, model):
    """Rows that are not where the manifest says ask for a rebuild, and never count as nothing."""
    run = flushes(Run(connection, model), 2)
    (first, second) = run.state.manifest
    head = connection.call("GET", run.state.keys.segment(first.name, 0))
    connection.call("SET", run.state.keys.segment(second.name, 1), head)
    with pytest.raises(StateCorrupt, match="rebuild"):
        as_words(Reader(connection, model, 1).snapshot())
    with pytest.raises(StateCorrupt, match="rebuild"):
        compact(run.state, everything=True)


def test_large_rows_are_merged_before_there_are_eight(connection, model, monkeypatch):
    """What a merge of rows holds at once is bounded, whatever the documents."""
    run = flushes(Run(connection, model), 5)
    size = run.state.manifest[0].size
    monkeypatch.setattr(compaction, "_MOST_ROW_BYTES", int(2.5 * size))
    assert compact(run.state) == Applied()
    assert sorted(rows_of(run)) == [0, 0, 1]
    monkeypatch.setattr(compaction, "_MOST_ROW_BYTES", 1)
    assert compact(run.state, everything=True) == Applied()
    assert rows_of(run) == [0]
    assert as_words(Reader(connection, model, 1).snapshot()) == run.live.recount()


numbered_rows = st.lists(st.dictionaries(st.integers(0, 40), st.integers(1, 8192), max_size=12), max_size=9)


@settings(max_examples=100, deadline=None)
@given(rows=numbered_rows, known=st.sets(st.integers(0, 40)), chosen=st.randoms(use_true_random=False))
def test_words_of_each_row_ascend_and_keep_their_counts(rows, known, chosen):
    """Whatever the order of words in a text and of rows, ids ascend, new ones follow the given ones, counts stay."""
    numbers = np.full(41, -1, np.int32)
    given_ids = chosen.sample(range(100), len(known))
    numbers[sorted(known)] = given_ids
    stops = np.cumsum([len(row) for row in rows], dtype=np.int64)
    starts = stops - np.array([len(row) for row in rows], np.int64)
    entries = np.array([word for row in rows for word in row], np.int32)
    counts = np.array([count for row in rows for count in row.values()], np.int32)
    order = chosen.sample(range(len(rows)), len(rows))
    indptr, words, amounts, born = number_rows(np.array(order, np.int64), starts, stops, entries, counts, numbers, 100)
    assert numbers[born].tolist() == list(range(100, 100 + len(born)))
    assert set(born.tolist()) == {word for row in rows for word in row} - known
    for k, row in enumerate(order):
        here = slice(indptr[k], indptr[k + 1])
        wanted = sorted((int(numbers[word]), count) for word, count in rows[row].items())
        assert list(zip(words[here].tolist(), amounts[here].tolist(), strict=True)) == wanted


def test_a_merge_of_everything_takes_pairs_and_rows_in_turn(connection, model):
    """More segments than one merge takes become one all the same, and counts stay what they were."""
    run = Run(connection, model)
    for _ in range(10):
        flushes(run, 1)
        as_older(connection, run.state)
    flushes(run, 12)
    before = digest(connection, model)
    assert compact(run.state, everything=True) == Applied()
    assert rows_of(run) == [0]
    assert digest(connection, model) == before


def test_a_flush_of_long_documents_writes_less_than_a_kilobyte_each(connection, model):
    """Records and rows of documents with 90 distinct words, before any merge."""
    run = Run(connection, model)
    random = np.random.default_rng(1)
    for k in range(500):
        words = random.choice(20_000, 90, replace=False)
        run.add(k, ((99, {f"w{word}": 1 for word in words.tolist()}),))
    run.flush()
    (entry,) = run.state.manifest
    hashes = [run.state.keys.documents(bucket) for bucket in range(64)]
    records = sum(len(value) for name in hashes for value in connection.call("HVALS", name))
    assert (records + entry.size) / 500 < 1_000
