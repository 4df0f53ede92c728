"""Reading stored documents back: those that counts are of, whatever happened before and happens meanwhile."""

import random
from dataclasses import replace

import numpy as np
import pytest
from state_reference import Run, plain

from added_documents import added_documents
from plain_counts import all_counts
from streamtopic.errors import CountsOverflow, StateCorrupt
from streamtopic.state import Applied, DocumentChanges, Reader, document_counts
from streamtopic.state.connection import BUCKETS
from streamtopic.state.document_counts import read_documents, sample_words

WORDS = [f"w{k}" for k in range(30)] + ["é", "zz"]


def fill(run, numbers, seed):
    """Add documents: one or two passages, some without words; every third without a label."""
    draw = random.Random(seed)
    for number in numbers:
        passages = []
        for _ in range(draw.choice([1, 1, 2])):
            words = {w: draw.randint(1, 3) for w in draw.sample(WORDS, draw.randint(0, 8))}
            passages.append((draw.randint(0, 4) + sum(words.values()), words))
        labels = {} if number % 3 == 0 else {"section": draw.choice(["sport", "né", "politics"])}
        run.add(number, tuple(passages), labels)


@pytest.fixture
def run(connection, model):
    """A partition with documents."""
    run = Run(connection, model)
    fill(run, range(300), 1)
    run.flush()
    return run


def now(run):
    """Return counts of now, by a reader that begins."""
    return Reader(run.connection, run.model, 1).counts()


def live(run):
    """Return the passages and labels of live documents."""
    return {document: content[1:] for document, content in run.live.documents.items()}


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


def test_documents_are_those_of_the_cut_while_ingest_goes_on(run, monkeypatch):
    """Between any two hashes documents come, go, come back, change and go again, and one sum is made."""
    monkeypatch.setattr(document_counts, "_DOCUMENTS", 0)
    counts, before = now(run), live(run)
    sampled = read_documents(counts, counts.words, limit=100).ids
    expected = list(parts_of(counts))
    found = []
    for number, part in enumerate(parts_of(counts)):
        found.append(part)
        if number % 4 == 0:
            gone = range(number, number + 8, 2)
            fill(run, range(1000 + number, 1003 + number), number)
            for one in gone:
                run.delete(one)
            run.flush()
            fill(run, gone[:2], 1)
            run.flush()
            run.delete(gone[0])
            fill(run, gone[-1:], 6)
            run.flush()
        if number == 60:
            run.sum()
    assert found == expected
    assert plain(read_documents(counts, counts.words), counts.words) == before
    assert read_documents(counts, counts.words, limit=100).ids == sampled
    assert sample_words(counts, counts.words, 100).documents == len(sampled)
    # Those of as many hashes as hold about so many.
    assert len(read_documents(counts, counts.words, limit=10).ids) < 30 < len(before)
    assert plain(read_documents(now(run), WORDS), WORDS) == live(run)


def test_a_document_whose_people_change_meanwhile_counts_once(run):
    """It is stored anew under the offset that it had, so the change takes it away and brings it again."""
    counts = now(run)
    digest = all_counts(counts)
    for people in (b"a" * 16, b"b" * 16):
        for document in list(run.live.documents)[::40]:
            old = run.state.documents([document])[0][document]
            renamed = added_documents(run.state, (document, old.offset, *run.live.documents[document][1:]))
            run.offset += 1
            changes = DocumentChanges(run.offset, replace(renamed, subjects=[(people,)]), {document: old})
            assert run.state.commit(run.state.plan(changes)) == Applied()
    assert plain(read_documents(counts, counts.words), counts.words) == live(run)
    for found in (counts, now(run)):
        assert all_counts(found) == digest


@pytest.mark.parametrize("lost", ["all of it", "a hash"])
def test_documents_that_redis_loses_meanwhile_are_missed(run, lost):
    """A reading that began before the loss ends in an error, and not as if there were fewer documents."""
    counts = now(run)
    every = np.arange(len(counts.words))
    hashes = [run.state.keys.documents(bucket) for bucket in range(BUCKETS)]
    run.connection.call("DEL", *(hashes if lost == "all of it" else hashes[50:51]))
    reads = [
        lambda: read_documents(counts, counts.words),
        lambda: read_documents(counts, counts.words, limit=100),
        lambda: counts.restrict(every),
        lambda: counts.touching(every, every == 1),
        lambda: counts.symmetric(every),
    ]
    for read in reads:
        with pytest.raises(StateCorrupt, match=r"documents: .*streamtopic rebuild"):
            read()


def test_sums_that_might_leave_64_bits_are_refused(run, monkeypatch):
    """The bound is on the documents, before a pair is counted: a sum never wraps around."""
    counts = now(run)
    monkeypatch.setattr(document_counts, "_MOST_MASS", 1000.0)
    for read in (counts.restrict, counts.symmetric):
        with pytest.raises(CountsOverflow, match="split the corpus"):
            read(np.arange(len(counts.words)))
