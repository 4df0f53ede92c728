"""The promise of the state: after any history, the counts are those of the live documents, bit for bit."""

from collections import Counter

import numpy as np
import pytest
from added_documents import added_document
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from state_reference import LiveDocuments, as_words, difference, words_by_id

from streamtopic.counts import Weighting
from streamtopic.state import (
    Applied,
    Changes,
    PartitionWriter,
    Reader,
    RemovedDocument,
    compact,
    cut,
)

WORDS = ["a", "b", "c", "d", "e", "é", "zz"]
passages = st.lists(
    st.tuples(st.integers(0, 3), st.dictionaries(st.sampled_from(WORDS), st.integers(1, 3), max_size=5)), max_size=2
).map(lambda parts: tuple((extra + sum(words.values()), words) for extra, words in parts))
step = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 5), passages),
    st.tuples(st.just("delete"), st.integers(0, 5)),
    st.tuples(st.just("flush")),
    st.tuples(st.just("cut")),
    st.tuples(st.just("compact"), st.booleans()),
    st.tuples(st.just("fold")),
    st.tuples(st.just("reopen")),
)


class Run:
    """One partition driven by steps, beside the reference."""

    def __init__(self, connection, model, partition=0, partitions=1, weighting=None):
        self.connection, self.model, self.partition = connection, model, partition
        self.partitions, self.weighting = partitions, weighting or Weighting()
        self.live = LiveDocuments(self.weighting)
        self.offset = 0
        self.pending = {}
        self.open()

    def open(self):
        self.state = PartitionWriter.open(
            self.connection, self.model, self.partition, partitions=self.partitions, weighting=self.weighting
        )

    def add(self, number, passages):
        document = f"d{number}".encode()
        self.live.documents[document] = (self.state.meta.epoch, passages, {})
        self.pending[document] = (document, self.offset, passages)
        self.offset += 1

    def delete(self, number):
        document = f"d{number}".encode()
        self.live.documents.pop(document, None)
        self.pending[document] = None
        self.offset += 1

    def flush(self):
        stored = self.state.documents(self.pending)
        changes = Changes(
            next_offset=self.offset,
            added=[added_document(self.state, *added) for added in self.pending.values() if added],
            removed=[RemovedDocument(document, old) for document, old in stored.items()],
        )
        assert self.state.commit(self.state.plan(changes)) == Applied()
        self.pending = {}

    def cut(self):
        self.flush()
        assert cut(self.connection, self.model, self.partition, epoch=self.state.meta.epoch + 1, leader=1) == Applied()
        self.state.reload()

    def compact(self, everything):
        self.flush()
        compact(self.state, everything=everything)

    def fold(self):
        self.flush()
        epoch = self.state.meta.epoch
        compact(self.state, base_epoch=epoch)
        documents = self.live.documents
        self.live.documents = {d: (max(e, epoch), p, lab) for d, (e, p, lab) in documents.items()}

    def reopen(self):
        self.flush()
        self.open()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(step, max_size=25), cap=st.sampled_from([1, 256]))
def test_any_history_leaves_exactly_the_counts_of_the_live_documents(connection, new_model, steps, cap):
    """Adds, replacements, deletes, re-adds, unknown deletes, cuts, merges and restarts leave no other trace."""
    model = new_model()
    run = Run(connection, model, weighting=Weighting(cap))
    reader = Reader(connection, model, 1)
    old, old_counts = reader.snapshot(), run.live.recount()
    for name, *arguments in steps:
        getattr(run, name)(*arguments)
        if name == "flush":
            new, new_counts = reader.snapshot(), run.live.recount()
            assert as_words(new.since(old)) == difference(new_counts, old_counts)
            old, old_counts = new, new_counts
    run.flush()
    snapshot = reader.snapshot()
    assert as_words(snapshot) == run.live.recount()
    assert list(snapshot.words) == sorted(snapshot.words)
    counts = snapshot.restrict(np.arange(len(snapshot.words)))
    for name in ("values", "frequency", "tokens", "heavy"):
        assert getattr(counts, name).min(initial=0) >= 0, name
    assert as_words(snapshot.since(old)) == difference(run.live.recount(), old_counts)
    for epoch in range(run.state.meta.folded, run.state.meta.epoch + 1):
        assert as_words(reader.snapshot(through=epoch)) == run.live.recount(through=epoch)
        by_epoch = sum(1 for of, _, _ in run.live.documents.values() if of <= epoch)
        assert snapshot.live_through(epoch) == by_epoch
    stored = run.state.documents(run.live.documents)
    assert {d: _plain(words_of(run.state, s)) for d, s in stored.items()} == {
        d: _plain(p) for d, (_, p, _) in run.live.documents.items()
    }


def words_of(state, stored):
    """Return a stored document's passages with their words: (L, counts)."""
    found = []
    for passage in stored.passages:
        words = map(state.vocabulary.word, passage.words.tolist())
        found.append((passage.length, dict(zip(words, passage.counts.tolist(), strict=True))))
    return found


def _plain(passages):
    return [(length, dict(words)) for length, words in passages]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories=st.lists(st.lists(step, max_size=10), min_size=2, max_size=3))
def test_counts_of_partitions_add_up(connection, new_model, histories):
    """The snapshot of several partitions, each with its own word ids, is the count of all their documents."""
    model, together = new_model(), LiveDocuments()
    for partition, steps in enumerate(histories):
        run = Run(connection, model, partition, len(histories))
        for name, *arguments in steps:
            getattr(run, name)(*arguments)
        run.flush()
        together.documents.update({(partition, d): entry for d, entry in run.live.documents.items()})
    assert as_words(Reader(connection, model, len(histories)).snapshot()) == together.recount()


def test_restriction_keeps_order_and_orientation(connection, model):
    """Word ids follow arrival, positions follow the alphabet; pairs must land in the upper triangle all the same."""
    run = Run(connection, model)
    run.add(0, ((6, {"z": 1, "m": 2, "a": 3}),))
    run.add(1, ((2, {"b": 1, "z": 1}),))
    run.flush()
    snapshot = Reader(connection, model, 1).snapshot()
    keep = np.array([k for k, word in enumerate(snapshot.words) if word != "b"])
    counts = snapshot.restrict(keep)
    rows = np.repeat(np.arange(3), np.diff(counts.indptr))
    assert (rows <= counts.columns).all()
    names = [snapshot.words[k] for k in keep]
    found = {(names[a], names[b]): int(v) for a, b, v in zip(rows, counts.columns, counts.values, strict=True)}
    expected = {pair: v for pair, v in run.live.recount()[-1].items() if "b" not in pair}
    assert found == expected
    assert counts.documents == 2
    assert counts.frequency.tolist() == [1, 1, 2]
    touching = snapshot.touching(keep, np.array([name == "m" for name in names]))
    assert np.array_equal(touching.indptr, [0, 1, 3, 3])
    assert [(names[c], int(v)) for c, v in zip(touching.columns, touching.values, strict=True)] == [
        ("m", expected["a", "m"]), ("m", expected["m", "m"]), ("z", expected["m", "z"])
    ]  # fmt: skip


def test_the_history_leaves_no_trace_in_the_digest(connection, new_model):
    """A service that never saw the deleted documents has the same digest of counts."""
    digests = []
    for history in ([0, 1, 2, 3, -1, -3], [2, 0]):
        model = new_model()
        run = Run(connection, model)
        for number in history:
            if number >= 0:
                run.add(number, ((5, {f"w{number}": 2, "common": 3}),))
            else:
                run.delete(-number)
            run.flush()
        snapshot = Reader(connection, model, 1).snapshot()
        digests.append(snapshot.restrict(np.arange(len(snapshot.words))).digest(snapshot.words))
    assert digests[0] == digests[1]


def test_a_word_that_died_comes_back_under_a_new_id(connection, model):
    """Ids are never given twice, so old segments cannot be read as counts of another word."""
    run = Run(connection, model)
    run.add(0, ((2, {"x": 1, "y": 1}),))
    run.flush()
    before = max(words_by_id(run.state.vocabulary))
    run.delete(0)
    run.flush()
    assert connection.call("HLEN", run.state.keys.words) == 0
    run.add(1, ((2, {"x": 2}),))
    run.flush()
    assert {number > before: word for number, word in words_by_id(run.state.vocabulary).items()} == {True: "x"}
    assert Counter(connection.call("HKEYS", run.state.keys.words)) == {b"x": 1}


def test_deleting_everything_and_merging_leaves_nothing(connection, model):
    """After the last delete and a merge, Redis holds no word, no pair and no document of anyone."""
    run = Run(connection, model)
    for number in range(5):
        run.add(number, ((4, {f"w{number}": 2, "common": 2}),))
        run.flush()
    for number in range(5):
        run.delete(number)
    run.flush()
    assert compact(run.state, everything=True, grace=0.001) == Applied()
    assert sum(entry.pairs for entry in run.state.manifest) == 0
    assert connection.call("EXISTS", run.state.keys.words) == 0
    assert not any(connection.call("EXISTS", run.state.keys.documents(bucket)) for bucket in range(64))


@pytest.mark.parametrize("weighting", [Weighting(1), Weighting(256)])
def test_documents_too_short_for_a_pair_are_live_all_the_same(connection, model, weighting):
    """L < 2 gives no pair, but the document is stored, counted as live and can be deleted."""
    run = Run(connection, model, weighting=weighting)
    run.add(0, ())
    run.add(1, ((1, {"alone": 1}),))
    run.flush()
    assert (run.state.meta.documents, run.live.recount()[-1]) == (2, {})
    assert as_words(Reader(connection, model, 1).snapshot()) == run.live.recount()
    run.delete(0)
    run.delete(1)
    run.flush()
    assert run.state.meta.documents == 0
