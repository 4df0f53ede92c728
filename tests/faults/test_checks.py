"""The checks of the campaign: silent about a sound service, loud about every kind of damage."""

import random
from dataclasses import replace

import numpy as np
import pytest
from ingest_world import IngestWorld

from campaign.checks import (
    check_counts,
    check_receipts,
    check_versions,
)
from campaign.oracle import Oracle
from campaign.stream import EventStream
from campaign.witness import Witness
from ledger_maker import envelope_of, key_of, receipt_of
from streamtopic.signed import Payload, Release
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
