"""Counts of a partition that is driven without a log; any history of one with a log is in test_store_machine.py."""

import pytest
from hypothesis import strategies as st
from state_reference import LiveDocuments, as_words, words_by_id

from added_documents import added_documents
from streamtopic.counts import Weighting
from streamtopic.state import (
    Applied,
    Changes,
    CutGone,
    ModelSettings,
    PartitionWriter,
    Reader,
)
from streamtopic.state.document_counts import read_documents
from streamtopic.state.redis_keys import BUCKETS

WORDS = ["a", "b", "c", "d", "e", "é", "zz"]
passages = st.lists(
    st.tuples(st.integers(0, 3), st.dictionaries(st.sampled_from(WORDS), st.integers(1, 3), max_size=5)), max_size=2
).map(lambda parts: tuple((extra + sum(words.values()), words) for extra, words in parts))


class Run:
    """One partition driven by steps, beside the reference."""

    def __init__(self, connection, model, partition=0, partitions=1, weighting=None):
        self.connection, self.model, self.partition = connection, model, partition
        self.partitions, self.weighting = partitions, weighting or Weighting()
        self.live = LiveDocuments(self.weighting)
        self.offset = 0
        self.pending = {}
        self.open()
        self.saved = self._whole()

    def open(self):
        self.state = PartitionWriter.open(
            self.connection, self.model, self.partition, ModelSettings(self.partitions, self.weighting.cap)
        )

    def add(self, number, passages):
        document = f"d{number}".encode()
        self.live.documents[document] = (self.offset, passages, {})
        self.pending[document] = (document, self.offset, passages)
        self.offset += 1

    def delete(self, number):
        document = f"d{number}".encode()
        self.live.documents.pop(document, None)
        self.pending[document] = None
        self.offset += 1

    def plan(self):
        """Return what waits as one flush."""
        state, keys = self.state, self.state.keys
        if state.connection.call("HMGET", keys.meta, "fence", "facts") != [state.fence.encode(), state.meta.pack()]:
            self.state.reload()
        stored = self.state.documents(self.pending)
        added = added_documents(self.state, *filter(None, self.pending.values()))
        return self.state.plan(Changes(self.offset, added, stored))

    def flush(self):
        assert self.state.commit(self.plan()) == Applied()
        self.pending = {}

    def sum(self):
        self.flush()
        assert self.state.sum_changes() == Applied()

    def reopen(self):
        self.flush()
        self.open()

    def save(self):
        self.flush()
        self.saved = self._whole()

    def _whole(self):
        """Return all keys, and what the reference knows of them."""
        return dump(self.connection, self.state), self.live.documents.copy(), self.offset, self.state.fence


def dump(connection, state):
    """Return all keys of a partition."""
    keys = sorted(connection.call("KEYS", state.keys.tag + "*"))
    return dict(zip(keys, connection.batch([("DUMP", key) for key in keys]), strict=True))


def restore(connection, keys, saved):
    """Put a partition back to what `dump` returned, as if Redis had been started from an older snapshot."""
    names = connection.call("KEYS", keys.tag + "*")
    commands = [("DEL", name) for name in names] + [("RESTORE", key, 0, value) for key, value in saved.items()]
    connection.batch(commands)


def test_a_word_that_died_comes_back_under_a_new_id(connection, model):
    """Its old id goes with the second word statistics, and is never given again: changes name it until then."""
    run = Run(connection, model)
    run.add(0, ((2, {"x": 1, "y": 1}),))
    run.flush()
    before = max(words_by_id(run.state.vocabulary))
    run.delete(0)
    run.sum()
    run.sum()
    assert len(run.state.vocabulary) == 0
    run.add(1, ((2, {"x": 2}),))
    run.flush()
    assert {number > before: word for number, word in words_by_id(run.state.vocabulary).items()} == {True: b"x"}


def test_deleting_everything_leaves_nothing(connection, model):
    """After the last delete and two generations of changes, Redis holds no word and no document of anyone."""
    run = Run(connection, model)
    for number in range(5):
        run.add(number, ((4, {f"w{number}": 2, "common": 2}),))
        run.flush()
    for number in range(5):
        run.delete(number)
    run.flush()
    assert any(b"d3" in entry for key in run.state.keys.changes for entry in connection.call("HVALS", key))
    for _ in range(2):
        assert run.state.sum_changes() == Applied()
    keys = run.state.keys
    left = [*keys.changes, *map(keys.documents, range(BUCKETS))]
    assert not any(connection.call("EXISTS", key) for key in left)
    assert not run.state.meta.holds_removed


def test_a_cut_is_read_exactly_while_documents_come_and_go(connection, model):
    """What came after the cut is passed over, what went is put back, with its labels and its id."""
    run = Run(connection, model)
    for number in range(40):
        run.add(number, ((4, {f"w{number % 7}": 2, "common": 2}),))
    run.flush()
    reader = Reader(connection, model, 1)
    at_cut, expected = reader.counts(), run.live.recount()
    ids = sorted(run.live.documents)
    for number in range(0, 60, 3):
        run.add(number, ((3, {"new": 1, f"x{number}": 2}),))
    for number in range(1, 40, 4):
        run.delete(number)
    run.flush()
    # The last version of all takes a document that was live at the cut.
    run.delete(2)
    run.flush()
    assert as_words(at_cut) == expected
    assert list(read_documents(at_cut, at_cut.words).ids) == ids
    assert as_words(reader.counts()) == run.live.recount()
    run.sum()
    run.add(99, ((3, {"new": 1}),))
    run.sum()
    with pytest.raises(CutGone):
        as_words(at_cut)
