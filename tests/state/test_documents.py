"""Reading stored documents back: those that a snapshot counts, whatever happened before."""

import random
import zlib

import msgpack
import numpy as np
import pytest
from added_documents import added_document

from streamtopic.counts import Weighting, count
from streamtopic.errors import StateCorrupt
from streamtopic.state import Applied, Changes, PartitionWriter, Reader, RemovedDocument, compact, cut
from streamtopic.state.documents import read_documents, sample_words
from streamtopic.state.redis_keys import BUCKETS, ModelKeys

WORDS = [f"w{k}" for k in range(30)] + ["é", "zz"]


class Corpus:
    """A model of some partitions, written to directly."""

    def __init__(self, connection, model, partitions=2, weighting=None):
        self.connection, self.model, self.partitions = connection, model, partitions
        self.weighting = weighting or Weighting()
        self.states = [
            PartitionWriter.open(connection, model, p, partitions=partitions, weighting=self.weighting)
            for p in range(partitions)
        ]
        self.offsets = [0] * partitions
        self.live = {}

    def change(self, added=None, removed=()):
        """Add {id: (passages, labels)} and remove ids, in one flush of each partition."""
        added = added or {}
        for p, state in enumerate(self.states):
            mine = {d: value for d, value in added.items() if zlib.crc32(d[::-1]) % self.partitions == p}
            gone = [d for d in removed if zlib.crc32(d[::-1]) % self.partitions == p]
            stored = state.documents([*mine, *gone])
            documents = []
            for document, (passages, labels) in mine.items():
                documents.append(added_document(state, document, self.offsets[p], passages, labels))
                self.offsets[p] += 1
            self.offsets[p] += len(gone)
            changes = Changes(
                next_offset=self.offsets[p],
                added=documents,
                removed=[RemovedDocument(document, old) for document, old in stored.items()],
                counted={state.meta.epoch: len(documents)},
            )
            assert state.commit(state.plan(changes)) == Applied()
        self.live |= added
        self.live = {d: value for d, value in self.live.items() if d not in removed}

    def cut(self):
        for p, state in enumerate(self.states):
            assert cut(self.connection, self.model, p, epoch=state.meta.epoch + 1, leader=1) == Applied()
            state.reload()

    def snapshot(self, through=None):
        return Reader(self.connection, self.model, self.partitions).snapshot(through=through)


def made(number, seed, task="section"):
    """Return {id: (passages, labels)}: one or two passages, some without words; every third without a label."""
    draw = random.Random(seed)
    found = {}
    for k in range(number):
        passages = []
        for _ in range(draw.choice([1, 1, 2])):
            words = {w: draw.randint(1, 3) for w in draw.sample(WORDS, draw.randint(0, 8))}
            passages.append((draw.randint(0, 4) + sum(words.values()), words))
        labels = {} if k % 3 == 0 else {task: draw.choice(["sport", "né", "politics"])}
        found[f"{task}-{seed}-{k}".encode()] = (tuple(passages), labels)
    return found


def plain(stored, words):
    """Return {id: (passages, labels)} of what was read, in its order."""
    batch, found = stored.batch, {}
    for k, document in enumerate(stored.ids):
        passages = []
        for row in np.flatnonzero(batch.owners == k):
            span = slice(batch.indptr[row], batch.indptr[row + 1])
            held = dict(zip((words[w] for w in batch.words[span]), batch.counts[span].tolist(), strict=True))
            passages.append((int(batch.lengths[row]), held))
        found[document] = (tuple(passages), dict(stored.labels[k]))
    return found


@pytest.mark.parametrize("cap", [1, 256])
def test_the_documents_of_a_snapshot_count_to_the_snapshot(connection, model, cap):
    """Across partitions, replacements, deletions, epochs and merges: counting what was read gives the counts' bits."""
    corpus = Corpus(connection, model, partitions=3, weighting=Weighting(cap))
    corpus.change(made(40, 1))
    corpus.change(made(40, 2), removed=list(made(40, 1))[::4])
    corpus.change({document: made(10, 3)[other] for document, other in zip(made(9, 2), made(9, 3), strict=True)})
    trained = dict(corpus.live)
    corpus.cut()
    corpus.change(made(20, 4))
    compact(corpus.states[1], everything=True)
    for through, expected in ((0, trained), (None, corpus.live), (1, corpus.live)):
        snapshot = corpus.snapshot(through)
        stored = read_documents(connection, snapshot, snapshot.words)
        assert plain(stored, snapshot.words) == expected
        assert list(stored.ids) == sorted(expected)
        assert stored.whole
        assert stored.batch.documents == len(stored) == snapshot.documents
        everything = np.arange(len(snapshot.words))
        recounted = count(stored.batch, len(snapshot.words), corpus.weighting)
        assert recounted.digest(snapshot.words) == snapshot.restrict(everything).digest(snapshot.words)


def test_documents_behind_the_cut_are_left_out(connection, model):
    """A document that came or was replaced after the snapshot is no document of it."""
    corpus = Corpus(connection, model)
    corpus.change(made(30, 1))
    snapshot, before = corpus.snapshot(), dict(corpus.live)
    corpus.change(made(30, 2))
    stored = read_documents(connection, snapshot, snapshot.words)
    assert (plain(stored, snapshot.words), stored.whole) == (before, True)
    replaced = next(iter(before))
    corpus.change({replaced: made(1, 5)[b"section-5-0"]})
    stored = read_documents(connection, snapshot, snapshot.words)
    assert (set(stored.ids), stored.whole) == (set(before) - {replaced}, False)


@pytest.mark.parametrize("limit", [None, 100])
def test_a_deletion_since_the_snapshot_is_told(connection, model, limit):
    """The reader must know that the documents are no longer those that were counted, sampled or not."""
    corpus = Corpus(connection, model)
    corpus.change(made(400, 1))
    snapshot = corpus.snapshot()
    assert read_documents(connection, snapshot, snapshot.words, limit=limit).whole
    corpus.change(removed=list(corpus.live)[:1])
    assert not read_documents(connection, snapshot, snapshot.words, limit=limit).whole
    corpus.cut()
    corpus.change(made(5, 2))
    old = corpus.snapshot(through=0)
    corpus.change(removed=list(made(5, 2)))
    assert read_documents(connection, old, old.words, limit=limit).whole


def test_what_was_read_does_not_depend_on_history(connection, new_model):
    """Partitions, order of arrival, deleted neighbours: none shows in the arrays."""
    found = []
    for partitions, order in ((1, 1), (3, -1)):
        corpus = Corpus(connection, new_model(), partitions)
        if partitions == 3:
            corpus.change(made(50, 9, "other"))
        for document, value in list(made(60, 1).items())[::order]:
            corpus.change({document: value})
        corpus.change(removed=list(made(50, 9, "other")))
        snapshot = corpus.snapshot()
        found.append([read_documents(connection, snapshot, snapshot.words, **choice) for choice in ({}, {"limit": 20})])
    for one, other in zip(*found, strict=True):
        assert (one.ids, one.labels, one.whole) == (other.ids, other.labels, other.whole)
        for name in ("indptr", "words", "counts", "lengths", "owners"):
            assert getattr(one.batch, name).tobytes() == getattr(other.batch, name).tobytes()


def test_words_that_are_not_asked_for_still_count_for_length(connection, model):
    """A head's shares and a count's weight need L of the whole passage."""
    corpus = Corpus(connection, model)
    corpus.change({b"a": (((9, {"w1": 2, "w2": 1, "é": 3}),), {})})
    snapshot = corpus.snapshot()
    stored = read_documents(connection, snapshot, ["é", "unknown", "w1"])
    assert stored.batch.words.tolist() == [0, 2]
    assert stored.batch.counts.tolist() == [3, 2]
    assert stored.batch.lengths.tolist() == [9]


def test_only_documents_with_a_label_of_a_named_task(connection, model):
    """Naming tasks leaves out what they cannot be fitted on, and nothing else."""
    corpus = Corpus(connection, model)
    corpus.change(made(30, 1, "section") | made(30, 2, "tone") | made(30, 3, "none"))
    snapshot = corpus.snapshot()
    stored = read_documents(connection, snapshot, snapshot.words, labelled=["section", "tone"])
    wanted = {d: v for d, v in corpus.live.items() if {"section", "tone"} & set(v[1])}
    assert plain(stored, snapshot.words) == wanted
    assert stored.whole
    assert len(read_documents(connection, snapshot, snapshot.words, labelled=["absent"])) == 0


def test_a_limit_takes_whole_buckets(connection, model):
    """The sample is the documents of the first hash buckets: no draw, so it can be taken again."""
    corpus = Corpus(connection, model)
    corpus.change(made(500, 1))
    snapshot = corpus.snapshot()
    stored = read_documents(connection, snapshot, snapshot.words, limit=100)
    buckets = BUCKETS * 100 // 500
    assert set(stored.ids) == {d for d in corpus.live if zlib.crc32(d) % BUCKETS < buckets}
    assert plain(stored, snapshot.words) == {d: corpus.live[d] for d in sorted(stored.ids)}
    assert len(read_documents(connection, snapshot, snapshot.words, limit=500)) == 500


def test_a_model_without_documents(connection, model):
    """Nothing to read is an empty batch, whole."""
    corpus = Corpus(connection, model)
    snapshot = corpus.snapshot()
    stored = read_documents(connection, snapshot, snapshot.words)
    assert (len(stored), stored.batch.documents, stored.whole) == (0, 0, True)
    assert stored.batch.indptr.tolist() == [0]


GOOD = bytes([1, 0, 0, 1, 3, 2, 0, 1, 0])
"""Offset 0, no labels, one passage of three tokens: word 0 once, word 1 twice."""


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"\x07" + GOOD[1:],
        GOOD[:-1],
        GOOD + b"\x00",
        GOOD[:4] + b"\x02" + GOOD[5:],
        bytes([1, 0, 0, 1, 3, 1, 0x80]),
        bytes([1, 0, 0, 1, 3, 1, 0x7E]),
        bytes([1, 0, 0, 1, 3, 1, *[0xFF] * 9, 1]),
        bytes([1, 0, 0, 1, 0x81, 0x40, 0]),
        bytes([1, 0, 0, *[0xFF] * 9, 1]),
        bytes([1, 0, *[0xFF] * 9, 1]),
        bytes([1, *[0xFF] * 9, 1, 0, 0]),
        bytes([1, 0, 1, 0xC1, 0]),
        bytes([1, 0, 1, 0x05, 0]),
        bytes([1, 0, 4, *msgpack.packb({"t": 1})]) + b"\x00",
        bytes([1, 0, 5, *msgpack.packb({"t": ["a"]})]) + b"\x00",
        bytes([1, 0, 5, *msgpack.packb({1: "ab"})]) + b"\x00",
    ],
)
def test_bytes_that_are_no_record_are_refused(connection, model, record):
    """Whatever was damaged, it is named with its remedy, and never read as another document."""
    corpus = Corpus(connection, model, partitions=1)
    corpus.change({b"a": (((3, {"w1": 1, "w2": 2}),), {})})
    snapshot, keys = corpus.snapshot(), ModelKeys(model).partition(0)
    connection.call("HSET", keys.documents(keys.bucket(b"a")), b"a", GOOD)
    assert len(read_documents(connection, snapshot, snapshot.words)) == 1
    connection.call("HSET", keys.documents(keys.bucket(b"a")), b"a", record)
    with pytest.raises(StateCorrupt, match="streamtopic rebuild"):
        read_documents(connection, snapshot, snapshot.words)


@pytest.mark.parametrize("record", [b"", GOOD[:-1], bytes([1, 0, 0, 1, 3, 2, *[0xFE] * 8, 0x7F, *[0xFE] * 9, 1])])
def test_a_sample_of_damaged_records_is_refused(connection, model, record):
    """Gaps between words that leave every range are no way to read other memory."""
    corpus = Corpus(connection, model, partitions=1)
    corpus.change({b"a": (((3, {"w1": 1, "w2": 2}),), {})})
    snapshot, keys = corpus.snapshot(), ModelKeys(model).partition(0)
    assert len(sample_words(connection, snapshot, snapshot.words)) == 1
    connection.call("HSET", keys.documents(keys.bucket(b"a")), b"a", record)
    for read in (sample_words, read_documents):
        with pytest.raises(StateCorrupt, match="streamtopic rebuild"):
            read(connection, snapshot, snapshot.words)
