"""The counts of a working vocabulary in Redis come back as they were written, or not at all."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from state_reference import Run

from plain_counts import plain_counts
from streamtopic.counts import DocumentBatch, Passage, SymmetricCounts, Weighting, count
from streamtopic.errors import StateCorrupt
from streamtopic.state import CutGone, ModelSettings, ModelState, Reader, stored_counts
from streamtopic.state.connection import CHANGE, Applied, Stale
from streamtopic.state.meta import Cut, pack_numbers, unpack_numbers
from streamtopic.state.stored_counts import CountsStore, SummedCounts


def counts_of(n, seed):
    """Counts of a few documents over n words, large values among them."""
    rng = np.random.default_rng(seed)
    documents = []
    for _ in range(40):
        words = np.sort(rng.choice(n, size=min(n, 12), replace=False)).astype(np.int32)
        documents.append([Passage(64, words, rng.integers(1, 5, len(words)).astype(np.int32))])
    return SymmetricCounts.of(count(DocumentBatch.build(documents), n, Weighting()))


def words_of(n):
    """N words that are not plain text."""
    return [f"w{k:03d}é\ud800" for k in range(n)]


@pytest.fixture
def run(connection, model, monkeypatch):
    """A partition with documents; its counts take several strings."""
    monkeypatch.setattr(stored_counts, "_CHUNK", 300)
    run = Run(connection, model)
    for number in range(5):
        run.add(number, ((6, {"common": 3, f"w{number}": 2}),))
    run.flush()
    return run


@pytest.fixture
def lease(connection, run):
    """The lease of the leading scheduler."""
    return ModelState.open(connection, run.model, ModelSettings(1, 256)).acquire("one", 60_000)


def now(run):
    """Return counts of now, by a reader that begins."""
    return Reader(run.connection, run.model, 1).counts()


@settings(max_examples=200)
@given(most=st.integers(0, 2**63 - 1), data=st.data())
def test_numbers_come_back_as_they_were(most, data):
    """Any numbers, whatever bytes the largest of them takes."""
    numbers = data.draw(st.lists(st.integers(0, most)))
    values = np.array(numbers, np.int64)
    assert np.array_equal(unpack_numbers(pack_numbers(values), len(values)), values)


@settings(max_examples=200)
@given(data=st.binary(max_size=12), number=st.integers(0, 4))
def test_other_bytes_are_no_numbers(data, number):
    """Numbers that are cut off, too many, too few or too large for 64 bits are damage; no other number comes of it."""
    try:
        values = unpack_numbers(data, number)
    except StateCorrupt:
        return
    assert (len(values), values.min(initial=0)) == (number, 0)
    assert len(pack_numbers(values)) <= max(len(data), 1)


def test_counts_come_back_bit_for_bit(connection, run, lease):
    """In several strings, in the place of larger counts, with words that are not plain text."""
    store, counts = CountsStore(connection, run.model), now(run)
    assert (store.read(), store.cut()) == (None, None)
    for n, seed in ((200, 1), (60, 2)):
        words, q = words_of(n), counts_of(n, seed)
        assert store.write(words, q, counts, lease) == Applied()
        found = store.read()
        assert list(found.words) == words
        assert found.cut == store.cut() == Cut({0: run.offset}, {0: run.state.meta.place})
        assert plain_counts(found.upper, words) == plain_counts(q.upper(), words)
        for name in ("indptr", "columns", "values"):
            assert np.array_equal(getattr(found.upper, name), getattr(q.upper(), name)), name


def test_counts_that_are_half_written_are_not_read(connection, run, lease, monkeypatch):
    """A leader that is killed between two strings leaves none, and one that leads no more writes none."""
    store, counts, words = CountsStore(connection, run.model), now(run), words_of(60)
    assert store.write(words, counts_of(60, 1), counts, lease) == Applied()
    script, strings = connection.script, []

    def killed(text, keys, arguments):
        strings.append(text)
        if text == CHANGE and len(strings) > 2:
            raise KeyboardInterrupt
        return script(text, keys, arguments)

    with monkeypatch.context() as patch:
        patch.setattr(connection, "script", killed)
        with pytest.raises(KeyboardInterrupt):
            store.write(words, counts_of(60, 1), counts, lease)
    assert (store.read(), store.cut()) == (None, None)
    ModelState.open(connection, run.model, ModelSettings(1, 256)).release(lease)
    assert isinstance(store.write(words, counts_of(60, 1), counts, lease), Stale)
    assert (store.read(), store.cut()) == (None, None)


@pytest.mark.parametrize("event", ["two sums", "set back"])
def test_stored_counts_without_the_changes_since_are_not_used(connection, run, lease, event):
    """Where changes are gone, or of another history with as many changes, whoever asks counts the documents."""
    run.save()
    run.add(8, ((4, {"common": 4}),))
    run.flush()
    counts, store = now(run), CountsStore(connection, run.model)
    every = np.arange(len(counts.words))
    assert store.write(list(counts.words), counts.symmetric(every), counts, lease) == Applied()
    if event == "set back":
        run.set_back()
    run.add(9, ((4, {"common": 4}),))
    run.flush()
    if event == "two sums":
        run.sum()
        run.sum()
    later = now(run)
    assert event == "two sums" or later.cuts[0].meta.version == counts.cuts[0].meta.version
    with pytest.raises(CutGone):
        SummedCounts.of(later, store.read()).symmetric(np.arange(len(later.words)))


def test_counts_that_are_written_meanwhile_are_not_mixed_in(connection, run, lease, monkeypatch):
    """A reader that has read some strings of one moment does not go on with those of another."""
    store, words = CountsStore(connection, run.model), words_of(60)
    assert store.write(words, counts_of(60, 1), now(run), lease) == Applied()
    run.add(7, ((4, {"common": 4}),))
    run.flush()
    later = now(run)
    call, seen = connection.call, []

    def beside(*command):
        answer = call(*command)
        seen.append(command)
        if len(seen) == 3:
            assert store.write(words, counts_of(60, 2), later, lease) == Applied()
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(connection, "call", beside)
        assert store.read() is None
    assert len(seen) > 3
    assert plain_counts(store.read().upper, words) == plain_counts(counts_of(60, 2).upper(), words)
