"""The checks of the campaign: silent about a sound service, loud about every kind of damage."""

import random
from dataclasses import replace

import numpy as np
import pytest
import rfc6962
from hypothesis import given
from hypothesis import strategies as st
from ingest_world import IngestWorld
from sent_records import Sent

from campaign.checks import (
    check_counts,
    check_documents,
    check_ledger,
    check_receipts,
    check_rejected,
    check_subscribers,
    check_versions,
)
from campaign.ledger_book import Roots
from campaign.oracle import Oracle
from campaign.stream import EventStream
from campaign.tail import TailRecord
from campaign.witness import Subscriber, Witness
from ledger_maker import LedgerMaker, envelope_of, key_of, receipt_of
from streamtopic.signed import Alive, Checkpoint, Payload, Release, page_record, sign_note
from streamtopic.state import Reader
from streamtopic.streams import FileLog, TopicNames

SALT = b"0123456789abcdef"

PARTITIONS = 2


@pytest.fixture
def counted(connection, tmp_path):
    """A stream that ingest has counted, and an oracle that has read it: (oracle, reader, model)."""
    with FileLog(tmp_path / "log") as log:
        world, oracle = IngestWorld(connection, log, PARTITIONS), Oracle(PARTITIONS)
        log.append_many(world.topics.documents, EventStream(random.Random(1), PARTITIONS, live=100).batch(600))
        world.drain()
        for r in world.records():
            oracle.take(r.partition, r.offset, r.key, r.value, r.headers)
    model = world.topics.model
    return oracle, Reader(connection, model, PARTITIONS), model


def test_sound_counts_raise_no_finding(counted):
    """What ingest stored is what the oracle expects, pair by pair and counter by counter."""
    oracle, reader, _ = counted
    assert check_counts(oracle, reader) == []
    assert oracle.counts().documents > 50


def test_one_document_too_many_is_found(counted):
    """An oracle that knows of one document less differs in pairs, words, documents and counters."""
    oracle, reader, _ = counted
    book = oracle.books[0]
    key = max(book.live, key=lambda key: book.live[key].length)
    del book.live[key]
    found = "\n".join(check_counts(oracle, reader))
    for part in ("pair", "documents with", "tokens of", "documents are counted", "live documents"):
        assert part in found


def test_a_counter_that_was_raised_twice_is_found(counted, connection):
    """A commit that was applied twice shows in the counters even where counts are right."""
    oracle, reader, model = counted
    connection.call("HINCRBY", f"{{st:{model}:1}}:meta", "total:deleted", 1)
    assert any("total of partition 1, deleted" in finding for finding in check_counts(oracle, reader))


def test_kept_and_lost_documents_are_found():
    """A record that outlives its document is a finding, as is a document without one."""
    oracle = Oracle(1)
    oracle.take(0, 0, b"doc", b'{"op": "add", "text": "one two"}', ())
    assert check_documents(oracle, {0: {b"doc"}}) == []
    assert "lost a document: b'doc'" in check_documents(oracle, {0: set()})[0]
    assert "keeps a document that is gone: b'ghost'" in check_documents(oracle, {0: {b"doc", b"ghost"}})[0]


def _witness():
    return Witness("nowhere", TopicNames("m"), key_of("m").public)


def _release(version, cut, m, *, base=1, epsilon=None, kind="unlearn", **changes):
    spent = float(version) if epsilon is None else epsilon
    facts = {"cut": {0: cut}, "m": m, "n": 1, "r": 1, "base": base, "kind": kind, "cumulative_epsilon": spent}
    envelope = envelope_of(version, "m", **facts | changes)
    return Release(Payload(("one",), np.ones((1, 1), np.float32), anchors=("one",)), envelope)


def _publish(witness, *releases):
    """Entries in the ledger, and the bytes of their versions, in the place of what was there."""
    for release in releases:
        witness.entries[release.version] = release.envelope
        witness.versions[release.version] = release


def _receipt(offset, version, **changes):
    return replace(receipt_of(offset, "why", SALT.decode(), "m", version=version, link="e" * 64), **changes)


@pytest.fixture
def told():
    """A document that was added, deleted and reported properly: (oracle, witness)."""
    oracle, witness = Oracle(1), _witness()
    oracle.take(0, 0, b"other", b'{"op": "add", "text": "one two"}', ())
    oracle.take(0, 1, b"doc", b'{"op": "add", "text": "one two"}', ())
    oracle.take(0, 2, b"doc", None, (("request", b"why"), ("salt", SALT)))
    oracle.take(0, 3, b"bad", b"{", ())
    _publish(witness, _release(1, 2, 2, kind="retrain"), _release(2, 4, 1))
    witness.receipts[0, 2] = _receipt(2, 2)
    witness.rejected.add((0, 3))
    return oracle, witness


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda w: w.receipts.clear(), "no receipt: (0, 2)"),
        (lambda w: w.receipts.update({(0, 1): _receipt(1, 2)}), "for no deletion: (0, 1)"),
        (lambda w: w.receipts.update({(0, 2): _receipt(2, 1)}), "version 1 holds the document"),
        (lambda w: w.receipts.update({(0, 2): _receipt(2, 7)}), "version 7, which nobody published"),
        (lambda w: w.receipts.update({(0, 2): _receipt(2, 2, found=False)}), "says False"),
        (lambda w: w.receipts.update({(0, 2): _receipt(2, 2, link="")}), "says True"),
        (lambda w: w.receipts.update({(0, 2): _receipt(2, 2, request="")}), "is not that of"),
        (lambda w: w.receipts.update({(0, 2): _receipt(2, 2, request="ab")}), "is not that of"),
        (lambda w: _publish(w, _release(3, 2, 2)), "version 3 holds the document"),
    ],
)
def test_a_wrong_receipt_is_found(told, change, finding):
    """Missing, surplus, untrue receipts, and documents that come back in a later version."""
    oracle, witness = told
    change(witness)
    assert any(finding in found for found in check_receipts(oracle, witness))


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda w: w.versions.update({2: _release(2, 4, 1, epsilon=5.0)}), "other facts than its entry"),
        (lambda w: w.versions.pop(2), "the newest, were never sent"),
        (lambda w: w.entries.pop(1), "without a gap"),
        (lambda w: _publish(w, _release(3, 4, 1, parent=1)), "names 1 as the one before"),
        (lambda w: _publish(w, _release(3, 4, 1, epsilon=1.5)), "epsilon fell"),
        (lambda w: _publish(w, _release(3, 4, 2)), "holds 2 documents, 1 lived"),
        (lambda w: w.findings.append("does not verify"), "does not verify"),
    ],
)
def test_a_wrong_version_is_found(told, change, finding):
    """Two contents, gaps, refunds of epsilon, and versions of other documents than those at their cut."""
    oracle, witness = told
    change(witness)
    assert any(finding in found for found in check_versions(oracle, witness))


def test_an_older_version_may_have_lost_its_bytes(told):
    """Redis was set back before they were sent: the ledger has its entry, and a later version its place."""
    oracle, witness = told
    del witness.versions[1]
    assert check_versions(oracle, witness) == []


def test_rejections_are_compared_both_ways(told):
    """A refused record that nobody heard of, and a report about a good one."""
    oracle, witness = told
    witness.rejected.symmetric_difference_update({(0, 3), (0, 0)})
    assert [finding.split(":")[0] for finding in check_rejected(oracle, witness)] == [
        "a refused record was not reported",
        "a record was reported that must not be refused",
    ]


def test_subscribers_must_hold_what_was_published(told):
    """Another content, a version out of order, and one that never came."""
    _, witness = told
    good, bad = (Subscriber(lambda _: None, None) for _ in range(2))
    for release in (_release(1, 2, 2, kind="retrain"), _release(2, 4, 1)):
        good._take(release)
        bad._take(release)
    assert check_subscribers(witness, [good, bad]) == []
    bad._take(_release(1, 2, 2))
    found = check_subscribers(witness, [good, bad])
    assert "got version 1 after 2" in found[0]
    assert "subscriber 1 holds a version 1 that differs" in found[1]
    _publish(witness, _release(3, 4, 1))
    assert "subscribers are at versions [2, 2], 3 is published" in check_subscribers(witness, [good, bad])


def _read(witness, *values):
    """Let a witness read records of the ledger."""
    for offset, value in enumerate(values):
        witness._page(TailRecord(0, offset, None, value, (), 0))


@pytest.fixture
def ledger():
    """A ledger of three pages: its maker, and a witness who has read it."""
    maker, witness = LedgerMaker(Sent(), "m"), _witness()
    maker.append(envelope_of(1, "m"))
    maker.append(*(maker.receipt(offset) for offset in range(5)))
    maker.append(Alive(1, 0, 1))
    _read(witness, *maker.log.values[maker.names.ledger])
    return maker, witness


def test_a_sound_ledger_raises_no_finding(ledger):
    """Records of others, drafts that came too late and records that came twice are passed over by both readers."""
    maker, witness = ledger
    late = maker.fork().records([maker.receipt(9)])[:1]
    maker.append(maker.receipt(5))
    own = maker.log.values[maker.names.ledger]
    strange = [b"junk", None, b"{}", *maker.records([maker.receipt(7)], key_of("m", 1))]
    _read(witness, *own[-2:], *late, *own, *strange)
    assert check_ledger(witness) == []
    assert witness.book.lines == maker.lines
    assert (len(witness.receipts), list(witness.entries)) == (6, [1])
    assert witness.places[0, 4] == 5
    assert witness.findings == []
    assert witness.book.strays == len(late) + len(own) + len(strange)


@pytest.mark.parametrize(
    ("size", "finding"), [(3, "signed for 3 entries"), (7, "signed for 7 entries"), (99, "signed for 99 entries")]
)
def test_a_checkpoint_of_another_history_is_found(ledger, size, finding):
    """Nobody counts it, and it was signed: two readers could have been told two histories."""
    maker, witness = ledger
    _read(witness, page_record(sign_note(Checkpoint(maker.key.name, size, bytes(32)).text, maker.key)))
    (found,) = check_ledger(witness)
    assert finding in found


def test_lost_entries_are_found(ledger):
    """Records that have left the topic."""
    maker, witness = ledger
    maker.append(maker.receipt(5))
    lost = len(maker.log.values[maker.names.ledger])
    maker.append(maker.receipt(6))
    _read(witness, *maker.log.values[maker.names.ledger][lost:])
    found = check_ledger(witness)
    assert any("lacks entries: 7 to 7" in finding for finding in found)
    assert any("by the docs" in finding for finding in found)


def test_a_second_entry_is_found(ledger):
    """Of a deletion, or of a version."""
    maker, witness = ledger
    before = len(maker.log.values[maker.names.ledger])
    maker.append(maker.receipt(3), envelope_of(1, "m", epsilon=2.0))
    _read(witness, *maker.log.values[maker.names.ledger][before:])
    assert witness.findings == [
        "the deletion at (0, 3) has a second receipt in the ledger, 7",
        "version 1 has a second entry in the ledger, 8",
    ]
    assert check_ledger(witness) == []


@given(st.lists(st.binary(max_size=9), max_size=40))
def test_the_tree_of_the_book_is_that_of_the_standard(entries):
    """Its roots are those of RFC 6962, at each size."""
    roots = Roots()
    for entry in entries:
        roots.append(entry)
    assert roots.known == [rfc6962.root(entries[:size]) for size in range(len(entries) + 1)]
