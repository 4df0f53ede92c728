"""Reading stored documents back: those that counts are of, whatever happened before and happens meanwhile."""

import random
import zlib
from dataclasses import replace

import msgpack
import numpy as np
import pytest
from state_reference import plain

from added_documents import added_documents
from plain_counts import plain_counts
from streamtopic.counts import Weighting
from streamtopic.errors import CountsOverflow, StateCorrupt
from streamtopic.state import Applied, Changes, ModelSettings, PartitionWriter, Reader, document_counts
from streamtopic.state.document_counts import read_documents, sample_words
from streamtopic.state.redis_keys import BUCKETS, ModelKeys

WORDS = [f"w{k}" for k in range(30)] + ["é", "zz"]


class Corpus:
    """A model of some partitions, written to directly."""

    def __init__(self, connection, model, partitions=2, weighting=None):
        self.connection, self.model, self.partitions = connection, model, partitions
        self.weighting = weighting or Weighting()
        self.states = [
            PartitionWriter.open(connection, model, p, ModelSettings(partitions, self.weighting.cap))
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
                documents.append((document, self.offsets[p], passages, labels))
                self.offsets[p] += 1
            self.offsets[p] += len(gone)
            changes = Changes(
                next_offset=self.offsets[p],
                added=added_documents(state, *documents),
                removed=stored,
            )
            assert state.commit(state.plan(changes)) == Applied()
        self.live |= added
        self.live = {d: value for d, value in self.live.items() if d not in removed}

    def sum(self):
        for state in self.states:
            assert state.sum_changes() == Applied()

    def counts(self):
        return Reader(self.connection, self.model, self.partitions).counts()


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


def parts_of(counts):
    """Yield the documents of some hashes after the other: id to its passages."""
    for parts in counts.buckets(counts.numbers, ids=True):
        found = {}
        for part in parts:
            batch = part.found.batch
            for row, owner in enumerate(batch.owners.tolist()):
                here = slice(batch.indptr[row], batch.indptr[row + 1])
                held = batch.words[here].tolist(), batch.counts[here].tolist()
                document = part.ids[part.found.places[owner]]
                found.setdefault(document, []).append((int(batch.lengths[row]), *held))
        yield found


def test_documents_are_those_of_the_cut_while_ingest_goes_on(connection, model, monkeypatch):
    """Between any two hashes documents come, go, come back, change and go again, and one sum is made."""
    monkeypatch.setattr(document_counts, "_DOCUMENTS", 0)
    corpus = Corpus(connection, model)
    corpus.change(made(300, 1))
    counts, live, before = corpus.counts(), dict(corpus.live), list(made(300, 1))
    sampled = sample_words(counts, counts.words, limit=100).documents
    expected = list(parts_of(counts))
    found = []
    for number, part in enumerate(parts_of(counts)):
        found.append(part)
        if number % 4 == 0:
            gone = before[number : number + 8 : 2]
            corpus.change(made(3, 100 + number), removed=gone)
            corpus.change({document: made(1, 1)[b"section-1-0"] for document in gone[:2]})
            corpus.change(removed=gone[:1])
            corpus.change({gone[-1]: made(1, 6)[b"section-6-0"]})
        if number == 60:
            corpus.sum()
    assert found == expected
    assert plain(read_documents(counts, counts.words), counts.words) == live
    assert sample_words(counts, counts.words, limit=100).documents == sampled
    assert plain(read_documents(corpus.counts(), WORDS), WORDS) == corpus.live


def test_a_document_whose_people_change_meanwhile_counts_once(connection, model):
    """It is stored anew under the offset that it had, so the change takes it away and brings it again."""
    corpus = Corpus(connection, model, partitions=1)
    corpus.change(made(40, 1))
    counts = corpus.counts()
    digest = plain_counts(counts.restrict(np.arange(len(counts.words))), counts.words)
    (state,) = corpus.states
    for people in (b"a" * 16, b"b" * 16):
        for document in list(corpus.live)[::5]:
            old = state.documents([document])[document]
            renamed = added_documents(state, (document, old.offset, *corpus.live[document]))
            renamed = replace(renamed, subjects=[(people,)])
            corpus.offsets[0] += 1
            changes = Changes(corpus.offsets[0], added=renamed, removed={document: old})
            assert state.commit(state.plan(changes)) == Applied()
    assert plain(read_documents(counts, counts.words), counts.words) == corpus.live
    for found in (counts, corpus.counts()):
        assert plain_counts(found.restrict(np.arange(len(found.words))), found.words) == digest


@pytest.mark.parametrize("lost", ["all of it", "a hash"])
def test_documents_that_redis_loses_meanwhile_are_missed(connection, model, lost):
    """A reading that began before the loss ends in an error, and not as if there were fewer documents."""
    corpus = Corpus(connection, model, partitions=1)
    corpus.change(made(300, 1))
    counts, keys = corpus.counts(), ModelKeys(model).partition(0)
    every = np.arange(len(counts.words))
    hashes = [keys.documents(bucket) for bucket in range(BUCKETS)]
    connection.call("DEL", *(hashes if lost == "all of it" else hashes[50:51]))
    reads = [
        lambda: read_documents(counts, counts.words),
        lambda: sample_words(counts, counts.words, limit=100),
        lambda: counts.restrict(every),
        lambda: counts.touching(every, every == 1),
        lambda: counts.symmetric(every),
    ]
    for read in reads:
        with pytest.raises(StateCorrupt, match=r"documents: .*streamtopic rebuild"):
            read()


def test_sums_that_might_leave_64_bits_are_refused(connection, model, monkeypatch):
    """The bound is on the documents, before a pair is counted: a sum never wraps around."""
    corpus = Corpus(connection, model)
    corpus.change(made(30, 1))
    counts = corpus.counts()
    every = np.arange(len(counts.words))
    monkeypatch.setattr(document_counts, "_MOST_MASS", 1000.0)
    for read in (counts.restrict, counts.symmetric):
        with pytest.raises(CountsOverflow, match="split the corpus"):
            read(every)


GOOD = bytes([2, 0, 0, 1, 3, 2, 0, 1, 0])
"""Offset 0, no labels, one passage of three tokens: word 0 once, word 1 twice."""


def named(labels, subjects=()):
    """Return a record without passages, with these names."""
    names = msgpack.packb((labels, subjects))
    return bytes([2, 0, len(names)]) + names + b"\x00"


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"\x07" + GOOD[1:],
        GOOD[:-1],
        GOOD + b"\x00",
        GOOD[:4] + b"\x02" + GOOD[5:],
        bytes([2, 0, 0, 1, 3, 1, 0x80]),
        bytes([2, 0, 0, 1, 3, 1, 0x7E]),
        bytes([2, 0, 0, 1, 3, 1, *[0xFF] * 9, 1]),
        bytes([2, 0, 0, 1, 0x81, 0x40, 0]),
        bytes([2, 0, 0, *[0xFF] * 9, 1]),
        bytes([2, 0, *[0xFF] * 9, 1]),
        bytes([2, *[0xFF] * 9, 1, 0, 0]),
        bytes([2, 0, 1, 0xC1, 0]),
        bytes([2, 0, 1, 0x05, 0]),
        named({"t": 1}),
        named({"t": ["a"]}),
        named({1: "ab"}),
        named({}, [1]),
        named({}, 5),
    ],
)
def test_bytes_that_are_no_record_are_refused(connection, model, record):
    """Whatever was damaged, it is named with its remedy, and never read as another document."""
    corpus = Corpus(connection, model, partitions=1)
    corpus.change({b"a": (((3, {"w1": 1, "w2": 2}),), {})})
    counts, keys = corpus.counts(), ModelKeys(model).partition(0)
    connection.call("HSET", keys.documents(keys.bucket(b"a")), b"a", GOOD)
    assert len(read_documents(counts, counts.words)) == 1
    connection.call("HSET", keys.documents(keys.bucket(b"a")), b"a", record)
    with pytest.raises(StateCorrupt, match="streamtopic rebuild"):
        read_documents(counts, counts.words)
